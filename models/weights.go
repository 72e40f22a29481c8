package models

import (
	"math"
	"math/rand/v2"
	"strings"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
)

// layers adds named, seeded parameters to a graph. Each parameter draws its initial value from a
// stream of the seed that is named after it, so that adding a layer leaves the others' values as
// they were.
type layers struct {
	b    *build.Builder
	seed uint64
	path string
}

// newWeights returns layers that add parameters, initialised from seed, to the graph that b
// builds.
func newWeights(b *build.Builder, seed uint64) layers { return layers{b: b, seed: seed} }

// Scope returns w with name and "/" put before the names of parameters and nodes.
func (w layers) Scope(name string) layers {
	return layers{b: w.b.Scope(name), seed: w.seed, path: w.path + name + "/"}
}

// initial fills a new parameter t of the given shape with its initial value.
type initial func(r *rand.Rand, t []float32, shape []int)

// Param adds a parameter of the given shape. init must fill all of t. A shape of too many elements
// fails the building.
func (w layers) Param(name string, init initial, shape ...int) build.Ref {
	n, err := onnx.Elements(shape)
	if err != nil {
		w.b.Fail("parameter %q: %w", w.path+name, err)
		return ""
	}
	data := make([]float32, n)
	init(rng.New(w.seed, "init", w.path+name), data, shape)
	return w.b.Param(name, onnx.NewTensor(data, shape...))
}

// Linear returns x W + b for W of shape [in, out] and b of shape [out], named name/weight and
// name/bias. A nil bias leaves b out.
func (w layers) Linear(name string, x build.Ref, in, out int, weight, bias initial) build.Ref {
	l := w.Scope(name)
	y := l.b.MatMul(x, l.Param("weight", weight, in, out))
	if bias == nil {
		return y
	}
	return l.b.Add(y, l.Param("bias", bias, out))
}

// LayerNorm normalises the last axis, of size d, with a learned scale and shift (Ba et al. 2016,
// arXiv:1607.06450).
func (w layers) LayerNorm(name string, x build.Ref, d int) build.Ref {
	l := w.Scope(name)
	return l.b.Op("LayerNormalization",
		[]build.Ref{x, l.Param("scale", constant(1), d), l.Param("shift", constant(0), d)},
		onnx.IntAttr("axis", -1), onnx.FloatAttr("epsilon", 1e-5))
}

// constant is an initial value: every element is v.
func constant(v float32) initial {
	return func(_ *rand.Rand, t []float32, _ []int) {
		for i := range t {
			t[i] = v
		}
	}
}

// uniform is an initial value: U(-a, a).
func uniform(a float64) initial {
	return func(r *rand.Rand, t []float32, _ []int) {
		for i := range t {
			t[i] = float32(a * (2*r.Float64() - 1))
		}
	}
}

// gaussian is an initial value: N(0, std^2).
func gaussian(std float64) initial {
	return func(r *rand.Rand, t []float32, _ []int) {
		for i := range t {
			t[i] = float32(std * r.NormFloat64())
		}
	}
}

// fanIn is an initial value: U(-1/sqrt(in), 1/sqrt(in)), the usual one for a linear layer with in
// inputs.
func fanIn(in int) initial { return uniform(1 / math.Sqrt(float64(in))) }

// Eye is an initial for a square matrix: scale[i] at [i, i], zero elsewhere.
func eye(scale func(i int) float32) initial {
	return func(_ *rand.Rand, t []float32, shape []int) {
		for i := range min(shape[0], shape[1]) {
			t[i*shape[1]+i] = scale(i)
		}
	}
}

// multiplied returns init times v.
func multiplied(init initial, v float32) initial {
	return func(r *rand.Rand, t []float32, shape []int) {
		init(r, t, shape)
		for i := range t {
			t[i] *= v
		}
	}
}

// Parameters lists a model's trainable initializers in alphabetical order: those of float32 that
// were named by layers or [build.Builder.Param], as opposed to the builder's constants.
func Parameters(m *onnx.Model) []string {
	var names []string
	for _, n := range m.Graph.InitializerNames() {
		last := n[strings.LastIndex(n, "/")+1:]
		if m.Graph.Initializers[n].DType == onnx.Float32 && last != "const" &&
			!strings.HasPrefix(last, "const_") {
			names = append(names, n)
		}
	}
	return names
}

package models

import (
	"math"
	"math/rand/v2"
	"strings"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
)

// Weights adds named, seeded parameters to a graph. Each parameter draws its initial value from a
// stream of the seed that is named after it, so that adding a layer leaves the others' values as
// they were.
type Weights struct {
	b    *build.Builder
	seed uint64
	path string
}

// NewWeights returns Weights that add parameters, initialised from seed, to the graph that b
// builds.
func NewWeights(b *build.Builder, seed uint64) Weights { return Weights{b: b, seed: seed} }

// Scope returns w with name and "/" put before the names of parameters and nodes.
func (w Weights) Scope(name string) Weights {
	return Weights{b: w.b.Scope(name), seed: w.seed, path: w.path + name + "/"}
}

// Init fills a new parameter t of the given shape with its initial value.
type Init func(r *rand.Rand, t []float32, shape []int)

// Param adds a parameter of the given shape.
func (w Weights) Param(name string, init Init, shape ...int) build.Ref {
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
func (w Weights) Linear(name string, x build.Ref, in, out int, weight, bias Init) build.Ref {
	l := w.Scope(name)
	y := l.b.MatMul(x, l.Param("weight", weight, in, out))
	if bias == nil {
		return y
	}
	return l.b.Add(y, l.Param("bias", bias, out))
}

// LayerNorm normalises the last axis, of size d, with a learned scale and shift (Ba et al. 2016,
// arXiv:1607.06450).
func (w Weights) LayerNorm(name string, x build.Ref, d int) build.Ref {
	l := w.Scope(name)
	return l.b.Op("LayerNormalization",
		[]build.Ref{x, l.Param("scale", Constant(1), d), l.Param("shift", Constant(0), d)},
		onnx.IntAttr("axis", -1), onnx.FloatAttr("epsilon", 1e-5))
}

// Constant is an Init: every element is v.
func Constant(v float32) Init {
	return func(_ *rand.Rand, t []float32, _ []int) {
		for i := range t {
			t[i] = v
		}
	}
}

// Uniform is an Init: U(-a, a).
func Uniform(a float64) Init {
	return func(r *rand.Rand, t []float32, _ []int) {
		for i := range t {
			t[i] = float32(a * (2*r.Float64() - 1))
		}
	}
}

// Gaussian is an Init: N(0, std^2).
func Gaussian(std float64) Init {
	return func(r *rand.Rand, t []float32, _ []int) {
		for i := range t {
			t[i] = float32(std * r.NormFloat64())
		}
	}
}

// FanIn is an Init: U(-1/sqrt(in), 1/sqrt(in)), the usual one for a linear layer with in inputs.
func FanIn(in int) Init { return Uniform(1 / math.Sqrt(float64(in))) }

// Eye is an Init for a square matrix: scale[i] at [i, i], zero elsewhere.
func Eye(scale func(i int) float32) Init {
	return func(_ *rand.Rand, t []float32, shape []int) {
		for i := range min(shape[0], shape[1]) {
			t[i*shape[1]+i] = scale(i)
		}
	}
}

// Scaled returns init times v.
func Scaled(init Init, v float32) Init {
	return func(r *rand.Rand, t []float32, shape []int) {
		init(r, t, shape)
		for i := range t {
			t[i] *= v
		}
	}
}

// Parameters lists a model's trainable initializers in alphabetical order: those of float32 that
// were named by [Weights] or [build.Builder.Param], as opposed to the builder's constants.
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

package pure

import (
	"math"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/conformance"
	"fmp/onnx/engine"
	"fmp/onnx/internal/kernel"
	"fmp/onnx/must"
)

// TestLines: a product of known weights does the sum, the factor and the GELU after it, where
// nothing else reads what lies between, to the numbers of the nodes one by one.
func TestLines(t *testing.T) {
	if !kernel.CanGelu(false) {
		t.Skip("no kernels on this processor")
	}
	type graph func(b *build.Builder, x build.Ref) build.Ref
	product := func(b *build.Builder, x build.Ref) build.Ref { return b.MatMul(x, b.Param("w", numbers(1, 40, 21))) }
	bias := func(b *build.Builder) build.Ref { return b.Param("bias", numbers(2, 21)) }
	sum := func(b *build.Builder, x build.Ref) build.Ref { return b.Add(bias(b), product(b, x)) }
	root, half, one := float32(math.Sqrt2), float32(0.5), float32(1)
	erf := func(b *build.Builder, y build.Ref) build.Ref {
		return b.Add(b.Op("Erf", []build.Ref{b.Div(y, b.F32(root))}), b.F32(one))
	}
	gelu := func(b *build.Builder, y build.Ref) build.Ref { return b.Mul(b.Mul(y, b.F32(half)), erf(b, y)) }
	for name, c := range map[string]struct {
		graph graph
		steps int
	}{
		"sum": {sum, 1},
		"sum of a number for each line": {func(b *build.Builder, x build.Ref) build.Ref {
			return b.Add(product(b, x), b.Param("each", numbers(3, 19, 1)))
		}, 2},
		"sum and factors": {func(b *build.Builder, x build.Ref) build.Ref {
			return b.Mul(sum(b, x), b.Param("factors", numbers(4, 21)))
		}, 1},
		"sum and a factor": {func(b *build.Builder, x build.Ref) build.Ref {
			return b.Mul(b.F32(0.3), sum(b, x))
		}, 1},
		"a factor and a sum": {func(b *build.Builder, x build.Ref) build.Ref {
			return b.Add(b.Mul(product(b, x), b.F32(0.3)), bias(b))
		}, 2},
		"read twice": {func(b *build.Builder, x build.Ref) build.Ref {
			y := product(b, x)
			return b.Mul(b.Add(y, bias(b)), y)
		}, 3},
		"an output between": {func(b *build.Builder, x build.Ref) build.Ref {
			y := product(b, x)
			b.Output("between", y)
			return b.Add(y, bias(b))
		}, 3},
		"GELU": {func(b *build.Builder, x build.Ref) build.Ref { return gelu(b, sum(b, x)) }, 1},
		"GELU of half at the end": {func(b *build.Builder, x build.Ref) build.Ref {
			y := sum(b, x)
			return b.Mul(b.Mul(y, erf(b, y)), b.F32(half))
		}, 1},
		"GELU of half in the middle": {func(b *build.Builder, x build.Ref) build.Ref {
			y := sum(b, x)
			return b.Mul(y, b.Mul(erf(b, y), b.F32(half)))
		}, 1},
		"GELU by itself": {func(b *build.Builder, x build.Ref) build.Ref { return gelu(b, b.Relu(x)) }, 2},
		"GELU twice": {func(b *build.Builder, x build.Ref) build.Ref {
			return gelu(b, gelu(b, sum(b, x)))
		}, 2},
		"another root": {func(b *build.Builder, x build.Ref) build.Ref {
			y := sum(b, x)
			e := b.Add(b.Op("Erf", []build.Ref{b.Div(y, b.F32(1.4))}), b.F32(one))
			return b.Mul(b.Mul(y, b.F32(half)), e)
		}, 6},
		"the error function is an output": {func(b *build.Builder, x build.Ref) build.Ref {
			y := sum(b, x)
			e := b.Op("Erf", []build.Ref{b.Div(y, b.F32(root))})
			b.Output("erf", e)
			return b.Mul(b.Mul(y, b.F32(half)), b.Add(e, b.F32(one)))
		}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			b := build.New("lines")
			y := c.graph(b, b.Input("x", onnx.Float32, "n", "lines", 40))
			b.Output("y", b.Relu(y))
			m := must.Get(b.Model())(t)
			s := load(t, m)
			// Behind them are the Relu and the output's name.
			if n := len(s.plan.steps) - 2; n != c.steps {
				t.Errorf("%d steps, %d are expected", n, c.steps)
			}
			e := must.Get(New(engine.Options{Threads: 1, Reproducible: true}))(t)
			plain := must.Get(e.Load(m))(t)
			defer plain.Close()
			tolerance := conformance.Tolerance{Absolute: 2e-5, Relative: 2e-6}
			for _, shape := range [][]int{{2, 19, 40}, {7, 19, 40}, {0, 19, 40}} {
				x := numbers(5, shape...)
				want := must.Get(engine.Eval(plain, map[string]*onnx.Tensor{"x": x}))(t)
				got := evaluated(t, s, x)
				for of, w := range want {
					if err := conformance.Compare(got[of], w, tolerance); err != nil {
						t.Fatalf("%v: %s of nodes one by one %v", shape, of, err)
					}
				}
			}
		})
	}
}

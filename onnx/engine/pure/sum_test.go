package pure

import (
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/conformance"
	"fmp/onnx/engine"
	"fmp/onnx/internal/kernel"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

// A convolution adds another value where sums can begin at it, and what follows; the value stays as
// it is where it is read again, and one of another shape is added afterwards. An image's result
// depends on no other.
func TestSums(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	random := func(shape ...int) *onnx.Tensor { return modeltest.Normal(r, 1, shape...) }
	w := func(size, out, in int) *onnx.Tensor { return random(out, in, size, size) }
	for _, c := range []struct {
		name          string
		channels, out int
		side, size    int
		other         []any // of the value's axes behind the images
		bias, again   bool
		fused         bool
	}{
		{"alike", 16, 24, 14, 1, []any{24, 14, 14}, true, false, true},
		{"without a bias", 384, 24, 7, 1, []any{24, 7, 7}, false, false, true},
		{"of more products", 385, 24, 7, 1, []any{24, 7, 7}, false, false, false},
		{"read again", 16, 264, 3, 1, []any{264, 3, 3}, true, true, true},
		{"in a part of a panel", 16, 24, 5, 1, []any{24, 5, 5}, true, false, true},
		{"with one column", 16, 24, 1, 1, []any{24, 1, 1}, true, false, true},
		{"spread", 16, 24, 5, 1, []any{24, 1, 1}, true, false, true},
		{"of more positions", 16, 24, 1, 1, []any{24, 5, 5}, true, false, true},
		{"of few filters", 16, 4, 5, 1, []any{4, 5, 5}, true, false, true},
		{"of larger windows", 16, 24, 5, 3, []any{24, 5, 5}, true, false, false},
	} {
		model := func(separate bool) *onnx.Model {
			r = rand.New(rand.NewPCG(7, 2))
			b := build.New("sums")
			x := b.Input("x", onnx.Float32, "n", c.channels, c.side, c.side)
			y := b.Op("Relu", []build.Ref{b.Input("y", onnx.Float32, append([]any{"n"}, c.other...)...)})
			in := []build.Ref{x, b.Param("w", w(c.size, c.out, c.channels))}
			if c.bias {
				in = append(in, b.Param("bias", random(c.out)))
			}
			sum := b.Op("Conv", in, onnx.IntsAttr("pads", c.size/2, c.size/2, c.size/2, c.size/2))
			if separate {
				b.Output("before", sum)
			}
			if sum = b.Op("Relu", []build.Ref{b.Op("Add", []build.Ref{y, sum})}); c.again {
				b.Output("again", b.Op("Neg", []build.Ref{y}))
			}
			b.Output("out", sum)
			return must.Get(b.Model())(t)
		}
		together, apart := model(false), model(true)
		p := must.Get(compile(together, false))(t)
		adds := slices.ContainsFunc(p.steps, func(s step) bool { return s.node.Op == "Add" })
		able := kernel.CanSum(&kernel.Spec{Const: []*onnx.Tensor{nil, w(1, 1, 1)}})
		if adds == (c.fused && able) {
			t.Errorf("%s: an Add by itself: %v", c.name, adds)
		}
		const n = 5
		shape := []int{n}
		for _, d := range c.other {
			shape = append(shape, d.(int))
		}
		feeds := map[string]*onnx.Tensor{"x": random(n, c.channels, c.side, c.side), "y": random(shape...)}
		tolerance := conformance.Tolerance{Absolute: 1e-5, Relative: 1e-5}
		for _, threads := range []int{1, 3} {
			var outs [2]map[string]*onnx.Tensor
			for i, m := range []*onnx.Model{together, apart} {
				s := must.Get(must.Get(New(engine.Options{Threads: threads}))(t).Load(m))(t)
				outs[i] = must.Get(engine.Eval(s, feeds))(t)
				if i > 0 {
					continue
				}
				all := outs[0]["out"]
				for k := range n {
					one := must.Get(engine.Eval(s, map[string]*onnx.Tensor{"x": rows(feeds["x"], k, k+1),
						"y": rows(feeds["y"], k, k+1)}))(t)
					if want := rows(all, k, k+1).F32(); !slices.Equal(one["out"].F32(), want) {
						t.Errorf("%s: image %d alone has other bits", c.name, k)
					}
				}
			}
			for name, got := range outs[0] {
				if err := conformance.Compare(got, outs[1][name], tolerance); err != nil {
					t.Fatalf("%s: %s, together in place of apart, %v", c.name, name, err)
				}
			}
		}
	}
}

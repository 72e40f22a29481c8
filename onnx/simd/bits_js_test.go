package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/internal/kernel"
)

// filled returns random numbers, some of them of those for which a rounding, a sign or an order
// shows.
func filled(r *rand.Rand, shape ...int) *onnx.Tensor {
	x := onnx.ZerosF32(shape...)
	for i := range x.F32() {
		x.F32()[i] = float32(r.NormFloat64())
		if r.IntN(50) == 0 {
			x.F32()[i] = []float32{0, float32(math.Copysign(0, -1)), 1e-42, 3e37, -3e37}[r.IntN(5)]
		}
	}
	return x
}

type graph struct {
	name string
	make func(b *build.Builder, r *rand.Rand, x build.Ref) build.Ref
	in   []int
}

// graphs are products, convolutions and single operations of every size at which a kernel's loops
// end elsewhere.
func graphs() (all []graph) {
	add := func(name string, in []int, f func(*build.Builder, *rand.Rand, build.Ref) build.Ref) {
		all = append(all, graph{name, f, in})
	}
	for _, s := range [][3]int{{8, 8, 8}, {9, 17, 11}, {12, 16, 400}, {13, 23, 385}, {31, 9, 64},
		{64, 300, 27}, {257, 12, 33},
		{260, 265, 9}} {
		m, n, k := s[0], s[1], s[2]
		add(fmt.Sprintf("product of %v", s), []int{m, k},
			func(b *build.Builder, r *rand.Rand, x build.Ref) build.Ref {
				return b.MatMul(x, b.Const(filled(r, k, n)))
			})
		add(fmt.Sprintf("product of %v, from the left", s), []int{k, n},
			func(b *build.Builder, r *rand.Rand, x build.Ref) build.Ref {
				return b.MatMul(b.Const(filled(r, m, k)), x)
			})
	}
	for i, s := range []struct {
		channels, filters, group, side, kernel,
		stride int
	}{{3, 16, 1, 20, 3, 2}, {16, 24, 1, 17, 1, 1}, {24, 9, 1, 16, 3, 1}, {40, 48, 1, 5, 3, 1},
		{64, 300, 1, 3, 1, 1}, {16, 32, 2, 9, 3, 1}, {8, 8, 8, 19, 3, 1}, {8, 8, 8, 19, 3, 2},
		{6, 6, 6, 12, 5, 2}, {5, 5, 5, 33, 5, 1}, {4, 4, 4, 2, 3, 1}} {
		add(fmt.Sprintf("convolution %+v", s), []int{1 + i%3, s.channels, s.side, s.side + i%2},
			func(b *build.Builder, r *rand.Rand, x build.Ref) build.Ref {
				pad := s.kernel / 2
				w := filled(r, s.filters, s.channels/s.group, s.kernel, s.kernel)
				y := b.Op("Conv", []build.Ref{x, b.Const(w), b.Const(filled(r, s.filters))},
					onnx.IntsAttr("pads", pad, pad, pad, pad),
					onnx.IntsAttr("strides", s.stride, s.stride), onnx.IntAttr("group", s.group))
				if i%3 == 0 {
					variance := filled(r, s.filters)
					for i, v := range variance.F32() {
						variance.F32()[i] = 1 + v*v
					}
					y = b.Op("BatchNormalization",
						[]build.Ref{y, b.Const(filled(r, s.filters)), b.Const(filled(r, s.filters)),
							b.Const(filled(r, s.filters)), b.Const(variance)})
				}
				if i%2 == 0 {
					y = b.Op("Clip", []build.Ref{y, b.F32(0), b.F32(6)})
				}
				return y
			})
	}
	for _, n := range []int{1, 3, 4, 7, 32, 61} {
		for _, op := range []string{"Add", "Sub", "Mul", "Div"} {
			add(fmt.Sprintf("%s of %d", op, n), []int{3, n},
				func(b *build.Builder, r *rand.Rand, x build.Ref) build.Ref {
					y := b.Op(op, []build.Ref{x, b.Const(filled(r, 3, n))})
					y = b.Op(op, []build.Ref{y, b.F32(float32(r.NormFloat64()))})
					return b.Op(op, []build.Ref{b.F32(float32(r.NormFloat64())), y})
				})
		}
		add(fmt.Sprintf("bounds of %d", n), []int{3, n},
			func(b *build.Builder, _ *rand.Rand, x build.Ref) build.Ref {
				return b.Op("Clip", []build.Ref{x, b.F32(-.5), b.F32(.75)})
			})
	}
	return all
}

// TestSameBits: models compute the same bits with the kernels as in Go, whatever the shape.
func TestSameBits(t *testing.T) {
	if !Lend() {
		t.Fatal("the host does not take the module")
	}
	for i, g := range graphs() {
		r := rand.New(rand.NewPCG(7, uint64(i)))
		b := build.New("g")
		dims := make([]any, len(g.in))
		for k, d := range g.in {
			dims[k] = d
		}
		b.Output("y", g.make(b, r, b.Input("x", onnx.Float32, dims...)))
		m, err := b.Model()
		if err != nil {
			t.Fatal(err)
		}
		feeds := map[string]*onnx.Tensor{"x": filled(r, g.in...)}
		run := func(reproducible bool) []float32 {
			e, err := pure.New(engine.Options{Threads: 1, Reproducible: reproducible})
			if err != nil {
				t.Fatal(err)
			}
			s, err := e.Load(m)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			out, err := engine.Eval(s, feeds)
			if err != nil {
				t.Fatalf("%s: %v", g.name, err)
			}
			return out["y"].F32()
		}
		for _, reproducible := range []bool{true, false} {
			Lend()
			got := run(reproducible)
			kernel.Lend(nil) // Go computes again
			for k, want := range run(reproducible) {
				if math.Float32bits(got[k]) != math.Float32bits(want) && (got[k] == got[k] || want == want) {
					t.Errorf("%s, reproducible %v: element %d is %v (%x); Go computes %v (%x)", g.name,
						reproducible, k, got[k], math.Float32bits(got[k]), want, math.Float32bits(want))
					break
				}
			}
		}
	}
}

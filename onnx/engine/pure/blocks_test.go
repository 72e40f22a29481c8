package pure

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/internal/kernel"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

func numbers(seed uint64, shape ...int) *onnx.Tensor {
	return modeltest.Normal(rand.New(rand.NewPCG(seed, 1)), 1, shape...)
}

// TestBlocks: a batch that is run some images at a time, through any number of first steps that
// may be, has the bits of the whole batch; steps that mix images end them.
func TestBlocks(t *testing.T) {
	const n = 5
	type graph func(b *build.Builder, x build.Ref) build.Ref
	param := func(b *build.Builder, name string, shape ...int) build.Ref {
		return b.Param(name, numbers(uint64(len(name)), shape...))
	}
	for name, c := range map[string]struct {
		graph graph
		least int // steps that may be run in blocks, with one more in attention without vectors
	}{
		"convolutions": {func(b *build.Builder, x build.Ref) build.Ref {
			same := []onnx.Attr{onnx.IntsAttr("pads", 1, 1, 1, 1), onnx.IntsAttr("strides", 1, 1)}
			y := b.Relu(b.Op("Conv", []build.Ref{x, param(b, "w", 16, 4, 3, 3)}, same...))
			z := b.Op("Conv", []build.Ref{y, param(b, "depth", 16, 1, 3, 3)}, append(same, onnx.IntAttr("group", 16))...)
			z = b.Op("Sigmoid", []build.Ref{b.Add(y, z)})
			z = b.Mul(z, b.Op("GlobalAveragePool", []build.Ref{y}))
			z = b.Op("MaxPool", []build.Ref{z}, onnx.IntsAttr("kernel_shape", 2, 2))
			return b.Add(b.Op("Flatten", []build.Ref{z}, onnx.IntAttr("axis", 1)), b.F32(2))
		}, 10},
		"attention": {func(b *build.Builder, x build.Ref) build.Ref {
			y := b.Transpose(b.Reshape(x, 0, 4, -1), 0, 2, 1)
			y = b.Op("LayerNormalization", []build.Ref{y, param(b, "scale", 4)}, onnx.IntAttr("axis", -1))
			y = b.Add(b.MatMul(y, param(b, "w", 4, 24)), param(b, "bias", 24))
			y = b.MatMul(b.Softmax(b.MatMul(y, b.Transpose(y, 0, 2, 1)), 2), y)
			return b.ReduceMean(b.Op("Erf", []build.Ref{y}), false, 1)
		}, 11},
		"outputs on the way": {func(b *build.Builder, x build.Ref) build.Ref {
			y := b.Exp(x)
			b.Output("way", y)
			b.Output("copy", b.Op("Identity", []build.Ref{x}))
			return b.Mul(b.Relu(b.Add(y, x)), y)
		}, 8},
		"an axis of images":   {func(b *build.Builder, x build.Ref) build.Ref { return b.ReduceMean(x, true, 0) }, 0},
		"a softmax over them": {func(b *build.Builder, x build.Ref) build.Ref { return b.Softmax(x, 0) }, 0},
		"and from the end":    {func(b *build.Builder, x build.Ref) build.Ref { return b.Softmax(x, -4) }, 0},
		"turned":              {func(b *build.Builder, x build.Ref) build.Ref { return b.Transpose(x, 1, 0, 2, 3) }, 0},
		"few rows": {func(b *build.Builder, x build.Ref) build.Ref {
			return b.MatMul(b.Reshape(x, 0, 2, -1), param(b, "w", 128, 24))
		}, 1},
		"products of bytes": {func(b *build.Builder, x build.Ref) build.Ref {
			step, zero := b.F32(.05), b.Param("zero", onnx.Scalar(int8(3)))
			bytes := func(x build.Ref) build.Ref {
				q := b.Op("QuantizeLinear", []build.Ref{x, step, zero})
				return b.Op("DequantizeLinear", []build.Ref{q, step, zero})
			}
			w := make([]int8, 256*24)
			for i := range w {
				w[i] = int8(i*7%255 - 127)
			}
			none := b.Param("none", onnx.Scalar(int8(0)))
			weights := b.Op("DequantizeLinear",
				[]build.Ref{b.Param("w", onnx.NewTensor(w, 256, 24)), b.F32(.01), none})
			return bytes(b.MatMul(bytes(b.Reshape(x, 0, -1)), weights))
		}, 5},
		"two axes": {func(b *build.Builder, x build.Ref) build.Ref {
			return b.MatMul(b.Reshape(x, 0, -1), param(b, "w", 256, 24))
		}, 1},
		"a number for each image": {func(b *build.Builder, x build.Ref) build.Ref {
			return b.Mul(x, param(b, "each", n, 1, 1, 1))
		}, 0},
		"a known number of images": {func(b *build.Builder, x build.Ref) build.Ref {
			return b.Relu(b.Reshape(x, n, -1))
		}, 0},
		"as many channels as images": {func(b *build.Builder, x build.Ref) build.Ref {
			return b.Add(b.Reshape(b.ReduceMean(x, false, 1, 2, 3), 0, 1), b.ReduceMean(x, false, 1, 2, 3))
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			b := build.New("blocks")
			b.Output("y", c.graph(b, b.Input("x", onnx.Float32, "n", 4, 8, 8)))
			m := must.Get(b.Model())(t)
			s := load(t, m)
			in := []*onnx.Tensor{numbers(9, n, 4, 8, 8)}
			w := newWatch(s.plan, n)
			s.blocks = w.cut(in, 0, 0)
			s.seen = w.step
			want := evaluated(t, s, in[0])
			if name == "attention" && !kernel.CanGelu(false) { // no product adds its bias then
				c.least++
			}
			if s.seen = nil; len(w.moved) != c.least {
				t.Fatalf("%d steps may be run in blocks, %d are expected", len(w.moved), c.least)
			}
			for cut := 1; cut <= len(w.moved); cut++ {
				for _, size := range []int{1, 2, 3} {
					s.blocks = w.cut(in, size, cut)
					same(t, fmt.Sprintf("%d steps, blocks of %d", cut, size), evaluated(t, s, in[0]), want)
				}
			}
			other := numbers(8, n-1, 4, 8, 8)
			if name != "a number for each image" && name != "a known number of images" {
				evaluated(t, s, other)
				if !slices.Equal(s.blocks.shapes[0], other.Shape) {
					t.Error("another size of batch is not looked at")
				}
			}
		})
	}
}

func load(t *testing.T, m *onnx.Model) *session {
	t.Helper()
	e := must.Get(New(engine.Options{Threads: 1}))(t)
	s := must.Get(e.Load(m))(t)
	t.Cleanup(func() { s.Close() })
	return s.(*session)
}

func evaluated(t *testing.T, s *session, x *onnx.Tensor) map[string]*onnx.Tensor {
	t.Helper()
	return must.Get(engine.Eval(s, map[string]*onnx.Tensor{"x": x}))(t)
}

// same holds outputs to others, to the bit but for that of a NaN.
func same(t *testing.T, name string, got, want map[string]*onnx.Tensor) {
	t.Helper()
	for of, w := range want {
		g := got[of]
		if !slices.Equal(g.Shape, w.Shape) {
			t.Fatalf("%s: %s has shape %v where %v is expected", name, of, g.Shape, w.Shape)
		}
		for i, v := range w.F32() {
			if u := g.F32()[i]; math.Float32bits(u) != math.Float32bits(v) && (u == u || v == v) {
				t.Fatalf("%s: %s[%d] is %v where %v is expected", name, of, i, u, v)
			}
		}
	}
}

// TestBlocksAreOfLargeValues: values that no cache holds are worth blocks, weights that all images
// share are not.
func TestBlocksAreOfLargeValues(t *testing.T) {
	w := &watch{plan: &plan{steps: []step{{out: []int{0}}, {out: []int{1}}, {out: []int{2}}}, uses: make([]int, 3)},
		n: 16, moved: []int{farBytes / 2, nearBytes / 8, nearBytes / 16}, weights: []int{100, 1000, 8 << 20}}
	if b := w.blocks(nil, 1); b.cut != 2 || b.size != 2 {
		t.Errorf("%d steps in blocks of %d; 2 in blocks of two are expected", b.cut, b.size)
	}
	if b := w.blocks(nil, 4); b.size < 4 {
		t.Errorf("blocks of %d for four threads", b.size)
	}
	w.moved = []int{100, 100, 100}
	if b := w.blocks(nil, 1); b.cut != 0 {
		t.Errorf("%d steps of small values in blocks", b.cut)
	}
}

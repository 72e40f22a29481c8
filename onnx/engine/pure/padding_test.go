package pure

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/must"
)

// working are the steps of a model's plan but those that name its outputs.
func working(t *testing.T, m *onnx.Model, reproducible bool) []step {
	t.Helper()
	p := must.Get(compile(m, reproducible))(t)
	return slices.DeleteFunc(p.steps, func(s step) bool { return s.node.Op == "Identity" })
}

// TestPadding: a convolution or pooling does the padding before it, to the same bits where they are
// to be the same everywhere, and only where the results are the same.
func TestPadding(t *testing.T) {
	ones := onnx.ZerosF32(4, 2, 3, 3)
	for i := range ones.F32() {
		ones.F32()[i] = float32(i%7) - 2.5
	}
	spoilt := ones.Clone()
	spoilt.F32()[5] = float32(math.Inf(1))
	own := onnx.IntsAttr("pads", 1, 0, 0, 1)
	size := onnx.IntsAttr("kernel_shape", 3, 3)
	for _, c := range []struct {
		name  string
		op    string
		pads  []int // nil: one on every side of an image
		value float32
		mode  string
		w     *onnx.Tensor
		attrs []onnx.Attr
		twice bool // the padded value is an output as well
		steps int
	}{
		{name: "convolution", op: "Conv", pads: []int{0, 0, 1, 2, 0, 0, 3, 0}, w: ones, steps: 1},
		{name: "with pads and a stride", op: "Conv", w: ones,
			attrs: []onnx.Attr{own, onnx.IntsAttr("strides", 2, 2)}, steps: 1},
		{name: "valid", op: "Conv", w: ones, attrs: []onnx.Attr{onnx.StrAttr("auto_pad", "VALID")},
			steps: 1},
		{name: "the same size", op: "Conv", w: ones,
			attrs: []onnx.Attr{onnx.StrAttr("auto_pad", "SAME_UPPER")}, steps: 2},
		{name: "not by zeros", op: "Conv", value: 1, w: ones, steps: 2},
		{name: "by negative zeros", op: "Conv", value: float32(math.Copysign(0, -1)), w: ones, steps: 2},
		{name: "by the edge", op: "Conv", mode: "edge", w: ones, steps: 2},
		{name: "cut", op: "Conv", pads: []int{0, 0, -1, 1, 0, 0, 1, 1}, w: ones, steps: 2},
		{name: "of images", op: "Conv", pads: []int{1, 0, 1, 1, 0, 0, 1, 1}, w: ones, steps: 2},
		{name: "weights that are not finite", op: "Conv", w: spoilt, steps: 2},
		{name: "read twice", op: "Conv", w: ones, twice: true, steps: 2},
		{name: "mean", op: "AveragePool", attrs: []onnx.Attr{size}, steps: 1},
		{name: "mean with pads", op: "AveragePool", attrs: []onnx.Attr{size, own}, steps: 2},
		{name: "mean that counts pads", op: "AveragePool",
			attrs: []onnx.Attr{size, own, onnx.IntAttr("count_include_pad", 1)}, steps: 1},
		{name: "mean beyond the end", op: "AveragePool",
			attrs: []onnx.Attr{size, onnx.IntAttr("ceil_mode", 1), onnx.IntsAttr("strides", 2, 2)},
			steps: 2},
		{name: "maximum", op: "MaxPool", value: float32(math.Inf(-1)), attrs: []onnx.Attr{size, own},
			steps: 1},
		{name: "maximum with zeros", op: "MaxPool", attrs: []onnx.Attr{size}, steps: 2},
		{name: "maximum of padding", op: "MaxPool", pads: []int{0, 0, 3, 1, 0, 0, 1, 1},
			value: float32(math.Inf(-1)), attrs: []onnx.Attr{size}, steps: 2},
	} {
		model := func(opaque bool) *onnx.Model {
			b := build.New("padded")
			x := b.Input("image", onnx.Float32, "n", 2, 7, 6)
			by := c.pads
			if by == nil {
				by = []int{0, 0, 1, 1, 0, 0, 1, 1}
			}
			// Pads are computed from constants, as PyTorch exports them.
			pads := b.Concat(0, b.Axes(by[:3]...), b.Axes(by[3:]...))
			x = b.Op("Pad", []build.Ref{x, pads, b.F32(c.value)},
				onnx.StrAttr("mode", cmp.Or(c.mode, "constant")))
			if c.twice || opaque {
				b.Output("padded", x)
			}
			in := []build.Ref{x}
			if c.w != nil {
				in = append(in, b.Param("w", c.w), b.Param("bias", onnx.Vector[float32](1, -2, .5, 0)))
			}
			b.Output("y", b.Op(c.op, in, c.attrs...))
			return must.Get(b.Model())(t)
		}
		image := onnx.ZerosF32(2, 2, 7, 6)
		for i := range image.F32() {
			image.F32()[i] = float32(math.Sin(float64(i * i)))
		}
		var outs [2]map[string]*onnx.Tensor
		for i, opaque := range []bool{false, true} {
			m := model(opaque)
			steps := working(t, m, true)
			if want := []int{c.steps, 2}[i]; len(steps) != want {
				t.Errorf("%s: %d steps, want %d", c.name, len(steps), want)
			}
			e := must.Get(New(engine.Options{Threads: 1, Reproducible: true}))(t)
			s := must.Get(e.Load(m))(t)
			outs[i] = must.Get(engine.Eval(s, map[string]*onnx.Tensor{"image": image}, "y"))(t)
		}
		same(t, c.name, outs[0], outs[1])
	}
}

// TestConstantsAreFolded: values that constants decide are computed once, but for those far larger
// than what they come from.
func TestConstantsAreFolded(t *testing.T) {
	for _, c := range []struct {
		name  string
		size  int
		steps int
	}{{"small", 100, 1}, {"much larger than what it comes from", 100_000, 2}} {
		b := build.New("folded")
		x := b.Input("x", onnx.Float32, "n", c.size)
		w := b.Op("Expand", []build.Ref{b.Op("Sqrt",
			[]build.Ref{b.Op("Transpose", []build.Ref{b.Param("w", onnx.ZerosF32(1, 1))})}),
			b.Axes(1, c.size)})
		b.Output("y", b.Op("Add", []build.Ref{x, w}))
		m := must.Get(b.Model())(t)
		steps := working(t, m, true)
		if len(steps) != c.steps {
			t.Errorf("%s: %d steps, want %d", c.name, len(steps), c.steps)
		}
	}
}

package shape_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// Small models that ask for much before they run: nothing of it is worked out, and it is named.
func TestSmallModelsCannotAskForMuch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		make func(b *build.Builder) build.Ref // a constant
		want string                           // the node, "" where all is within the budget
	}{
		{"a product of large constants", func(b *build.Builder) build.Ref {
			c := b.Op("ConstantOfShape", []build.Ref{b.Axes(16000, 16000)})
			return b.ReduceSum(b.MatMul(c, c), false, 0, 1)
		}, "(ConstantOfShape)"},
		{"a product of many small ones", func(b *build.Builder) build.Ref {
			c := b.Op("ConstantOfShape", []build.Ref{b.Axes(2000, 1000)})
			return b.ReduceSum(b.MatMul(c, b.Transpose(c, 1, 0)), false, 0, 1)
		}, "(MatMul)"},
		{"doubling", func(b *build.Builder) build.Ref {
			c := b.Const(onnx.Vector[float32](1, 2))
			for range 29 {
				c = b.Concat(0, c, c)
			}
			return b.ReduceSum(c, false, 0)
		}, "(Concat)"},
		{"a convolution", func(b *build.Builder) build.Ref {
			x := b.Op("ConstantOfShape", []build.Ref{b.Axes(1, 1, 1500, 1500)})
			w := b.Op("ConstantOfShape", []build.Ref{b.Axes(1, 1, 1001, 1001)})
			return b.ReduceSum(b.Op("Conv", []build.Ref{x, w}), false, 0, 1, 2, 3)
		}, "(Conv)"},
		{"an index of many dimensions", func(b *build.Builder) build.Ref {
			c := b.Op("ConstantOfShape", []build.Ref{b.Axes(1000, 1000)})
			return b.Op("Einsum", []build.Ref{c, c}, onnx.StrAttr("equation", "ab,cd->"))
		}, "(Einsum)"},
		{"a transform that is longer than its signal", func(b *build.Builder) build.Ref {
			c := b.Op("ConstantOfShape", []build.Ref{b.Axes(1, 8, 1)})
			return b.ReduceSum(b.Op("DFT", []build.Ref{c, b.Const(onnx.Scalar[int64](1_000_003))}), false,
				0, 1, 2)
		}, "(DFT)"},
		{"regions of any size", func(b *build.Builder) build.Ref {
			image := b.Op("ConstantOfShape", []build.Ref{b.Axes(1, 1, 9, 9)})
			region := b.Const(onnx.NewTensor([]float32{0, 0, 1e6, 1e6}, 1, 4))
			return b.ReduceSum(b.Op("RoiAlign", []build.Ref{image, region, b.Axes(0)}), false, 0, 1, 2, 3)
		}, "(RoiAlign)"},
		{"a modest one", func(b *build.Builder) build.Ref {
			c := b.Op("ConstantOfShape", []build.Ref{b.Axes(100, 100)})
			return b.ReduceSum(b.MatMul(c, c), false, 0, 1)
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start := time.Now()
			b := build.New("g")
			b.Output("y", b.Add(b.Input("x", onnx.Float32, 1), tc.make(b)))
			m := must.Get(b.Model())(t)
			heavy := must.Get(shape.TooHeavy(m))(t)
			if tc.want == "" && len(heavy) > 0 || tc.want != "" &&
				!strings.Contains(fmt.Sprint(heavy), tc.want) {
				t.Errorf("too heavy are %v, want %q", heavy, tc.want)
			}
			nodes := len(m.Graph.Nodes)
			must.Do(t, pass.Simplify(m))
			if tc.want != "" && len(m.Graph.Nodes) < 2 {
				t.Errorf("%d of %d nodes are left: what is too heavy was worked out", len(m.Graph.Nodes), nodes)
			}
			bytes := 0
			for _, w := range m.Graph.Initializers {
				bytes += w.Len() * w.DType.Size()
			}
			if took := time.Since(start); took > 10*time.Second || bytes > 1<<25 {
				t.Errorf("it took %v, and initializers hold %d bytes", took, bytes)
			}
		})
	}
}

package pass

import (
	"math"
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/check"
	"fmp/onnx/must"
)

func operators(m *onnx.Model) string {
	var ops []string
	for _, n := range m.Graph.Nodes {
		ops = append(ops, n.Op)
	}
	return strings.Join(ops, " ")
}

func TestSimplify(t *testing.T) {
	for _, tc := range []struct {
		name  string
		build func(b *build.Builder)
		want  string
	}{
		{"a shape from known sizes", func(b *build.Builder) {
			x := b.Input("x", onnx.Float32, "batch", 2, 3)
			n := b.Op("Gather", []build.Ref{b.Op("Shape", []build.Ref{x}), b.Axes(1, 2)})
			b.Output("out", b.Op("Reshape", []build.Ref{x, b.Concat(0, b.Axes(-1),
				b.Op("ReduceProd", []build.Ref{n}, onnx.IntAttr("keepdims", 1)))}))
		}, "Reshape"},
		{"a shape with a symbol stays", func(b *build.Builder) {
			x := b.Input("x", onnx.Float32, "batch", 2, 3)
			b.Output("out", b.Op("Shape", []build.Ref{x}))
		}, "Shape"},
		{"copies", func(b *build.Builder) {
			x := b.Input("x", onnx.Float32, "n", 4)
			b.Output("out", b.Add(b.Mul(x, b.F32(2)), b.Mul(x, b.F32(2))))
		}, "Mul Add"},
		{"random copies stay", func(b *build.Builder) {
			x := b.Input("x", onnx.Float32, "n", 4)
			b.Output("out", b.Add(b.Op("RandomNormalLike", []build.Ref{x}),
				b.Op("RandomNormalLike", []build.Ref{x})))
		}, "RandomNormalLike RandomNormalLike Add"},
		{"nodes that do nothing", func(b *build.Builder) {
			x := b.Input("x", onnx.Float32, "n", 4)
			b.Output("out", b.Op("Identity",
				[]build.Ref{b.Relu(b.Op("Dropout", []build.Ref{b.Op("Identity", []build.Ref{x})}))}))
		}, "Relu"},
		{"an input as output stays", func(b *build.Builder) {
			b.Output("out", b.Input("x", onnx.Float32, "n", 4))
		}, "Identity"},
		{"a constant output", func(b *build.Builder) {
			b.Input("x", onnx.Float32, "n", 4)
			b.Output("out", b.Add(b.Axes(1, 2), b.Axes(3, 4)))
		}, "Identity"},
		{"what no output needs", func(b *build.Builder) {
			x := b.Input("x", onnx.Float32, "n", 4)
			b.Exp(b.Log(x))
			b.Output("out", b.Sqrt(x))
		}, "Sqrt"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := build.New(tc.name)
			tc.build(b)
			m := must.Get(b.Model())(t)
			ins, outs := listNames(m.Graph.Inputs), listNames(m.Graph.Outputs)
			must.Do(t, Simplify(m))
			must.Do(t, check.Model(m))
			if got := operators(m); got != tc.want {
				t.Errorf("operators are %s, want %s", got, tc.want)
			}
			if got := listNames(m.Graph.Inputs); got != ins {
				t.Errorf("inputs are %s, were %s", got, ins)
			}
			if got := listNames(m.Graph.Outputs); got != outs {
				t.Errorf("outputs are %s, were %s", got, outs)
			}
		})
	}
}

func TestSimplifyComputesConstants(t *testing.T) {
	b := build.New("sine")
	x := b.Input("x", onnx.Float32, "n", 2)
	parts := b.OpN("Split", []build.Ref{
		b.Op("Sin", []build.Ref{b.Param("w", onnx.Vector[float32](0, 1, 2, 3))})}, 2)
	b.Output("out", b.Mul(b.Add(x, parts[0]), parts[1]))
	m := must.Get(b.Model())(t)
	must.Do(t, Simplify(m))
	if got := operators(m); got != "Add Mul" {
		t.Errorf("operators are %s", got)
	}
	for i, want := range [][]float32{{0, float32(math.Sin(1))}, {float32(math.Sin(2)), float32(math.Sin(3))}} {
		if got := m.Graph.Initializers[m.Graph.Nodes[i].Inputs[1]]; got == nil ||
			!slices.Equal(got.F32(), want) {
			t.Errorf("constant %d is %v", i, got)
		}
	}
}

// A small file must not become a large model: constants are worked out within a budget.
func TestFoldingIsBounded(t *testing.T) {
	b := build.New("growing")
	const each, count = 1 << 15, 400
	x := b.Input("x", onnx.Float32, each)
	for i := range count { // different ones, lest they be joined
		value := onnx.TensorAttr("value", onnx.Vector(float32(i)))
		x = b.Add(x, b.Op("ConstantOfShape", []build.Ref{b.Axes(each)}, value))
	}
	b.Output("out", x)
	m := must.Get(b.Model())(t)
	most := int(onnx.NewBudget(m).Bytes) / 4
	must.Do(t, Simplify(m))
	total := 0
	for _, w := range m.Graph.Initializers {
		total += w.Len()
	}
	if total > most || total < each {
		t.Errorf("initializers hold %d elements; the budget is %d", total, most)
	}
	must.Do(t, check.Model(m))
}

package pass

import (
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/check"
	"fmp/onnx/shape"
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
			b.Output("out", b.Op("Reshape", []build.Ref{x, b.Concat(0, b.Axes(-1), b.Op("ReduceProd", []build.Ref{n}, onnx.IntAttr("keepdims", 1)))}))
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
			b.Output("out", b.Add(b.Op("RandomNormalLike", []build.Ref{x}), b.Op("RandomNormalLike", []build.Ref{x})))
		}, "RandomNormalLike RandomNormalLike Add"},
		{"nodes that do nothing", func(b *build.Builder) {
			x := b.Input("x", onnx.Float32, "n", 4)
			b.Output("out", b.Op("Identity", []build.Ref{b.Relu(b.Op("Dropout", []build.Ref{b.Op("Identity", []build.Ref{x})}))}))
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
			m, err := b.Model()
			if err != nil {
				t.Fatal(err)
			}
			ins, outs := listNames(m.Graph.Inputs), listNames(m.Graph.Outputs)
			if err := Simplify(m, nil); err != nil {
				t.Fatal(err)
			}
			if err := check.Model(m); err != nil {
				t.Fatal(err)
			}
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

func TestSimplifyAsksTheEvaluator(t *testing.T) {
	b := build.New("sine")
	x := b.Input("x", onnx.Float32, "n", 2)
	b.Output("out", b.Add(x, b.Op("Sin", []build.Ref{b.Param("w", onnx.Vector[float32](0, 1))})))
	m, err := b.Model()
	if err != nil {
		t.Fatal(err)
	}
	err = Simplify(m, func(n *onnx.Node, opset int, in []*onnx.Tensor) []*onnx.Tensor {
		if n.Op != "Sin" || opset != onnx.DefaultOpset {
			t.Errorf("asked for %s of opset %d", n.Op, opset)
		}
		return []*onnx.Tensor{onnx.Vector(in[0].F32()[0]+7, in[0].F32()[1]+7)}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := operators(m); got != "Add" {
		t.Errorf("operators are %s", got)
	}
	if got := m.Graph.Initializers[m.Graph.Nodes[0].Inputs[1]]; got == nil || !slices.Equal(got.F32(), []float32{7, 8}) {
		t.Errorf("the constant is %v", got)
	}
}

// A small file must not become a large model: constants are worked out within a budget.
func TestFoldingIsBounded(t *testing.T) {
	b := build.New("growing")
	x := b.Input("x", onnx.Float32, "n")
	const each, count = 1 << 15, 400
	for range count {
		c := b.Op("ConstantOfShape", []build.Ref{b.Axes(each)})
		x = b.Add(x, b.Op("Slice", []build.Ref{c, b.Axes(0), b.Axes(1)}))
	}
	b.Output("out", x)
	m, err := b.Model()
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range m.Graph.Nodes {
		if n.Op == "ConstantOfShape" { // different ones, lest they be joined
			n.Attrs = []onnx.Attr{onnx.TensorAttr("value", onnx.Vector(float32(i)))}
		}
		if n.Op == "Slice" {
			n.Op, n.Inputs = "ReduceMax", n.Inputs[:1]
		}
	}
	if err := Simplify(m, nil); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, w := range m.Graph.Initializers {
		total += w.Len()
	}
	if total > shape.MaxWorkedOut || total < each {
		t.Errorf("initializers hold %d elements; the budget is %d", total, shape.MaxWorkedOut)
	}
	if err := check.Model(m); err != nil {
		t.Error(err)
	}
}

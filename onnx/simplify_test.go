package onnx

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func operators(m *Model) string {
	var ops []string
	for _, n := range m.Graph.Nodes {
		ops = append(ops, n.Op)
	}
	return strings.Join(ops, " ")
}

func TestSimplify(t *testing.T) {
	for _, tc := range []struct {
		name  string
		build func(b *Builder)
		want  string
	}{
		{"a shape from known sizes", func(b *Builder) {
			x := b.Input("x", Float32, "batch", 2, 3)
			n := b.Op("Gather", []Ref{b.Op("Shape", []Ref{x}), b.Axes(1, 2)})
			b.Output("out", b.Op("Reshape", []Ref{x, b.Concat(0, b.Axes(-1), b.Op("ReduceProd", []Ref{n}, IntAttr("keepdims", 1)))}))
		}, "Reshape"},
		{"a shape with a symbol stays", func(b *Builder) {
			x := b.Input("x", Float32, "batch", 2, 3)
			b.Output("out", b.Op("Shape", []Ref{x}))
		}, "Shape"},
		{"copies", func(b *Builder) {
			x := b.Input("x", Float32, "n", 4)
			b.Output("out", b.Add(b.Mul(x, b.F32(2)), b.Mul(x, b.F32(2))))
		}, "Mul Add"},
		{"random copies stay", func(b *Builder) {
			x := b.Input("x", Float32, "n", 4)
			b.Output("out", b.Add(b.Op("RandomNormalLike", []Ref{x}), b.Op("RandomNormalLike", []Ref{x})))
		}, "RandomNormalLike RandomNormalLike Add"},
		{"nodes that do nothing", func(b *Builder) {
			x := b.Input("x", Float32, "n", 4)
			b.Output("out", b.Op("Identity", []Ref{b.Relu(b.Op("Dropout", []Ref{b.Op("Identity", []Ref{x})}))}))
		}, "Relu"},
		{"an input as output stays", func(b *Builder) {
			b.Output("out", b.Input("x", Float32, "n", 4))
		}, "Identity"},
		{"a constant output", func(b *Builder) {
			b.Input("x", Float32, "n", 4)
			b.Output("out", b.Add(b.Axes(1, 2), b.Axes(3, 4)))
		}, "Identity"},
		{"what no output needs", func(b *Builder) {
			x := b.Input("x", Float32, "n", 4)
			b.Exp(b.Log(x))
			b.Output("out", b.Sqrt(x))
		}, "Sqrt"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := NewBuilder(tc.name)
			tc.build(b)
			m, err := b.Model()
			if err != nil {
				t.Fatal(err)
			}
			ins, outs := listNames(m.Graph.Inputs), listNames(m.Graph.Outputs)
			if err := Simplify(m, nil); err != nil {
				t.Fatal(err)
			}
			if err := Check(m); err != nil {
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
	b := NewBuilder("sine")
	x := b.Input("x", Float32, "n", 2)
	b.Output("out", b.Add(x, b.Op("Sin", []Ref{b.Param("w", Vector[float32](0, 1))})))
	m, err := b.Model()
	if err != nil {
		t.Fatal(err)
	}
	err = Simplify(m, func(n *Node, opset int, in []*Tensor) []*Tensor {
		if n.Op != "Sin" || opset != DefaultOpset {
			t.Errorf("asked for %s of opset %d", n.Op, opset)
		}
		return []*Tensor{Vector(in[0].F32()[0]+7, in[0].F32()[1]+7)}
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

func TestEvaluate(t *testing.T) {
	ints := func(v ...int64) *Tensor { return Vector(v...) }
	m23 := NewTensor([]int64{1, 2, 3, 4, 5, 6}, 2, 3)
	for _, tc := range []struct {
		name  string
		node  *Node
		in    []*Tensor
		shape []int
		want  *Tensor
	}{
		{"transpose", &Node{Op: "Transpose", Attrs: []Attr{IntsAttr("perm", 1, 0)}}, []*Tensor{m23}, []int{3, 2}, NewTensor([]int64{1, 4, 2, 5, 3, 6}, 3, 2)},
		{"slice backwards", &Node{Op: "Slice"}, []*Tensor{m23, ints(-1), ints(-100), ints(1), ints(-2)}, []int{2, 2}, NewTensor([]int64{3, 1, 6, 4}, 2, 2)},
		{"gather columns", &Node{Op: "Gather", Attrs: []Attr{IntAttr("axis", 1)}}, []*Tensor{m23, ints(-1, 0)}, []int{2, 2}, NewTensor([]int64{3, 1, 6, 4}, 2, 2)},
		{"tile", &Node{Op: "Tile"}, []*Tensor{NewTensor([]int64{1, 2}, 1, 2), ints(2, 2)}, []int{2, 4}, NewTensor([]int64{1, 2, 1, 2, 1, 2, 1, 2}, 2, 4)},
		{"expand", &Node{Op: "Expand"}, []*Tensor{NewTensor([]int64{1, 2}, 2, 1), ints(2, 2)}, []int{2, 2}, NewTensor([]int64{1, 1, 2, 2}, 2, 2)},
		{"broadcast add", &Node{Op: "Add"}, []*Tensor{m23, ints(10, 20, 30)}, []int{2, 3}, NewTensor([]int64{11, 22, 33, 14, 25, 36}, 2, 3)},
		{"integer division truncates", &Node{Op: "Div"}, []*Tensor{ints(-7, 7), ints(2, 2)}, []int{2}, ints(-3, 3)},
		{"mod takes the divisor's sign", &Node{Op: "Mod"}, []*Tensor{ints(-7, 7), ints(3, -3)}, []int{2}, ints(2, -2)},
		{"division by zero is left", &Node{Op: "Div"}, []*Tensor{ints(1), ints(0)}, []int{1}, nil},
		{"range", &Node{Op: "Range"}, []*Tensor{Scalar[int64](5), Scalar[int64](0), Scalar[int64](-2)}, []int{3}, ints(5, 3, 1)},
		{"cast of a fraction", &Node{Op: "Cast", Attrs: []Attr{IntAttr("to", int(Int64))}}, []*Tensor{Vector[float32](-1.5, 2.5)}, []int{2}, ints(-1, 2)},
		{"cast out of range is left", &Node{Op: "Cast", Attrs: []Attr{IntAttr("to", int(Uint8))}}, []*Tensor{Vector[float32](-1)}, []int{1}, nil},
		{"where", &Node{Op: "Where"}, []*Tensor{Vector(true, false), ints(1), ints(8, 9)}, []int{2}, ints(1, 9)},
		{"float32 rounds once", &Node{Op: "Div"}, []*Tensor{Vector[float32](1), Vector[float32](3)}, []int{1}, Vector[float32](1.0 / 3)},
		{"constant of shape", &Node{Op: "ConstantOfShape", Attrs: []Attr{TensorAttr("value", Vector[int64](4))}}, []*Tensor{ints(2)}, []int{2}, ints(4, 4)},
		{"product", &Node{Op: "ReduceProd"}, []*Tensor{ints(2, 3, 7)}, []int{1}, ints(42)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := evaluate(tc.node, DefaultOpset, tc.in, tc.shape)
			if (got == nil) != (tc.want == nil) {
				t.Fatalf("got %v, want %v", got, tc.want)
			}
			if got == nil {
				return
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %v %v, want %v %v", got, got.Data, tc.want, tc.want.Data)
			}
		})
	}
}

// A small file must not become a large model: constants are worked out within a budget.
func TestFoldingIsBounded(t *testing.T) {
	b := NewBuilder("growing")
	x := b.Input("x", Float32, "n")
	const each, count = 1 << 15, 400
	for range count {
		c := b.Op("ConstantOfShape", []Ref{b.Axes(each)})
		x = b.Add(x, b.Op("Slice", []Ref{c, b.Axes(0), b.Axes(1)}))
	}
	b.Output("out", x)
	m, err := b.Model()
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range m.Graph.Nodes {
		if n.Op == "ConstantOfShape" { // different ones, lest they be joined
			n.Attrs = []Attr{TensorAttr("value", Vector(float32(i)))}
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
	if total > maxWorkedOut || total < each {
		t.Errorf("initializers hold %d elements; the budget is %d", total, maxWorkedOut)
	}
	if err := Check(m); err != nil {
		t.Error(err)
	}
}

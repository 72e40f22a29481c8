package shape

import (
	"fmt"
	"reflect"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
)

func TestFollowFoldsConstants(t *testing.T) {
	t.Parallel()
	ints := func(v ...int64) *onnx.Tensor { return onnx.Vector(v...) }
	m23 := onnx.NewTensor([]int64{1, 2, 3, 4, 5, 6}, 2, 3)
	type tensors = []*onnx.Tensor
	for _, tc := range []struct {
		name  string
		op    string
		in    []*onnx.Tensor
		want  *onnx.Tensor
		attrs []onnx.Attr
	}{
		{"transpose", "Transpose", tensors{m23},
			onnx.NewTensor([]int64{1, 4, 2, 5, 3, 6}, 3, 2), []onnx.Attr{onnx.IntsAttr("perm", 1, 0)}},
		{"slice backwards", "Slice", tensors{m23, ints(-1), ints(-100), ints(1), ints(-2)},
			onnx.NewTensor([]int64{3, 1, 6, 4}, 2, 2), nil},
		{"gather columns", "Gather", tensors{m23, ints(-1, 0)},
			onnx.NewTensor([]int64{3, 1, 6, 4}, 2, 2), []onnx.Attr{onnx.IntAttr("axis", 1)}},
		{"tile", "Tile", tensors{onnx.NewTensor([]int64{1, 2}, 1, 2), ints(2, 2)},
			onnx.NewTensor([]int64{1, 2, 1, 2, 1, 2, 1, 2}, 2, 4), nil},
		{"expand", "Expand", tensors{onnx.NewTensor([]int64{1, 2}, 2, 1), ints(2, 2)},
			onnx.NewTensor([]int64{1, 1, 2, 2}, 2, 2), nil},
		{"broadcast add", "Add", tensors{m23, ints(10, 20, 30)},
			onnx.NewTensor([]int64{11, 22, 33, 14, 25, 36}, 2, 3), nil},
		{"integer division truncates", "Div", tensors{ints(-7, 7), ints(2, 2)}, ints(-3, 3), nil},
		{"mod takes the divisor's sign", "Mod", tensors{ints(-7, 7), ints(3, -3)}, ints(2, -2), nil},
		{"division by zero is left", "Div", tensors{ints(1), ints(0)}, nil, nil},
		{"range", "Range", tensors{onnx.Scalar[int64](5), onnx.Scalar[int64](0), onnx.Scalar[int64](-2)},
			ints(5, 3, 1), nil},
		{"cast of a fraction", "Cast", tensors{onnx.Vector[float32](-1.5, 2.5)},
			ints(-1, 2), []onnx.Attr{onnx.IntAttr("to", int(onnx.Int64))}},
		{"cast out of range is left", "Cast", tensors{onnx.Vector[float32](-1)},
			nil, []onnx.Attr{onnx.IntAttr("to", int(onnx.Uint8))}},
		{"where", "Where", tensors{onnx.Vector(true, false), ints(1), ints(8, 9)}, ints(1, 9), nil},
		{"where of nothing", "Where", tensors{onnx.Vector(true), ints(), ints(8)},
			onnx.NewTensor([]int64{}, 0), nil},
		{"float32 rounds once", "Div", tensors{onnx.Vector[float32](1), onnx.Vector[float32](3)},
			onnx.Vector[float32](1.0 / 3), nil},
		{"constant of shape", "ConstantOfShape", tensors{ints(2)},
			ints(4, 4), []onnx.Attr{onnx.TensorAttr("value", onnx.Vector[int64](4))}},
		{"product", "ReduceProd", tensors{ints(2, 3, 7)}, ints(42), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &onnx.Node{Op: tc.op, Outputs: []string{"y"}, Attrs: tc.attrs}
			g := &onnx.Graph{Name: "g", Initializers: map[string]*onnx.Tensor{}, Nodes: []*onnx.Node{n},
				Outputs: []onnx.ValueInfo{{Name: "y"}}}
			for i, t := range tc.in {
				name := fmt.Sprint("in", i)
				g.Initializers[name] = t
				n.Inputs = append(n.Inputs, name)
			}
			m := onnx.NewModel(g)
			facts := must.Get(Follow(m, 1024, onnx.NewBudget(m)))(t)
			got := facts.Constant("y")
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

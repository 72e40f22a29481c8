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
	for _, tc := range []struct {
		name string
		node *onnx.Node
		in   []*onnx.Tensor
		want *onnx.Tensor
	}{
		{"transpose", &onnx.Node{Op: "Transpose", Attrs: []onnx.Attr{onnx.IntsAttr("perm", 1, 0)}},
			[]*onnx.Tensor{m23}, onnx.NewTensor([]int64{1, 4, 2, 5, 3, 6}, 3, 2)},
		{"slice backwards", &onnx.Node{Op: "Slice"},
			[]*onnx.Tensor{m23, ints(-1), ints(-100), ints(1), ints(-2)},
			onnx.NewTensor([]int64{3, 1, 6, 4}, 2, 2)},
		{"gather columns", &onnx.Node{Op: "Gather", Attrs: []onnx.Attr{onnx.IntAttr("axis", 1)}},
			[]*onnx.Tensor{m23, ints(-1, 0)}, onnx.NewTensor([]int64{3, 1, 6, 4}, 2, 2)},
		{"tile", &onnx.Node{Op: "Tile"},
			[]*onnx.Tensor{onnx.NewTensor([]int64{1, 2}, 1, 2), ints(2, 2)},
			onnx.NewTensor([]int64{1, 2, 1, 2, 1, 2, 1, 2}, 2, 4)},
		{"expand", &onnx.Node{Op: "Expand"},
			[]*onnx.Tensor{onnx.NewTensor([]int64{1, 2}, 2, 1), ints(2, 2)},
			onnx.NewTensor([]int64{1, 1, 2, 2}, 2, 2)},
		{"broadcast add", &onnx.Node{Op: "Add"}, []*onnx.Tensor{m23, ints(10, 20, 30)},
			onnx.NewTensor([]int64{11, 22, 33, 14, 25, 36}, 2, 3)},
		{"integer division truncates", &onnx.Node{Op: "Div"},
			[]*onnx.Tensor{ints(-7, 7), ints(2, 2)}, ints(-3, 3)},
		{"mod takes the divisor's sign", &onnx.Node{Op: "Mod"},
			[]*onnx.Tensor{ints(-7, 7), ints(3, -3)}, ints(2, -2)},
		{"division by zero is left", &onnx.Node{Op: "Div"}, []*onnx.Tensor{ints(1), ints(0)}, nil},
		{"range", &onnx.Node{Op: "Range"},
			[]*onnx.Tensor{onnx.Scalar[int64](5), onnx.Scalar[int64](0), onnx.Scalar[int64](-2)},
			ints(5, 3, 1)},
		{"cast of a fraction", &onnx.Node{Op: "Cast", Attrs: []onnx.Attr{onnx.IntAttr("to", int(onnx.Int64))}},
			[]*onnx.Tensor{onnx.Vector[float32](-1.5, 2.5)}, ints(-1, 2)},
		{"cast out of range is left",
			&onnx.Node{Op: "Cast", Attrs: []onnx.Attr{onnx.IntAttr("to", int(onnx.Uint8))}},
			[]*onnx.Tensor{onnx.Vector[float32](-1)}, nil},
		{"where", &onnx.Node{Op: "Where"},
			[]*onnx.Tensor{onnx.Vector(true, false), ints(1), ints(8, 9)}, ints(1, 9)},
		{"where of nothing", &onnx.Node{Op: "Where"},
			[]*onnx.Tensor{onnx.Vector(true), ints(), ints(8)}, onnx.NewTensor([]int64{}, 0)},
		{"float32 rounds once", &onnx.Node{Op: "Div"},
			[]*onnx.Tensor{onnx.Vector[float32](1), onnx.Vector[float32](3)},
			onnx.Vector[float32](1.0 / 3)},
		{"constant of shape", &onnx.Node{Op: "ConstantOfShape",
			Attrs: []onnx.Attr{onnx.TensorAttr("value", onnx.Vector[int64](4))}},
			[]*onnx.Tensor{ints(2)}, ints(4, 4)},
		{"product", &onnx.Node{Op: "ReduceProd"}, []*onnx.Tensor{ints(2, 3, 7)}, ints(42)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := &onnx.Graph{Name: "g", Initializers: map[string]*onnx.Tensor{},
				Nodes:   []*onnx.Node{tc.node},
				Outputs: []onnx.ValueInfo{{Name: "y"}}}
			for i, t := range tc.in {
				name := fmt.Sprint("in", i)
				g.Initializers[name] = t
				tc.node.Inputs = append(tc.node.Inputs, name)
			}
			tc.node.Outputs = []string{"y"}
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

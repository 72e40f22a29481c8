package pure

import (
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
)

// The outputs of one node may be read long before and after each other, in any order.
func TestOutputsOfOneNodeAreReadApart(t *testing.T) {
	for _, at := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		b := build.New("apart")
		x := b.Input("x", onnx.Float32, "n", 6)
		parts := b.OpN("Split", []build.Ref{x, b.Axes(2, 2, 2)}, 3, onnx.IntAttr("axis", 1))
		y := b.Transpose(b.Transpose(parts[at[0]], 1, 0), 1, 0)
		y = b.Sub(y, parts[at[1]])
		z := b.Transpose(parts[at[2]], 1, 0)
		b.Output("y", b.Mul(y, b.Transpose(z, 1, 0)))
		m := must.Get(b.Model())(t)
		got := evaluated(t, load(t, m), onnx.NewTensor([]float32{1, 2, 3, 4, 5, 6}, 1, 6))["y"]
		want := make([]float32, 2)
		for i := range want {
			part := func(k int) float32 { return float32(2*at[k] + i + 1) }
			want[i] = (part(0) - part(1)) * part(2)
		}
		if !slices.Equal(got.F32(), want) {
			t.Errorf("%v: got %v, want %v", at, got.F32(), want)
		}
	}
}

func TestFunctionsAreInlined(t *testing.T) {
	f := &onnx.Function{Domain: "own", Name: "square", Inputs: []string{"a"}, Outputs: []string{"b"},
		Opsets: map[string]int64{"": 17},
		Nodes:  []*onnx.Node{{Op: "Mul", Inputs: []string{"a", "a"}, Outputs: []string{"b"}}}}
	m := onnx.NewModel(&onnx.Graph{Name: "calls", Initializers: map[string]*onnx.Tensor{},
		Inputs:  []onnx.ValueInfo{{Name: "x", DType: onnx.Float32, Shape: onnx.Shape(2)}},
		Outputs: []onnx.ValueInfo{{Name: "y", DType: onnx.Float32, Shape: onnx.Shape(2)}},
		Nodes: []*onnx.Node{{Name: "call", Op: "square", Domain: "own", Inputs: []string{"x"},
			Outputs: []string{"y"}}}})
	m.Opsets["own"] = 1
	m.Functions = []*onnx.Function{f}
	if got := evaluated(t, load(t, m), onnx.Vector[float32](2, 3))["y"]; !slices.Equal(got.F32(), []float32{4, 9}) {
		t.Errorf("got %v", got.F32())
	}
	if len(m.Functions) != 1 {
		t.Error("the caller's model was changed")
	}
}

package op

import (
	"testing"

	"fmp/onnx"
)

// TestWork: work and memory that do not follow from the sizes of inputs and outputs.
func TestWork(t *testing.T) {
	x := func(dims ...float64) Size {
		v := Size{Dims: dims, Count: 1}
		for _, d := range dims {
			v.Count *= d
		}
		return v
	}
	for name, c := range map[string]struct {
		node          *onnx.Node
		in, out       []Size
		work, scratch float64 // at least
	}{
		"MatMul": {&onnx.Node{Op: "MatMul"}, []Size{x(5, 30), x(30, 7)},
			[]Size{x(5, 7)}, 5 * 7 * 30, 0},
		"MatMul, vector": {&onnx.Node{Op: "MatMul"}, []Size{x(30), x(30)}, []Size{x()}, 30, 0},
		"FusedMatMul": {&onnx.Node{Op: "FusedMatMul", Domain: "com.microsoft",
			Attrs: []onnx.Attr{onnx.BoolAttr("transA", true)}}, []Size{x(30, 5), x(30, 7)},
			[]Size{x(5, 7)}, 5 * 7 * 30, 0},
		"QLinearConv": {&onnx.Node{Op: "QLinearConv"},
			[]Size{x(1, 3, 9, 9), x(), x(), x(8, 3, 5, 5), x(), x(), x(), x()}, []Size{x(1, 8, 5, 5)},
			8 * 25 * 75, 0},
		"ConvTranspose": {&onnx.Node{Op: "ConvTranspose"}, []Size{x(1, 3, 9, 9), x(3, 8, 5, 5)},
			[]Size{x(1, 8, 13, 13)}, 243 * 200, 0},
		"Attention, of heads": {&onnx.Node{Op: "Attention", Attrs: []onnx.Attr{onnx.IntAttr("q_num_heads", 4)}},
			[]Size{x(2, 100, 64), x(2, 300, 64), x(2, 300, 64)}, []Size{x(2, 100, 64)},
			2 * 2 * 100 * 300 * 64, 4 * 2 * 4 * 100 * 300},
		"Attention": {&onnx.Node{Op: "Attention"},
			[]Size{x(2, 4, 100, 16), x(2, 4, 300, 16), x(2, 4, 300, 16)}, []Size{x(2, 4, 100, 16)},
			2 * 2 * 100 * 300 * 64, 4 * 2 * 4 * 100 * 300},
		"RoiAlign of any region": {&onnx.Node{Op: "RoiAlign"}, []Size{x(1, 1, 9, 9), x(1, 4), x(1)},
			[]Size{x(1, 1, 1, 1)}, 1e300, 0},
		"a forest": {&onnx.Node{Op: "TreeEnsembleRegressor", Domain: "ai.onnx.ml",
			Attrs: []onnx.Attr{onnx.IntsAttr("nodes_nodeids", make([]int, 500)...)}},
			[]Size{x(10, 3)}, []Size{x(10, 1)}, 10 * 500, 0},
		"a transform that is longer than its signal": {&onnx.Node{Op: "DFT"}, []Size{x(1, 10, 1), x()},
			[]Size{x(1, 1009, 2)}, 1009 * 1009, 16 * 1009},
		"Einsum, an axis of 1 repeated": {&onnx.Node{Op: "Einsum",
			Attrs: []onnx.Attr{onnx.StrAttr("equation", "i,ij->")}}, []Size{x(1), x(50, 7)}, []Size{x()},
			2 * 50 * 7, 8 * 3 * 352},
		"a transform of nothing": {&onnx.Node{Op: "DFT"}, nil, nil, 0, 0},
		"LSTM": {&onnx.Node{Op: "LSTM"}, []Size{x(7, 2, 3), x(1, 20, 3), x(1, 20, 5)},
			[]Size{x(7, 1, 2, 5)}, 14 * 4 * 5 * 8, 0},
	} {
		one := Sized{Node: c.node, Attrs: Attrs(c.node, 23), In: c.in, Out: c.out}
		if w, s := one.Work(), one.Scratch(); w < c.work || s < c.scratch {
			t.Errorf("%s: work %v and %v bytes; want at least %v and %v", name, w, s, c.work, c.scratch)
		}
	}
}

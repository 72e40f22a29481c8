package grad

import (
	"fmt"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
)

// TestOldOperatorSets differentiates forms that have since changed: axes and bounds as attributes,
// Softmax over several axes at once.
func TestOldOperatorSets(t *testing.T) {
	eng := orttest.New(t)
	for _, k := range []ruleCase{
		{op: "Softmax", opset: 11, in: []arg{normal(2, 3, 2)}, attrs: []onnx.Attr{attr("axis", 1)}},
		{op: "Squeeze", opset: 9, in: []arg{normal(2, 1, 3)}, attrs: []onnx.Attr{ints("axes", 1)}},
		{op: "Clip", opset: 7, in: []arg{spaced(9)},
			attrs: []onnx.Attr{onnx.FloatAttr("min", -0.5), onnx.FloatAttr("max", 0.5)}},
		{op: "Slice", opset: 9, in: []arg{normal(4, 5)},
			attrs: []onnx.Attr{ints("axes", 1), ints("starts", 1), ints("ends", 4)}},
		{op: "Pad", opset: 10, in: []arg{normal(2, 3)}, attrs: []onnx.Attr{ints("pads", 0, 1, 2, 0)}},
		{op: "ReduceSum", opset: 11, in: []arg{normal(2, 3)},
			attrs: []onnx.Attr{ints("axes", 1), attr("keepdims", 0)}},
		{op: "Split", opset: 11, in: []arg{normal(2, 6)},
			attrs: []onnx.Attr{attr("axis", 1), ints("split", 2, 4)}, outputs: 2},
		{op: "Dropout", opset: 7, in: []arg{normal(3)}},
		{op: "BatchNormalization", opset: 9,
			in: []arg{normal(2, 3, 2, 2), weight(3), weight(3), weight(3), uniformWeight(0.5, 2, 3)}},
		{op: "Upsample", opset: 9,
			in:    []arg{normal(1, 1, 2, 3), constant(onnx.Vector[float32](1, 1, 2, 2))},
			attrs: []onnx.Attr{onnx.StrAttr("mode", "nearest")}},
		{op: "MatMul", opset: 21, in: []arg{normal(2, 3), normal(3, 4)}},
	} {
		t.Run(fmt.Sprintf("%s of %d", k.op, k.opset), func(t *testing.T) {
			m, feeds, wrt := k.model(false, 5)
			checkGradient(t, eng, m, feeds, wrt)
			g := must.Get(Build(m, Options{WRT: wrt}))(t)
			if v := g.Opset(); v < MinOpset || v > MaxOpset {
				t.Errorf("the gradient model imports operator set %d", v)
			}
		})
	}
}

func TestNewerOperatorSetIsRefused(t *testing.T) {
	m, _, wrt := ruleCase{op: "Add", opset: MaxOpset + 1,
		in: []arg{normal(2), normal(2)}}.model(false, 1)
	if _, err := Build(m, Options{WRT: wrt}); err == nil ||
		!strings.Contains(err.Error(), "operator set 29; allowed are up to 28") {
		t.Errorf("error is %v; want one that names operator sets 29 and 28", err)
	}
}

// TestFunctionsAreInlined differentiates a model whose operator is a function of its own.
func TestFunctionsAreInlined(t *testing.T) {
	eng := orttest.New(t)
	m := onnx.NewModel(&onnx.Graph{
		Name: "calls", Initializers: map[string]*onnx.Tensor{},
		Inputs:  []onnx.ValueInfo{{Name: "x", DType: onnx.Float32, Shape: onnx.Shape("n")}},
		Outputs: []onnx.ValueInfo{{Name: "y", DType: onnx.Float32, Shape: onnx.Shape("n")}},
		Nodes: []*onnx.Node{{Name: "call", Op: "Swish", Domain: "my", Inputs: []string{"x"},
			Outputs: []string{"y"}}},
	})
	m.Opsets["my"] = 1
	m.Functions = []*onnx.Function{{
		Domain: "my", Name: "Swish", Inputs: []string{"a"}, Outputs: []string{"b"},
		Opsets: map[string]int64{"": onnx.DefaultOpset},
		Nodes: []*onnx.Node{
			{Op: "Sigmoid", Inputs: []string{"a"}, Outputs: []string{"s"}},
			{Op: "Mul", Inputs: []string{"a", "s"}, Outputs: []string{"b"}},
		},
	}}
	checkGradient(t, eng, m, map[string]*onnx.Tensor{"x": onnx.Vector[float32](-1, 0.3, 2)},
		[]string{"x"})
}

package grad

import (
	"fmt"
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
		vjp("Softmax", "axis=1", normal(2, 3, 2)).at(11),
		vjp("Squeeze", "axes=1", normal(2, 1, 3)).at(9),
		vjp("Clip", "min=-0.5 max=0.5", spaced(9)).at(7),
		vjp("Slice", "axes=1 starts=1 ends=4", normal(4, 5)).at(9),
		vjp("Pad", "pads=0,1,2,0", normal(2, 3)).at(10),
		vjp("ReduceSum", "axes=1 keepdims=0", normal(2, 3)).at(11),
		vjp("Split", "axis=1 split=2,4", normal(2, 6)).at(11).gives(2),
		vjp("Dropout", "", normal(3)).at(7),
		vjp("BatchNormalization", "", normal(2, 3, 2, 2), weight(3), weight(3), weight(3),
			uniformWeight(0.5, 2, 3)).at(9),
		vjp("Upsample", "mode=nearest", normal(1, 1, 2, 3), vector(1, 1, 2, 2)).at(9),
		vjp("MatMul", "", normal(2, 3), normal(3, 4)).at(21),
	} {
		t.Run(fmt.Sprintf("%s of %d", k.op(), k.opset), func(t *testing.T) {
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
	m, _, wrt := vjp("Add", "", normal(2), normal(2)).at(MaxOpset+1).model(false, 1)
	must.Fail(Build(m, Options{WRT: wrt}))(t, "operator set 29; allowed are up to 28")
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

package pass_test

import (
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/pass"
)

// TestFromSix: operands that were broadcast along an axis lie there, slopes are of channels, and
// what trains is refused by name.
func TestFromSix(t *testing.T) {
	x := onnx.NewTensor([]float32{-1, 2, -3, 4, -5, 6, -7, 8}, 1, 2, 4)
	for _, c := range []struct {
		op, attrs string
		b         *onnx.Tensor
		want      []float32 // none: it is refused
		text      string
	}{
		{"Add", "broadcast=1 axis=1", onnx.Vector[float32](10, 20),
			[]float32{9, 12, 7, 14, 15, 26, 13, 28}, ""},
		{"Sub", "broadcast=1", onnx.Vector[float32](1, 2, 3, 4), []float32{-2, 0, -6, 0, -6, 4, -10, 4}, ""},
		{"PRelu", "", onnx.Vector[float32](.5, 2), []float32{-.5, 2, -1.5, 4, -10, 6, -14, 8}, ""},
		{"PRelu", "", onnx.Vector[float32](.5), []float32{-.5, 2, -1.5, 4, -2.5, 6, -3.5, 8}, ""},
		{"Mul", "broadcast=1 axis=3", onnx.Vector[float32](1), nil, "axis 3"},
		{"Dropout", "", nil, nil, "is_test"},
		{"Mish", "", nil, nil, "not known"},
	} {
		n := modeltest.Node(c.op, "x", "y", modeltest.Attrs(c.op, 6, c.attrs)...)
		m := &onnx.Model{IR: 3, Opsets: map[string]int64{"": 6},
			Graph: modeltest.Graph("x:float32[1,2,4]", "y:float32[1,2,4]", nil, n)}
		if c.b != nil {
			n.Inputs = append(n.Inputs, "b")
			m.Graph.Initializers["b"] = c.b
		}
		got, err := pass.FromSix(m)
		if c.want == nil {
			must.Fail(err)(t, c.text, c.op)
			must.Fail(err)(t, "node", c.op)
			continue
		}
		if err != nil || got.Opset() != 7 || m.Opset() != 6 || len(m.Graph.Nodes) != 1 {
			t.Fatalf("%s: %v", c.op, err)
		}
		s := must.Get(must.Get(pure.New(engine.Options{}))(t).Load(got))(t)
		out := must.Get(engine.Eval(s, map[string]*onnx.Tensor{"x": x}))(t)
		if y := out["y"].F32(); !slices.Equal(y, c.want) {
			t.Errorf("%s: %v; want %v", c.op, y, c.want)
		}
	}
	seven := &onnx.Model{Opsets: map[string]int64{"": 7}, Graph: &onnx.Graph{}}
	if got, err := pass.FromSix(seven); got != seven || err != nil {
		t.Errorf("a model of set 7: %v %v", got, err)
	}
}

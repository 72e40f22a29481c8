package pass_test

import (
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/pass"
)

// TestFromSix: operands that were broadcast along an axis lie there, slopes are of channels, and
// what trains is refused by name.
func TestFromSix(t *testing.T) {
	x := onnx.NewTensor([]float32{-1, 2, -3, 4, -5, 6, -7, 8}, 1, 2, 4)
	for _, c := range []struct {
		node onnx.Node
		b    *onnx.Tensor
		want []float32 // none: it is refused
		text string
	}{
		{onnx.Node{Op: "Add", Attrs: []onnx.Attr{onnx.IntAttr("broadcast", 1), onnx.IntAttr("axis", 1)}},
			onnx.Vector[float32](10, 20), []float32{9, 12, 7, 14, 15, 26, 13, 28}, ""},
		{onnx.Node{Op: "Sub", Attrs: []onnx.Attr{onnx.IntAttr("broadcast", 1)}},
			onnx.Vector[float32](1, 2, 3, 4), []float32{-2, 0, -6, 0, -6, 4, -10, 4}, ""},
		{onnx.Node{Op: "PRelu"}, onnx.Vector[float32](.5, 2),
			[]float32{-.5, 2, -1.5, 4, -10, 6, -14, 8}, ""},
		{onnx.Node{Op: "PRelu"}, onnx.Vector[float32](.5), []float32{-.5, 2, -1.5, 4, -2.5, 6, -3.5, 8},
			""},
		{onnx.Node{Op: "Mul", Attrs: []onnx.Attr{onnx.IntAttr("broadcast", 1), onnx.IntAttr("axis", 3)}},
			onnx.Vector[float32](1), nil, "axis 3"},
		{onnx.Node{Op: "Dropout"}, nil, nil, "is_test"},
		{onnx.Node{Op: "Mish"}, nil, nil, "not known"},
	} {
		c.node.Name, c.node.Inputs, c.node.Outputs = "node", []string{"x"}, []string{"y"}
		m := &onnx.Model{IR: 3, Opsets: map[string]int64{"": 6},
			Graph: &onnx.Graph{Name: "six", Nodes: []*onnx.Node{&c.node},
				Inputs:       []onnx.ValueInfo{{Name: "x", DType: onnx.Float32, Shape: onnx.Shape(1, 2, 4)}},
				Outputs:      []onnx.ValueInfo{{Name: "y", DType: onnx.Float32, Shape: onnx.Shape(1, 2, 4)}},
				Initializers: map[string]*onnx.Tensor{}}}
		if c.b != nil {
			c.node.Inputs = append(c.node.Inputs, "b")
			m.Graph.Initializers["b"] = c.b
		}
		got, err := pass.FromSix(m)
		if c.want == nil {
			if err == nil || !strings.Contains(err.Error(), c.text) ||
				!strings.Contains(err.Error(), "node") {
				t.Errorf("%s: %v; want an error with %q", c.node.Op, err, c.text)
			}
			continue
		}
		if err != nil || got.Opset() != 7 || m.Opset() != 6 || len(m.Graph.Nodes) != 1 {
			t.Fatalf("%s: %v", c.node.Op, err)
		}
		e := must.Get(pure.New(engine.Options{}))(t)
		s, err := e.Load(got)
		if err != nil {
			t.Fatalf("%s: %v", c.node.Op, err)
		}
		out, err := engine.Eval(s, map[string]*onnx.Tensor{"x": x})
		if err != nil {
			t.Fatalf("%s: %v", c.node.Op, err)
		}
		for i, v := range out["y"].F32() {
			if v != c.want[i] {
				t.Errorf("%s: %v; want %v", c.node.Op, out["y"].F32(), c.want)
				break
			}
		}
	}
	seven := &onnx.Model{Opsets: map[string]int64{"": 7}, Graph: &onnx.Graph{}}
	if got, err := pass.FromSix(seven); got != seven || err != nil {
		t.Errorf("a model of set 7: %v %v", got, err)
	}
}

package ort

import (
	"math"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

// TestNewerSet: what operator set 28 says more of operators that the runtime has in an older one is
// computed by it, as the set's equations say.
func TestNewerSet(t *testing.T) {
	e := newEngine(t, Options{Threads: 1})
	x := onnx.NewTensor([]float32{0, 1, 2, 3, 4, 5, 6, 7}, 1, 2, 2, 2)
	rows := onnx.NewTensor([]float32{0, 1, 2, 3, 4, 5}, 2, 3)
	for _, c := range []struct {
		name string
		node onnx.Node
		in   []*onnx.Tensor
		want []float32
	}{
		{"depth first", onnx.Node{Op: "SpaceToDepth",
			Attrs: []onnx.Attr{onnx.IntAttr("blocksize", 2), onnx.StrAttr("mode", "DCR")}},
			[]*onnx.Tensor{x}, []float32{0, 4, 1, 5, 2, 6, 3, 7}},
		{"columns first", onnx.Node{Op: "SpaceToDepth",
			Attrs: []onnx.Attr{onnx.IntAttr("blocksize", 2), onnx.StrAttr("mode", "CRD")}},
			[]*onnx.Tensor{x}, []float32{0, 1, 2, 3, 4, 5, 6, 7}},
		{"a length of 0", onnx.Node{Op: "ReverseSequence",
			Attrs: []onnx.Attr{onnx.IntAttr("time_axis", 1), onnx.IntAttr("batch_axis", 0)}},
			[]*onnx.Tensor{rows, onnx.Vector[int64](0, 3)}, []float32{0, 1, 2, 5, 4, 3}},
		{"remainders of floats", onnx.Node{Op: "Mod"},
			[]*onnx.Tensor{onnx.NewTensor([]float32{-4.5, 4.5, -4, 5, -1, 7}, 2, 3),
				onnx.Vector[float32](2, -2, float32(math.Inf(1)))},
			[]float32{1.5, -1.5, float32(math.Inf(1)), 1, -1, 7}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.node.Name, c.node.Outputs = "node", []string{"y"}
			m := onnx.NewModel(modeltest.Graph("", "y:float32", nil, &c.node))
			m.IR, m.Opsets[""] = 13, 28
			feeds := map[string]*onnx.Tensor{}
			for i, v := range c.in {
				name := string(rune('a' + i))
				dims := make([]onnx.Dim, len(v.Shape))
				for k, d := range v.Shape {
					dims[k] = onnx.Known(d)
				}
				m.Graph.Inputs = append(m.Graph.Inputs, onnx.ValueInfo{Name: name, DType: v.DType, Shape: dims})
				c.node.Inputs, feeds[name] = append(c.node.Inputs, name), v
			}
			got := must.Get(engine.Eval(open(t, e, m), feeds))(t)
			if !slices.Equal(got["y"].F32(), c.want) {
				t.Errorf("%v, want %v", got["y"].F32(), c.want)
			}
		})
	}
}

// TestLocale: a StringNormalizer that names no locale runs on a system without en_US.
func TestLocale(t *testing.T) {
	m := onnx.NewModel(modeltest.Graph("x:string[2]", "y:string", nil, modeltest.Node(
		"StringNormalizer", "x", "y", onnx.StrAttr("case_change_action", "UPPER"))))
	m.IR, m.Opsets[""] = 8, 17
	got := must.Get(engine.Eval(open(t, newEngine(t, Options{Threads: 1}), m),
		map[string]*onnx.Tensor{"x": onnx.Vector("oak", "Öl")}))(t)
	if want := []string{"OAK", "ÖL"}; !slices.Equal(got["y"].Data.([]string), want) {
		t.Errorf("%q, want %q", got["y"].Data, want)
	}
}

package pass

import (
	"maps"
	"testing"

	"fmp/onnx"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

func TestInlineRefusesEndlessFunctions(t *testing.T) {
	m := modeltest.Doubler(t)
	m.Functions[0].Nodes[1] = &onnx.Node{Op: "scale", Domain: "own", Inputs: []string{"x"},
		Outputs: []string{"y"}}
	must.Fail(Inline(m))(t, "deep")
	// Each function calls the one before it sixteen times: 16^12 nodes.
	m = modeltest.Doubler(t)
	call := func(name string) *onnx.Node {
		return &onnx.Node{Op: name, Domain: "own", Inputs: []string{"x"}, Outputs: []string{"y"}}
	}
	for i := range 12 {
		f := &onnx.Function{Domain: "own", Name: string(rune('a' + i)), Inputs: []string{"x"},
			Outputs: []string{"y0"}}
		below := "times"
		if i > 0 {
			below = string(rune('a' + i - 1))
		}
		for j := range 16 {
			n := call(below)
			n.Outputs[0] = "y" + string(rune('0'+j))
			f.Nodes = append(f.Nodes, n)
		}
		m.Functions = append(m.Functions, f)
	}
	m.Graph.Nodes[0] = call("l")
	m.Graph.Nodes[0].Outputs[0] = "h"
	must.Fail(Inline(m))(t, "grow by more than")
}

// A function may import another version of an operator set where its operators are the same in both.
func TestInlineOfVersions(t *testing.T) {
	within := func(n *onnx.Node) []*onnx.Node {
		g := &onnx.Graph{Nodes: []*onnx.Node{n}, Outputs: []onnx.ValueInfo{{Name: n.Outputs[0]}}}
		return []*onnx.Node{{Op: "If", Inputs: []string{"c"}, Outputs: []string{"y"}, Attrs: []onnx.Attr{
			{Name: "then_branch", Kind: onnx.AttrGraph, Graph: g}, {Name: "else_branch", Kind: onnx.AttrGraph, Graph: g}}}}
	}
	node := func(op, domain string) *onnx.Node {
		return &onnx.Node{Op: op, Domain: domain, Inputs: []string{"x"}, Outputs: []string{"v"}}
	}
	for name, c := range map[string]struct {
		domain string
		v      int64
		nodes  []*onnx.Node
		err    string
	}{
		"the same":       {"", 14, nil, ""},
		"another":        {"", 13, nil, "Add"},
		"within":         {"", 16, within(node("LayerNormalization", "")), "LayerNorm"},
		"the same there": {"", 16, within(node("Relu", "")), ""},
		"unknown":        {"far", 2, []*onnx.Node{node("Op", "far")}, "Op"},
		"own":            {"own", 2, []*onnx.Node{node("times", "own")}, ""},
	} {
		m := modeltest.Doubler(t)
		m.Opsets["far"] = 1
		f := m.Functions[1]
		f.Opsets[c.domain] = c.v
		if c.nodes != nil {
			f.Nodes = append(c.nodes, f.Nodes[0], &onnx.Node{Op: "Mul", Inputs: []string{"x", "z"}, Outputs: []string{"y"}})
			f.Outputs[0] = "y"
		}
		if c.nodes != nil && c.nodes[0].Op == "If" {
			c.nodes[0].Outputs[0] = "if"
		}
		err := Inline(m)
		if c.err != "" {
			must.Fail(err)(t, c.err, name)
		} else if err != nil || m.Opsets[""] != onnx.DefaultOpset || len(m.Functions) != 0 {
			t.Errorf("%s: %v, versions %v", name, err, m.Opsets)
		}
	}
}

// The standard's operator set stays, and is compared, by either of its names.
func TestInlineOfStandardSet(t *testing.T) {
	const v = onnx.DefaultOpset
	for name, c := range map[string]struct {
		model, function map[string]int64
		err             string
	}{
		"one name":              {map[string]int64{"": v}, map[string]int64{"": v}, ""},
		"the model's other":     {map[string]int64{"ai.onnx": v}, map[string]int64{"": v}, ""},
		"the function's other":  {map[string]int64{"": v}, map[string]int64{"ai.onnx": v}, ""},
		"the function has none": {map[string]int64{"ai.onnx": v}, nil, ""},
		"other versions":        {map[string]int64{"ai.onnx": v}, map[string]int64{"": 13}, "Add"},
		"versions by the other": {map[string]int64{"": v}, map[string]int64{"ai.onnx": 13}, "Add"},
	} {
		m := modeltest.Doubler(t)
		m.Opsets = c.model
		m.Opsets["own"] = 1
		for _, f := range m.Functions {
			f.Opsets = c.function
		}
		err := Inline(m)
		if c.err != "" {
			must.Fail(err)(t, c.err, name)
		} else if err != nil || !maps.Equal(m.Opsets, map[string]int64{"": v}) {
			t.Errorf("%s: %v, versions %v", name, err, m.Opsets)
		}
	}
}

package pass

import (
	"fmt"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/op"
	"fmp/onnx/shape"
)

// TestUpgradesKnowLostAttributes: where a version of an operator has an attribute no more, or
// another default for it, [Upgrade] has a step.
func TestUpgradesKnowLostAttributes(t *testing.T) {
	seen := 0
	for _, name := range op.Names("") {
		versions := op.Versions("", name)
		for i, s := range versions {
			if i == 0 || s.Since <= onnx.MinOpset || s.Since > onnx.MaxOpset || !shape.HasRule(name) {
				continue
			}
			for _, a := range versions[i-1].Attrs {
				b := s.Attr(a.Name)
				if b != nil && text(a.Default) == text(b.Default) {
					continue
				}
				if seen++; upgrades[s.Since][name] == nil {
					t.Errorf("%s of version %d has the attribute %s otherwise, and no step tells", name, s.Since, a.Name)
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d attributes changed", seen)
	}
}

// text is an attribute's default as it compares.
func text(a *onnx.Attr) string {
	if a == nil {
		return ""
	}
	return fmt.Sprint(*a)
}

func TestSortNodes(t *testing.T) {
	g := &onnx.Graph{Name: "g", Nodes: []*onnx.Node{
		{Op: "C", Inputs: []string{"b", "a"}, Outputs: []string{"c"}},
		{Op: "A", Inputs: []string{"x"}, Outputs: []string{"a"}},
		{Op: "B", Inputs: []string{"a"}, Outputs: []string{"b"}},
	}}
	must.Do(t, SortNodes(g))
	var order string
	for _, n := range g.Nodes {
		order += n.Op
	}
	if order != "ABC" {
		t.Errorf("order is %s, want ABC", order)
	}
	g.Nodes[0].Inputs[0] = "c"
	must.Fail(SortNodes(g))(t, "cycle")
}

package pass

import (
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
)

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

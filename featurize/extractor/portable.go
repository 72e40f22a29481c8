package extractor

import (
	"fmp/onnx"
	"fmp/onnx/pass"
)

// portable returns m so that ONNX Runtimes which fuse a Pad into a pool compute it as the standard
// says, and whether it is another model: the fused MaxPool is padded by the lowest number. A Concat
// of one value holds the two apart.
func portable(m *onnx.Model) (*onnx.Model, bool) {
	c := onnx.Clone(m)
	g, makers, taken := c.Graph, c.Graph.Makers(), map[string]bool{}
	g.AddNames(taken)
	var nodes []*onnx.Node
	for _, n := range g.Nodes {
		p := makers[n.Input(0)]
		for p != nil && (p.Op == "Identity" || p.Op == "Transpose") { // runtimes see through them
			p = makers[p.Input(0)]
		}
		if (n.Op == "MaxPool" || n.Op == "AveragePool") && p != nil && p.Op == "Pad" {
			name := pass.Unique(taken, n.Input(0)+"/apart")
			nodes = append(nodes, &onnx.Node{Name: name, Op: "Concat", Inputs: []string{n.Inputs[0]},
				Outputs: []string{name}, Attrs: []onnx.Attr{onnx.IntAttr("axis", 1)}})
			n.Inputs[0] = name
		}
		nodes = append(nodes, n)
	}
	if len(nodes) == len(g.Nodes) {
		return m, false
	}
	g.Nodes = nodes
	return c, true
}

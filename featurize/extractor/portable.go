package extractor

import (
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/pass"
)

// portable returns m so that other releases of the ONNX Runtime compute its pools as the standard
// says, and whether their features of m are others. They fuse a Pad by 0 into MaxPool, which pads by
// the lowest number; a Concat of one value holds the two apart. In AveragePool they count positions
// beyond the padding; one without padding is told to count none.
func portable(m *onnx.Model) (*onnx.Model, bool) {
	c := onnx.Clone(m)
	g, makers, taken := c.Graph, c.Graph.Makers(), map[string]bool{}
	g.AddNames(taken)
	var nodes []*onnx.Node
	changed := false
	for _, n := range g.Nodes {
		p := makers[n.Input(0)]
		// runtimes see through some nodes
		for i := 0; i < len(g.Nodes) && p != nil && (p.Op == "Identity" || p.Op == "Transpose"); i++ {
			p = makers[p.Input(0)]
		}
		if (n.Op == "MaxPool" || n.Op == "AveragePool") && p != nil && p.Op == "Pad" {
			name := pass.Unique(taken, n.Input(0)+"/apart")
			nodes = append(nodes, &onnx.Node{Name: name, Op: "Concat", Inputs: []string{n.Inputs[0]},
				Outputs: []string{name}, Attrs: []onnx.Attr{onnx.IntAttr("axis", 1)}})
			n.Inputs[0], changed = name, true
		}
		ceil, _ := n.Attr("ceil_mode")
		include, _ := n.Attr("count_include_pad")
		if n.Op == "AveragePool" && ceil.Int != 0 && include.Int != 0 {
			changed = true
			if unpadded(n) {
				n.Attrs = slices.DeleteFunc(n.Attrs, func(a onnx.Attr) bool { return a.Name == include.Name })
			}
		}
		nodes = append(nodes, n)
	}
	if !changed {
		return m, false
	}
	g.Nodes = nodes
	return c, true
}

// unpadded reports whether a pool has no padding of its own.
func unpadded(n *onnx.Node) bool {
	pads, _ := n.Attr("pads")
	auto, _ := n.Attr("auto_pad")
	return !strings.HasPrefix(auto.Str, "SAME") &&
		!slices.ContainsFunc(pads.Ints, func(p int64) bool { return p != 0 })
}

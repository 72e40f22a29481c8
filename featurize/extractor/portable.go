package extractor

import (
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/pass"
)

// through lists operators that the ONNX Runtime takes out, or moves, before it fuses a Pad.
var through = []string{"Identity", "Transpose", "Dropout", "Cast"}

// portable returns m so that other releases of the ONNX Runtime compute its pools as the standard
// says, and whether their features of m are others. They fuse a Pad by 0 into MaxPool, which pads
// by the lowest number; a Concat of one value holds the two apart. In AveragePool they count
// positions beyond the padding; one without padding is told to count none. Functions are inlined
// where that shows such a pool. m is not changed. The result has the same features by the standard,
// so that it may replace m in a client graph.
func portable(m *onnx.Model) (*onnx.Model, bool) {
	c := onnx.Clone(m)
	if err := pass.Inline(c); err != nil { // an engine's to tell
		return m, false
	}
	g, makers, taken := c.Graph, c.Graph.Makers(), map[string]bool{}
	g.AddNames(taken)
	var nodes []*onnx.Node
	changed := false
	for _, n := range g.Nodes {
		p := makers[n.Input(0)]
		// The walk takes as many steps as there are nodes at most, so that a cycle ends.
		for i := 0; i < len(g.Nodes) && p != nil && slices.Contains(through, p.Op); i++ {
			p = makers[p.Input(0)]
		}
		ceil, _ := n.Attr("ceil_mode")
		fused := n.Op == "MaxPool" || n.Op == "AveragePool" && (ceil.Int != 0 || !unpadded(n))
		// A Concat of one input is the identity, on any axis that the value has.
		if fused && p != nil && p.Op == "Pad" && byZero(g, p) {
			name := pass.Unique(taken, n.Input(0)+"/apart")
			nodes = append(nodes,
				&onnx.Node{Name: name, Op: "Concat", Inputs: []string{n.Inputs[0]},
					Outputs: []string{name}, Attrs: []onnx.Attr{onnx.IntAttr("axis", 1)}})
			n.Inputs[0], changed = name, true
		}
		include, _ := n.Attr("count_include_pad")
		if n.Op == "AveragePool" && ceil.Int != 0 && include.Int != 0 {
			changed = true
			if unpadded(n) {
				n.Attrs = slices.DeleteFunc(n.Attrs,
					func(a onnx.Attr) bool { return a.Name == include.Name })
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

// byZero reports whether a Pad may be one by the constant 0, the only one that is fused. A value
// that is computed, or of another type, may be 0: it counts as such, as a Concat does no harm.
func byZero(g *onnx.Graph, p *onnx.Node) bool {
	mode, _ := p.Attr("mode")
	value, _ := p.Attr("value") // before operator set 11
	t := g.Initializers[p.Input(2)]
	return (mode.Str == "" || mode.Str == "constant") && value.Float == 0 &&
		(t == nil || t.DType != onnx.Float32 || t.Len() != 1 || t.F32()[0] == 0)
}

// unpadded reports whether a pool has no padding of its own. NOTSET, the default, leaves the
// padding to pads, and VALID has none.
func unpadded(n *onnx.Node) bool {
	pads, _ := n.Attr("pads")
	auto, _ := n.Attr("auto_pad")
	return !strings.HasPrefix(auto.Str, "SAME") &&
		!slices.ContainsFunc(pads.Ints, func(p int64) bool { return p != 0 })
}

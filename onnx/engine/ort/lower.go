package ort

import (
	"fmt"
	"maps"

	"fmp/onnx"
	"fmp/onnx/op"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// Versions that the ONNX Runtime [PinnedVersion] reads: newer models are lowered to these where they say nothing that they do not have.
const (
	runtimeOpset = 26
	runtimeIR    = 13
)

// lower rewrites a model so that the runtime knows its operators: m itself is not changed. Operators that the runtime does not
// have, or that it computes otherwise than the standard says, are spelt out; a newer operator set becomes [runtimeOpset] where
// each operator of the model is one of that set with the same inputs and attributes. Other models it leaves to the
// runtime to refuse.
func lower(m *onnx.Model) (*onnx.Model, error) {
	c := *m
	c.IR = min(m.IR, runtimeIR)
	g := *m.Graph
	c.Graph = &g
	if err := spellOut(&c); err != nil {
		return nil, err
	}
	if m.Opset() > runtimeOpset && known(c.Graph) {
		c.Opsets = maps.Clone(m.Opsets)
		delete(c.Opsets, "ai.onnx")
		c.Opsets[""] = runtimeOpset
	}
	return &c, nil
}

// known reports whether every standard operator of a graph is one of runtimeOpset as it is used.
func known(g *onnx.Graph) bool {
	for _, n := range g.Nodes {
		for _, s := range n.Subgraphs() {
			if !known(s) {
				return false
			}
		}
		if n.Domain != "" {
			continue
		}
		s := op.Lookup("", n.Op, runtimeOpset)
		if n.Op == "ReverseSequence" { // a length of 0, which is allowed from set 28 on, makes the runtime leave memory as it was
			return false
		}
		if s == nil || s.Deprecated || s.Arity(n) != nil {
			return false
		}
		for _, a := range n.Attrs {
			if s.Attr(a.Name) == nil {
				return false
			}
		}
	}
	return true
}

// foreign reports whether the runtime lacks an operator that can be spelt out, or computes it otherwise than operator set 25
// says: attention with lengths of its keys is not aligned at their end, a row without keys gets a mean of values where zeros are
// due, and that of bfloat16 is not computed.
func foreign(n *onnx.Node, types map[string]onnx.ValueInfo) bool {
	if n.Domain != "" || n.Op != "Attention" {
		return n.Domain == "" && (n.Op == "Swish" || pass.IsSpelt(n) && op.Lookup("", n.Op, runtimeOpset) == nil)
	}
	_, left := n.Attr("left_window_size")
	_, right := n.Attr("right_window_size")
	return left || right || n.Input(3) != "" || n.Input(6) != "" || types[n.Input(0)].DType == onnx.BFloat16
}

func spellOut(m *onnx.Model) error {
	g := m.Graph
	maybe := false
	for _, n := range g.Nodes {
		maybe = maybe || foreign(n, nil) || n.Op == "Attention"
	}
	if !maybe {
		return nil
	}
	types, err := shape.Types(m)
	if err != nil {
		return nil // contradictions are the runtime's to name
	}
	taken := map[string]bool{}
	g.AddNames(taken)
	var nodes []*onnx.Node
	for _, n := range g.Nodes {
		if !foreign(n, types) {
			nodes = append(nodes, n)
			continue
		}
		spelt, err := pass.Spell(n, pass.Around{
			Opset: onnx.ClampInt(m.Opset()), Type: func(v string) onnx.DType { return types[v].DType },
			Shape: func(v string) []onnx.Dim { return types[v].Shape },
			Fresh: func(base string) string { return pass.Unique(taken, base) },
		})
		if err != nil {
			return fmt.Errorf("%s: %w", n.Label(), err)
		}
		nodes = append(nodes, spelt...)
	}
	g.Nodes = nodes
	return nil
}

package pass

import (
	"fmt"
	"maps"
	"slices"

	"fmp/onnx"
	"fmp/onnx/op"
	"fmp/onnx/shape"
)

// FromSix returns a model of the standard operator set 6 in set 7: operands that were broadcast
// along an axis get axes of size 1, and attributes that told training from use are gone. A model of
// another set is returned as it is. A node whose ranks are not known, or that trains, is an error
// that names it. m is not changed.
//
// Source: the version history of each operator in the ONNX operator specification.
// The result shares tensors with m, and the nodes of other domains than the standard's.
func FromSix(m *onnx.Model) (*onnx.Model, error) {
	if m.Opset() != 6 {
		return m, nil
	}
	types, err := shape.Types(m)
	if err != nil { // a broadcast along an axis contradicts the rules of today
		types = map[string]onnx.ValueInfo{}
	}
	// Initializers and inputs tell ranks even where inference failed.
	for name, t := range m.Graph.Initializers {
		v := onnx.ValueInfo{Name: name, DType: t.DType, Shape: []onnx.Dim{}}
		for _, d := range t.Shape {
			v.Shape = append(v.Shape, onnx.Known(d))
		}
		types[name] = v
	}
	for _, v := range m.Graph.Inputs {
		types[v.Name] = v
	}
	c, g := *m, *m.Graph
	c.Graph, g.Nodes = &g, nil
	s := &six{types: types, taken: map[string]bool{}}
	m.Graph.AddNames(s.taken)
	for _, n := range m.Graph.Nodes {
		if n.Domain == "" {
			if n, err = s.node(n); err != nil {
				return nil, fmt.Errorf("from operator set 6 to 7: %s: %w", n.Label(), err)
			}
		}
		g.Nodes = append(append(g.Nodes, s.before...), n)
		s.before = nil
	}
	c.Opsets = maps.Clone(m.Opsets)
	delete(c.Opsets, "ai.onnx")
	c.Opsets[""] = 7
	c.IR = max(m.IR, irVersion(7))
	return &c, nil
}

// six is one rewriting: types are by name, and taken holds the graph's names and those made so far.
type six struct {
	types  map[string]onnx.ValueInfo
	taken  map[string]bool
	before []*onnx.Node // of the node in hand
}

// node returns a node of set 6 in set 7; with an error it returns the node as it was.
// A node with subgraphs is refused, since values within have no types here.
func (s *six) node(old *onnx.Node) (*onnx.Node, error) {
	if op.Lookup("", old.Op, 7) == nil || len(old.Subgraphs()) > 0 {
		return old, fmt.Errorf("what became of it is not known")
	}
	n := onnx.CloneNode(old)
	// number takes an attribute that set 7 lacks off the node, and returns its value.
	number := func(name string, otherwise int64) int64 {
		if a, ok := drop(n, name); ok {
			return a.Int
		}
		return otherwise
	}
	switch n.Op {
	// Without an axis set 6 lines the operands up at their ends, as numpy and set 7 do.
	case "Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Greater", "Less", "Equal":
		broadcast, axis := number("broadcast", 0), number("axis", -1)
		if broadcast != 0 && axis >= 0 {
			return s.widen(old, n, int(axis))
		}
	// Set 6 has a slope for each channel, axis 1; set 7 lines it up at the end.
	case "PRelu":
		if slope := s.types[n.Input(1)].Shape; slope == nil || len(slope) == 1 &&
			slope[0] != onnx.Known(1) {
			return s.widen(old, n, 1)
		}
	// Set 7 broadcasts C to [M, N] by itself.
	case "Gemm":
		number("broadcast", 0)
	// From set 7 on an output is made where the node names it.
	case "RNN", "LSTM", "GRU":
		number("output_sequence", 0)
	// Set 7 has no is_test.
	case "BatchNormalization", "Dropout":
		if number("is_test", 0) == 0 {
			return old, fmt.Errorf("is_test is 0, which trains")
		}
	}
	return n, nil
}

// widen gives the second operand axes of size 1 at its end, so that its first is the given axis of
// the first operand. An axis from which b reaches the end already is numpy's own broadcasting.
func (s *six) widen(old, n *onnx.Node, axis int) (*onnx.Node, error) {
	a, b := s.types[n.Input(0)].Shape, s.types[n.Input(1)].Shape
	if a == nil || b == nil {
		return old, fmt.Errorf("the ranks of its operands are not known")
	}
	if axis+len(b) > len(a) {
		return old, fmt.Errorf("an operand of rank %d does not lie at axis %d of one of rank %d",
			len(b), axis, len(a))
	}
	if axis+len(b) == len(a) {
		return n, nil
	}
	var axes []int
	for i := len(b); i < len(a)-axis; i++ {
		axes = append(axes, i)
	}
	wide := Unique(s.taken, n.Input(1)+"/wide")
	s.before = []*onnx.Node{{Name: wide, Op: "Unsqueeze", Inputs: []string{n.Inputs[1]},
		Outputs: []string{wide},
		Attrs:   []onnx.Attr{onnx.IntsAttr("axes", axes...)}}}
	n.Inputs = slices.Clone(n.Inputs)
	n.Inputs[1] = wide
	return n, nil
}

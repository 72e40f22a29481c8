package onnx

import (
	"slices"
)

// Clone copies a model so that neither changes the other. Tensors are shared: they are not changed
// in place.
func Clone(m *Model) *Model {
	c := *m
	c.Opsets, c.Metadata = cloneMap(m.Opsets), cloneMap(m.Metadata)
	c.Graph = CloneGraph(m.Graph)
	c.Functions = nil
	for _, f := range m.Functions {
		g := *f
		g.Inputs, g.Outputs, g.Attributes = slices.Clone(f.Inputs), slices.Clone(f.Outputs),
			slices.Clone(f.Attributes)
		g.Defaults, g.Opsets = CloneNode(&Node{Attrs: f.Defaults}).Attrs, cloneMap(f.Opsets)
		g.Nodes = cloneNodes(f.Nodes)
		c.Functions = append(c.Functions, &g)
	}
	return &c
}

// CloneGraph copies a graph and its subgraphs; tensors are shared.
func CloneGraph(g *Graph) *Graph {
	if g == nil {
		return nil
	}
	c := *g
	c.Inputs, c.Outputs, c.Values = cloneValues(g.Inputs), cloneValues(g.Outputs),
		cloneValues(g.Values)
	c.Optional = cloneValues(g.Optional)
	c.Initializers = cloneMap(g.Initializers)
	c.Nodes = cloneNodes(g.Nodes)
	return &c
}

// CloneNode copies a node and its subgraphs; tensors are shared. Lists within attributes, such as
// pads, are shared as well: replace them, do not write into them.
func CloneNode(n *Node) *Node {
	c := *n
	c.Inputs, c.Outputs = slices.Clone(n.Inputs), slices.Clone(n.Outputs)
	c.Attrs = slices.Clone(n.Attrs)
	for i, a := range c.Attrs {
		c.Attrs[i].Graph = CloneGraph(a.Graph)
		c.Attrs[i].Graphs = slices.Clone(a.Graphs)
		for j, g := range a.Graphs {
			c.Attrs[i].Graphs[j] = CloneGraph(g)
		}
	}
	return &c
}

// cloneNodes copies nodes and their subgraphs; tensors are shared.
func cloneNodes(ns []*Node) []*Node {
	out := make([]*Node, len(ns))
	for i, n := range ns {
		out[i] = CloneNode(n)
	}
	return out
}

// cloneValues keeps a nil shape nil, which is unknown, and an empty one empty, which is a scalar's.
func cloneValues(vs []ValueInfo) []ValueInfo {
	out := slices.Clone(vs)
	for i := range out {
		out[i].Shape = slices.Clone(out[i].Shape)
	}
	return out
}

// cloneMap makes a map of nil too, so that the copy can be written to.
func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	out := make(map[K]V, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

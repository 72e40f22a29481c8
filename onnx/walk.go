package onnx

import "fmt"

// OpName identifies an operator.
type OpName struct{ Domain, Name string }

// String leaves out the domain of the standard operators, which is empty.
func (o OpName) String() string {
	if o.Domain == "" {
		return o.Name
	}
	return o.Domain + "." + o.Name
}

// Called returns a node's name, that of its first output where it has none, "?" where that is left
// out as well.
func (n *Node) Called() string {
	for _, name := range append([]string{n.Name}, n.Outputs...) {
		if name != "" {
			return name
		}
	}
	return "?"
}

// Label names a node and its operator for messages.
func (n *Node) Label() string {
	return fmt.Sprintf("node %q (%v)", n.Called(), OpName{n.Domain, n.Op})
}

// Makers returns the node that computes each value of a graph.
func (g *Graph) Makers() map[string]*Node {
	makers := map[string]*Node{}
	for _, n := range g.Nodes {
		for _, o := range n.Outputs {
			if o != "" { // of an output left out
				makers[o] = n
			}
		}
	}
	return makers
}

// AddNames adds the names of all values of a graph, and of the graphs within its nodes, to a set.
func (g *Graph) AddNames(to map[string]bool) {
	for _, v := range g.Inputs {
		to[v.Name] = true
	}
	for name := range g.Initializers {
		to[name] = true
	}
	for _, n := range g.Nodes {
		for _, o := range n.Outputs {
			if o != "" {
				to[o] = true
			}
		}
		for _, s := range n.Subgraphs() {
			s.AddNames(to)
		}
	}
}

// Subgraphs lists the graphs among a node's attributes.
func (n *Node) Subgraphs() []*Graph {
	var out []*Graph
	for _, a := range n.Attrs {
		if a.Graph != nil {
			out = append(out, a.Graph)
		}
		out = append(out, a.Graphs...)
	}
	return out
}

// Reads lists the values that a node reads, those that its subgraphs take from around them
// included.
func (n *Node) Reads() []string {
	var out []string
	for _, in := range n.Inputs {
		if in != "" {
			out = append(out, in)
		}
	}
	for _, g := range n.Subgraphs() {
		out = append(out, g.Captures()...)
	}
	return out
}

// Captures lists the values that a graph within a node takes from around it; one may be listed more
// than once. A name that g makes counts as its own wherever it is read, so that g need not be in
// order.
func (g *Graph) Captures() []string {
	own := map[string]bool{}
	for _, v := range g.Inputs {
		own[v.Name] = true
	}
	for name := range g.Initializers {
		own[name] = true
	}
	for _, n := range g.Nodes {
		for _, o := range n.Outputs {
			own[o] = true
		}
	}
	var out []string
	for _, n := range g.Nodes {
		for _, r := range n.Reads() {
			if !own[r] {
				out = append(out, r)
			}
		}
	}
	for _, o := range g.Outputs {
		if !own[o.Name] {
			out = append(out, o.Name)
		}
	}
	return out
}

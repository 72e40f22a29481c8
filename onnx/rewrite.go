package onnx

import (
	"fmt"
	"slices"
)

// Clone copies a model so that neither changes the other. Tensors are shared: they are not changed in place.
func Clone(m *Model) *Model {
	c := *m
	c.Opsets, c.Metadata = cloneMap(m.Opsets), cloneMap(m.Metadata)
	c.Graph = CloneGraph(m.Graph)
	c.Functions = nil
	for _, f := range m.Functions {
		g := *f
		g.Inputs, g.Outputs, g.Attributes = slices.Clone(f.Inputs), slices.Clone(f.Outputs), slices.Clone(f.Attributes)
		g.Defaults, g.Opsets = CloneNode(&Node{Attrs: f.Defaults}).Attrs, cloneMap(f.Opsets)
		g.Nodes = CloneNodes(f.Nodes)
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
	c.Inputs, c.Outputs, c.Values = cloneValues(g.Inputs), cloneValues(g.Outputs), cloneValues(g.Values)
	c.Initializers = cloneMap(g.Initializers)
	c.Nodes = CloneNodes(g.Nodes)
	return &c
}

// CloneNode copies a node and its subgraphs; tensors are shared.
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

// CloneNodes copies nodes and their subgraphs; tensors are shared.
func CloneNodes(ns []*Node) []*Node {
	out := make([]*Node, len(ns))
	for i, n := range ns {
		out[i] = CloneNode(n)
	}
	return out
}

func cloneValues(vs []ValueInfo) []ValueInfo {
	out := slices.Clone(vs)
	for i := range out {
		out[i].Shape = slices.Clone(out[i].Shape)
	}
	return out
}

func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	out := make(map[K]V, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// Rename gives values of a graph new names, in its nodes and subgraphs, inputs, outputs and initializers.
// Names that the map lacks stay. It is the caller's to see that the new names are free.
func Rename(g *Graph, names map[string]string) {
	renameGraph(g, func(s string) string {
		if to, ok := names[s]; ok {
			return to
		}
		return s
	})
}

func renameGraph(g *Graph, to func(string) string) {
	for _, vs := range [][]ValueInfo{g.Inputs, g.Outputs, g.Values} {
		for i := range vs {
			vs[i].Name = to(vs[i].Name)
		}
	}
	inits := make(map[string]*Tensor, len(g.Initializers))
	for name, t := range g.Initializers {
		inits[to(name)] = t
	}
	g.Initializers = inits
	for _, n := range g.Nodes {
		renameNode(n, to)
	}
}

func renameNode(n *Node, to func(string) string) {
	for _, names := range [][]string{n.Inputs, n.Outputs} {
		for i, s := range names {
			if s != "" {
				names[i] = to(s)
			}
		}
	}
	for _, g := range n.Subgraphs() {
		renameGraph(g, to)
	}
}

// subgraphs lists the graphs among a node's attributes.
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

// valueNames adds every name that a graph and its subgraphs give to a value.
func valueNames(g *Graph, into map[string]bool) {
	for _, v := range g.Inputs {
		into[v.Name] = true
	}
	for name := range g.Initializers {
		into[name] = true
	}
	for _, n := range g.Nodes {
		for _, o := range n.Outputs {
			into[o] = true
		}
		for _, s := range n.Subgraphs() {
			valueNames(s, into)
		}
	}
}

// names hands out names that nothing has.
type names struct {
	taken map[string]bool
	next  map[string]int
}

func newNames() *names { return &names{taken: map[string]bool{}, next: map[string]int{}} }

// unique is base, or base with the first free number behind it; it is taken from then on.
func (ns *names) unique(base string) string {
	name := base
	for ns.taken[name] {
		ns.next[base]++
		name = fmt.Sprintf("%s_%d", base, ns.next[base])
	}
	ns.taken[name] = true
	return name
}

// reads lists the values that a node reads, those that its subgraphs take from around them included.
func (n *Node) Reads() []string {
	var out []string
	for _, in := range n.Inputs {
		if in != "" {
			out = append(out, in)
		}
	}
	for _, g := range n.Subgraphs() {
		out = append(out, free(g)...)
	}
	return out
}

// free lists the values that a graph takes from around it.
func free(g *Graph) []string {
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

// SortNodes puts the nodes of a graph in topological order, otherwise keeping the order that they have. A
// cycle is an error that names a node in it.
func SortNodes(g *Graph) error {
	producer := map[string]int{}
	for i, n := range g.Nodes {
		for _, o := range n.Outputs {
			if o != "" {
				producer[o] = i
			}
		}
	}
	const (
		unseen = iota
		open
		done
	)
	state := make([]int, len(g.Nodes))
	sorted := make([]*Node, 0, len(g.Nodes))
	// An explicit stack, as a chain of nodes may be as long as the file allows.
	type frame struct {
		node int
		todo []string
	}
	for root := range g.Nodes {
		if state[root] != unseen {
			continue
		}
		state[root] = open
		stack := []frame{{root, g.Nodes[root].Reads()}}
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if len(top.todo) == 0 {
				state[top.node] = done
				sorted = append(sorted, g.Nodes[top.node])
				stack = stack[:len(stack)-1]
				continue
			}
			name := top.todo[0]
			top.todo = top.todo[1:]
			p, ok := producer[name]
			if !ok || state[p] == done {
				continue
			}
			if state[p] == open {
				return fmt.Errorf("graph %q has a cycle through %s", g.Name, g.Nodes[p].Label())
			}
			state[p] = open
			stack = append(stack, frame{p, g.Nodes[p].Reads()})
		}
	}
	g.Nodes = sorted
	return nil
}

// RemoveUnused drops the nodes and initializers on which no output depends. Inputs stay.
func RemoveUnused(g *Graph) {
	needed := map[string]bool{}
	for _, o := range g.Outputs {
		needed[o.Name] = true
	}
	var kept []*Node
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		if !slices.ContainsFunc(n.Outputs, func(o string) bool { return o != "" && needed[o] }) {
			continue
		}
		for _, r := range n.Reads() {
			needed[r] = true
		}
		kept = append(kept, n)
	}
	slices.Reverse(kept)
	g.Nodes = kept
	for name := range g.Initializers {
		if !needed[name] {
			delete(g.Initializers, name)
		}
	}
	g.Values = slices.DeleteFunc(g.Values, func(v ValueInfo) bool { return !needed[v.Name] })
}

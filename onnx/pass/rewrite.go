// Package pass rewrites models: it inlines functions, folds constants, raises the operator set,
// joins models and changes the precision of weights. A pass either does its work or leaves the
// model as it was.
package pass

import (
	"fmt"
	"slices"

	"fmp/onnx"
)

// Rename renames values of a graph, in its nodes and subgraphs, inputs, outputs and initializers.
// Names that the map lacks stay. It is the caller's to see that the new names are free ([Free]).
func Rename(g *onnx.Graph, names map[string]string) {
	renameGraph(g, func(s string) string {
		if to, ok := names[s]; ok {
			return to
		}
		return s
	})
}

// renameGraph calls to once for each place of a name, which must give the same each time.
func renameGraph(g *onnx.Graph, to func(string) string) {
	for _, vs := range [][]onnx.ValueInfo{g.Inputs, g.Optional, g.Outputs, g.Values} {
		for i := range vs {
			vs[i].Name = to(vs[i].Name)
		}
	}
	// A new map, since names may be exchanged for each other.
	inits := make(map[string]*onnx.Tensor, len(g.Initializers))
	for name, t := range g.Initializers {
		inits[to(name)] = t
	}
	g.Initializers = inits
	for _, n := range g.Nodes {
		renameNode(n, to)
	}
}

// renameNode renames the names that a node's subgraphs define themselves as well.
func renameNode(n *onnx.Node, to func(string) string) {
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

// names hands out names that nothing has.
type names struct {
	taken map[string]bool
	next  map[string]int
}

func newNames() *names { return &names{taken: map[string]bool{}, next: map[string]int{}} }

// unique is base, or base with the first free number behind it; it is taken from then on. next
// remembers the last number of each base, so that n names of one base take O(n).
func (ns *names) unique(base string) string {
	name := base
	for ns.taken[name] {
		ns.next[base]++
		name = fmt.Sprintf("%s_%d", base, ns.next[base])
	}
	ns.taken[name] = true
	return name
}

// SortNodes puts the nodes of a graph in topological order, otherwise keeping the order that they
// have. A cycle is an error that names a node in it. It takes O(nodes and their inputs); a graph in
// order stays as it is. A name that no node of g makes, such as an input or a value around g,
// orders nothing. On an error g is as it was.
func SortNodes(g *onnx.Graph) error {
	producer := map[string]int{}
	for i, n := range g.Nodes {
		for _, o := range n.Outputs {
			if o != "" {
				producer[o] = i
			}
		}
	}
	// Open nodes are on the stack: to come back to one is a cycle.
	const (
		unseen = iota
		open
		done
	)
	state := make([]int, len(g.Nodes))
	sorted := make([]*onnx.Node, 0, len(g.Nodes))
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

// RemoveUnused drops the nodes, initializers and optional inputs on which no output depends. Other
// inputs stay. One pass from the last node is enough, as nodes stand in topological order. Graphs
// within nodes are not pruned; the values that they capture count as read.
func RemoveUnused(g *onnx.Graph) {
	needed := map[string]bool{}
	for _, o := range g.Outputs {
		needed[o.Name] = true
	}
	var kept []*onnx.Node
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
	unused := func(v onnx.ValueInfo) bool { return !needed[v.Name] }
	g.Values, g.Optional = slices.DeleteFunc(g.Values, unused),
		slices.DeleteFunc(g.Optional, unused)
}

// Free returns base, or base with a number behind it, whichever no value of g has. It goes over all
// values of g: for several names [Unique] does with one set.
func Free(g *onnx.Graph, base string) string {
	taken := map[string]bool{}
	g.AddNames(taken)
	return Unique(taken, base)
}

// Unique returns base, or base with a number behind it, whichever taken does not have, and adds it.
func Unique(taken map[string]bool, base string) string {
	name := base
	for i := 1; taken[name]; i++ {
		name = fmt.Sprintf("%s_%d", base, i)
	}
	taken[name] = true
	return name
}

package pure

import (
	"fmt"
	"sort"

	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/multi"
	"gonum.org/v1/gonum/graph/topo"
)

// computation is what a model is decoded into: a multigraph whose nodes are values and whose lines
// go from an operator's output to its inputs, weighted with the input's position. (It must be a multigraph:
// Add(x, x) reads one value twice.)
type computation struct {
	*multi.WeightedDirectedGraph
	operations []operation // of the decoder, with its values
}

func newComputation() *computation {
	return &computation{WeightedDirectedGraph: multi.NewWeightedDirectedGraph()}
}

// NewNode makes a value.
func (c *computation) NewNode() graph.Node {
	return &value{Node: c.WeightedDirectedGraph.NewNode()}
}

// NewWeightedEdge makes a line; every call makes another.
func (c *computation) NewWeightedEdge(from, to graph.Node, w float64) graph.WeightedEdge {
	return line{c.NewWeightedLine(from, to, w)}
}

// SetWeightedEdge adds a line. An output that is its own input cannot be run.
func (c *computation) SetWeightedEdge(e graph.WeightedEdge) {
	l, ok := e.(line)
	if !ok {
		l = line{c.NewWeightedLine(e.From(), e.To(), e.Weight())}
	}
	c.SetWeightedLine(l.WeightedLine)
}

// line is a WeightedLine seen as an edge.
type line struct{ graph.WeightedLine }

func (l line) ReversedEdge() graph.Edge { return l }

// order sorts the operations so that each comes after those whose outputs it reads: by the topology of the graph, and in
// the file's order where that leaves a choice.
func (c *computation) order() ([]int, error) {
	// The value "" ties together operators that have nothing to do with each other.
	for _, o := range c.operations {
		for _, v := range o.outputs {
			if v.name == "" {
				c.RemoveNode(v.ID())
			}
		}
	}
	sorted, err := topo.SortStabilized(c, func(ns []graph.Node) {
		sort.Slice(ns, func(i, j int) bool { return ns[i].ID() > ns[j].ID() })
	})
	if err != nil {
		return nil, fmt.Errorf("the graph has a cycle: %w", err)
	}
	rank := make(map[int64]int, len(sorted))
	for i, n := range sorted {
		rank[n.ID()] = len(sorted) - i // lines point from outputs to inputs
	}
	// Each output comes after all inputs, so that the first of several does as well, and it alone comes before
	// the readers of every one of them. Outputs left out have no rank.
	first := func(o operation) int {
		r := 0
		for _, v := range o.outputs {
			if k, ok := rank[v.ID()]; ok && (r == 0 || k < r) {
				r = k
			}
		}
		return r
	}
	order := make([]int, len(c.operations))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool { return first(c.operations[order[i]]) < first(c.operations[order[j]]) })
	return order, nil
}

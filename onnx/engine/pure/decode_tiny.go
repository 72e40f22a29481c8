//go:build tiny

package pure

import (
	"fmt"

	"gonum.org/v1/gonum/graph"

	"fmp/onnx"
)

// value is a node of the graph.
type value struct {
	graph.Node
	name string
}

// operation is an operator of the model.
type operation struct {
	name    string
	outputs []*value
}

// decode, with the build tag tiny, fills the graph from our own reading of the model, without onnx-go: that module and
// the tensor library behind it are half of a small program, and what comes out is the same, or the other
// build would refuse the model.
func decode(m *onnx.Model) (order []int, unsupported []Unsupported, err error) {
	c := newComputation()
	values := map[string]*value{}
	named := func(name string) *value {
		v, ok := values[name]
		if !ok {
			v = c.NewNode().(*value)
			v.name = name
			c.AddNode(v)
			values[name] = v
		}
		return v
	}
	for _, n := range m.Graph.Nodes {
		o := operation{name: n.Op}
		for _, out := range n.Outputs {
			v := named(out)
			o.outputs = append(o.outputs, v)
			for i, in := range n.Inputs {
				from, to := graph.Node(v), graph.Node(named(in))
				if from.ID() == to.ID() && out != "" {
					return nil, nil, fmt.Errorf("node %q (%s) reads its own output %q", nodeName(n), n.Op, out)
				}
				c.SetWeightedEdge(c.NewWeightedEdge(from, to, float64(i)))
			}
		}
		c.operations = append(c.operations, o)
	}
	order, err = c.order()
	return order, nil, err
}

//go:build !386 && !arm

package onnxgo

import (
	"fmt"
	"reflect"

	decoder "github.com/owulveryck/onnx-go"
	"github.com/owulveryck/onnx-go/backend"
	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/multi"
	"gorgonia.org/tensor"

	"fmp/onnx"
	"fmp/onnx/engine"
)

// Graph is the computation graph that onnx-go decodes a model into, and that runs it. Its nodes are
// values, and its lines go from an operator's output to its inputs, weighted with the input's
// position. It holds one model, and is not safe for concurrent use.
type Graph struct {
	*multi.WeightedDirectedGraph
	// Opset is the version of the standard operator set of the model, which onnx-go does not tell:
	// 0 (the default) takes the first of those from 11 down to 7, and then from 12 up, that has
	// every operator with the attributes and inputs that the model gives it.
	Opset int64

	values     []*value // in the order in which they were made
	operations []operation
	session    engine.Session
	compiled   string // the inputs, with types and shapes, that the session is for
}

var (
	_ backend.ComputationBackend = (*Graph)(nil)
	_ decoder.Namer              = (*value)(nil)
	_ decoder.DataCarrier        = (*value)(nil)
)

// NewGraph makes an empty graph.
func NewGraph() *Graph { return &Graph{WeightedDirectedGraph: multi.NewWeightedDirectedGraph()} }

// value is a node of the graph.
type value struct {
	graph.Node
	of     *Graph
	name   string
	tensor tensor.Tensor
	// of the tensor that was set while the model was decoded: of an input or output as declared, or
	// of a weight
	declared onnx.DType
	fed      bool // its tensor was set afterwards
	made     bool // an operator makes it
	read     bool // an operator reads it
}

// operation is an operator, with the values that it reads and makes; nil is one left out.
type operation struct {
	name       string
	attributes map[string]any
	in, out    []*value
}

// SetName names the value.
func (v *value) SetName(name string) { v.name = name }

// GetName returns the value's name.
func (v *value) GetName() string { return v.name }

// SetTensor gives the value its elements. onnx-go sets those of inputs, outputs and weights before
// it announces the first operator.
func (v *value) SetTensor(t tensor.Tensor) error {
	if v.tensor = t; len(v.of.operations) > 0 {
		v.fed = true
		return nil
	}
	none := reflect.MakeSlice(reflect.SliceOf(t.Dtype().Type), 0, 0)
	v.declared = onnx.TypeOfSlice(none.Interface())
	return nil
}

// GetTensor returns the value's elements: of an output those of the last run.
func (v *value) GetTensor() tensor.Tensor { return v.tensor }

// NewNode makes a value.
func (g *Graph) NewNode() graph.Node {
	v := &value{Node: g.WeightedDirectedGraph.NewNode(), of: g}
	g.values = append(g.values, v)
	return v
}

// NewWeightedEdge makes a line. Every call makes another: Add(x, x) reads one value twice.
func (g *Graph) NewWeightedEdge(from, to graph.Node, w float64) graph.WeightedEdge {
	return line{g.NewWeightedLine(from, to, w)}
}

// SetWeightedEdge adds a line.
func (g *Graph) SetWeightedEdge(e graph.WeightedEdge) {
	l, ok := e.(line)
	if !ok {
		l = line{g.NewWeightedLine(e.From(), e.To(), e.Weight())}
	}
	g.SetWeightedLine(l.WeightedLine)
}

// line is a line seen as an edge.
type line struct{ graph.WeightedLine }

// ReversedEdge returns the line itself, which has one direction.
func (l line) ReversedEdge() graph.Edge { return l }

// ApplyOperation records an operator and the values that it makes.
func (g *Graph) ApplyOperation(op decoder.Operation, outputs ...graph.Node) error {
	o := operation{name: op.Name, attributes: op.Attributes}
	for _, n := range outputs {
		v, ok := n.(*value)
		if !ok {
			return fmt.Errorf("onnxgo: an output of %s is a %T, no value of this graph", op.Name, n)
		}
		if v.name == "" { // onnx-go has one value for all outputs that are left out
			o.out = append(o.out, nil)
			continue
		}
		v.made = true
		o.out = append(o.out, v)
		if o.in == nil {
			o.in = g.inputs(v)
		}
	}
	for _, v := range o.in {
		if v != nil {
			v.read = true
		}
	}
	g.operations = append(g.operations, o)
	return nil
}

// inputs are the values that an operator reads, in order: all of its outputs hold the same lines.
func (g *Graph) inputs(out *value) (in []*value) {
	to := g.From(out.ID())
	for to.Next() {
		v := to.Node().(*value)
		lines := g.WeightedLines(out.ID(), v.ID())
		for lines.Next() {
			k := int(lines.WeightedLine().Weight())
			for len(in) <= k {
				in = append(in, nil)
			}
			if v.name != "" {
				in[k] = v
			}
		}
	}
	return in
}

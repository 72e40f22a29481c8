//go:build !386 && !arm

package pure

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	decoder "github.com/owulveryck/onnx-go"
	"github.com/owulveryck/onnx-go/backend"
	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/multi"
	"gorgonia.org/tensor"

	"fmp/onnx"
	"fmp/onnx/internal/collection"
	"fmp/onnx/pass"
	"fmp/onnx/serde"
)

// Every model that a test of this package loads is read by onnx-go as well. (The tensor library
// behind it does not build for machines of 32 bits.)
func init() { secondReading = readAgain }

// computation is what a model is decoded into: a multigraph whose nodes are values and whose lines
// go from an operator's output to its inputs, weighted with the input's position. (It must be a
// multigraph: Add(x, x) reads one value twice.)
type computation struct {
	*multi.WeightedDirectedGraph
	operations []operation // of the decoder, with its values
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

// decodingBackend is the graph as onnx-go wants to see it.
type decodingBackend struct{ *computation }

var (
	_ backend.ComputationBackend = (*decodingBackend)(nil)
	_ decoder.Namer              = (*value)(nil)
	_ decoder.DataCarrier        = (*value)(nil)
)

// value is a node of the graph.
type value struct {
	graph.Node
	name   string
	tensor any // as the decoder read it, where it is an initializer
}

// operation is an operator as the decoder announces it.
type operation struct {
	name       string
	attributes map[string]any
	outputs    []*value
}

func (v *value) SetName(name string) { v.name = name }
func (v *value) GetName() string     { return v.name }

func (v *value) SetTensor(t tensor.Tensor) error { v.tensor = t; return nil }

func (v *value) GetTensor() tensor.Tensor {
	t, _ := v.tensor.(tensor.Tensor)
	return t
}

// ApplyOperation records an operator and the values it makes.
func (b *decodingBackend) ApplyOperation(op decoder.Operation, outputs ...graph.Node) error {
	o := operation{name: op.Name, attributes: op.Attributes}
	for _, n := range outputs {
		v, ok := n.(*value)
		if !ok {
			return fmt.Errorf("output of %s is a %T, not a value of this backend", op.Name, n)
		}
		o.outputs = append(o.outputs, v)
	}
	b.operations = append(b.operations, o)
	return nil
}

// Run is asked of every backend. This one is for decoding: a session runs the plan that is made
// from it.
func (b *decodingBackend) Run() error { return fmt.Errorf("a decoded graph is run by a session") }

// readAgain lets onnx-go read the model and compares what it made with our own reading, node by
// node.
//
// onnx-go v0.5.0 is handed what it reads faithfully. Left out of its copy are:
//
//   - declared shapes: it would allocate a tensor for each input and output, without its dynamic
//     axes;
//   - tensors of other types than float32, float64, int32 and int64 (it refuses most of them, and
//     takes
//     eight bytes for a boolean), and tensors without elements.
//
// An optional input or output left out is one shared value named "" to it, which inputs undoes;
// operator domains, which it drops, are checked by the planner.
func readAgain(m *onnx.Model) error {
	if slices.ContainsFunc(m.Graph.Nodes, func(n *onnx.Node) bool { return len(n.Subgraphs()) > 0 }) {
		return nil // onnx-go does not know attributes that are graphs
	}
	copied, tensors := readable(m)
	data, err := serde.Marshal(copied)
	if err != nil {
		return fmt.Errorf("handing the model to onnx-go: %w", err)
	}
	c := &computation{WeightedDirectedGraph: multi.NewWeightedDirectedGraph()}
	d := decoder.NewModel(&decodingBackend{c})
	if err := unmarshal(d, data); err != nil {
		return err
	}
	if len(c.operations) != len(m.Graph.Nodes) {
		return fmt.Errorf("onnx-go found %d operators in a graph of %d", len(c.operations),
			len(m.Graph.Nodes))
	}
	for name, t := range tensors {
		n, ok := d.GetNodeByName(name)
		if !ok {
			return fmt.Errorf("onnx-go lost the initializer %q", name)
		}
		if got := n.(*value).GetTensor(); got == nil || !sameData(got.Data(), t) ||
			!slices.Equal([]int(got.Shape()), t.Shape) {
			return fmt.Errorf("onnx-go read the initializer %q differently", name)
		}
	}
	var errs []error
	for i, n := range m.Graph.Nodes {
		if why := differs(c, c.operations[i], n, copied.Graph.Nodes[i]); why != "" {
			errs = append(errs, fmt.Errorf("%s: onnx-go %s", n.Label(), why))
		}
	}
	return errors.Join(errs...)
}

// unmarshal turns a panic of the decoder into an error.
func unmarshal(d *decoder.Model, data []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("onnx-go cannot decode the model: it failed with %v", r)
		}
	}()
	if err := d.UnmarshalBinary(data); err != nil {
		return fmt.Errorf("onnx-go cannot decode the model: %w", err)
	}
	return nil
}

// decodable reports whether onnx-go reads a tensor faithfully.
func decodable(t *onnx.Tensor) bool {
	switch t.DType {
	case onnx.Float32, onnx.Float64, onnx.Int32, onnx.Int64:
		return t.Len() > 0
	}
	return false
}

// readable copies a model without what onnx-go does not read; tensors are the initializers that are
// left.
func readable(m *onnx.Model) (*onnx.Model, map[string]*onnx.Tensor) {
	g := &onnx.Graph{Name: m.Graph.Name, Initializers: map[string]*onnx.Tensor{}}
	for _, v := range m.Graph.Inputs {
		g.Inputs = append(g.Inputs, onnx.ValueInfo{Name: v.Name})
	}
	for _, v := range m.Graph.Outputs {
		g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: v.Name})
	}
	for name, t := range m.Graph.Initializers {
		if decodable(t) {
			g.Initializers[name] = t
		}
	}
	for _, n := range m.Graph.Nodes {
		c := *n
		c.Attrs = nil
		for _, a := range n.Attrs {
			if a.Kind == onnx.AttrTensor && (a.Tensor == nil || !decodable(a.Tensor)) {
				continue
			}
			c.Attrs = append(c.Attrs, a)
		}
		g.Nodes = append(g.Nodes, &c)
	}
	return &onnx.Model{IR: m.IR, Opsets: m.Opsets, Graph: g}, g.Initializers
}

// differs says how onnx-go's operation is another than the node, "" where it is the same.
func differs(c *computation, o operation, n, copied *onnx.Node) string {
	if o.name != n.Op {
		return fmt.Sprintf("reads the operator as %q", o.name)
	}
	if len(o.outputs) != len(n.Outputs) {
		return fmt.Sprintf("reads %d outputs of %d", len(o.outputs), len(n.Outputs))
	}
	for k, v := range o.outputs {
		if v.name != n.Outputs[k] {
			return fmt.Sprintf("reads output %d as %q, the model says %q", k, v.name, n.Outputs[k])
		}
	}
	if slices.ContainsFunc(n.Outputs, func(s string) bool { return s != "" }) {
		in := c.inputs(o)
		want := n.Inputs
		if len(want) == 0 {
			want = []string{n.Name + "/input"} // the stand-in that it gives operators without inputs
		}
		if !slices.Equal(in, want) {
			return fmt.Sprintf("reads the inputs as %q, the model says %q", in, n.Inputs)
		}
	}
	if len(o.attributes) != len(copied.Attrs) {
		return fmt.Sprintf("reads %d attributes of %d", len(o.attributes), len(copied.Attrs))
	}
	for _, a := range copied.Attrs {
		if !sameAttr(o.attributes[a.Name], a) {
			return fmt.Sprintf("reads attribute %q differently or not at all", a.Name)
		}
	}
	return ""
}

func sameAttr(got any, a onnx.Attr) bool {
	switch v := got.(type) {
	case float32:
		return a.Kind == onnx.AttrFloat && math.Float32bits(v) == math.Float32bits(a.Float)
	case int64:
		return a.Kind == onnx.AttrInt && v == a.Int
	case string:
		return a.Kind == onnx.AttrString && v == a.Str
	case []float32:
		return a.Kind == onnx.AttrFloats && sameData(v, onnx.Vector(a.Floats...))
	case []int64:
		return a.Kind == onnx.AttrInts && slices.Equal(v, a.Ints)
	case []string:
		return a.Kind == onnx.AttrStrings && slices.Equal(v, a.Strs)
	case interface{ Data() any }:
		return a.Kind == onnx.AttrTensor && sameData(v.Data(), a.Tensor)
	}
	return false
}

// sameData compares elements bit by bit; a tensor of one element may come as that element.
func sameData(got any, want *onnx.Tensor) bool {
	switch v := got.(type) {
	case float32:
		return sameData([]float32{v}, want)
	case float64:
		return sameData([]float64{v}, want)
	case int32:
		return sameData([]int32{v}, want)
	case int64:
		return sameData([]int64{v}, want)
	case []float32:
		w, ok := want.Data.([]float32)
		return ok && slices.EqualFunc(v, w,
			func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })
	case []float64:
		w, ok := want.Data.([]float64)
		return ok && slices.EqualFunc(v, w,
			func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) })
	case []int32:
		w, ok := want.Data.([]int32)
		return ok && slices.Equal(v, w)
	case []int64:
		w, ok := want.Data.([]int64)
		return ok && slices.Equal(v, w)
	}
	return false
}

// inputs are the names of the values that an operation reads, in order. All outputs of an operation
// hold the same lines; those of the value named "" (an output left out) belong to every operation
// that leaves one out, and say nothing.
func (c *computation) inputs(o operation) []string {
	for _, out := range o.outputs {
		if out.name == "" {
			continue
		}
		var names []string
		to := c.From(out.ID())
		for to.Next() {
			in := to.Node().(*value)
			lines := c.WeightedLines(out.ID(), in.ID())
			for lines.Next() {
				k := int(lines.WeightedLine().Weight())
				for len(names) <= k {
					names = append(names, "")
				}
				names[k] = in.name
			}
		}
		return names
	}
	return nil
}

// The second decoder reads the standard's own test models as ours does, wherever it reads them at
// all.
func TestOnnxGoReadsWhatWeRead(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(collection.Dir(t), "*", "*", "model.onnx"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no operator tests: %v", err)
	}
	agreed := 0
	for _, path := range paths {
		m, err := serde.Load(path)
		if err != nil || pass.Inline(m) != nil {
			continue // sequences and the like, which package onnx does not hold
		}
		switch err := readAgain(m); {
		case err == nil:
			agreed++
		case strings.Contains(err.Error(), "cannot decode"):
			// graphs within graphs, mostly
		default:
			t.Errorf("%s: %v", path, err)
		}
	}
	t.Logf("%d of %d models read alike", agreed, len(paths))
	if agreed < 500 {
		t.Errorf("only %d of %d models were read by both", agreed, len(paths))
	}
	if secondReading == nil {
		t.Error("loading does not ask for the second reading")
	}
}

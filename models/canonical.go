package models

import (
	"fmt"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/serde"
	"fmp/onnx/sorting"
)

// canonical returns the part of a graph that computes some values from others as a model file, in
// the one form that it has here (docs/formats.md): these bytes are decoded and run, and a network's
// digest is their sha256, so that the digest is of everything that an executor reads. Names,
// documentation, the order of nodes and of attributes, and nodes that the values do not need are
// not in it. It costs one walk over the nodes, and a copy of the constants. in and out keep their
// types and shapes in it, and are otherwise renamed. Nodes of the standard are of the model's
// operator set.
func canonical(m *onnx.Model, name string, in, out []onnx.ValueInfo) ([]byte, error) {
	w := &walk{model: m, maker: m.Graph.Makers(), named: map[string]string{"": ""},
		graph:  &onnx.Graph{Name: name, Initializers: map[string]*onnx.Tensor{}},
		opsets: map[string]int64{"": m.Opset()}}
	for i, v := range in {
		w.named[v.Name], v.Name, v.Doc = fmt.Sprintf("x%d", i), fmt.Sprintf("x%d", i), ""
		w.graph.Inputs = append(w.graph.Inputs, v)
	}
	for _, v := range out {
		to, err := w.value(v.Name)
		if err != nil {
			return nil, err
		}
		v.Name, v.Doc = to, ""
		w.graph.Outputs = append(w.graph.Outputs, v)
	}
	return serde.Marshal(&onnx.Model{IR: onnx.DefaultIR, Opsets: w.opsets, Graph: w.graph})
}

// walk copies nodes in the order in which a walk from the outputs, inputs from first to last, is
// done with them. Inputs are named x0, x1, by their places; constants c0, c1, as the walk meets
// them; and output j of the i-th node i.j. Names thus follow from the computation alone. The names
// of outputs have a dot, so that they meet those of no constant and no input.
type walk struct {
	model  *onnx.Model
	maker  map[string]*onnx.Node
	named  map[string]string // the names of values that were copied
	graph  *onnx.Graph
	opsets map[string]int64
	depth  int
}

// maxChain bounds the nodes of a network one behind another. Recursion at this depth takes some
// megabytes of stack, where Go allows a gigabyte.
const maxChain = 20_000

// value copies the nodes that make a value, and returns its new name. Only the empty name, of a
// value left out, stays as it is. It recurses along the longest chain of nodes, which [maxChain]
// bounds: a hostile graph must not exhaust the stack.
func (w *walk) value(name string) (string, error) {
	if to, ok := w.named[name]; ok {
		return to, nil
	}
	if t, ok := w.model.Graph.Initializers[name]; ok {
		to := fmt.Sprintf("c%d", len(w.graph.Initializers))
		w.named[name], w.graph.Initializers[to] = to, t
		return to, nil
	}
	n := w.maker[name]
	if n == nil {
		return "", fmt.Errorf("it reads %q, which is neither its input nor one of its constants",
			name)
	}
	if w.depth++; w.depth > maxChain {
		return "", fmt.Errorf("more than %d nodes one behind another", maxChain)
	}
	defer func() { w.depth-- }()
	c := &onnx.Node{Op: n.Op, Domain: domainOf(n)}
	for _, in := range n.Inputs {
		to, err := w.value(in)
		if err != nil {
			return "", err
		}
		c.Inputs = append(c.Inputs, to)
	}
	for i, o := range n.Outputs {
		if o == "" {
			c.Outputs = append(c.Outputs, "")
			continue
		}
		if _, twice := w.named[o]; twice {
			return "", fmt.Errorf("%s gives %q, which has a value already", n.Label(), o)
		}
		w.named[o] = fmt.Sprintf("%d.%d", len(w.graph.Nodes), i)
		c.Outputs = append(c.Outputs, w.named[o])
	}
	var err error
	if c.Attrs, err = plainAttributes(n); err != nil {
		return "", err
	}
	if c.Domain != "" {
		w.opsets[c.Domain] = w.model.Opsets[c.Domain]
	}
	w.graph.Nodes = append(w.graph.Nodes, c)
	return w.named[name], nil
}

// domainOf returns a node's domain; the standard's two names are one. They mean the same to every
// executor, and would give two digests.
func domainOf(n *onnx.Node) string {
	if n.Domain == "ai.onnx" {
		return ""
	}
	return n.Domain
}

// plainKinds are the kinds of attributes that networks have.
var plainKinds = []onnx.AttrKind{onnx.AttrFloat, onnx.AttrInt, onnx.AttrString, onnx.AttrTensor,
	onnx.AttrFloats, onnx.AttrInts, onnx.AttrStrings}

// plainAttributes returns a node's attributes in the order of their names; of each the value of its
// kind alone is written ([serde.Marshal]). Graphs as attributes are refused, and so are references
// to attributes of functions. A name that comes twice would be read in two ways. Equal computations
// must have equal bytes: hence the order, and one kind a value.
func plainAttributes(n *onnx.Node) ([]onnx.Attr, error) {
	var out []onnx.Attr
	for _, a := range n.Attrs {
		switch {
		case a.Ref != "":
			return nil, fmt.Errorf("%s takes its attribute %q from a function, which networks "+
				"have no use for", n.Label(), a.Name)
		case !slices.Contains(plainKinds, a.Kind):
			return nil, fmt.Errorf("%s has an attribute %q of a kind that networks have no use "+
				"for: export it without If, Loop and Scan", n.Label(), a.Name)
		case slices.ContainsFunc(out, func(b onnx.Attr) bool { return b.Name == a.Name }):
			return nil, fmt.Errorf("%s has the attribute %q twice", n.Label(), a.Name)
		}
		out = append(out, a)
	}
	sorting.By(out, func(a, b onnx.Attr) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

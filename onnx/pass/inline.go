package pass

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/op"
)

// Inlining may not make a graph of more parts (nodes, operands, attributes) than this: functions
// that call each other could otherwise make a small file grow without bound.
const maxInlinedParts = 1 << 20

// Inline replaces every call of a model's own function by the function's nodes, in subgraphs and
// nested calls too, and drops the functions. A function that calls itself, or that imports another
// version of an operator set than the model, in which one of its operators differs, is an error.
// On an error m is as it was: all work is on copies. Operator sets that no node uses any more are
// dropped, but for the standard's, which the result imports as "".
func Inline(m *onnx.Model) error {
	if err := graphOf(m, "inlining functions"); err != nil {
		return err
	}
	if len(m.Functions) == 0 {
		return nil
	}
	in := &inliner{functions: map[onnx.OpName]*onnx.Function{}, names: newNames(),
		opsets: onnx.Clone(m).Opsets}
	// By its other name the standard's set would count as one that no node uses.
	if v := m.Opset(); v != 0 {
		delete(in.opsets, "ai.onnx")
		in.opsets[""] = v
	}
	m.Graph.AddNames(in.names.taken)
	for _, f := range m.Functions {
		in.functions[onnx.OpName{Domain: f.Domain, Name: f.Name}] = f
	}
	g := onnx.CloneGraph(m.Graph)
	if err := in.graph(g, 0); err != nil {
		return fmt.Errorf("inlining functions of %q: %w", m.Graph.Name, err)
	}
	used := map[string]bool{"": true}
	domains(g, used)
	for d := range in.opsets {
		if !used[d] {
			delete(in.opsets, d)
		}
	}
	m.Graph, m.Functions, m.Opsets = g, nil, in.opsets
	return nil
}

// graphOf refuses a model without a graph.
func graphOf(m *onnx.Model, doing string) error {
	if m == nil || m.Graph == nil {
		return fmt.Errorf("%s: there is no graph", doing)
	}
	return nil
}

// domains are those of the operators that a graph and its subgraphs use.
func domains(g *onnx.Graph, into map[string]bool) {
	for _, n := range g.Nodes {
		into[n.Domain] = true
		for _, s := range n.Subgraphs() {
			domains(s, into)
		}
	}
}

// The names of calls go before the names of values, but no further than this.
const maxPrefixBytes = 256

// inliner is the work on one model. functions are only read, as bodies are cloned at each call.
// names are those of the graph's values and of those made so far. opsets become the result's: the
// model's, and those that functions alone import. parts counts up to maxInlinedParts.
type inliner struct {
	functions map[onnx.OpName]*onnx.Function
	names     *names
	opsets    map[string]int64
	parts     int
}

// weight counts a node's parts, those of its subgraphs included.
func weight(n *onnx.Node) int {
	w := 1 + len(n.Inputs) + len(n.Outputs) + len(n.Attrs)
	for _, g := range n.Subgraphs() {
		w += len(g.Inputs) + len(g.Outputs) + len(g.Initializers)
		for _, m := range g.Nodes {
			w += weight(m)
		}
	}
	return w
}

// graph inlines calls in place, and depth counts both calls and subgraphs.
// Order is kept: a call's nodes stand in the place of the call.
func (in *inliner) graph(g *onnx.Graph, depth int) error {
	var out []*onnx.Node
	for _, n := range g.Nodes {
		ns, err := in.node(n, depth)
		if err != nil {
			return err
		}
		out = append(out, ns...)
	}
	g.Nodes = out
	return nil
}

// node returns n itself, or the nodes of its function with their own calls inlined. A function that
// calls itself ends at the depth onnx.MaxDepth.
func (in *inliner) node(n *onnx.Node, depth int) ([]*onnx.Node, error) {
	if depth > onnx.MaxDepth {
		return nil, fmt.Errorf("%s: functions call each other more than %d deep",
			n.Label(), onnx.MaxDepth)
	}
	f := in.functions[onnx.OpName{Domain: n.Domain, Name: n.Op}]
	if f == nil {
		for _, g := range n.Subgraphs() {
			if err := in.graph(g, depth+1); err != nil {
				return nil, err
			}
		}
		return []*onnx.Node{n}, nil
	}
	body, err := in.call(n, f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.Label(), err)
	}
	var out []*onnx.Node
	for _, b := range body {
		ns, err := in.node(b, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, ns...)
	}
	return out, nil
}

// call is the function's body with the node's values in place of the function's. An input that the
// call leaves out is "" in the body, as an optional input of its nodes. Inner values get the call's
// name in front, cut to bounds so that nested calls end in legal names.
func (in *inliner) call(n *onnx.Node, f *onnx.Function) ([]*onnx.Node, error) {
	if len(n.Inputs) > len(f.Inputs) || len(n.Outputs) > len(f.Outputs) {
		return nil, fmt.Errorf("%d inputs and %d outputs for a function of %d and %d",
			len(n.Inputs), len(n.Outputs), len(f.Inputs), len(f.Outputs))
	}
	if err := in.imports(f); err != nil {
		return nil, err
	}
	// Parts are counted before the body is cloned, so that the bound holds memory back as well.
	for _, b := range f.Nodes {
		if in.parts += weight(b); in.parts > maxInlinedParts {
			return nil, fmt.Errorf("the graph would grow by more than %d nodes and operands",
				maxInlinedParts)
		}
	}
	names := map[string]string{}
	for i, name := range f.Inputs {
		names[name] = n.Input(i)
	}
	var extra []*onnx.Node
	for i, name := range n.Outputs {
		if name == "" {
			continue
		}
		from := f.Outputs[i]
		if _, used := names[from]; used {
			// An output that is an input, or another output, needs a node of its own.
			extra = append(extra, &onnx.Node{Op: "Identity", Inputs: []string{from},
				Outputs: []string{name}})
			continue
		}
		names[from] = name
	}
	prefix := cmp.Or(n.Name, f.Name)
	if len(prefix) > maxPrefixBytes {
		prefix = strings.ToValidUTF8(prefix[:maxPrefixBytes], "")
	}
	to := func(name string) string {
		if v, ok := names[name]; ok {
			return v
		}
		s := name
		if len(s) > onnx.MaxNameBytes {
			s = strings.ToValidUTF8(s[:onnx.MaxNameBytes], "")
		}
		v := in.names.unique(prefix + "/" + s)
		names[name] = v
		return v
	}
	body := onnx.CloneGraph(&onnx.Graph{Nodes: f.Nodes}).Nodes
	// A default counts where the call does not give the attribute.
	attrs := slices.Clone(n.Attrs)
	for _, d := range f.Defaults {
		if _, ok := n.Attr(d.Name); !ok {
			attrs = append(attrs, d)
		}
	}
	for _, b := range body {
		if b.Name != "" {
			b.Name = prefix + "/" + b.Name
		}
		bindAttrs(b, attrs)
		renameNode(b, to)
	}
	for _, e := range extra {
		// No Identity can read an input that the call leaves out.
		e.Inputs[0] = to(e.Inputs[0])
		if e.Inputs[0] == "" {
			return nil, fmt.Errorf("output %q is an input that is left out", e.Outputs[0])
		}
	}
	return append(body, extra...), nil
}

// imports adds the operator sets of a function to the model's. A set that both have in two versions
// is an error where a node of the function may differ between these.
func (in *inliner) imports(f *onnx.Function) error {
	for _, name := range slices.Sorted(maps.Keys(f.Opsets)) {
		d, v := name, f.Opsets[name]
		if d == "ai.onnx" {
			d = ""
		}
		have, ok := in.opsets[d]
		if !ok {
			in.opsets[d] = v
		} else if n := in.differs(f.Nodes, d, v, have); n != nil {
			return fmt.Errorf("the function imports version %d of operator set %q and the model "+
				"version %d, and %s is not known to be the same in both; export the model with one "+
				"version", v, d, have, n.Label())
		}
	}
	return nil
}

// differs returns a node whose operator is not the same in two versions of its operator set, nil
// where there is none. That the others may be of two versions is stated at
// FunctionProto.opset_import.
func (in *inliner) differs(nodes []*onnx.Node, domain string, a, b int64) *onnx.Node {
	for _, n := range nodes {
		if a != b && n.Domain == domain && in.functions[onnx.OpName{Domain: domain,
			Name: n.Op}] == nil {
			one := op.Find(n, map[string]int64{domain: a})
			if one == nil || one != op.Find(n, map[string]int64{domain: b}) {
				return n
			}
		}
		for _, g := range n.Subgraphs() {
			if n := in.differs(g.Nodes, domain, a, b); n != nil {
				return n
			}
		}
	}
	return nil
}

// bindAttrs puts the values of a function's attributes in place of references to them; a reference
// to an attribute that is not given leaves the node's own default.
// Subgraphs are of the same function, and their references are bound as well.
func bindAttrs(n *onnx.Node, attrs []onnx.Attr) {
	var out []onnx.Attr
	for _, a := range n.Attrs {
		if a.Ref == "" {
			out = append(out, a)
			continue
		}
		for _, v := range attrs {
			if v.Name == a.Ref {
				v.Name = a.Name
				out = append(out, v)
			}
		}
	}
	n.Attrs = out
	for _, g := range n.Subgraphs() {
		for _, m := range g.Nodes {
			bindAttrs(m, attrs)
		}
	}
}

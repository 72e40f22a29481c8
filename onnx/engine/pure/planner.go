package pure

import (
	"errors"
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/kernel"
	"fmp/onnx/internal/spell"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
	"fmp/onnx/pass"
)

// planner plans one graph.
type planner struct {
	*compiler
	graph    *onnx.Graph
	plan     *plan
	types    []onnx.DType // by slot
	produced map[string]bool
	refused  []Unsupported
	readers  map[string][]*onnx.Node // by [readers]
	fused    map[*onnx.Node]bool     // run by the convolution before it
	opsets   map[*onnx.Node]int      // of nodes that others were spelt out in
	ready    map[*onnx.Node]ready    // made by [planner.integers]
	pads     map[int]*kernel.Spec    // by slot, the paddings that are steps
}

// define gives a value the next slot. Slots count from 0 in the order of definition. A name is
// given once in a graph. Each graph within a node has slots of its own.
func (p *planner) define(name string, d onnx.DType) (int, error) {
	if name == "" {
		return -1, fmt.Errorf("a value has no name")
	}
	if _, dup := p.plan.slot[name]; dup {
		return -1, fmt.Errorf("the value %q is given twice", name)
	}
	i := len(p.types)
	p.plan.slot[name] = i
	p.types = append(p.types, d)
	return i, nil
}

// find is the scope of the graph's own values. It returns the type, the constant where the value is
// one, and whether the name is known so far. The tensor is the model's and must not be written to.
func (p *planner) find(name string) (onnx.DType, *onnx.Tensor, bool) {
	k, ok := p.plan.slot[name]
	if !ok {
		return onnx.Undefined, nil, false
	}
	return p.types[k], p.plan.constants[k], true
}

// refuse notes a node that the engine does not run; an error of a graph within it names the nodes
// there. Planning goes on, so that the user reads of all nodes at once.
func (p *planner) refuse(n *onnx.Node, err error) {
	if inner := (*UnsupportedError)(nil); errors.As(err, &inner) {
		p.refused = append(p.refused, inner.Nodes...)
		return
	}
	p.refused = append(p.refused,
		Unsupported{Node: n.Called(), Op: n.Op, Domain: n.Domain, Reason: err.Error(),
			Wrong: p.wrong(n)})
}

// wrong reports whether the operator set has no such operator as a node's, or the operator none of
// its operands, words, attributes or element types. A part of a spelt node is not the file's.
func (p *planner) wrong(n *onnx.Node) bool {
	if _, part := p.opsets[n]; part || n.Domain != "" || op.Extended(n.Op, p.opset) {
		return false
	}
	s := op.Lookup("", n.Op, p.opset)
	if s == nil || s.Deprecated || s.Fits(n) != nil {
		return true
	}
	for _, a := range n.Attrs {
		if d := s.Attr(a.Name); d == nil || d.Kind != a.Kind {
			return true
		}
	}
	in := make([]onnx.DType, len(n.Inputs))
	for i, name := range n.Inputs {
		in[i], _, _ = p.find(name)
	}
	_, err := s.Bind(in, len(n.Outputs))
	return err != nil
}

// defineInputs defines inputs, of the types in where it is not nil, and initializers. It ends by
// package try on an input without an element type, on a name given twice and on a bad initializer.
// Initializers come in the order of their names, so that equal models have equal slots.
func (p *planner) defineInputs(in []onnx.DType) {
	for i, v := range p.graph.Inputs {
		d := v.DType
		if in != nil {
			d = in[i]
		}
		if d == onnx.Undefined {
			try.Fail("input %q has no element type", v.Name)
		}
		if _, err := p.define(v.Name, d); err != nil {
			try.Fail("input: %w", err)
		}
	}
	for _, name := range p.graph.InitializerNames() {
		t := p.graph.Initializers[name]
		if err := onnx.CheckTensor(t); err != nil {
			try.Fail("initializer %q: %w", name, err)
		}
		i, err := p.define(name, t.DType)
		if err != nil {
			try.Fail("initializer: %w", err)
		}
		p.plan.constants[i] = t
	}
}

// defineCaptures defines the values that the graph takes from around it. Constants are taken over
// as such; all others become inputs of the plan behind the graph's own.
func (p *planner) defineCaptures(around scope) {
	if around == nil {
		return
	}
	for _, name := range p.graph.Captures() {
		if _, ok := p.plan.slot[name]; ok {
			continue
		}
		d, t, ok := around(name)
		if !ok {
			try.Fail("%q is read, which nothing gives a value", name)
		}
		i := try.Get(p.define(name, d))
		if t != nil {
			p.plan.constants[i] = t
		} else {
			p.plan.captures = append(p.plan.captures, name)
		}
	}
}

// checkProduced collects the nodes' outputs and checks that each value is given once. It comes
// before the nodes are planned, as outputs of refused nodes count as well.
func (p *planner) checkProduced() {
	for _, n := range p.graph.Nodes {
		for _, o := range n.Outputs {
			if o == "" {
				continue
			}
			if _, dup := p.plan.slot[o]; dup || p.produced[o] {
				try.Fail("%s: the value %q is given twice", n.Label(), o)
			}
			p.produced[o] = true
		}
	}
}

// checkOperators refuses operators that have no kernel, and nodes with too many operands or too
// few. It comes before planning, so that nodes that are never reached are refused too.
func (p *planner) checkOperators() {
	for _, n := range p.graph.Nodes {
		switch {
		case spell.IsSpelt(n):
		case spell.Layer(n) != "":
			p.refuse(n, absent(spell.Layer(n)))
		case n.Domain != "":
			p.refuse(n, errors.New("operators of this domain are not supported"))
		case kernel.Opsets(n.Op) == "" && kernel.Layer(n.Op) != "":
			p.refuse(n, absent(kernel.Layer(n.Op)))
		case kernel.Opsets(n.Op) == "":
			p.refuse(n, errors.New("the operator is not supported"))
		default:
			if schema := op.Lookup(n.Domain, n.Op, p.opset); schema != nil && !schema.Deprecated {
				if err := schema.Fits(n); err != nil {
					p.refuse(n, err)
				}
			}
		}
	}
}

// absent is the error of an operator that another import has.
func absent(layer string) error {
	return fmt.Errorf("the operator is not supported without import _ %q", layer)
}

// schedule plans the nodes, each after those that it reads. Nodes spelt out take the place of
// theirs in the queue. A node that reads a refused one's value is left out without a message of its
// own.
func (p *planner) schedule() {
	p.readers = readers(p.graph)
	sorted := &onnx.Graph{Name: p.graph.Name, Nodes: inIntegers(p, p.graph.Nodes),
		Outputs: p.graph.Outputs}
	try.Do(pass.SortNodes(sorted))
	p.readers = readers(sorted)
	for queue := constantsFirst(sorted.Nodes); len(queue) > 0; {
		n := queue[0]
		queue = queue[1:]
		switch {
		case p.fused[n]:
		case spell.IsSpelt(n):
			opset := spell.SpeltOpset(n, p.opset)
			spelt, err := p.spell(n, opset, p.find, p.produced)
			if err != nil {
				p.refuse(n, err)
				continue
			}
			for _, part := range spelt {
				p.opsets[part] = opset
			}
			queue = append(spelt, queue...)
		case p.readsRefused(n):
		default:
			if curve := p.geluFrom(n); curve != nil {
				n = curve
			}
			p.node(n)
		}
	}
}

// constantsFirst moves Constant nodes before all others, so that a node's parameters are known when
// the node before it is planned. The order among either kind stays. A Constant reads nothing, so
// that it may come first.
func constantsFirst(nodes []*onnx.Node) []*onnx.Node {
	var first, rest []*onnx.Node
	for _, n := range nodes {
		if n.Op == "Constant" && n.Domain == "" {
			first = append(first, n)
		} else {
			rest = append(rest, n)
		}
	}
	return append(first, rest...)
}

// readsRefused reports whether a node reads a value of a refused node. Such a value is made by a
// node, but has no slot by the time its reader is planned.
func (p *planner) readsRefused(n *onnx.Node) bool {
	for _, name := range n.Reads() {
		if _, ok := p.plan.slot[name]; !ok && p.produced[name] {
			return true
		}
	}
	return false
}

// node plans one node: as a step, or as a constant where its result is known. A refusal leaves no
// step behind. Each graph within the node is planned with the values around it, and the step reads
// its captures.
func (p *planner) node(n *onnx.Node) {
	s := &kernel.Spec{Node: n, Opset: max(p.opset, p.opsets[n]), Reproducible: p.reproducible,
		Keep: func(bytes float64) bool { return p.budget.Spend(bytes, bytes) }}
	st := step{node: n, opset: s.Opset}
	var bodies []*body
	s.Body = func(g *onnx.Graph, in []onnx.DType) (*kernel.Body, error) {
		inner, err := p.compiler.graph(g, in, p.find)
		if err != nil {
			return nil, err
		}
		b := &body{plan: inner}
		bodies = append(bodies, b)
		return &kernel.Body{Out: inner.outputs, Run: b.run}, nil
	}
	try.Do(p.operands(&st, s))
	for i, d := range p.ready[n].in {
		if s.In[i] != d {
			p.refuse(n, fmt.Errorf("input %d is of %v where its zero point is of %v", i, s.In[i],
				d))
			return
		}
	}
	if p.ready[n].run == nil && len(st.in) > 0 {
		p.takePadding(&st, s)
	}
	last := p.fuse(&st, s)
	run := p.ready[n].run
	if s.Out = []onnx.DType{p.ready[n].out}; run == nil {
		var err error
		// Bodies are planned in here, by way of s.Body.
		if run, err = kernel.Prepare(s); err != nil {
			p.refuse(n, err)
			return
		}
	}
	st.run, st.types = run, s.Out
	for _, b := range bodies {
		b.first = len(st.in)
		for _, name := range b.plan.captures {
			st.in = append(st.in, p.plan.slot[name])
		}
	}
	for j, name := range last.Outputs {
		if name == "" {
			st.out = append(st.out, -1)
			continue
		}
		k, err := p.define(name, s.Out[j])
		if err != nil {
			try.Fail("%s: %w", n.Label(), err)
		}
		st.out = append(st.out, k)
	}
	// A step of constants is run once, and its results take its place.
	if p.fold(st) {
		return
	}
	p.plan.steps = append(p.plan.steps, st)
	if n.Op == "Pad" {
		p.pads[st.out[0]] = s
	}
}

// operands finds the slots, types and constants of a node's inputs; trailing inputs left out are as
// good as none. An input that is left out has slot -1, an undefined type and no constant.
func (p *planner) operands(st *step, s *kernel.Spec) error {
	inputs := s.Node.Inputs
	for len(inputs) > 0 && inputs[len(inputs)-1] == "" {
		inputs = inputs[:len(inputs)-1]
	}
	for _, name := range inputs {
		k := -1
		d, t, ok := onnx.Undefined, (*onnx.Tensor)(nil), true
		if name != "" {
			if d, t, ok = p.find(name); !ok {
				return fmt.Errorf("%s reads %q, which nothing gives a value", s.Node.Label(), name)
			}
			k = p.plan.slot[name]
		}
		st.in = append(st.in, k)
		s.In, s.Const = append(s.In, d), append(s.Const, t)
	}
	return nil
}

// fuse lets a convolution of constant weights run the nodes after it that it can, and returns the
// last of them. Only values that no other node reads are fused over, since they never come to be.
func (p *planner) fuse(st *step, s *kernel.Spec) *onnx.Node {
	last := s.Node
	if last.Op == "MatMul" && p.ready[last].run == nil {
		return p.fuseLines(s)
	}
	if last.Op != "Conv" || len(s.In) < 2 || s.In[0] != onnx.Float32 || s.Const[1] == nil ||
		len(s.Const[1].Shape) == 0 {
		return last
	}
	for next := p.soleReader(last.Outputs[0]); next != nil; next = p.soleReader(next.Outputs[0]) {
		// The addend becomes input 3 of the convolution, behind an input for the bias that may be
		// left out.
		then := p.following(next, last.Outputs[0], p.find)
		if k := p.addend(next, last.Outputs[0]); k >= 0 && kernel.CanSum(s) {
			st.in, then = append(append(st.in, -1)[:3], k), &kernel.Spec{Node: next}
		} else if then == nil || !kernel.CanFollow(s, then, s.Const[1].Shape[0]) {
			break
		}
		s.After, p.fused[next], last = append(s.After, then), true, next
	}
	if curve, product := p.swish(last.Outputs[0]); product != nil && kernel.CanSwish(s) {
		p.fused[curve], p.fused[product] = true, true
		s.After, last = append(s.After, &kernel.Spec{Node: product, Opset: p.opset}), product
	}
	return last
}

// addend returns the slot of the operand that a node adds to a value, where that is known by the
// time it is made; -1 where the node does something else. A constant operand is none: only float32
// values that a step or the caller makes are. Before operator set 7 an Add broadcasts by
// attributes, and is not taken.
func (p *planner) addend(n *onnx.Node, value string) int {
	if n.Op != "Add" || n.Domain != "" || len(n.Inputs) != 2 || len(n.Attrs) > 0 || p.opset < 7 {
		return -1
	}
	other := n.Inputs[0]
	if other == value {
		other = n.Inputs[1]
	}
	if d, t, ok := p.find(other); !ok || t != nil || d != onnx.Float32 {
		return -1
	}
	return p.plan.slot[other]
}

// swish returns the sigmoid of a value and the product of both, where nothing else reads either. It
// is x / (1 + e^-x), SiLU or Swish (Ramachandran et al. 2017, arXiv:1710.05941), as exporters write
// it.
func (p *planner) swish(value string) (curve, product *onnx.Node) {
	// The two readers are the sigmoid and the product, in either order; nil is an output of the
	// graph.
	both := p.readers[value]
	if len(both) != 2 || both[0] == nil || both[1] == nil {
		return nil, nil
	}
	curve, product = both[0], both[1]
	if curve.Op != "Sigmoid" {
		curve, product = product, curve
	}
	if curve.Op != "Sigmoid" || product.Op != "Mul" || curve.Domain != "" || product.Domain != "" ||
		len(curve.Inputs) != 1 ||
		len(product.Inputs) != 2 || len(product.Outputs) != 1 ||
		len(curve.Attrs)+len(product.Attrs) > 0 || p.opset < 7 {
		return nil, nil
	}
	if only := p.readers[curve.Outputs[0]]; len(only) != 1 || only[0] != product {
		return nil, nil
	}
	return curve, product
}

// soleReader returns the node that reads a value as its first input, or adds it to another, where
// no other node and no output of the graph does. It is nil of a value that is an output of the
// graph, which must come to be.
func (p *planner) soleReader(value string) *onnx.Node {
	all := p.readers[value]
	if len(all) != 1 || all[0] == nil || all[0].Input(0) != value && all[0].Op != "Add" ||
		len(all[0].Outputs) != 1 {
		return nil
	}
	return all[0]
}

// finish checks the graph's outputs, counts how often values are read, and drops constants that
// nothing reads. A graph's output counts as one read, which keeps its buffer to the end of the run.
func (p *planner) finish() error {
	pl := p.plan
	pl.slots = len(p.types)
	pl.uses = make([]int, pl.slots)
	for i, v := range p.graph.Outputs {
		k, ok := pl.slot[v.Name]
		if !ok {
			return fmt.Errorf("output %q is made by no node", v.Name)
		}
		if v.DType != onnx.Undefined && v.DType != p.types[k] {
			return fmt.Errorf("output %q is declared %v and computed as %v", v.Name,
				v.DType, p.types[k])
		}
		if v.DType == onnx.Undefined {
			// The list may be the graph's own, and is copied before it is written to.
			pl.outputs = append([]onnx.ValueInfo{}, pl.outputs...)
			pl.outputs[i].DType = p.types[k]
		}
		pl.uses[k]++
	}
	for _, st := range pl.steps {
		for _, k := range st.in {
			if k >= 0 {
				pl.uses[k]++
			}
		}
	}
	for k := range pl.constants {
		if pl.uses[k] == 0 {
			delete(pl.constants, k)
		}
	}
	return nil
}

// readers lists the nodes that read a value, once for each time, and nil for an output of the
// graph. Reads of graphs within a node count as the node's. Order is that of the outputs and then
// of the nodes.
func readers(g *onnx.Graph) map[string][]*onnx.Node {
	out := map[string][]*onnx.Node{}
	for _, o := range g.Outputs {
		out[o.Name] = append(out[o.Name], nil)
	}
	for _, n := range g.Nodes {
		for _, name := range n.Reads() {
			out[name] = append(out[name], n)
		}
	}
	return out
}

// following is a node on the float32 value called in, prepared; nil where it is not known well
// enough yet. All inputs but the first must be known by name; in must be the first. These operators
// keep the shape of their first input, so that they can be done in its buffer.
func (c *compiler) following(n *onnx.Node, in string, find scope) *kernel.Spec {
	if n.Domain != "" || !slices.Contains([]string{"BatchNormalization", "Relu", "Clip",
		"HardSwish", "Sigmoid"}, n.Op) {
		return nil
	}
	s := &kernel.Spec{Node: n, Opset: c.opset, Reproducible: c.reproducible}
	for i, name := range n.Inputs {
		d, t := onnx.Float32, (*onnx.Tensor)(nil)
		if i > 0 {
			d = onnx.Undefined
			if name != "" {
				var ok bool
				if d, t, ok = find(name); !ok {
					return nil
				}
			}
		}
		s.In, s.Const = append(s.In, d), append(s.Const, t)
	}
	if n.Input(0) != in {
		return nil
	}
	if _, err := kernel.Prepare(s); err != nil {
		return nil // by itself, it is refused
	}
	return s
}

// spell spells a node out in nodes of an operator set, under names that produced has none of and
// then has.
func (c *compiler) spell(n *onnx.Node, opset int, find scope,
	produced map[string]bool) ([]*onnx.Node, error) {
	if op.Last(n.Domain, n.Op, opset) == nil {
		return nil, fmt.Errorf("operator set %d does not have the operator", opset)
	}
	return spell.Spell(n, spell.Around{
		Opset: opset,
		Type: func(v string) onnx.DType {
			d, _, _ := find(v)
			return d
		},
		Shape: func(v string) []onnx.Dim {
			_, t, _ := find(v)
			if t == nil {
				return c.declared[v]
			}
			dims := make([]onnx.Dim, len(t.Shape))
			for i, d := range t.Shape {
				dims[i] = onnx.Known(d)
			}
			return dims
		},
		Fresh: func(base string) string {
			// Names are tried in the order base, base_1, base_2.
			name := base
			for i := 1; ; i++ {
				if _, _, taken := find(name); !taken && !produced[name] {
					produced[name] = true
					return name
				}
				name = fmt.Sprintf("%s_%d", base, i)
			}
		},
	})
}

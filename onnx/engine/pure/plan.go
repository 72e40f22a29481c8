package pure

import (
	"errors"
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/kernel"
	"fmp/onnx/op"
	"fmp/onnx/pass"
)

// plan is a graph made ready: which kernels run in which order, on which values.
type plan struct {
	inputs, outputs []onnx.ValueInfo
	captures        []string       // values that a graph within a node takes from around it; fed behind the inputs
	slots           int            // number of values
	slot            map[string]int // by name
	constants       map[int]*onnx.Tensor
	steps           []step
	isOutput        []bool
	// uses counts the steps that read a value, and one more for a graph output.
	uses []int
}

// step is one node.
type step struct {
	node    *onnx.Node
	run     kernel.Kernel
	in, out []int // slots, -1 where left out
	types   []onnx.DType
}

// secondReading, set by tests, reads a model with another decoder; the error says what that read differently.
var secondReading func(m *onnx.Model) error

// compile checks a model and plans its run. Its error is an [UnsupportedError] where the model is sound but holds what
// the engine does not run.
func compile(m *onnx.Model) (*plan, error) {
	if m == nil || m.Graph == nil {
		return nil, fmt.Errorf("no model to load")
	}
	if len(m.Functions) > 0 {
		inlined := *m
		if err := pass.Inline(&inlined); err != nil {
			return nil, err
		}
		m = &inlined
	}
	if v := m.Opset(); v >= onnx.MinOpset && v < 9 && spelt(m.Graph) {
		m = onnx.Clone(m)
		if err := pass.Upgrade(m, 9); err != nil {
			return nil, err
		}
	}
	opset := onnx.ClampInt(m.Opset())
	if opset < 1 || opset > kernel.MaxOpset {
		return nil, &UnsupportedError{Nodes: []Unsupported{{Reason: fmt.Sprintf("the model imports opset %d of the standard operators; 1 to %d are known", opset, kernel.MaxOpset)}}}
	}
	if secondReading != nil {
		if err := secondReading(m); err != nil {
			return nil, &UnsupportedError{Nodes: []Unsupported{{Reason: err.Error()}}}
		}
	}
	c := &compiler{opset: opset, budget: onnx.NewBudget(m), declared: map[string][]onnx.Dim{}}
	for _, v := range m.Graph.Inputs {
		c.declared[v.Name] = v.Shape
	}
	return c.graph(m.Graph, nil, nil)
}

// spelt says that a graph holds, at any depth, what is spelt out in operators of set 9.
func spelt(g *onnx.Graph) bool {
	return slices.ContainsFunc(g.Nodes, func(n *onnx.Node) bool {
		return pass.IsRecurrent(n) || n.Domain == "" && n.Op == "Scan" || slices.ContainsFunc(n.Subgraphs(), spelt)
	})
}

// compiler plans the graphs of one model.
type compiler struct {
	opset    int
	budget   *onnx.Budget
	declared map[string][]onnx.Dim // shapes of the model's inputs
}

// scope finds a value around a graph within a node: its element type, and itself where it is constant.
type scope func(name string) (d onnx.DType, t *onnx.Tensor, ok bool)

// graph plans a graph whose inputs have the given types (nil: those that it declares) within what is around it.
func (c *compiler) graph(g *onnx.Graph, in []onnx.DType, around scope) (*plan, error) {
	p := &plan{slot: map[string]int{}, constants: map[int]*onnx.Tensor{}, inputs: g.Inputs, outputs: g.Outputs}
	types := []onnx.DType{}
	define := func(name string, d onnx.DType) (int, error) {
		if name == "" {
			return -1, fmt.Errorf("a value has no name")
		}
		if _, dup := p.slot[name]; dup {
			return -1, fmt.Errorf("the value %q is given twice", name)
		}
		i := len(types)
		p.slot[name] = i
		types = append(types, d)
		return i, nil
	}
	for i, v := range g.Inputs {
		d := v.DType
		if in != nil {
			d = in[i]
		}
		if d == onnx.Undefined {
			return nil, fmt.Errorf("input %q has no element type", v.Name)
		}
		if _, err := define(v.Name, d); err != nil {
			return nil, fmt.Errorf("input: %w", err)
		}
	}
	for _, name := range g.InitializerNames() {
		t := g.Initializers[name]
		if err := onnx.CheckTensor(t); err != nil {
			return nil, fmt.Errorf("initializer %q: %w", name, err)
		}
		i, err := define(name, t.DType)
		if err != nil {
			return nil, fmt.Errorf("initializer: %w", err)
		}
		p.constants[i] = t
	}
	if around != nil {
		for _, name := range g.Captures() {
			if _, ok := p.slot[name]; ok {
				continue
			}
			d, t, ok := around(name)
			if !ok {
				return nil, fmt.Errorf("%q is read, which nothing gives a value", name)
			}
			i, err := define(name, d)
			if err != nil {
				return nil, err
			}
			if t != nil {
				p.constants[i] = t
			} else {
				p.captures = append(p.captures, name)
			}
		}
	}
	find := func(name string) (onnx.DType, *onnx.Tensor, bool) {
		k, ok := p.slot[name]
		if !ok {
			return onnx.Undefined, nil, false
		}
		return types[k], p.constants[k], true
	}
	produced := map[string]bool{}
	for _, n := range g.Nodes {
		for _, o := range n.Outputs {
			if o == "" {
				continue
			}
			if _, dup := p.slot[o]; dup || produced[o] {
				return nil, fmt.Errorf("%s: the value %q is given twice", n.Label(), o)
			}
			produced[o] = true
		}
	}
	// Names and numbers of operands first: an operator that is not supported at all is the clearest thing to say.
	var refused []Unsupported
	refuse := func(n *onnx.Node, reason string) {
		refused = append(refused, Unsupported{Node: n.Called(), Op: n.Op, Domain: n.Domain, Reason: reason})
	}
	for _, n := range g.Nodes {
		switch {
		case pass.IsSpelt(n):
		case n.Domain != "":
			refuse(n, "operators of this domain are not supported")
		case kernel.Opsets(n.Op) == "":
			refuse(n, "the operator is not supported")
		default:
			if schema := op.Lookup(n.Domain, n.Op, c.opset); schema != nil {
				if err := schema.Arity(n); err != nil {
					refuse(n, err.Error())
				}
			}
		}
	}
	if refused != nil {
		return nil, &UnsupportedError{Nodes: refused}
	}
	sorted := &onnx.Graph{Name: g.Name, Nodes: g.Nodes}
	if err := pass.SortNodes(sorted); err != nil {
		return nil, err
	}
	fused := map[*onnx.Node]bool{} // done by a convolution before
	reader := soleReaders(g)
	for queue := sorted.Nodes; len(queue) > 0; {
		n := queue[0]
		if fused[n] {
			queue = queue[1:]
			continue
		}
		if queue = queue[1:]; pass.IsSpelt(n) {
			spelt, err := c.spell(n, find, produced)
			if err != nil {
				refuse(n, err.Error())
				continue
			}
			queue = append(spelt, queue...)
			continue
		}
		s := &kernel.Spec{Node: n, Opset: c.opset, Keep: func(bytes float64) bool { return c.budget.Spend(bytes, bytes) }}
		st := step{node: n}
		var bodies []*body
		s.Body = func(g *onnx.Graph, in []onnx.DType) (*kernel.Body, error) {
			inner, err := c.graph(g, in, find)
			if err != nil {
				return nil, err
			}
			b := &body{plan: inner}
			bodies = append(bodies, b)
			return &kernel.Body{Out: inner.outputs, Run: b.run}, nil
		}
		unknown := false
		for _, name := range n.Reads() {
			if _, ok := p.slot[name]; !ok && produced[name] {
				unknown = true // made by a node that was refused
			}
		}
		if unknown {
			continue
		}
		for _, name := range n.Inputs {
			if name == "" {
				st.in = append(st.in, -1)
				s.In, s.Const = append(s.In, onnx.Undefined), append(s.Const, nil)
				continue
			}
			k, ok := p.slot[name]
			if !ok {
				return nil, fmt.Errorf("%s reads %q, which nothing gives a value", n.Label(), name)
			}
			st.in = append(st.in, k)
			s.In, s.Const = append(s.In, types[k]), append(s.Const, p.constants[k])
		}
		// Trailing inputs left out are as good as none.
		for len(st.in) > 0 && st.in[len(st.in)-1] < 0 {
			st.in, s.In, s.Const = st.in[:len(st.in)-1], s.In[:len(s.In)-1], s.Const[:len(s.Const)-1]
		}
		last := n
		if n.Op == "Conv" && len(s.In) > 1 && s.In[0] == onnx.Float32 && s.Const[1] != nil {
			for next := reader[n.Outputs[0]]; next != nil; next = reader[next.Outputs[0]] {
				then := c.following(next, last.Outputs[0], find)
				if then == nil || !kernel.CanFollow(s, then, s.Const[1].Shape[0]) {
					break
				}
				s.After, fused[next], last = append(s.After, then), true, next
			}
		}
		run, err := kernel.Prepare(s)
		if err != nil {
			var inner *UnsupportedError
			if errors.As(err, &inner) {
				refused = append(refused, inner.Nodes...)
				continue
			}
			refuse(n, err.Error())
			continue
		}
		st.run, st.types = run, s.Out
		for _, b := range bodies {
			b.first = len(st.in)
			for _, name := range b.plan.captures {
				st.in = append(st.in, p.slot[name])
			}
		}
		for j, name := range last.Outputs {
			if name == "" {
				st.out = append(st.out, -1)
				continue
			}
			k, err := define(name, s.Out[j])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", n.Label(), err)
			}
			st.out = append(st.out, k)
		}
		if n.Op == "Constant" && len(st.out) == 1 && st.out[0] >= 0 {
			// Known from now on, to the kernels that come as well.
			t, err := evaluate(st)
			if err != nil {
				refuse(n, err.Error())
				continue
			}
			p.constants[st.out[0]] = t
			continue
		}
		if n.Op == "Cast" && len(st.in) == 1 && len(st.out) == 1 && st.out[0] >= 0 && p.constants[st.in[0]] != nil {
			// Weights that are stored in half precision are widened once, not in every run. What cannot be is
			// left to the run, and so is what would take much more memory than the weights.
			n := float64(p.constants[st.in[0]].Len())
			if s.Out[0] != onnx.String && c.budget.Spend(n*float64(s.Out[0].Size()), n) {
				if t, err := evaluate(st, p.constants[st.in[0]]); err == nil {
					p.constants[st.out[0]] = t
					continue
				}
			}
		}
		p.steps = append(p.steps, st)
	}
	if refused != nil {
		return nil, &UnsupportedError{Nodes: refused}
	}
	p.slots = len(types)
	p.uses = make([]int, p.slots)
	p.isOutput = make([]bool, p.slots)
	for i, v := range g.Outputs {
		k, ok := p.slot[v.Name]
		if !ok {
			return nil, fmt.Errorf("output %q is made by no node", v.Name)
		}
		if v.DType != onnx.Undefined && v.DType != types[k] {
			return nil, fmt.Errorf("output %q is declared %v and computed as %v", v.Name, v.DType, types[k])
		}
		if v.DType == onnx.Undefined {
			p.outputs = append([]onnx.ValueInfo{}, p.outputs...)
			p.outputs[i].DType = types[k]
		}
		p.isOutput[k] = true
		p.uses[k]++
	}
	for _, st := range p.steps {
		for _, k := range st.in {
			if k >= 0 {
				p.uses[k]++
			}
		}
	}
	for k := range p.constants {
		if p.uses[k] == 0 {
			delete(p.constants, k)
		}
	}
	return p, nil
}

// soleReaders finds the node that reads a value as its first input, where no other node and no output of the graph does.
func soleReaders(g *onnx.Graph) map[string]*onnx.Node {
	count, out := map[string]int{}, map[string]*onnx.Node{}
	for _, o := range g.Outputs {
		count[o.Name]++
	}
	for _, n := range g.Nodes {
		for i, name := range n.Reads() {
			if count[name]++; i == 0 && name == n.Input(0) && len(n.Outputs) == 1 {
				out[name] = n
			}
		}
	}
	for name, times := range count {
		if times > 1 {
			delete(out, name)
		}
	}
	return out
}

// following is a node on the float32 value called in, prepared; nil where it is not known well enough yet.
func (c *compiler) following(n *onnx.Node, in string, find scope) *kernel.Spec {
	if n.Domain != "" || n.Op != "BatchNormalization" && n.Op != "Relu" && n.Op != "Clip" {
		return nil
	}
	s := &kernel.Spec{Node: n, Opset: c.opset}
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

// spell spells a node out, under names that produced has none of and then has.
func (c *compiler) spell(n *onnx.Node, find scope, produced map[string]bool) ([]*onnx.Node, error) {
	schema := op.Lookup(n.Domain, n.Op, c.opset)
	if schema == nil {
		return nil, fmt.Errorf("operator set %d does not have the operator", c.opset)
	}
	if err := schema.Arity(n); err != nil {
		return nil, err
	}
	return pass.Spell(n, pass.Around{
		Opset: c.opset,
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

// evaluate runs a node of one output on constants.
func evaluate(st step, in ...*onnx.Tensor) (*onnx.Tensor, error) {
	c := kernel.NewCall(&kernel.Env{Pool: &kernel.Pool{}, Threads: 1}, len(in), 1)
	c.Want[0] = true
	copy(c.In, in)
	if err := c.Do(st.run); err != nil {
		return nil, err
	}
	return c.Out[0], nil
}

package grad

import (
	"fmt"
	"maps"
	"slices"

	"fmp/onnx"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// Operators with graphs of their own. The gradient runs such a graph again, turn by turn from the last to the first, with
// the values that it began each turn with, which the node is made to give as further outputs; then it runs the graph's own
// nodes backward. What the graphs take from around them gets the sum over the turns.
func init() {
	register(vjpIf, "If")
	register(vjpLoop, "Loop")
	register(vjpScan, "Scan")
}

// subgraph is a node's graph as a model of its own: what it takes from around it is an input, or an initializer where it
// is constant.
type subgraph struct {
	*emitter
	graph    *onnx.Graph
	nodes    []*onnx.Node // as they were
	captures []string
	inputs   []string // its own
	outputs  []string
	cot      cotangents
}

// subgraph prepares a node's graph for inputs of which so much is known. Of carried values (behind lead inputs that are not),
// sizes that a turn may change are taken as unknown.
func (c *call) subgraph(g *onnx.Graph, in []onnx.ValueInfo, lead, carried, skip int) (*subgraph, error) {
	s := &subgraph{graph: onnx.CloneGraph(g)}
	constants := map[string]*onnx.Tensor{}
	var around []onnx.ValueInfo
	for _, name := range g.Captures() {
		if slices.Contains(s.captures, name) {
			continue
		}
		s.captures = append(s.captures, name)
		if t, ok := c.constOf(name); ok && !c.active[name] {
			constants[name] = t
			continue
		}
		around = append(around, c.valueInfo(name))
	}
	for i, v := range g.Inputs {
		s.inputs = append(s.inputs, v.Name)
		in[i].Name = v.Name
	}
	for _, o := range g.Outputs {
		s.outputs = append(s.outputs, o.Name)
	}
	m := onnx.NewModel(s.graph)
	m.Opsets = map[string]int64{"": c.opset}
	maps.Copy(s.graph.Initializers, constants)
	for round := 0; ; round++ {
		s.graph.Inputs = append(slices.Clone(in), around...)
		s.graph.Outputs = slices.Clone(g.Outputs)
		s.graph.Values = nil
		for i := range s.graph.Outputs {
			s.graph.Outputs[i].Shape = nil
		}
		if err := infer(m, c.taken); err != nil {
			return nil, err
		}
		steady := true
		for i := range carried {
			a, b := in[lead+i].Shape, s.graph.Outputs[skip+i].Shape
			if a == nil {
				continue
			}
			if b == nil || len(a) != len(b) {
				return nil, fmt.Errorf("the carried value %q may change its rank from turn to turn", s.inputs[lead+i])
			}
			a = slices.Clone(a)
			for k := range a {
				if a[k].IsKnown() && b[k].IsKnown() && a[k] != b[k] {
					return nil, fmt.Errorf("the carried value %q changes from size %d to %d on axis %d, so that its turns cannot be kept; carry it padded", s.inputs[lead+i], a[k].Size, b[k].Size, k)
				}
				if a[k] != b[k] && (a[k].IsKnown() || a[k].Symbol != "") {
					a[k], steady = onnx.Symbolic(""), false
				}
			}
			in[lead+i].Shape = a
		}
		if steady || round == 2 {
			break
		}
	}
	inner, err := newEmitter(m)
	if err != nil {
		return nil, err
	}
	maps.Copy(c.taken, inner.taken)
	inner.taken, inner.next = c.taken, c.next
	s.emitter, s.nodes = inner, s.graph.Nodes
	s.cot = cotangents{e: inner, of: map[string]string{}}
	// The graph within does not say what it is given.
	s.graph.Inputs = nil
	for name := range constants {
		delete(s.graph.Initializers, name)
		inner.constants[name] = constants[name]
	}
	return s, nil
}

// infer works out shapes and spells out what [pass.Spell] does, under names that taken has none of and then has.
func infer(m *onnx.Model, taken map[string]bool) error {
	if err := shape.Infer(m); err != nil {
		return err
	}
	if !slices.ContainsFunc(m.Graph.Nodes, pass.IsSpelt) {
		return nil
	}
	types, err := shape.Types(m)
	if err != nil {
		return err
	}
	around := pass.Around{
		Opset: onnx.ClampInt(m.Opset()),
		Type:  func(v string) onnx.DType { return types[v].DType },
		Shape: func(v string) []onnx.Dim { return types[v].Shape },
		Fresh: func(base string) string { return pass.Unique(taken, base) },
	}
	var nodes []*onnx.Node
	for _, n := range m.Graph.Nodes {
		if !pass.IsSpelt(n) {
			nodes = append(nodes, n)
			continue
		}
		spelt, err := pass.Spell(n, around)
		if err != nil {
			return fmt.Errorf("%s: %w", n.Label(), err)
		}
		nodes = append(nodes, spelt...)
	}
	m.Graph.Nodes = nodes
	return shape.Infer(m)
}

// pull runs the graph's nodes backward, for the cotangents of its outputs that seeds has by position, as far as they
// depend on the values wrt.
func (s *subgraph) pull(wrt []string, seeds map[int]string) error {
	s.active = activeValues(s.emitter, s.nodes, wrt)
	for _, i := range slices.Sorted(maps.Keys(seeds)) {
		if o := s.outputs[i]; s.active[o] {
			s.as(seeds[i], o)
			s.cot.add(o, seeds[i])
		}
	}
	for _, n := range slices.Backward(s.nodes) {
		if err := pullBack(s.emitter, n, s.active, &s.cot); err != nil {
			return err
		}
	}
	return nil
}

// result makes v an output of the graph; by another name where v is none of its nodes' or is an output already. (An Identity
// more than needed, and the ONNX Runtime 1.27 loses values when it fuses a MatMul, an Add and a Transpose in a loop.)
func (s *subgraph) result(v string, like onnx.ValueInfo) {
	like.Name = v
	own := slices.ContainsFunc(s.graph.Nodes, func(n *onnx.Node) bool { return slices.Contains(n.Outputs, v) })
	if _, again := s.graph.Output(v); !own || again {
		like.Name = s.fresh("result")
		s.graph.Nodes = append(s.graph.Nodes, &onnx.Node{Name: like.Name, Op: "Identity", Inputs: []string{v}, Outputs: []string{like.Name}})
	}
	s.graph.Outputs = append(s.graph.Outputs, like)
}

// cotangentOf is what has arrived at a value, else zeros.
func (s *subgraph) cotangentOf(v string) string {
	if g := s.cot.of[v]; g != "" {
		return g
	}
	return s.filled(v, 0)
}

// finish leaves in the graph what its outputs need, each node after those that it reads.
func (s *subgraph) finish(name string) (onnx.Attr, error) {
	s.graph.Values, s.graph.Name = nil, name
	if err := pass.SortNodes(s.graph); err != nil {
		return onnx.Attr{}, err
	}
	pass.RemoveUnused(s.graph)
	return onnx.Attr{Name: name, Kind: onnx.AttrGraph, Graph: s.graph}, nil
}

// body is the graph in an attribute of the node.
func (c *call) body(attr string, inputs, outputs int) (*onnx.Graph, error) {
	a, ok := c.node.Attr(attr)
	if !ok || a.Graph == nil {
		return nil, fmt.Errorf("the attribute %s holds no graph", attr)
	}
	if len(a.Graph.Inputs) != inputs || len(a.Graph.Outputs) != outputs {
		return nil, fmt.Errorf("%s takes %d inputs and gives %d outputs; %d and %d are expected", attr, len(a.Graph.Inputs), len(a.Graph.Outputs), inputs, outputs)
	}
	return a.Graph, nil
}

// emit appends a node with n outputs.
func (c *call) emit(op string, in []string, n int, attrs ...onnx.Attr) []string {
	node := &onnx.Node{Op: op, Inputs: in, Attrs: attrs}
	for range n {
		node.Outputs = append(node.Outputs, c.fresh(op))
	}
	node.Name = node.Outputs[0]
	c.emitter.graph.Nodes = append(c.emitter.graph.Nodes, node)
	return node.Outputs
}

// activeCaptures are the values that graphs take from around them and that are differentiated for.
func (c *call) activeCaptures(gs ...*onnx.Graph) []string {
	var out []string
	for _, g := range gs {
		for _, name := range g.Captures() {
			if c.active[name] && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// vjpIf chooses between the gradients of the branches.
func vjpIf(c *call) ([]string, error) {
	var branches []onnx.Attr
	var graphs []*onnx.Graph
	names := []string{"then_branch", "else_branch"}
	for _, name := range names {
		g, err := c.body(name, 0, len(c.node.Outputs))
		if err != nil {
			return nil, err
		}
		graphs = append(graphs, g)
	}
	wrt := c.activeCaptures(graphs...)
	for i, g := range graphs {
		s, err := c.subgraph(g, nil, 0, 0, 0)
		if err != nil {
			return nil, err
		}
		s.graph.Outputs = nil
		seeds := map[int]string{}
		for k, v := range c.cot {
			if v != "" {
				seeds[k] = v
			}
		}
		for _, w := range wrt {
			s.info[w] = c.info[w]
		}
		if err := s.pull(wrt, seeds); err != nil {
			return nil, fmt.Errorf("%s: %w", names[i], err)
		}
		for _, w := range wrt {
			s.result(s.cotangentOf(w), c.info[w])
		}
		b, err := s.finish(names[i])
		if err != nil {
			return nil, err
		}
		branches = append(branches, b)
	}
	for i, v := range c.emit("If", []string{c.in(0)}, len(wrt), branches...) {
		c.also(wrt[i], v)
	}
	return []string{""}, nil
}

// scanning says how a Loop or Scan takes values apart and puts them together.
type scanning struct {
	lead, skip      int      // inputs, and outputs of the body, before the carried ones
	carried         []string // initial values
	scanned         []string // Scan: what is taken apart
	inAxes, outAxes []int    // nil: the first
	inBack, outBack []bool   // from the end
	turn            bool     // Loop: the body is given the turn and the condition
}

func vjpLoop(c *call) ([]string, error) {
	return c.vjpTurns(scanning{lead: 2, skip: 1, carried: c.node.Inputs[min(2, len(c.node.Inputs)):], turn: true})
}

func vjpScan(c *call) ([]string, error) {
	m := c.attrs.Int("num_scan_inputs")
	n := len(c.node.Inputs) - m
	if m < 1 || n < 0 || n > len(c.node.Outputs) {
		return nil, fmt.Errorf("num_scan_inputs is %d of %d inputs", m, len(c.node.Inputs))
	}
	k := scanning{carried: c.node.Inputs[:n], scanned: c.node.Inputs[n:]}
	axes := func(name string, values []string) ([]int, error) {
		out := make([]int, len(values))
		copy(out, c.attrs.Ints(name))
		for i, a := range out {
			if a >= 0 {
				continue
			}
			r, err := c.rank(values[i])
			if err != nil {
				return nil, err
			}
			out[i] = a + r
		}
		return out, nil
	}
	back := func(name string, n int) []bool {
		out := make([]bool, n)
		for i, d := range c.attrs.Ints(name) {
			if i < n {
				out[i] = d == 1
			}
		}
		return out
	}
	var err error
	if k.inAxes, err = axes("scan_input_axes", k.scanned); err != nil {
		return nil, err
	}
	if k.outAxes, err = axes("scan_output_axes", c.node.Outputs[n:]); err != nil {
		return nil, err
	}
	k.inBack, k.outBack = back("scan_input_directions", m), back("scan_output_directions", len(c.node.Outputs)-n)
	return c.vjpTurns(k)
}

// vjpTurns is the gradient of a Loop or Scan: a Loop over its turns from the last to the first.
func (c *call) vjpTurns(k scanning) ([]string, error) {
	carried, outputs := len(k.carried), len(c.node.Outputs)
	inputs := k.lead + carried + len(k.scanned)
	g, err := c.body("body", inputs, k.skip+outputs)
	if err != nil {
		return nil, err
	}
	// What the body is given.
	infos := make([]onnx.ValueInfo, 0, inputs)
	if k.turn {
		infos = append(infos, onnx.ValueInfo{DType: onnx.Int64, Shape: onnx.Shape()}, onnx.ValueInfo{DType: onnx.Bool, Shape: onnx.Shape()})
	}
	for _, v := range k.carried {
		infos = append(infos, c.valueInfo(v))
	}
	for i, v := range k.scanned {
		info := c.valueInfo(v)
		if info.Shape != nil {
			info.Shape = slices.Delete(slices.Clone(info.Shape), k.inAxes[i], k.inAxes[i]+1)
		}
		infos = append(infos, info)
	}
	s, err := c.subgraph(g, infos, k.lead, carried, k.skip)
	if err != nil {
		return nil, err
	}
	// Carried values are active where their initial value is, or what the body makes of them.
	captures := c.activeCaptures(g)
	activeIn := map[int]bool{}
	for i, v := range append(slices.Clone(k.carried), k.scanned...) {
		activeIn[i] = c.active[v] && s.isFloat(s.inputs[k.lead+i])
	}
	var wrt []string
	for again := true; again; {
		again = false
		wrt = slices.Clone(captures)
		for i := range carried + len(k.scanned) {
			if activeIn[i] {
				wrt = append(wrt, s.inputs[k.lead+i])
			}
		}
		active := activeValues(s.emitter, s.nodes, wrt)
		for i := range carried {
			if !activeIn[i] && active[s.outputs[k.skip+i]] && s.isFloat(s.inputs[k.lead+i]) {
				activeIn[i], again = true, true
			}
		}
	}
	s.graph.Outputs = nil

	// The gradient's body is given its own turn and condition, the carried cotangents and the sums so far.
	turn, on := s.fresh("turn"), s.fresh("on")
	s.shaped(turn, onnx.Int64, onnx.Shape())
	s.graph.Inputs = []onnx.ValueInfo{s.valueInfo(turn), {Name: on, DType: onnx.Bool, Shape: onnx.Shape()}}
	initial := []string{} // of what the gradient's Loop carries
	seeds := map[int]string{}
	receive := func(like string, start string) string {
		info := s.valueInfo(like)
		info.Name = s.fresh("carried")
		s.info[info.Name] = info
		s.graph.Inputs = append(s.graph.Inputs, info)
		initial = append(initial, start)
		return info.Name
	}
	for i := range carried {
		if activeIn[i] {
			seeds[k.skip+i] = receive(s.inputs[k.lead+i], c.cotangent(i))
		}
	}
	sums := map[string]string{}
	for _, w := range captures {
		s.info[w] = c.info[w]
		sums[w] = receive(w, c.filled(w, 0))
	}

	// The primal node gives the values that its turns began with, and how many turns there were.
	give := func(name string, info onnx.ValueInfo) string {
		inner, outer := c.fresh("kept"), c.fresh("kept")
		g.Nodes = append(g.Nodes, &onnx.Node{Name: inner, Op: "Identity", Inputs: []string{name}, Outputs: []string{inner}})
		given := info
		given.Name = inner
		g.Outputs = append(g.Outputs, given)
		c.node.Outputs = append(c.node.Outputs, outer)
		if info.Shape != nil {
			info.Shape = append([]onnx.Dim{onnx.Symbolic("")}, info.Shape...)
		}
		c.shaped(outer, info.DType, info.Shape)
		if a, ok := c.node.Attr("scan_output_axes"); ok {
			c.setInts("scan_output_axes", append(slices.Clone(a.Ints), 0))
		}
		if a, ok := c.node.Attr("scan_output_directions"); ok {
			c.setInts("scan_output_directions", append(slices.Clone(a.Ints), 0))
		}
		return outer
	}
	// The place of the turn that is run again, counted from the first turn: turns - 1 - turn.
	var turns string // a vector of one
	if k.turn {
		turns = c.op("Shape", []string{give(g.Inputs[0].Name, onnx.ValueInfo{DType: onnx.Int64, Shape: onnx.Shape()})})
	} else {
		turns = c.dim(k.scanned[0], k.inAxes[0])
	}
	count := c.squeeze(turns, 0)
	last := c.sub(count, c.constant(onnx.Scalar(int64(1))))
	at := s.sub(last, turn)
	take := func(from string, axis int, place, as string) {
		s.graph.Nodes = append(s.graph.Nodes, &onnx.Node{Name: as, Op: "Gather", Inputs: []string{from, place}, Outputs: []string{as}, Attrs: []onnx.Attr{onnx.IntAttr("axis", axis)}})
	}
	place := func(back []bool, i int) string {
		if i < len(back) && back[i] {
			return turn
		}
		return at
	}
	for i, v := range k.scanned {
		take(v, k.inAxes[i], place(k.inBack, i), s.inputs[k.lead+carried+i])
	}
	if k.turn {
		s.graph.Nodes = append(s.graph.Nodes,
			&onnx.Node{Name: s.inputs[0], Op: "Identity", Inputs: []string{at}, Outputs: []string{s.inputs[0]}},
			&onnx.Node{Name: s.inputs[1], Op: "Identity", Inputs: []string{on}, Outputs: []string{s.inputs[1]}})
	}
	for i := range outputs - carried {
		if v := c.cot[carried+i]; v != "" {
			axis := 0
			if k.outAxes != nil {
				axis = k.outAxes[i]
			}
			seed := s.fresh("seed")
			s.as(seed, s.outputs[k.skip+carried+i])
			take(v, axis, place(k.outBack, i), seed)
			seeds[k.skip+carried+i] = seed
		}
	}
	if err := s.pull(wrt, seeds); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	s.result(on, onnx.ValueInfo{DType: onnx.Bool, Shape: onnx.Shape()})
	for i := range carried {
		if activeIn[i] {
			s.result(s.cotangentOf(s.inputs[k.lead+i]), s.valueInfo(s.inputs[k.lead+i]))
		}
	}
	for _, w := range captures {
		sum := sums[w]
		if v := s.cot.of[w]; v != "" {
			sum = s.add(sum, v)
		}
		s.result(sum, c.info[w])
	}
	var apart []int
	for i := range k.scanned {
		if v := s.inputs[k.lead+carried+i]; activeIn[carried+i] {
			apart = append(apart, i)
			s.result(s.cotangentOf(v), s.valueInfo(v))
		}
	}
	for i := range carried {
		take("", 0, at, s.inputs[k.lead+i])
	}
	body, err := s.finish("body")
	if err != nil {
		return nil, err
	}
	for _, n := range s.graph.Nodes { // those carried values that are read
		if n.Op == "Gather" && n.Inputs[0] == "" {
			n.Inputs[0] = give(n.Outputs[0], s.valueInfo(n.Outputs[0]))
		}
	}
	out := c.emit("Loop", append([]string{count, ""}, initial...), len(initial)+len(apart), body)

	result := make([]string, len(c.node.Inputs))
	pos := 0
	for i := range carried {
		if activeIn[i] {
			result[k.lead+i] = c.as(out[pos], k.carried[i])
			pos++
		}
	}
	for _, w := range captures {
		c.also(w, c.as(out[pos], w))
		pos++
	}
	for _, i := range apart {
		v := out[pos]
		pos++
		if !k.inBack[i] { // the turns went from the end
			v = c.op("Slice", []string{v, c.ints(-1), c.constant(onnx.Vector(int64(-1 << 62))), c.ints(0), c.ints(-1)})
		}
		if a := k.inAxes[i]; a != 0 {
			r, err := c.rank(k.scanned[i])
			if err != nil {
				return nil, err
			}
			perm := slices.Insert(span(1, r), a, 0)
			v = c.transpose(v, perm...)
		}
		result[k.lead+carried+i] = c.as(v, k.scanned[i])
	}
	return result, nil
}

// setInts changes an attribute of the node.
func (c *call) setInts(name string, v []int64) {
	for i := range c.node.Attrs {
		if c.node.Attrs[i].Name == name {
			c.node.Attrs[i].Ints = v
		}
	}
}

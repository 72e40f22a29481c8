package grad

import (
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// The gradient of a Loop or Scan runs its body again, turn by turn from the last to the first, with
// the values that each turn began with, which the node is made to give as further outputs; then it
// runs the body's own nodes backward. Values that the body takes from around it get the sum over
// the turns.
func init() {
	register(vjpLoop, "Loop")
	register(vjpScan, "Scan")
}

// scanning says how a Loop or Scan takes values apart and puts them together.
type scanning struct {
	lead, skip      int      // inputs, and outputs of the body, before the carried ones
	carried         []string // initial values
	scanned         []string // Scan: what is taken apart
	inAxes, outAxes []int    // nil: the first
	inBack, outBack []bool   // from the end
	counts          bool     // Loop: the body is given the turn and the condition
}

// vjpLoop: inputs are the largest number of turns, the condition and the carried values. The body
// gives its condition first.
func vjpLoop(c *call) []string {
	return c.vjpTurns(scanning{lead: 2, skip: 1,
		carried: c.node.Inputs[min(2, len(c.node.Inputs)):], counts: true})
}

// vjpScan reads the scanned axes and directions, by default the first and from the beginning.
func vjpScan(c *call) []string {
	m := c.attrs.Int("num_scan_inputs")
	n := len(c.node.Inputs) - m
	if m < 1 || n < 0 || n > len(c.node.Outputs) {
		try.Fail("num_scan_inputs is %d of %d inputs", m, len(c.node.Inputs))
	}
	k := scanning{carried: c.node.Inputs[:n], scanned: c.node.Inputs[n:]}
	axes := func(name string, values []string) []int {
		out := make([]int, len(values))
		copy(out, c.attrs.Ints(name))
		for i, a := range out {
			if a >= 0 {
				continue
			}
			out[i] = a + c.rank(values[i])
		}
		return out
	}
	back := func(name string, n int) []bool {
		out := make([]bool, n)
		for i, d := range c.attrs.Ints(name) {
			if i < n {
				// Direction 1 is from the end, and 0 from the beginning.
				out[i] = d == 1
			}
		}
		return out
	}
	k.inAxes = axes("scan_input_axes", k.scanned)
	k.outAxes = axes("scan_output_axes", c.node.Outputs[n:])
	k.inBack, k.outBack = back("scan_input_directions", m),
		back("scan_output_directions", len(c.node.Outputs)-n)
	return c.vjpTurns(k)
}

// turns is the gradient of a Loop or Scan under construction. Memory is that of every carried value
// that is read, for every turn, as the node's new outputs.
type turns struct {
	*call
	scanning
	outputs  int          // of the node, without those that the gradient adds
	primal   *onnx.Graph  // the node's body
	s        *subgraph    // the gradient's body
	active   map[int]bool // carried and scanned inputs that are differentiated for
	captures []string     // values around the body that are
	wrt      []string     // both, by their names within the body
	initial  []string     // of the values that the gradient's Loop carries
	// seeds are the cotangents of the body's outputs, by position
	seeds    map[int]string
	sums     map[string]string // over the turns so far, of a capture's cotangents
	turn, on string            // the gradient's own turn and condition
	count    string            // the number of turns
	at       string            // the turn of the node that is run again, counted from its first
}

// vjpTurns is the gradient of a Loop or Scan: a Loop over its turns from the last to the first.
// The new Loop has no condition, as the number of its turns is known when it begins.
func (c *call) vjpTurns(k scanning) []string {
	t := &turns{call: c, scanning: k, outputs: len(c.node.Outputs), active: map[int]bool{},
		seeds: map[int]string{}, sums: map[string]string{}}
	t.prepare()
	t.activate()
	t.receive()
	t.replay()
	body, apart := t.backward()
	out := c.emit("Loop", append([]string{t.count, ""}, t.initial...),
		len(t.initial)+len(apart), body)
	return t.collect(out, apart)
}

// input is the body's name of carried value i, or of scanned value i - carried.
func (t *turns) input(i int) string { return t.s.inputs[t.lead+i] }

// prepare makes the gradient's body from the node's.
// A scanned value lacks its scanned axis within the body.
func (t *turns) prepare() {
	inputs := t.lead + len(t.carried) + len(t.scanned)
	t.primal = t.body("body", inputs, t.skip+t.outputs)
	infos := make([]onnx.ValueInfo, 0, inputs)
	if t.counts {
		infos = append(infos, onnx.ValueInfo{DType: onnx.Int64, Shape: onnx.Shape()},
			onnx.ValueInfo{DType: onnx.Bool, Shape: onnx.Shape()})
	}
	for _, v := range t.carried {
		infos = append(infos, t.valueInfo(v))
	}
	for i, v := range t.scanned {
		info := t.valueInfo(v)
		if info.Shape != nil {
			info.Shape = slices.Delete(slices.Clone(info.Shape), t.inAxes[i], t.inAxes[i]+1)
		}
		infos = append(infos, info)
	}
	t.s = t.subgraph(t.primal, infos, t.lead, len(t.carried), t.skip)
}

// activate finds the values to differentiate for: a carried value is active where its initial value
// is, or the body's result for it. It looks again until no value becomes active, at most once more
// for each carried value.
func (t *turns) activate() {
	s := t.s
	t.captures = t.activeCaptures(t.primal)
	for i, v := range slices.Concat(t.carried, t.scanned) {
		t.active[i] = t.call.active[v] && s.isFloat(t.input(i))
	}
	for again := true; again; {
		again = false
		t.wrt = slices.Clone(t.captures)
		for i := range len(t.carried) + len(t.scanned) {
			if t.active[i] {
				t.wrt = append(t.wrt, t.input(i))
			}
		}
		active := activeValues(s.emitter, s.nodes, t.wrt)
		for i := range t.carried {
			if !t.active[i] && active[s.outputs[t.skip+i]] && s.isFloat(t.input(i)) {
				t.active[i], again = true, true
			}
		}
	}
	s.graph.Outputs = nil
}

// receive gives the gradient's body its inputs: its own turn and condition, the carried cotangents
// and the sums so far.
// A carried cotangent starts from that of the node's output, a sum from zeros.
func (t *turns) receive() {
	s := t.s
	t.turn, t.on = s.fresh("turn"), s.fresh("on")
	s.shaped(t.turn, onnx.Int64, onnx.Shape())
	s.graph.Inputs = []onnx.ValueInfo{s.valueInfo(t.turn),
		{Name: t.on, DType: onnx.Bool, Shape: onnx.Shape()}}
	carry := func(like string, start string) string {
		info := s.valueInfo(like)
		info.Name = s.fresh("carried")
		s.info[info.Name] = info
		s.graph.Inputs = append(s.graph.Inputs, info)
		t.initial = append(t.initial, start)
		return info.Name
	}
	for i := range t.carried {
		if t.active[i] {
			t.seeds[t.skip+i] = carry(t.input(i), t.cotangent(i))
		}
	}
	for _, w := range t.captures {
		s.info[w] = t.info[w]
		t.sums[w] = carry(w, t.filled(w, 0))
	}
}

// give makes the node give a value of its body for every turn, and returns the new output. It is
// the last scanned output of the body, so that no other output moves.
// Node and body are changed in place. The new output lies along axis 0 from the first turn to the
// last.
func (t *turns) give(name string, info onnx.ValueInfo) string {
	inner, outer := t.fresh("kept"), t.fresh("kept")
	t.primal.Nodes = append(t.primal.Nodes, identity(name, inner))
	given := info
	given.Name = inner
	t.primal.Outputs = append(t.primal.Outputs, given)
	t.node.Outputs = append(t.node.Outputs, outer)
	if info.Shape != nil {
		info.Shape = append([]onnx.Dim{onnx.Symbolic("")}, info.Shape...)
	}
	t.shaped(outer, info.DType, info.Shape)
	for _, attr := range []string{"scan_output_axes", "scan_output_directions"} {
		if a, ok := t.node.Attr(attr); ok {
			t.setInts(attr, append(slices.Clone(a.Ints), 0))
		}
	}
	return outer
}

// take makes a value of the gradient's body from a place on an axis of a value around it.
// place is a scalar, so that Gather takes the axis away.
func (t *turns) take(from string, axis int, place, as string) {
	t.s.graph.Nodes = append(t.s.graph.Nodes,
		&onnx.Node{Name: as, Op: "Gather", Inputs: []string{from, place}, Outputs: []string{as},
			Attrs: []onnx.Attr{onnx.IntAttr("axis", axis)}})
}

// place is the place of the turn that is run again, along a scanned value that runs from its end or
// not.
// Turn k of n reads place k, or n - 1 - k from the end. With k = n - 1 - turn the latter is the
// gradient's own turn.
func (t *turns) place(back []bool, i int) string {
	if i < len(back) && back[i] {
		return t.turn
	}
	return t.at
}

// replay counts the node's turns and feeds the gradient's body as the node's was in the turn count
// - 1 - turn: scanned values, the turn and its condition, and the cotangents of scanned outputs.
func (t *turns) replay() {
	s, carried := t.s, len(t.carried)
	// A Loop may end before its largest number of turns, so that those it took are counted by a
	// kept value.
	var turns string // a vector of one
	if t.counts {
		turns = t.op("Shape", []string{t.give(t.primal.Inputs[0].Name,
			onnx.ValueInfo{DType: onnx.Int64, Shape: onnx.Shape()})})
	} else {
		turns = t.dim(t.scanned[0], t.inAxes[0])
	}
	t.count = t.squeeze(turns, 0)
	last := t.sub(t.count, t.constant(onnx.Scalar(int64(1))))
	t.at = s.sub(last, t.turn)
	for i, v := range t.scanned {
		t.take(v, t.inAxes[i], t.place(t.inBack, i), t.input(carried+i))
	}
	if t.counts {
		s.graph.Nodes = append(s.graph.Nodes, identity(t.at, s.inputs[0]),
			identity(t.on, s.inputs[1]))
	}
	for i := carried; i < t.outputs; i++ {
		v := t.cot[i]
		if v == "" {
			continue
		}
		axis := 0
		if t.outAxes != nil {
			axis = t.outAxes[i-carried]
		}
		seed := s.fresh("seed")
		s.as(seed, s.outputs[t.skip+i])
		t.take(v, axis, t.place(t.outBack, i-carried), seed)
		t.seeds[t.skip+i] = seed
	}
}

// backward runs the body's nodes backward, and makes the results outputs of the gradient's body:
// carried cotangents, sums, and the cotangents of the scanned values apart.
func (t *turns) backward() (body onnx.Attr, apart []int) {
	s := t.s
	s.pull("body", t.wrt, t.seeds)
	s.result(t.on, onnx.ValueInfo{DType: onnx.Bool, Shape: onnx.Shape()})
	for i := range t.carried {
		if t.active[i] {
			s.result(s.cotangentOf(t.input(i)), s.valueInfo(t.input(i)))
		}
	}
	for _, w := range t.captures {
		sum := t.sums[w]
		if v := s.cot.of[w]; v != "" {
			sum = s.add(sum, v)
		}
		s.result(sum, t.info[w])
	}
	for i := range t.scanned {
		if k := len(t.carried) + i; t.active[k] {
			apart = append(apart, i)
			s.result(s.cotangentOf(t.input(k)), s.valueInfo(t.input(k)))
		}
	}
	for i := range t.carried {
		// The source stays open until finish has removed the carried values that no node reads:
		// only those read are kept for every turn.
		t.take("", 0, t.at, t.input(i))
	}
	body = s.finish("body")
	for _, n := range s.graph.Nodes { // those carried values that are read
		if n.Op == "Gather" && n.Inputs[0] == "" {
			n.Inputs[0] = t.give(n.Outputs[0], s.valueInfo(n.Outputs[0]))
		}
	}
	return body, apart
}

// collect assigns the outputs of the gradient's Loop to the node's inputs.
// The order is that of backward: carried cotangents, sums, and the scanned ones, one for each turn.
func (t *turns) collect(out []string, apart []int) []string {
	result := make([]string, len(t.node.Inputs))
	pos := 0
	for i := range t.carried {
		if t.active[i] {
			result[t.lead+i] = t.as(out[pos], t.carried[i])
			pos++
		}
	}
	for _, w := range t.captures {
		t.also(w, t.as(out[pos], w))
		pos++
	}
	for k, i := range apart {
		v := out[pos+k]
		if !t.inBack[i] { // the turns went from the end
			// An end far before the first place lets the walk backward reach place 0.
			v = t.op("Slice", []string{v, t.ints(-1), t.constant(onnx.Vector(int64(-1 << 62))),
				t.ints(0), t.ints(-1)})
		}
		// The Loop has stacked the turns along axis 0; the scanned value has them along axis a.
		if a := t.inAxes[i]; a != 0 {
			r := t.rank(t.scanned[i])
			v = t.transpose(v, slices.Insert(span(1, r), a, 0)...)
		}
		result[t.lead+len(t.carried)+i] = t.as(v, t.scanned[i])
	}
	return result
}

// setInts changes an attribute of the node.
func (c *call) setInts(name string, v []int64) {
	for i := range c.node.Attrs {
		if c.node.Attrs[i].Name == name {
			c.node.Attrs[i].Ints = v
		}
	}
}

package spell

import (
	"cmp"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// IsRecurrent reports whether a node is one of the recurrent layers that [Spell] spells out.
func IsRecurrent(n *onnx.Node) bool { return n.Domain == "" && cells[n.Op].gates != "" }

// cell is a recurrent layer's step: from the gates' inputs (a letter a gate, in the order of the
// weights) and the state to the new state. Weights are [directions, gates·H, I] and [directions,
// gates·H, H], and a bias holds both, the input's first.
type cell struct {
	gates       string
	activations []string // by default
	step        func(c *cellNodes)
}

// cells are by operator. Gates stand in the order of the operators' pages: i, o, f, c of LSTM, and
// z, r, h of GRU.
var cells = map[string]cell{
	"RNN":  {"h", []string{"Tanh"}, stepRNN},
	"GRU":  {"zrh", []string{"Sigmoid", "Tanh"}, stepGRU},
	"LSTM": {"iofc", []string{"Sigmoid", "Tanh", "Tanh"}, stepLSTM},
}

// spellRecurrent spells out an RNN, GRU or LSTM of element type d as nodes of operator set 9 to
// [onnx.MaxOpset]: products of the whole sequence with the input weights, and a Scan over the steps
// for each direction. hidden is the size of the state, 0 where the node's attribute says it; fresh
// makes names that nothing has. It covers all directions, layouts, activations, sequence lengths,
// initial states, peepholes, clipping, coupled gates and both forms of the GRU.
//
// Source: the equations of the operators' own pages.
func spellRecurrent(n *onnx.Node, opset int, d onnx.DType, hidden int,
	fresh func(base string) string) []*onnx.Node {
	attrs := op.Attrs(n, opset)
	if h := attrs.Int("hidden_size"); h > 0 {
		hidden = h
	}
	r := &recurrent{emit: emit{fresh: fresh, base: n.Outputs[0]}, opset: opset, node: n,
		attrs: attrs, cell: cells[n.Op], d: d, result: d, hidden: hidden,
		batchFirst: attrs.Int("layout") == 1}
	r.base = cmp.Or(r.base, strings.ToLower(n.Op))
	r.widen()
	r.check()
	x := r.sequence()
	var ys, hs, cs []string
	for i := range r.backward {
		y, h, c := r.direction(x, i)
		ys, hs, cs = append(ys, y), append(hs, h), append(cs, c)
	}
	// [T, B, H] and [B, H] of each direction become [T, directions, B, H] and [directions, B, H].
	r.join(0, ys, 1, 0, 1, -1, int64(hidden))
	r.join(1, hs, 0, 1, -1, int64(hidden))
	r.join(2, cs, 0, 1, -1, int64(hidden))
	return r.nodes
}

// widen casts half-precision inputs to float32: the layer is computed there and rounded once.
func (r *recurrent) widen() {
	if r.d != onnx.Float16 && r.d != onnx.BFloat16 {
		return
	}
	n := onnx.CloneNode(r.node)
	for i, in := range n.Inputs {
		if in != "" && i != 4 {
			n.Inputs[i] = r.opInt("Cast", []string{in}, "to", int(onnx.Float32))
		}
	}
	r.node, r.d = n, onnx.Float32
}

// check reads the directions and activations and checks the layer's attributes. The bound of
// hidden_size keeps gates times hidden within 32 bits.
func (r *recurrent) check() {
	switch r.attrs.Str("direction") {
	case "reverse":
		r.backward = []bool{true}
	case "bidirectional":
		r.backward = []bool{false, true}
	default:
		r.backward = []bool{false}
	}
	switch {
	case r.opset < 9:
		try.Fail("recurrent layers need operator set 9 or later, and the model imports %d; "+
			"upgrade it", r.opset)
	case r.hidden < 1 || r.hidden > 1<<24:
		try.Fail("hidden_size is %d; it must be given", r.hidden)
	}
	r.activations = r.attrs.Strs("activations")
	if !r.attrs.Has("activations") {
		r.activations = slices.Repeat(r.cell.activations, len(r.backward))
	}
	if want := len(r.cell.activations) * len(r.backward); len(r.activations) != want {
		try.Fail("%d activations where %d are expected", len(r.activations), want)
	}
	r.alphas, r.betas = r.attrs.Floats("activation_alpha"), r.attrs.Floats("activation_beta")
}

// sequence returns the input as [T, B, I]; it sets the batch and the mask of the steps that a
// sequence has. A step of the mask is true while the sequence lasts, whichever direction runs over
// it.
func (r *recurrent) sequence() string {
	x := r.node.Input(0)
	if r.batchFirst {
		x = r.op("Transpose", []string{x}, onnx.IntsAttr("perm", 1, 0, 2))
	}
	sizes := r.un("Shape", x)
	r.batch = r.pick(sizes, 1)
	if lens := r.node.Input(4); lens != "" {
		// [T, 1, 1] < [1, B, 1].
		steps := r.op("ConstantOfShape", []string{r.vector(r.pick(sizes, 0))},
			onnx.TensorAttr("value", onnx.Vector[int64](1)))
		at := r.bi("Reshape", r.un("NonZero", steps), r.constant(onnx.Vector[int64](-1, 1, 1)))
		wide := r.bi("Reshape", r.opInt("Cast", []string{lens}, "to", int(onnx.Int64)),
			r.constant(onnx.Vector[int64](1, -1, 1)))
		r.mask = r.bi("Less", at, wide)
	}
	return x
}

// join makes output i of the directions' parts, each reshaped and then joined along axis.
func (r *recurrent) join(i int, parts []string, axis int, shape ...int64) {
	if i >= len(r.node.Outputs) || r.node.Outputs[i] == "" {
		return
	}
	for k, p := range parts {
		parts[k] = r.bi("Reshape", p, r.constant(onnx.Vector(shape...)))
	}
	v := r.opInt("Concat", parts, "axis", axis)
	if r.batchFirst {
		perm := []int{1, 0, 2}
		if axis == 1 {
			perm = []int{2, 0, 1, 3}
		}
		v = r.op("Transpose", []string{v}, onnx.IntsAttr("perm", perm...))
	}
	to := onnx.Undefined
	if r.result != r.d {
		to = r.result
	}
	r.give(v, r.node.Outputs[i], to)
}

// emit writes nodes of one output.
type emit struct {
	fresh func(base string) string
	base  string
	nodes []*onnx.Node
}

// op emits a node and returns its output, which is called as the node.
func (e *emit) op(op string, in []string, attrs ...onnx.Attr) string {
	out := e.fresh(e.base + "/" + strings.ToLower(op))
	e.nodes = append(e.nodes,
		&onnx.Node{Name: out, Op: op, Inputs: in, Outputs: []string{out}, Attrs: attrs})
	return out
}

// opInt is op with one integer attribute. It is a call, which takes less code than a list of one.
//
//go:noinline
func (e *emit) opInt(op string, in []string, name string, v int) string {
	return e.op(op, in, onnx.IntAttr(name, v))
}

// give names a value out, in another element type unless that is Undefined.
func (e *emit) give(v, out string, to onnx.DType) {
	node := &onnx.Node{Name: out, Op: "Identity", Inputs: []string{v}, Outputs: []string{out}}
	if to != onnx.Undefined {
		node.Op, node.Attrs = "Cast", []onnx.Attr{onnx.IntAttr("to", int(to))}
	}
	e.nodes = append(e.nodes, node)
}

// constant is a node and not an initializer, since [Spell] returns nodes alone.
//
//go:noinline
func (e *emit) constant(t *onnx.Tensor) string {
	return e.op("Constant", nil, onnx.TensorAttr("value", t))
}

// number is a scalar of element type d.
func (e *emit) number(v float32, d onnx.DType) string {
	s := e.constant(onnx.Scalar(v))
	if d != onnx.Float32 {
		s = e.opInt("Cast", []string{s}, "to", int(d))
	}
	return s
}

//go:noinline
func (e *emit) add(x, y string) string { return e.bi("Add", x, y) }

//go:noinline
func (e *emit) mul(x, y string) string { return e.bi("Mul", x, y) }

// pick takes position i of the first axis, which goes.
func (e *emit) pick(v string, i int) string {
	return e.bi("Gather", v, e.whole(i))
}

// part takes positions k·hidden to (k + 1)·hidden of the first axis. Slice takes its bounds as
// inputs from operator set 10 on.
func (r *recurrent) part(v string, k int) string {
	from, to := k*r.hidden, (k+1)*r.hidden
	if r.opset < 10 {
		return r.slice(v, from, to)
	}
	return r.op("Slice", []string{v, r.ints(int64(from)), r.ints(int64(to))})
}

// vector joins scalars.
func (e *emit) vector(scalars ...string) string {
	for i, s := range scalars {
		scalars[i] = e.bi("Reshape", s, e.constant(onnx.Vector[int64](1)))
	}
	return e.opInt("Concat", scalars, "axis", 0)
}

// recurrent is a layer that is being spelt out.
type recurrent struct {
	emit
	opset         int
	node          *onnx.Node
	attrs         op.Values
	cell          cell
	d, result     onnx.DType // that it is computed in, and that of its outputs
	hidden        int
	backward      []bool // for each direction, whether it runs from the end
	activations   []string
	batchFirst    bool
	batch         string // a scalar
	mask          string // [T, B, 1], "" where all sequences are of full length
	alphas, betas []float32
}

// state is the initial state in input i for a direction, zeros where it is left out. The input is
// [directions, B, H], or [B, directions, H] in the other layout.
func (r *recurrent) state(i, direction int) string {
	if v := r.node.Input(i); v != "" {
		if r.batchFirst {
			v = r.op("Transpose", []string{v}, onnx.IntsAttr("perm", 1, 0, 2))
		}
		return r.pick(v, direction)
	}
	zero := try.Get(onnx.Zeros(r.d, 1))
	shape := r.vector(r.batch, r.constant(onnx.Scalar(int64(r.hidden))))
	return r.op("ConstantOfShape", []string{shape}, onnx.TensorAttr("value", zero))
}

// direction runs direction i over the sequence x [T, B, I] and gives y [T, B, H] and the last
// states [B, H]. States of a run from the end are those after its first position.
func (r *recurrent) direction(x string, i int) (y, h, c string) {
	s := &step{body: &onnx.Graph{Name: r.base + "/step", Initializers: map[string]*onnx.Tensor{}}}
	s.cellNodes = &cellNodes{recurrent: r, emit: emit{fresh: r.fresh, base: r.base + "/step"}}
	for _, a := range r.activations[i*len(r.cell.activations):][:len(r.cell.activations)] {
		s.acts = append(s.acts, r.activation(a))
	}
	s.takeInputs(x, i)
	results := s.compute()
	scan := s.scan(results, r.backward[i])
	r.nodes = append(r.nodes, scan)
	y, h = scan.Outputs[len(scan.Outputs)-1], scan.Outputs[0]
	if r.node.Op == "LSTM" {
		c = scan.Outputs[1]
	}
	return y, h, c
}

// step is the body of a direction's Scan under construction.
type step struct {
	*cellNodes
	body            *onnx.Graph
	states, scanned []string // around the body: initial states, and sequences
}

// input gives the body an input of d [B, last]. The batch is left open, as the body is the same for
// any.
func (s *step) input(name string, d onnx.DType, last int) string {
	name = s.recurrent.fresh(s.recurrent.base + "/step/" + name)
	s.body.Inputs = append(s.body.Inputs,
		onnx.ValueInfo{Name: name, DType: d, Shape: []onnx.Dim{onnx.Symbolic(""),
			onnx.Known(last)}})
	return name
}

// takeInputs gives the body its states, the gates' inputs of direction i and the mask. The product
// with the input weights is one for all steps, and only the recurrent one is per step.
func (s *step) takeInputs(x string, i int) {
	r := s.recurrent
	w, rec := r.pick(r.node.Input(1), i), r.pick(r.node.Input(2), i)
	var bias, peep string
	if b := r.node.Input(3); b != "" {
		bias = r.pick(b, i)
	}
	if p := r.node.Input(7); p != "" {
		peep = r.pick(p, i)
	}
	s.states = append(s.states, r.state(5, i))
	s.h = s.input("h", r.d, r.hidden)
	if r.node.Op == "LSTM" {
		s.states = append(s.states, r.state(6, i))
		s.c = s.input("c", r.d, r.hidden)
	}
	transposed := func(v string) string {
		return r.op("Transpose", []string{v}, onnx.IntsAttr("perm", 1, 0))
	}
	gates := len(r.cell.gates)
	for k := range gates {
		v := r.bi("MatMul", x, transposed(r.part(w, k)))
		s.rec = append(s.rec, transposed(r.part(rec, k)))
		if bias != "" {
			v = r.add(v, r.part(bias, k))
			// A bias [2 gates H] holds the parts of the input first, then those of the state.
			if rb := r.part(bias, gates+k); r.resetAfter(k) {
				s.recBias = rb
			} else {
				v = r.add(v, rb)
			}
		}
		s.scanned = append(s.scanned, v)
		s.x = append(s.x, s.input(r.cell.gates[k:k+1], r.d, r.hidden))
		if peep != "" && k < 3 {
			s.peep = append(s.peep, r.part(peep, k))
		}
	}
	if r.mask != "" {
		s.mask = s.input("mask", onnx.Bool, 1)
		s.scanned = append(s.scanned, r.mask)
	}
}

// compute computes the new states and the step's output; behind a sequence's end the states stay
// and the output is zero. A run from the end passes the padding first, with the initial states
// unchanged.
func (s *step) compute() []string {
	h, c := s.h, s.c
	s.cell.step(s.cellNodes)
	y := s.h
	if s.mask != "" {
		zero := try.Get(onnx.Zeros(s.d))
		y = s.op("Where", []string{s.mask, s.h, s.constant(zero)})
		s.h = s.op("Where", []string{s.mask, s.h, h})
		if s.c != "" {
			s.c = s.op("Where", []string{s.mask, s.c, c})
		}
	}
	if s.c == "" {
		return []string{s.h, y}
	}
	return []string{s.h, s.c, y}
}

// scan returns the Scan over the steps that gives the results.
func (s *step) scan(results []string, backward bool) *onnx.Node {
	r := s.recurrent
	sequences := len(s.scanned)
	scan := &onnx.Node{Name: r.fresh(r.base + "/scan"), Op: "Scan",
		Inputs: slices.Concat(s.states, s.scanned), Attrs: []onnx.Attr{
			onnx.IntAttr("num_scan_inputs", sequences),
			{Name: "body", Kind: onnx.AttrGraph, Graph: s.body}}}
	for _, v := range results {
		// A value may be given more than once, and an output has a name of its own.
		name := s.un("Identity", v)
		s.body.Outputs = append(s.body.Outputs, onnx.ValueInfo{Name: name, DType: r.d,
			Shape: []onnx.Dim{onnx.Symbolic(""), onnx.Known(r.hidden)}})
		scan.Outputs = append(scan.Outputs, r.fresh(r.base+"/scanned"))
	}
	s.body.Nodes = s.emit.nodes
	// A reversed Scan gives its outputs in the order of the inputs again.
	if backward {
		scan.Attrs = append(scan.Attrs,
			onnx.IntsAttr("scan_input_directions", slices.Repeat([]int{1}, sequences)...),
			onnx.IntsAttr("scan_output_directions", 1))
	}
	return scan
}

// resetAfter reports whether the recurrent bias of gate k is added to the product with the state
// alone: that of the GRU's candidate which is reset after the product.
func (r *recurrent) resetAfter(k int) bool {
	return r.node.Op == "GRU" && k == 2 && r.attrs.Int("linear_before_reset") != 0
}

// activations are those that are operators, with the parameters that these take.
var activations = map[string][]string{
	"relu": {"Relu"}, "tanh": {"Tanh"}, "sigmoid": {"Sigmoid"}, "softsign": {"Softsign"},
	"softplus": {"Softplus"}, "leakyrelu": {"LeakyRelu", "alpha"}, "elu": {"Elu", "alpha"},
	"thresholdedrelu": {"ThresholdedRelu", "alpha"}, "hardsigmoid": {"HardSigmoid", "alpha", "beta"},
}

// activation makes an activation function, which takes the next alpha and beta of the node's lists
// if it has any. Names are compared whatever their case. Lists go on from one direction to the
// next.
func (r *recurrent) activation(name string) func(e *emit, x string) string {
	next := func(list *[]float32) (v float32, ok bool) {
		if len(*list) == 0 {
			return 0, false
		}
		v, *list = (*list)[0], (*list)[1:]
		return v, true
	}
	lower := strings.ToLower(name)
	if a := activations[lower]; a != nil {
		var attrs []onnx.Attr
		for _, p := range a[1:] {
			list := &r.alphas
			if p == "beta" {
				list = &r.betas
			}
			if v, ok := next(list); ok {
				attrs = append(attrs, onnx.FloatAttr(p, v))
			}
		}
		return func(e *emit, x string) string { return e.op(a[0], []string{x}, attrs...) }
	}
	if lower == "affine" || lower == "scaledtanh" {
		a, okA := next(&r.alphas)
		b, okB := next(&r.betas)
		if !okA || !okB {
			try.Fail("the activation %s needs an alpha and a beta", name)
		}
		return func(e *emit, x string) string {
			alpha, beta := e.number(a, r.d), e.number(b, r.d)
			if lower == "affine" {
				return e.add(e.mul(alpha, x), beta)
			}
			return e.mul(alpha, e.un("Tanh", e.mul(beta, x)))
		}
	}
	try.Fail("the activation %q is not known; allowed are Affine, Elu, HardSigmoid, "+
		"LeakyRelu, Relu, ScaledTanh, Sigmoid, Softplus, Softsign, Tanh and ThresholdedRelu", name)
	return nil
}

// cellNodes is one step under construction.
type cellNodes struct {
	*recurrent
	emit
	x       []string // a gate's input, biases included
	rec     []string // a gate's recurrent weight, transposed
	recBias string   // that is apart
	peep    []string // weights of the peepholes: input, output, forget
	h, c    string   // the state, and then the new one
	mask    string
	acts    []func(e *emit, x string) string
}

// act clips a gate's input, if the node asks for that, and applies activation k. The limit holds
// before an activation, as clip of the standard does, and not for the LSTM's output h(C').
func (c *cellNodes) act(k int, v string) string {
	if c.attrs.Has("clip") {
		limit := c.attrs.Float("clip")
		for i, op := range []string{"Min", "Max"} {
			v = c.bi(op, v, c.number([]float32{limit, -limit}[i], c.d))
		}
	}
	return c.acts[k](&c.emit, v)
}

// gate returns a gate's input plus the product with the state.
func (c *cellNodes) gate(k int, h string) string {
	return c.add(c.x[k], c.bi("MatMul", h, c.rec[k]))
}

// rest is 1 - v.
func (c *cellNodes) rest(v string) string { return c.bi("Sub", c.number(1, c.d), v) }

// stepRNN: H = f(x + H R).
func stepRNN(c *cellNodes) { c.h = c.act(0, c.gate(0, c.h)) }

// stepGRU: z = f(·), r = f(·), candidate = g(x + (r H) R) or g(x + r (H R + b)), H = (1 - z)
// candidate + z H.
func stepGRU(c *cellNodes) {
	e := &c.emit
	z, r := c.act(0, c.gate(0, c.h)), c.act(0, c.gate(1, c.h))
	var v string
	if c.resetAfter(2) {
		v = e.bi("MatMul", c.h, c.rec[2])
		if c.recBias != "" {
			v = e.add(v, c.recBias)
		}
		v = e.add(c.x[2], e.mul(r, v))
	} else {
		v = c.gate(2, e.mul(r, c.h))
	}
	v = c.act(1, v)
	c.h = e.add(e.mul(c.rest(z), v), e.mul(z, c.h))
}

// stepLSTM: i = f(· + P C), o = f(· + P C'), forget = f(· + P C) or 1 - i, C' = forget C + i g(·),
// H = o h(C').
func stepLSTM(c *cellNodes) {
	e := &c.emit
	gate := func(k, peep int, cell string) string {
		v := c.gate(k, c.h)
		if c.peep != nil && peep >= 0 {
			v = e.add(v, e.mul(c.peep[peep], cell))
		}
		return v
	}
	i, g := c.act(0, gate(0, 0, c.c)), c.act(1, gate(3, -1, ""))
	var next string
	if c.attrs.Int("input_forget") != 0 {
		next = e.add(e.mul(c.rest(i), c.c), e.mul(i, g))
	} else {
		next = e.add(e.mul(c.act(0, gate(2, 2, c.c)), c.c), e.mul(i, g))
	}
	o := c.act(0, gate(1, 1, next))
	c.c = next
	c.h = e.mul(o, c.acts[2](e, next))
}

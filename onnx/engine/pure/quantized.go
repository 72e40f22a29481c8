package pure

import (
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/kernel"
	"fmp/onnx/op"
)

// Nodes between DequantizeLinear and QuantizeLinear are run on bytes: a convolution or product of
// constant weights with the bounds that follow it, in sums of integers that are exact; functions of
// one number as tables; sums, products, and operators that only move elements. A DequantizeLinear
// that nobody reads any more is dropped.

// integers finds such nodes.
type integers struct {
	*planner
	made    map[string]*onnx.Node // the node that gives a value
	ready   map[*onnx.Node]ready
	instead map[*onnx.Node]*onnx.Node // nil: left out
	tables  map[string]tabled
	padded  map[string]*padding // by the bytes that it makes
}

// ready is a node's kernel, nil where it is to be prepared, the types that its inputs must have,
// and that of its only output.
type ready struct {
	run kernel.Kernel
	in  []onnx.DType
	out onnx.DType
}

// movers are operators whose output holds elements of their first input.
var movers = []string{"MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice",
	"Gather", "DepthToSpace", "SpaceToDepth", "Identity", "Expand", "Tile", "Pad"}

// inIntegers is [planner.integers] where it is enabled: programs that do not are smaller.
var inIntegers = func(_ *planner, nodes []*onnx.Node) []*onnx.Node { return nodes }

// FastIntegers reports whether this processor runs quantised operators faster on integers than on
// float32: with AVX2 or more.
func FastIntegers() bool { return kernel.FastIntegers() }

// EnableIntegers has sessions that are loaded from now on run quantised operators on integers; see
// package integers.
func EnableIntegers() {
	kernel.EnableIntegers()
	inIntegers = (*planner).integers
}

// integers returns the nodes with those that are run on bytes in place of others. nodes is not
// changed, and neither are its nodes: others stand in their places. A reproducible session, or a
// graph without DequantizeLinear, keeps its nodes as they are.
func (p *planner) integers(nodes []*onnx.Node) []*onnx.Node {
	if p.reproducible || !slices.ContainsFunc(nodes,
		func(n *onnx.Node) bool { return n.Op == "DequantizeLinear" && n.Domain == "" }) {
		return nodes
	}
	v := &integers{planner: p, made: map[string]*onnx.Node{}, ready: map[*onnx.Node]ready{},
		instead: map[*onnx.Node]*onnx.Node{},
		tables:  map[string]tabled{}, padded: map[string]*padding{}}
	for _, n := range nodes {
		for _, o := range n.Outputs {
			v.made[o] = n
		}
	}
	for _, n := range nodes {
		if n.Domain == "" && len(n.Outputs) == 1 {
			v.node(n)
		}
	}
	p.ready = v.ready
	var out []*onnx.Node
	for _, n := range nodes {
		if with, ok := v.instead[n]; ok {
			n = with
		}
		if n != nil {
			out = append(out, n)
		}
	}
	// To drop one node may leave another unread, so this goes on until none is dropped.
	for before := 0; before != len(out); {
		before = len(out)
		left := readers(&onnx.Graph{Nodes: out, Outputs: p.graph.Outputs})
		out = slices.DeleteFunc(out, func(n *onnx.Node) bool {
			return (v.ready[n].run != nil || n.Op == "DequantizeLinear" && n.Domain == "" &&
				len(n.Outputs) == 1) && p.readers[n.Outputs[0]] != nil && left[n.Outputs[0]] == nil
		})
	}
	return out
}

// node replaces a node, and those around it, where it can. A pattern that does not fit leaves the
// nodes as they are, to run on float32.
func (v *integers) node(n *onnx.Node) {
	switch {
	case slices.Contains([]string{"Conv", "MatMul", "Gemm"}, n.Op):
		v.product(n)
	// Before operator set 7 sums broadcast by attributes.
	case (n.Op == "Add" || n.Op == "Mul") && v.opset >= 7 && len(n.Inputs) == 2:
		v.pair(n)
	case slices.Contains(kernel.Curves, n.Op) && len(n.Inputs) > 0:
		a, out := v.dequantized(n.Inputs[0]), v.quantizer(n)
		if a == nil || out == nil {
			return
		}
		s := v.spec(n, onnx.Float32)
		for _, name := range n.Inputs[1:] {
			t := v.constant(name)
			if name != "" && t == nil {
				return
			}
			s.Const = append(s.Const, t)
			s.In = append(s.In, typeOf(t))
		}
		if t, err := kernel.NewTable(s, a.q, out.q); err == nil {
			v.table(n, t, out, a)
		}
	// MaxPool takes bytes from operator set 12 on.
	case slices.Contains(movers, n.Op) && len(n.Inputs) > 0 && (n.Op != "MaxPool" || v.opset >= 12):
		v.mover(n)
	}
}

// mover replaces an operator that moves elements. Both sides must have one scale and zero point:
// the bytes then are the same elements.
func (v *integers) mover(n *onnx.Node) {
	a, out := v.dequantized(n.Inputs[0]), v.quantizer(n)
	if a == nil || out == nil || a.q != out.q {
		return
	}
	with := *n
	with.Inputs = append([]string{a.name}, n.Inputs[1:]...)
	with.Outputs = out.node.Outputs
	if n.Op == "Pad" && !v.pad(n, &with, out) {
		return
	}
	v.ready[&with] = ready{in: []onnx.DType{a.q.DType}}
	v.instead[n], v.instead[out.node] = &with, nil
}

// padding is a Pad that is run on bytes.
type padding struct {
	node *onnx.Node
	of   *kernel.Spec // of node, on float32
	from string       // the bytes that are padded
}

// pad has with, which stands for the Pad n, put the zero point where n puts zeros; not where n may
// put other numbers.
func (v *integers) pad(n, with *onnx.Node, out *quantizedValue) bool {
	s := v.spec(n, onnx.Float32)
	for i, name := range n.Inputs[1:] {
		t := v.constant(name)
		d := typeOf(t)
		if t == nil && name != "" {
			d = onnx.Int64 // pads or axes that are not known yet
		}
		if s.In, s.Const = append(s.In, d), append(s.Const, t); i == 1 && name != "" {
			if t == nil || t.DType != onnx.Float32 || t.Len() != 1 || t.At(0) != 0 {
				return false
			}
		}
	}
	if _, err := kernel.Prepare(s); err != nil || v.opset < 11 {
		return false // before, bytes are not padded
	}
	if len(with.Inputs) == 2 {
		with.Inputs = append(with.Inputs, "")
	}
	with.Inputs[2] = out.node.Inputs[2]
	v.padded[out.name] = &padding{n, s, with.Inputs[0]}
	return true
}

// withPadding returns a convolution of weights w that does the padding of the bytes x as well,
// where nothing else reads those.
func (v *integers) withPadding(n *onnx.Node, x *quantizedValue,
	w *onnx.Tensor) (*padding, *onnx.Node) {
	before := v.padded[x.name]
	if n.Op != "Conv" || before == nil || v.soleReader(x.name) != x.node || v.soleReader(n.Inputs[0]) != n {
		return nil, nil
	}
	wider := kernel.WithPadding(&kernel.Spec{Node: n, Opset: v.opset,
		Const: []*onnx.Tensor{nil, w}}, before.of)
	if wider == nil {
		return nil, nil
	}
	return before, wider
}

// pair replaces an Add or Mul. Where one operand is a table's result for the other, the pair is one
// table too.
func (v *integers) pair(n *onnx.Node) {
	a, b, out := v.dequantized(n.Inputs[0]), v.dequantized(n.Inputs[1]), v.quantizer(n)
	if a == nil || b == nil || out == nil {
		return
	}
	s := v.spec(n, onnx.Float32, onnx.Float32)
	if of := v.tables[b.name]; of.table != nil && of.in == a.name { // as in x sigmoid(x)
		v.table(n, kernel.NewPairTable(s, a.q, b.q, out.q, of.table), out, a)
		return
	}
	if of := v.tables[a.name]; of.table != nil && of.in == b.name {
		v.table(n, kernel.NewPairTable(s, b.q, a.q, out.q, of.table), out, b)
		return
	}
	k, err := kernel.NewPair(s, a.q, b.q, out.q)
	v.replace(n, k, err, out, a, b)
}

// typeOf is Undefined where there is no tensor.
func typeOf(t *onnx.Tensor) onnx.DType {
	if t == nil {
		return onnx.Undefined
	}
	return t.DType
}

// spec is a node on inputs of such types, of which no value is known. Memory that its kernel keeps
// counts against the session's budget.
func (v *integers) spec(n *onnx.Node, in ...onnx.DType) *kernel.Spec {
	return &kernel.Spec{Node: n, Opset: v.opset, Reproducible: v.reproducible, In: in,
		Const: make([]*onnx.Tensor, len(in)),
		Keep:  func(bytes float64) bool { return v.budget.Spend(bytes, bytes) }}
}

// replace puts a node of bytes in the place of n, with the nodes from n to the one that quantises
// left out. err is that of making k.
func (v *integers) replace(n *onnx.Node, k kernel.Kernel, err error,
	out *quantizedValue, in ...*quantizedValue) {
	if err != nil {
		return // it runs on float32, or is refused there
	}
	with, run := &onnx.Node{Name: n.Name, Op: n.Op, Outputs: out.node.Outputs},
		ready{run: k, out: out.q.DType}
	for _, a := range in {
		with.Inputs, run.in = append(with.Inputs, a.name), append(run.in, a.q.DType)
	}
	v.ready[with] = run
	for m := v.made[out.node.Inputs[0]]; m != n; m = v.made[m.Inputs[0]] {
		v.instead[m] = nil
	}
	v.instead[n], v.instead[out.node] = with, nil
}

// table puts a table in the place of n.
func (v *integers) table(n *onnx.Node, t *kernel.Table, out, in *quantizedValue) {
	v.tables[out.name] = tabled{in.name, t}
	v.replace(n, t.Run, nil, out, in)
}

// tabled is a value of bytes that is a function of another.
type tabled struct {
	in    string
	table *kernel.Table
}

// constant is a value that is known: an initializer, or one that a Constant gives. It is nil of all
// others, and must not be changed.
func (v *integers) constant(name string) *onnx.Tensor {
	if name == "" {
		return nil
	}
	if _, t, ok := v.find(name); ok {
		return t
	}
	if n := v.made[name]; n != nil && n.Domain == "" && n.Op == "Constant" {
		return op.Constant(n)
	}
	return nil
}

// quantizedValue is a value in bytes, with the node that makes it of a float32 or the other way
// round.
type quantizedValue struct {
	name string
	node *onnx.Node
	q    kernel.Quantization
}

// parameters reads the scale and zero point of a QuantizeLinear or DequantizeLinear of a value of
// type d, or of the zero point's; none where they are refused on float32. Scales are finite and
// above 0. An attribute but axis, as the size of blocks, is not taken.
func (v *integers) parameters(n *onnx.Node, d onnx.DType) (scale, zero *onnx.Tensor) {
	scale, zero = v.constant(n.Input(1)), v.constant(n.Input(2))
	for _, a := range n.Attrs {
		if a.Name != "axis" {
			return nil, nil
		}
	}
	if scale == nil || scale.DType != onnx.Float32 || zero == nil && n.Input(2) != "" ||
		zero != nil && zero.Len() != scale.Len() {
		return nil, nil
	}
	for _, s := range scale.F32() {
		if !(s > 0) || math.IsInf(float64(s), 0) {
			return nil, nil
		}
	}
	if d == onnx.Undefined {
		d = typeOf(zero)
	}
	if _, err := kernel.Prepare(v.spec(n, d, scale.DType, typeOf(zero))); err != nil {
		return nil, nil
	}
	return scale, zero
}

// scalar returns a value whose scale and zero point are scalars of bytes.
func (v *integers) scalar(name string, n *onnx.Node) *quantizedValue {
	var d onnx.DType
	if n.Op == "QuantizeLinear" {
		d = onnx.Float32
	}
	scale, zero := v.parameters(n, d)
	if scale == nil || scale.Len() != 1 || zero == nil || zero.DType != onnx.Int8 &&
		zero.DType != onnx.Uint8 {
		return nil
	}
	return &quantizedValue{name, n,
		kernel.Quantization{DType: zero.DType, Scale: scale.F32()[0], Zero: int32(zero.At(0))}}
}

// dequantized returns the bytes that a float32 value is made of.
func (v *integers) dequantized(value string) *quantizedValue {
	n := v.made[value]
	if n == nil || n.Domain != "" || n.Op != "DequantizeLinear" || len(n.Inputs) != 3 {
		return nil
	}
	return v.scalar(n.Inputs[0], n)
}

// quantizer returns the bytes that alone are made of a node's output. It is nil where another node
// or the caller reads that output.
func (v *integers) quantizer(n *onnx.Node) *quantizedValue {
	next := v.soleReader(n.Outputs[0])
	if next == nil || next.Domain != "" || next.Op != "QuantizeLinear" || len(next.Inputs) != 3 ||
		len(next.Outputs) != 1 {
		return nil
	}
	return v.scalar(next.Outputs[0], next)
}

// product replaces a Conv, MatMul or Gemm of dequantised constant weights. Bounds that follow a
// Conv come before it is quantised, and become bounds of its quanta.
func (v *integers) product(n *onnx.Node) {
	if len(n.Inputs) < 2 {
		return
	}
	x, last := v.dequantized(n.Inputs[0]), n
	w, ws, wz := v.weights(n)
	if x == nil || w == nil {
		return
	}
	s := v.spec(n)
	for n.Op == "Conv" {
		next := v.soleReader(last.Outputs[0])
		if next == nil || next.Op != "Relu" && next.Op != "Clip" {
			break
		}
		then := v.following(next, last.Outputs[0],
			func(name string) (onnx.DType, *onnx.Tensor, bool) {
				t := v.constant(name)
				return typeOf(t), t, t != nil
			})
		if then == nil || !kernel.CanFollow(s, then, w.Shape[0]) {
			return
		}
		s.After, last = append(s.After, then), next
	}
	out := v.quantizer(last)
	if out == nil {
		return
	}
	s.Const = []*onnx.Tensor{nil, onnx.Scalar(x.q.Scale), zeroPoint(x.q), w, ws, wz,
		onnx.Scalar(out.q.Scale), zeroPoint(out.q)}
	if name := n.Input(2); name != "" {
		b := v.bias(name, x.q, out.q, ws)
		if b == nil {
			return
		}
		s.Const = append(s.Const, b)
	}
	s.In, s.Out = []onnx.DType{x.q.DType}, []onnx.DType{out.q.DType}
	for _, t := range s.Const[1:] {
		s.In = append(s.In, typeOf(t))
	}
	before, wider := v.withPadding(n, x, w)
	if wider != nil {
		s.Node, x = wider, &quantizedValue{before.from, x.node, x.q}
	}
	k, err := kernel.NewProduct(s)
	if wider != nil && err == nil {
		v.instead[before.node] = nil
	}
	// The node reads its one value; constants are put into the call for the kernel alone.
	run := func(c *kernel.Call) error {
		c.In = append(c.In[:1], s.Const[1:]...)
		defer func() { c.In = c.In[:1] }()
		return k(c)
	}
	v.replace(n, run, err, out, x)
}

// zeroPoint is a zero point as a tensor of the quantised type.
func zeroPoint(q kernel.Quantization) *onnx.Tensor {
	if q.DType == onnx.Int8 {
		return onnx.Scalar(int8(q.Zero))
	}
	return onnx.Scalar(uint8(q.Zero))
}

// known returns a constant that a DequantizeLinear reads, with its scale and zero point, which are
// one for all or one for each position on the axis.
func (v *integers) known(name string, axis int) (t, scale, zero *onnx.Tensor) {
	n := v.made[name]
	if n == nil || n.Domain != "" || n.Op != "DequantizeLinear" {
		return nil, nil, nil
	}
	if t = v.constant(n.Input(0)); t == nil {
		return nil, nil, nil
	}
	at := 1
	if a, ok := n.Attr("axis"); ok {
		at = int(a.Int)
	}
	if at < 0 {
		at += len(t.Shape)
	}
	scale, zero = v.parameters(n, t.DType)
	if scale == nil || scale.Len() != 1 && (at != axis || at >= len(t.Shape) ||
		!slices.Equal(scale.Shape, t.Shape[at:at+1])) {
		return nil, nil, nil
	}
	return t, scale, zero
}

// weights returns a node's weights in bytes with a scale and zero point for each of its outputs, or
// one for all. outputs is the axis of w that the outputs lie on: 0 of filters and of a transposed
// matrix, 1 of others.
func (v *integers) weights(n *onnx.Node) (w, scale, zero *onnx.Tensor) {
	outputs := 0
	if trans, ok := n.Attr("transB"); n.Op == "MatMul" ||
		n.Op == "Gemm" && (!ok || trans.Int == 0) {
		outputs = 1
	}
	w, scale, zero = v.known(n.Inputs[1], outputs)
	if w == nil || len(w.Shape) < 2 || w.DType != onnx.Int8 && w.DType != onnx.Uint8 {
		return nil, nil, nil
	}
	return w, scale, zero
}

// bias returns a constant bias in quanta of the sums, as int32; none where that changes an output
// by more than half a quantum. A quantum of the sums is scale_x scale_w. Half of int32's range is
// left to the sums themselves.
func (v *integers) bias(name string, x, out kernel.Quantization, w *onnx.Tensor) *onnx.Tensor {
	b, at := v.constant(name), func(int) float64 { return 1 }
	if b == nil {
		known, scale, zero := v.known(name, 0)
		for i := 0; zero != nil && i < zero.Len(); i++ {
			// Quantised biases have zero points of 0; another form is left to float32.
			if zero.At(i) != 0 {
				return nil
			}
		}
		b, at = known, func(i int) float64 { return scale.At(i % scale.Len()) }
	} else if b.DType != onnx.Float32 {
		return nil
	}
	if b == nil || len(b.Shape) != 1 || w.Len() != 1 && w.Len() != b.Len() {
		return nil
	}
	sums := make([]int32, b.Len())
	for i := range sums {
		// The bias is q step, with q rounded half to even as the sums are.
		step := float64(x.Scale) * w.At(i%w.Len())
		exact := b.At(i) * at(i)
		q := math.RoundToEven(exact / step)
		if !(math.Abs(q) <= math.MaxInt32/2 && math.Abs(exact-q*step) <= float64(out.Scale)/2) {
			return nil
		}
		sums[i] = int32(q)
	}
	return onnx.NewTensor(sums, len(sums))
}

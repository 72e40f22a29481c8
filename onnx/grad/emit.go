package grad

import (
	"fmt"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/shape"
)

// emitter appends nodes and constants to the graph under construction. Equal expressions are
// emitted once, and arithmetic on constant shapes is done here and not in the graph.
type emitter struct {
	opset int64
	graph *onnx.Graph
	// type and shape of primal values, and of emitted ones where a rule needs them
	info      map[string]onnx.ValueInfo
	taken     map[string]bool
	facts     *shape.Facts            // of the primal graph
	budget    *onnx.Budget            // for tables and nodes as many as sizes of the model say
	constants map[string]*onnx.Tensor // of the graph around, that this one reads
	active    map[string]bool         // primal values that depend on what is differentiated for
	made      map[string][]string     // key of an expression -> its outputs
	kinds     map[string]onnx.DType   // element types of emitted values
	next      map[string]int
	// the graph is to be differentiated again, for other values than cotangents
	twice  bool
	shapes map[string]bool // emitted values that are shapes, without a -1 among their sizes
}

// newEmitter reads the types that m states. Those of inputs and initializers go before others.
func newEmitter(m *onnx.Model) *emitter {
	facts := try.Get(shape.Follow(m, maxKnown, onnx.NewBudget(m)))
	e := &emitter{
		opset: m.Opset(), graph: m.Graph, info: map[string]onnx.ValueInfo{},
		taken: map[string]bool{},
		made:  map[string][]string{}, next: map[string]int{}, shapes: map[string]bool{},
		kinds: map[string]onnx.DType{}, facts: facts, budget: onnx.NewBudget(m),
		constants: map[string]*onnx.Tensor{},
	}
	g := m.Graph
	// Later entries replace earlier ones: those of inputs and, below, of initializers win.
	for _, vs := range [][]onnx.ValueInfo{g.Values, g.Outputs, g.Inputs} {
		for _, v := range vs {
			e.info[v.Name] = v
		}
	}
	g.AddNames(e.taken)
	for name, t := range g.Initializers {
		e.info[name] = onnx.ValueInfo{Name: name, DType: t.DType, Shape: knownShape(t.Shape)}
	}
	return e
}

// knownShape is a shape of which every size is known.
func knownShape(s []int) []onnx.Dim {
	out := make([]onnx.Dim, len(s))
	for i, d := range s {
		out[i] = onnx.Known(d)
	}
	return out
}

// claim takes a name; false where a value has it already.
func (e *emitter) claim(name string) bool {
	if e.taken[name] {
		return false
	}
	e.taken[name] = true
	return true
}

// fresh claims a name for a value that an operator gives, vjp/<operator>_<number>. Numbers follow
// the order of emission, so that equal models give equal names.
func (e *emitter) fresh(op string) string {
	base := "vjp/" + strings.ToLower(op)
	for {
		name := fmt.Sprintf("%s_%d", base, e.next[base])
		e.next[base]++
		if e.claim(name) {
			return name
		}
	}
}

// op emits a node with one output.
func (e *emitter) op(op string, in []string, attrs ...onnx.Attr) string {
	return e.opN(op, in, 1, attrs...)[0]
}

// opN emits a node with n outputs, or returns the outputs of an equal one that was emitted before.
// Their element types are noted, as far as the operator tells them. Strings and graphs are in no
// key: nodes with a body are emitted by [call.emit], which shares none.
func (e *emitter) opN(op string, in []string, n int, attrs ...onnx.Attr) []string {
	var key strings.Builder
	fmt.Fprintf(&key, "%s %q", op, in)
	for _, a := range attrs {
		fmt.Fprintf(&key, " %s=%d %v %v %q %v %v", a.Name, a.Kind, a.Float, a.Int, a.Str,
			a.Floats, a.Ints)
		if a.Tensor != nil {
			fmt.Fprintf(&key, " %v%v", a.Tensor, a.Tensor.Data)
		}
	}
	// No rule emits a random operator, so that equal nodes give equal values.
	if out, ok := e.made[key.String()]; ok && len(out) == n {
		return out
	}
	node := &onnx.Node{Op: op, Inputs: append([]string{}, in...), Attrs: attrs}
	for range n {
		node.Outputs = append(node.Outputs, e.fresh(op))
	}
	node.Name = node.Outputs[0]
	e.graph.Nodes = append(e.graph.Nodes, node)
	switch op {
	case "Shape", "Size", "NonZero":
		e.kinds[node.Outputs[0]] = onnx.Int64
	case "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "And", "Or":
		e.kinds[node.Outputs[0]] = onnx.Bool
	case "Cast":
		e.kinds[node.Outputs[0]] = onnx.DTypeOf(attrs[0].Int)
	case "Where":
		e.kinds[node.Outputs[0]] = e.dtype(in[1])
	case "ConstantOfShape":
		e.kinds[node.Outputs[0]] = attrs[0].Tensor.DType
	default: // of the type of the first operand
		if len(in) > 0 && in[0] != "" {
			for _, o := range node.Outputs {
				e.kinds[o] = e.dtype(in[0])
			}
		}
	}
	e.made[key.String()] = node.Outputs
	return node.Outputs
}

// constant adds an initializer; equal small ones are shared. t is kept, and must not change
// afterwards.
func (e *emitter) constant(t *onnx.Tensor) string {
	key := ""
	// A key holds all elements as text, which larger tensors would make long.
	if t.Len() <= 64 {
		key = fmt.Sprintf("const %v%v", t, t.Data)
		if out, ok := e.made[key]; ok {
			return out[0]
		}
	}
	name := e.fresh("const")
	e.graph.Initializers[name] = t
	e.info[name] = onnx.ValueInfo{Name: name, DType: t.DType, Shape: knownShape(t.Shape)}
	if key != "" {
		e.made[key] = []string{name}
	}
	return name
}

// afford takes the product of sizes that attributes or shapes say, times the bytes of one element,
// from the model's budget. All that a rule makes by such sizes passes here. Attributes of a few
// bytes may ask for gigabytes, and the budget is by the bytes of the model.
func (e *emitter) afford(bytes int, sizes ...int) (int, error) {
	n, err := onnx.Elements(sizes)
	if all := float64(n) * float64(bytes); err == nil && !e.budget.Spend(all, all) {
		err = fmt.Errorf("sizes %v ask for more than the budget of a model of its bytes; make them smaller",
			sizes)
	}
	return n, err
}

// table is a constant of the element type of like, whose element i is at(i). It costs the budget 8
// bytes an element, whatever the type.
func (e *emitter) table(at func(i int) float64, like string, shape ...int) (string, error) {
	n, err := e.afford(8, shape...)
	if err != nil {
		return "", err
	}
	if e.dtype(like) == onnx.Float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = at(i)
		}
		return e.constant(onnx.NewTensor(v, shape...)), nil
	}
	// Other types are made in float32, and a Cast in the graph rounds them.
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(at(i))
	}
	t := e.constant(onnx.NewTensor(v, shape...))
	if d := e.dtype(like); d != onnx.Float32 {
		t = e.cast(t, d)
	}
	return t, nil
}

// Constants of more elements than this are not worked out for rules that ask for them.
const maxKnown = 1 << 16

// constOf is the value of v where it is the same in every run: an initializer, or made of constants
// alone.
func (e *emitter) constOf(v string) (*onnx.Tensor, bool) {
	if t, ok := e.graph.Initializers[v]; ok {
		return t, true
	}
	if t, ok := e.constants[v]; ok {
		return t, true
	}
	// The name "" is of an input that is left out.
	if v == "" || e.active[v] {
		return nil, false
	}
	t := e.facts.Constant(v)
	return t, t != nil
}

// constInts is the value of v as a list of integers where it is a constant. The slice is the
// caller's.
func (e *emitter) constInts(v string) ([]int, bool) {
	t, ok := e.constOf(v)
	if !ok {
		return nil, false
	}
	d, err := t.Ints()
	return d, err == nil
}

// constScalar is the value of v where it is a constant number.
func (e *emitter) constScalar(v string) (float64, bool) {
	t, ok := e.constOf(v)
	if !ok || t.Len() != 1 || t.DType == onnx.String {
		return 0, false
	}
	return t.At(0), true
}

// valueInfo is the description of v, as far as it is known.
func (e *emitter) valueInfo(v string) onnx.ValueInfo {
	i := e.info[v]
	i.Name = v
	return i
}

// isFloat takes a value of unknown type for one of floats.
func (e *emitter) isFloat(v string) bool {
	d := e.info[v].DType
	return d == onnx.Undefined || d.IsFloat()
}

// dtype is v's element type; one that is not known is taken to be float32.
func (e *emitter) dtype(v string) onnx.DType {
	if d := e.info[v].DType; d != onnx.Undefined {
		return d
	}
	if d := e.kinds[v]; d != onnx.Undefined {
		return d
	}
	return onnx.Float32
}

// shape is v's shape; nil where even its rank is unknown.
func (e *emitter) shape(v string) []onnx.Dim { return e.info[v].Shape }

// rank fails where v's rank is unknown.
func (e *emitter) rank(v string) int {
	s := e.shape(v)
	if s == nil {
		try.Fail("the rank of %q is not known; export the model with its input shapes", v)
	}
	return len(s)
}

// axes counts axes of v from the front; one that v has not is an error.
func (e *emitter) axes(v string, axes ...int) []int {
	out := slices.Clone(axes)
	for i, a := range axes {
		if a >= 0 && e.shape(v) == nil {
			continue // the run checks it
		}
		r := e.rank(v)
		if a < -r || a >= r {
			try.Fail("axis %d of a tensor of rank %d", a, r)
		}
		out[i] = (a + r) % r
	}
	return out
}

// sizes is v's shape where all of it is known.
func (e *emitter) sizes(v string) ([]int, bool) {
	s := e.shape(v)
	if s == nil {
		return nil, false
	}
	out := make([]int, len(s))
	for i, d := range s {
		if !d.IsKnown() {
			return nil, false
		}
		out[i] = d.Size
	}
	return out, true
}

// as records that v has the type and shape of like.
func (e *emitter) as(v, like string) string {
	i := e.info[like]
	i.Name = v
	e.info[v] = i
	return v
}

// shaped records v's type and shape.
func (e *emitter) shaped(v string, d onnx.DType, s []onnx.Dim) string {
	e.info[v] = onnx.ValueInfo{Name: v, DType: d, Shape: s}
	return v
}

// num is a scalar constant of the element type of like.
func (e *emitter) num(x float64, like string) string { return e.numOf(x, e.dtype(like)) }

// numOf is a scalar constant; halves are cast from float32, which holds them exactly.
func (e *emitter) numOf(x float64, d onnx.DType) string {
	switch d {
	case onnx.Float64:
		return e.constant(onnx.Scalar(x))
	case onnx.Float32:
		return e.constant(onnx.Scalar(float32(x)))
	}
	return e.cast(e.constant(onnx.Scalar(float32(x))), d)
}

// ints is an int64 vector constant.
func (e *emitter) ints(v ...int) string {
	d := make([]int64, len(v))
	for i, x := range v {
		d[i] = int64(x)
	}
	return e.constant(onnx.NewTensor(d, len(d)))
}

// filled is a tensor of v's type and shape with every element x. A scalar needs no shape, and is a
// constant.
func (e *emitter) filled(v string, x float64) string {
	d := e.dtype(v)
	if s, ok := e.sizes(v); ok && len(s) == 0 {
		return e.numOf(x, d)
	}
	return e.as(e.filledShape(e.shapeOf(v), x, d), v)
}

// filledShape is x at every place of a shape that is a value of the graph.
func (e *emitter) filledShape(shape string, x float64, d onnx.DType) string {
	var t *onnx.Tensor
	if d == onnx.Float64 {
		t = onnx.Vector(x)
	} else {
		t = onnx.Vector(float32(x))
	}
	f := e.op("ConstantOfShape", []string{shape}, onnx.TensorAttr("value", t))
	if d != onnx.Float32 && d != onnx.Float64 {
		f = e.cast(f, d)
	}
	return f
}

// Arithmetic by ONNX name.

func (e *emitter) add(x, y string) string { return e.op("Add", []string{x, y}) }
func (e *emitter) sub(x, y string) string { return e.op("Sub", []string{x, y}) }
func (e *emitter) mul(x, y string) string { return e.op("Mul", []string{x, y}) }
func (e *emitter) div(x, y string) string { return e.op("Div", []string{x, y}) }
func (e *emitter) un(op, x string) string { return e.op(op, []string{x}) }

// scale multiplies x, of the element type of like, by a constant.
func (e *emitter) scale(x string, by float64, like string) string {
	switch by {
	case 1:
		return x
	case -1:
		return e.un("Neg", x)
	}
	return e.mul(x, e.num(by, like))
}

// identity gives a value a second name.
func identity(v, as string) *onnx.Node {
	return &onnx.Node{Name: as, Op: "Identity", Inputs: []string{v}, Outputs: []string{as}}
}

// castLike is x in the element type of like.
func (e *emitter) castLike(x, like string) string {
	if d := e.dtype(like); e.dtype(x) != d {
		return e.cast(x, d)
	}
	return x
}

// cast emits a Cast even to the type that x has; castLike spares that one.
func (e *emitter) cast(x string, to onnx.DType) string {
	return e.op("Cast", []string{x}, onnx.IntAttr("to", int(to)))
}

// where selects from y where cond holds, else from z.
func (e *emitter) where(cond, y, z string) string { return e.op("Where", []string{cond, y, z}) }

// mask is cond as numbers 0 and 1 of the element type of like.
func (e *emitter) mask(cond, like string) string { return e.cast(cond, e.dtype(like)) }

// transpose emits nothing where perm leaves the axes in their order.
func (e *emitter) transpose(x string, perm ...int) string {
	same := true
	for i, p := range perm {
		same = same && i == p
	}
	if same {
		return x
	}
	return e.op("Transpose", []string{x}, onnx.IntsAttr("perm", perm...))
}

// swapLast transposes the last two of rank axes.
func (e *emitter) swapLast(x string, rank int) string {
	perm := make([]int, rank)
	for i := range perm {
		perm[i] = i
	}
	perm[rank-2], perm[rank-1] = rank-1, rank-2
	return e.transpose(x, perm...)
}

// reshape gives x a shape; a size of 0 in it is one, and copies none. Known sizes without a 0 take
// the plain form; with a -1 beside a 0 allowzero is refused by the standard.
func (e *emitter) reshape(x, shape string) string {
	d, known := e.constInts(shape)
	if !known && e.shapes[shape] || known && slices.Contains(d, 0) && !slices.Contains(d, -1) {
		return e.op("Reshape", []string{x, shape}, onnx.IntAttr("allowzero", 1))
	}
	return e.op("Reshape", []string{x, shape})
}

// reshapeLike gives x the shape of like.
func (e *emitter) reshapeLike(x, like string) string {
	return e.as(e.reshape(x, e.shapeOf(like)), like)
}

// unsqueeze and squeeze have their axes as an input, the form from operator set 13 on.
func (e *emitter) unsqueeze(x string, axes ...int) string {
	return e.op("Unsqueeze", []string{x, e.ints(axes...)})
}

func (e *emitter) squeeze(x string, axes ...int) string {
	return e.op("Squeeze", []string{x, e.ints(axes...)})
}

// concat of one value is that value.
func (e *emitter) concat(axis int, xs ...string) string {
	if len(xs) == 1 {
		return xs[0]
	}
	return e.op("Concat", xs, onnx.IntAttr("axis", axis))
}

// sum reduces over constant axes; none means x as it is.
func (e *emitter) sum(x string, keep bool, axes ...int) string {
	if len(axes) == 0 {
		return x
	}
	return e.op("ReduceSum", []string{x, e.ints(axes...)}, onnx.IntAttr("keepdims", boolInt(keep)))
}

// sumAll reduces to a scalar. Axes left out are all of them.
func (e *emitter) sumAll(x string) string {
	return e.op("ReduceSum", []string{x}, onnx.IntAttr("keepdims", 0))
}

// boolInt is 1 where b holds, as attributes have no booleans.
func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Shapes as int64 vectors, constant where they can be.

// shapeOf is v's shape.
func (e *emitter) shapeOf(v string) string {
	if s, ok := e.sizes(v); ok {
		return e.ints(s...)
	}
	s := e.un("Shape", v)
	e.shapes[s] = true
	return s
}

// dim is the size of one axis, as a vector of one; the run refuses an axis that v has not.
func (e *emitter) dim(v string, axis int) string {
	if s := e.shape(v); axis < len(s) && s[axis].IsKnown() {
		return e.ints(s[axis].Size)
	}
	return e.op("Gather", []string{e.un("Shape", v), e.ints(axis)})
}

// vec joins integer vectors. A vector that is known throughout is a constant, and adds no node.
func (e *emitter) vec(parts ...string) string {
	var all []int
	for _, p := range parts {
		d, ok := e.constInts(p)
		if !ok {
			return e.concat(0, parts...)
		}
		all = append(all, d...)
	}
	return e.ints(all...)
}

// intOp is Add, Sub or Mul of integer vectors of equal length.
func (e *emitter) intOp(op, x, y string) string {
	a, ok1 := e.constInts(x)
	b, ok2 := e.constInts(y)
	if !ok1 || !ok2 || len(a) != len(b) {
		return e.op(op, []string{x, y})
	}
	out := make([]int, len(a))
	for i := range a {
		switch op {
		case "Add":
			out[i] = a[i] + b[i]
		case "Sub":
			out[i] = a[i] - b[i]
		case "Mul":
			out[i] = a[i] * b[i]
		default:
			return e.op(op, []string{x, y})
		}
	}
	return e.ints(out...)
}

// size is the product of v's sizes over the given axes as a number of v's element type. In float32
// a product beyond 2^24 is rounded.
func (e *emitter) size(v string, axes []int) string {
	d := e.dtype(v)
	n, known := 1.0, true
	s := e.shape(v)
	for _, a := range axes {
		if s == nil || !s[a].IsKnown() {
			known = false
			break
		}
		n *= float64(s[a].Size)
	}
	if known {
		return e.numOf(n, d)
	}
	picked := e.op("Gather", []string{e.un("Shape", v), e.ints(axes...)})
	ones := e.cast(picked, d)
	// The product of the sizes, without ReduceProd, whose form changed with operator set 18.
	p := ""
	for i := range axes {
		one := e.op("Gather", []string{ones, e.constant(onnx.Scalar(int64(i)))})
		if p == "" {
			p = one
		} else {
			p = e.mul(p, one)
		}
	}
	if p == "" {
		return e.numOf(1, d)
	}
	return p
}

// span is from, from+1, ..., to-1.
func span(from, to int) []int {
	var out []int
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

// Package shape infers the element types and shapes of a model's values from those of its inputs:
// one rule an operator, families of operators by file.
//
// Shapes are polynomials of the inputs' symbols (expr.go), and small integer values are followed
// through the graph, so that a shape which the graph computes comes out as well.
package shape

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// Infer infers element types and shapes of every value and fills Graph.Values and the types of
// Graph.Outputs. Shapes are known sizes, symbols of the inputs ("batch"), expressions of them
// ("batch*n", "floor((H + 1)/2)") where they follow, and unknown otherwise. Small integer values
// are followed as well, so that shapes computed in the graph (Shape, Gather, Concat, Reshape) come
// out.
//
// The outputs of an operator without a rule are of unknown type, or of the type that the file
// states. A certain contradiction, such as a MatMul whose inner sizes differ, is an error that
// names node, operator and shapes. A file's types of intermediate values and outputs never override
// those that follow from its inputs.
func Infer(m *onnx.Model) error {
	if m == nil || m.Graph == nil {
		return fmt.Errorf("inferring shapes: there is no graph")
	}
	inf, err := inferModel(m)
	if err != nil {
		return err
	}
	g := m.Graph
	outs := map[string]bool{}
	for i, o := range g.Outputs {
		outs[o.Name] = true
		v := inf.info(o.Name)
		g.Outputs[i] = settle(v, o)
	}
	var values []onnx.ValueInfo
	for _, n := range g.Nodes {
		for _, o := range n.Outputs {
			if o == "" || outs[o] {
				continue
			}
			if v := inf.info(o); v.DType != onnx.Undefined {
				values = append(values, v)
			}
		}
	}
	g.Values = values
	return nil
}

// Types infers the element type and shape of every value of the graph by name: inputs, initializers
// and node outputs. The model is not changed. See [Infer].
func Types(m *onnx.Model) (map[string]onnx.ValueInfo, error) {
	if m == nil || m.Graph == nil {
		return nil, fmt.Errorf("inferring shapes: there is no graph")
	}
	inf, err := inferModel(m)
	if err != nil {
		return nil, err
	}
	out := make(map[string]onnx.ValueInfo, len(inf.facts))
	for name := range inf.facts {
		out[name] = inf.info(name)
	}
	return out, nil
}

// Facts holds the results of inference on a model's values.
type Facts struct{ inf *inference }

// Follow infers as [Types] does, working out constants of at most limit elements, as far as the
// budget allows, from which it takes its use.
func Follow(m *onnx.Model, limit int, budget *onnx.Budget) (*Facts, error) {
	inf, err := inferWith(m, limit, budget)
	if err != nil {
		return nil, err
	}
	return &Facts{inf}, nil
}

// Constant returns a value that is the same in every run, nil where it is not or is not known.
func (f *Facts) Constant(name string) *onnx.Tensor { return f.inf.lookup(name).constant() }

// Heavy is a node whose operands are the same in every run and whose result is beyond the budget.
type Heavy struct {
	Node  string  // name and operator
	Bytes float64 // of its result
	Work  float64 // about how many elementary operations it takes
}

func (h Heavy) String() string {
	return fmt.Sprintf("%s: its operands are constants, and to work out its result takes %.2g "+
		"operations and %.2g bytes, beyond the budget of a model of this size", h.Node,
		h.Work, h.Bytes)
}

// TooHeavy lists nodes of constants that are left to the run, since the model's [onnx.Budget] does
// not cover them; at most ten. A runtime that works out constants when it loads a model takes their
// memory, however small the file is.
func TooHeavy(m *onnx.Model) ([]Heavy, error) {
	inf, err := inferModel(m)
	if err != nil {
		return nil, err
	}
	return inf.load.left, nil
}

// load estimates the memory of a runtime that works out all constants when it loads a model.
type load struct {
	budget     *onnx.Budget
	left       []Heavy
	contradict func(*inference, *onnx.Graph) // of [Contradicted], at each graph's end
}

// settle fills the parts of an output that inference left open from the file's own type.
func settle(v, declared onnx.ValueInfo) onnx.ValueInfo {
	if v.DType == onnx.Undefined {
		v.DType = declared.DType
	}
	if v.Shape == nil {
		v.Shape = declared.Shape
	}
	if len(v.Shape) == len(declared.Shape) {
		for i, d := range v.Shape {
			if !d.IsKnown() && d.Symbol == "" {
				v.Shape[i] = declared.Shape[i]
			}
		}
	}
	return v
}

func inferModel(m *onnx.Model) (*inference, error) {
	return inferWith(m, maxFollowed, onnx.NewBudget(m))
}

func inferWith(m *onnx.Model, foldLimit int, budget *onnx.Budget) (*inference, error) {
	inf := newInference(m, foldLimit, budget)
	if err := inf.graph(m.Graph); err != nil {
		return nil, err
	}
	return inf, nil
}

func newInference(m *onnx.Model, foldLimit int, budget *onnx.Budget) *inference {
	inf := &inference{foldLimit: foldLimit, budget: budget, load: &load{budget: onnx.NewBudget(m)},
		opset: onnx.ClampInt(m.Opset()),
		facts: map[string]*fact{}, counter: new(int), bodies: new(int), foreign: map[string]string{},
		local: map[string]bool{}}
	for _, f := range m.Functions {
		inf.local[f.Domain+"\x00"+f.Name] = true
	}
	for _, in := range m.Graph.Inputs {
		inf.facts[in.Name] = inf.declared(in)
	}
	return inf
}

// fact is the knowledge of a value.
type fact struct {
	dtype onnx.DType
	shape []expr // nil where even the rank is unknown
	// elements of a small integer or bool value in row-major order, nil where unknown
	data   []expr
	tensor *onnx.Tensor // the value itself where it is a constant at hand
	fixed  bool         // it is the same in every run, whether or not it is at hand
}

func (f *fact) ranked() bool { return f != nil && f.shape != nil }

// constant is the value as a tensor where it is wholly known.
func (f *fact) constant() *onnx.Tensor {
	if f == nil {
		return nil
	}
	shape, n, ok := f.sizes()
	if f.tensor != nil || !ok || f.data == nil || n != len(f.data) {
		return f.tensor
	}
	t, err := onnx.Zeros(f.dtype, shape...)
	if err != nil {
		return nil
	}
	for i, e := range f.data {
		v, ok := e.value()
		if !ok {
			return nil
		}
		switch d := t.Data.(type) {
		case []int64:
			d[i] = int64(v)
		case []int32:
			d[i] = int32(v)
		case []bool:
			d[i] = v != 0
		default:
			return nil
		}
	}
	return t
}

// inference is the state of one walk over a graph.
type inference struct {
	opset   int
	outer   *inference // of the graph around a subgraph
	facts   map[string]*fact
	counter *int
	bodies  *int              // of loops, inferred so far
	foreign map[string]string // "$k": a symbol of the file that is not an expression
	local   map[string]bool   // operators that the model's own functions define

	foldLimit int          // the most elements of a constant that is worked out
	budget    *onnx.Budget // what is left for that
	load      *load
}

func (inf *inference) fresh(kind string) expr {
	*inf.counter++
	return symbol(fmt.Sprintf("%s%d", kind, *inf.counter))
}

//go:noinline
func (inf *inference) unknownSize() expr { return inf.fresh("?") }

func (inf *inference) lookup(name string) *fact {
	for i := inf; i != nil; i = i.outer {
		if f, ok := i.facts[name]; ok {
			return f
		}
	}
	return nil
}

// declared turns a file's type of a value into a fact.
func (inf *inference) declared(v onnx.ValueInfo) *fact {
	f := &fact{dtype: v.DType}
	if v.Shape == nil {
		return f
	}
	f.shape = make([]expr, len(v.Shape))
	for i, d := range v.Shape {
		switch {
		case d.IsKnown():
			f.shape[i] = constant(d.Size)
		case d.Symbol == "":
			f.shape[i] = inf.unknownSize()
		default:
			if e, ok := parseExpr(d.Symbol); ok {
				f.shape[i] = e
				continue
			}
			key := ""
			for k, s := range inf.foreign {
				if s == d.Symbol {
					key = k
				}
			}
			if key == "" {
				key = inf.fresh("$")[0].mono
				inf.foreign[key] = d.Symbol
			}
			f.shape[i] = symbol(key)
		}
	}
	return f
}

// info returns the description of a value.
func (inf *inference) info(name string) onnx.ValueInfo {
	f := inf.lookup(name)
	v := onnx.ValueInfo{Name: name}
	if f == nil {
		return v
	}
	v.DType = f.dtype
	if f.shape == nil {
		return v
	}
	v.Shape = make([]onnx.Dim, len(f.shape))
	for i, e := range f.shape {
		v.Shape[i] = inf.dim(e)
	}
	return v
}

func (inf *inference) dim(e expr) onnx.Dim {
	if n, ok := e.value(); ok && n >= 0 {
		return onnx.Known(n)
	}
	if len(e) == 1 && e[0].coef == 1 {
		if s, ok := inf.foreign[e[0].mono]; ok {
			return onnx.Symbolic(s)
		}
	}
	s := e.String()
	if len(e) == 0 || strings.ContainsAny(s, "?~$") || !e.bounded() {
		return onnx.Symbolic("")
	}
	return onnx.Symbolic(s)
}

func (inf *inference) graph(g *onnx.Graph) error {
	hints := make(map[string]onnx.ValueInfo, len(g.Values)+len(g.Outputs))
	for _, vs := range [][]onnx.ValueInfo{g.Outputs, g.Values} {
		for _, v := range vs {
			hints[v.Name] = v
		}
	}
	for name, t := range g.Initializers {
		inf.facts[name] = tensorFact(t)
	}
	for _, n := range g.Nodes {
		if err := inf.node(n, hints); err != nil {
			return err
		}
	}
	if inf.load.contradict != nil {
		inf.load.contradict(inf, g)
	}
	return nil
}

// tensorFact is everything about a constant.
func tensorFact(t *onnx.Tensor) *fact {
	return &fact{dtype: t.DType, shape: constants(t.Shape), data: elements(t), tensor: t,
		fixed: true}
}

// Values of more than maxFollowed elements are not followed; each element takes about
// followedBytes.
const (
	maxFollowed   = 1024
	followedBytes = 32
)

func elements(t *onnx.Tensor) []expr {
	if t.Len() > maxFollowed {
		return nil
	}
	if d, ok := t.Data.([]bool); ok {
		out := make([]expr, len(d))
		for i, v := range d {
			out[i] = constant(boolInt(v))
		}
		return out
	}
	if v, err := t.Ints(); err == nil {
		return constants(v)
	}
	return nil
}

func (inf *inference) node(n *onnx.Node, hints map[string]onnx.ValueInfo) error {
	if len(n.Outputs) == 0 {
		return nil // Check says what is wrong with it
	}
	c := &call{inf: inf, node: n, attrs: op.Attrs(n, inf.opset), opset: inf.opset}
	allConstant, fixed := len(n.Inputs) > 0, len(n.Inputs) > 0 && !random[n.Op]
	for _, name := range n.Inputs {
		var f *fact
		if name != "" {
			if f = inf.lookup(name); f == nil {
				f = &fact{}
			}
			allConstant = allConstant && f.constant() != nil
			fixed = fixed && f.fixed
		}
		c.in = append(c.in, f)
	}
	c.out = make([]*fact, len(n.Outputs))
	for i := range c.out {
		c.out[i] = &fact{}
	}
	r, known := rules[n.Op]
	schema := op.Lookup("", n.Op, inf.opset)
	if known && schema != nil && !schema.Deprecated && n.Domain == "" && !inf.local["\x00"+n.Op] {
		if err := schema.Fits(n); err != nil {
			return c.wrap(err)
		}
		if err := c.apply(r); err != nil {
			return c.wrap(err)
		}
		if allConstant {
			c.fold(inf.foldLimit)
		}
		if fixed {
			c.weigh()
		}
	}
	for i, name := range n.Outputs {
		if name == "" {
			continue
		}
		if err := inf.learn(name, c.out[i], hints); err != nil {
			return c.wrap(err)
		}
	}
	return nil
}

// learn keeps the fact of an output, with the declared type and shape where the rule gave none,
// within the bounds of sizes and memory.
func (inf *inference) learn(name string, f *fact, hints map[string]onnx.ValueInfo) error {
	if h, ok := hints[name]; ok {
		if f.dtype == onnx.Undefined {
			f.dtype = h.DType
		}
		if f.shape == nil {
			f.shape = inf.declared(h).shape
		}
	}
	for j, e := range f.shape {
		if v, ok := e.value(); ok && (v < 0 || v > onnx.MaxElements) {
			return fmt.Errorf("output %q would have size %d on axis %d", name, v, j)
		}
		if e == nil || !e.bounded() {
			f.shape[j] = inf.unknownSize()
		}
	}
	if !inf.budget.Spend(followedBytes*float64(len(f.data)), float64(len(f.data))) {
		f.data = nil
	}
	for j, e := range f.data {
		if e == nil || !e.bounded() {
			f.data[j] = inf.fresh("~")
		}
	}
	inf.facts[name] = f
	return nil
}

// call is one node under inference: the facts that its rule reads and writes.
type call struct {
	inf   *inference
	node  *onnx.Node
	attrs op.Values
	opset int
	in    []*fact // nil for an optional input left out
	out   []*fact
}

// rule sets the facts of a node's outputs from those of its inputs, or ends by package try where
// they contradict each other. Facts that it does not set are unknown.
type rule func(c *call)

// rules holds the rule of each standard operator, by families; see the infer_*.go files.
var rules map[string]rule

func init() {
	rules = merge(
		elementwiseRules, reductionRules, movementRules, shapeRules, convolutionRules, matmulRules,
		normalizationRules, generatorRules, recurrentRules, quantizationRules, controlRules,
	)
}

// HasRule reports whether there is a rule for an operator of the standard set.
func HasRule(op string) bool { return rules[op] != nil }

// Moves reports whether an operator only moves or makes elements, and computes none.
func Moves(op string) bool { return movementRules[op] != nil || shapeRules[op] != nil }

// Elementwise reports whether an operator computes each element of its result from one of each
// operand.
func Elementwise(op string) bool { return elementwiseRules[op] != nil }

// apply runs a rule, which may end by package try.
func (c *call) apply(r rule) (err error) {
	defer try.Catch(&err)
	c.operands()
	r(c)
	return nil
}

// shaped makes a rule for an output of the first input's type: of an input x of known rank, shape
// returns the output's shape, nil where even its rank is unknown.
func shaped(shape func(c *call, x *fact) []expr) rule {
	return func(c *call) {
		x := c.in[0]
		var s []expr
		if x.ranked() {
			s = shape(c, x)
		}
		c.set(0, x.dtype, s)
	}
}

// each gives one rule to several operators.
func each(r rule, ops ...string) map[string]rule {
	out := make(map[string]rule, len(ops))
	for _, op := range ops {
		out[op] = r
	}
	return out
}

func merge(families ...map[string]rule) map[string]rule {
	out := map[string]rule{}
	for _, f := range families {
		maps.Copy(out, f)
	}
	return out
}

func (c *call) wrap(err error) error {
	var shapes []string
	for i, f := range c.in {
		if f == nil {
			continue
		}
		shape := " of unknown rank"
		if f.shape != nil {
			shape = c.inf.shapeText(f.shape)
		}
		shapes = append(shapes, fmt.Sprintf("%q %v%s", c.node.Inputs[i], f.dtype, shape))
	}
	return fmt.Errorf("%s: %w (inputs: %s)", c.node.Label(), err, strings.Join(shapes, ", "))
}

func (inf *inference) shapeText(shape []expr) string {
	parts := make([]string, len(shape))
	for i, e := range shape {
		parts[i] = inf.dim(e).String()
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// arg is the i-th input, an empty fact where it is left out.
func (c *call) arg(i int) *fact {
	if i >= 0 && i < len(c.in) && c.in[i] != nil {
		return c.in[i]
	}
	return &fact{}
}

func (c *call) has(i int) bool { return i < len(c.in) && c.in[i] != nil }

// set gives output i a type and shape; outputs that the node does not have are skipped.
//
//go:noinline
func (c *call) set(i int, d onnx.DType, shape []expr) {
	if i < len(c.out) {
		c.out[i].dtype = d
		c.out[i].shape = slices.Clone(shape)
	}
}

// same gives output i the type and shape of f.
func (c *call) same(i int, f *fact) { c.set(i, f.dtype, f.shape) }

// follow gives output 0 known elements.
func (c *call) follow(data []expr) {
	if data != nil && len(data) <= maxFollowed && len(c.out) > 0 {
		c.out[0].data = slices.Clone(data)
	}
}

// ints is input i as known integers.
func (c *call) ints(i int) ([]int, bool) {
	f := c.arg(i)
	t := f.constant()
	if t == nil {
		return nil, false
	}
	v, err := t.Ints()
	return v, err == nil
}

// argOrAttr is a list of integers that is an attribute before opset since and input i from then on.
// given reports whether the node has it at all, known whether its value is.
func (c *call) argOrAttr(name string, i, since int) (v []int, given, known bool) {
	if c.opset < since {
		return c.attrs.Ints(name), c.attrs.Has(name), true
	}
	if !c.has(i) {
		return nil, false, true
	}
	v, known = c.ints(i)
	return v, true, known
}

// axis turns a possibly negative axis into one from 0 to rank-1.
func axis(a, rank int) (int, error) {
	if a < -rank || a >= rank {
		return 0, fmt.Errorf("axis %d of a value of rank %d; allowed are %d to %d", a,
			rank, -rank, rank-1)
	}
	if a < 0 {
		a += rank
	}
	return a, nil
}

// axesOf turns axes into a set; an axis given twice is an error.
func axesOf(as []int, rank int) (map[int]bool, error) {
	set := map[int]bool{}
	for _, a := range as {
		x, err := axis(a, rank)
		if err != nil {
			return nil, err
		}
		if set[x] {
			return nil, fmt.Errorf("axis %d is given twice", a)
		}
		set[x] = true
	}
	return set, nil
}

// upTo lists the axes of a value of some rank.
func upTo(rank int) []int {
	axes := make([]int, rank)
	for i := range axes {
		axes[i] = i
	}
	return axes
}

// unknownSizes is a shape of known rank and unknown sizes.
func (c *call) unknownSizes(rank int) []expr {
	return c.fresh("?", rank)
}

// fresh are n new symbols of a kind.
func (c *call) fresh(kind string, n int) []expr {
	out := make([]expr, n)
	for i := range out {
		out[i] = c.inf.fresh(kind)
	}
	return out
}

// meet is the size of two axes that must agree.
func meet(a, b expr) (expr, error) {
	x, xok := a.value()
	y, yok := b.value()
	switch {
	case xok && yok && x != y:
		return nil, fmt.Errorf("sizes %d and %d differ", x, y)
	case xok:
		return a, nil
	case yok:
		return b, nil
	case strings.Contains(a.String(), "?"):
		return b, nil
	}
	return a, nil
}

// agree ends the rule where two sizes differ, in words of a format and its arguments.
func agree(a, b expr, format string, args ...any) {
	if _, err := meet(a, b); err != nil {
		try.Fail(format+": %w", append(args, err)...)
	}
}

// spatialRank ends the rule of a value that is not [N, C, D1, ...].
func spatialRank(shape []expr) {
	if len(shape) < 3 {
		try.Fail("an input of rank %d; [N, C, D1, ...] is needed", len(shape))
	}
}

// typeFrom is the rule of an output of the first input's shape and of the type of input i.
func typeFrom(i int) rule {
	return func(c *call) { c.set(0, c.arg(i).dtype, c.arg(0).shape) }
}

// sameType is the type of operands that must have one type.
func sameType(fs ...*fact) (onnx.DType, error) {
	d := onnx.Undefined
	for _, f := range fs {
		if f == nil || f.dtype == onnx.Undefined {
			continue
		}
		if d != onnx.Undefined && d != f.dtype {
			return d, fmt.Errorf("operands of types %v and %v; they must have one type, cast "+
				"one of them", d, f.dtype)
		}
		d = f.dtype
	}
	return d, nil
}

// broadcast is ONNX's multidirectional broadcasting of shapes.
func (c *call) broadcast(shapes ...[]expr) ([]expr, error) {
	rank := 0
	for _, s := range shapes {
		if s == nil {
			return nil, nil
		}
		rank = max(rank, len(s))
	}
	out := make([]expr, rank)
	for i := range out {
		out[i] = constant(1)
		for _, s := range shapes {
			j := i - (rank - len(s))
			if j < 0 || s[j].is(1) || s[j].equal(out[i]) {
				continue
			}
			a, aok := out[i].value()
			b, bok := s[j].value()
			switch {
			case aok && a == 1:
				out[i] = s[j]
			case aok && bok:
				return nil, fmt.Errorf("sizes %d and %d on axis %d cannot be broadcast", a, b, i)
			case aok: // the other must be 1 or the same
			case bok:
				out[i] = s[j]
			default:
				out[i] = c.inf.unknownSize()
			}
		}
	}
	return out, nil
}

// Package shape infers the element types and shapes of a model's values from those of its inputs:
// one rule an operator, families of operators by file.
//
// Shapes are polynomials of the inputs' symbols (expr.go), and small integer values are followed
// through the graph, so that a shape which the graph computes comes out as well.
package shape

import (
	"fmt"
	"strings"

	"fmp/onnx"
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
// those that follow from its inputs. It changes m in place; on an error m is as it was. Values of
// subgraphs are not written. Cost is that of one rule a node, of bodies of loops up to three times,
// and of the constants worked out. Two goroutines must not call it on one model.
func Infer(m *onnx.Model) error {
	if m == nil || m.Graph == nil {
		return fmt.Errorf("inferring shapes: there is no graph")
	}
	inf, err := inferModel(m)
	if err != nil {
		return err
	}
	g := m.Graph
	// A graph's outputs keep their own list, so that no value is described in two places.
	outs := map[string]bool{}
	for i, o := range g.Outputs {
		outs[o.Name] = true
		v := inf.info(o.Name)
		if f := inf.lookup(o.Name); f != nil && len(o.Shape) < f.least {
			o.Shape = nil
		}
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
// budget allows, from which it takes its use. The model must not change while the facts are in use,
// since constants are the model's own tensors.
func Follow(m *onnx.Model, limit int, budget *onnx.Budget) (*Facts, error) {
	inf, err := inferWith(m, limit, budget)
	if err != nil {
		return nil, err
	}
	return &Facts{inf}, nil
}

// Constant returns a value that is the same in every run, nil where it is not or is not known. The
// tensor may be an initializer of the model: callers must not write to it.
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

// load estimates the memory of a runtime that works out all constants when it loads a model. Its
// budget is apart from that of folding, and counts the nodes that folding leaves as well. Subgraphs
// share the load of the model.
type load struct {
	budget     *onnx.Budget
	left       []Heavy
	contradict func(*inference, *onnx.Graph) // of [Contradicted], at each graph's end
}

// settle fills the parts of an output that inference left open from the file's own type. A size
// that inference knows, by number or symbol, is kept.
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

// inferModel pays for folding with a budget of its own.
func inferModel(m *onnx.Model) (*inference, error) {
	return inferWith(m, maxFollowed, onnx.NewBudget(m))
}

// inferWith folds results of at most foldLimit elements.
func inferWith(m *onnx.Model, foldLimit int, budget *onnx.Budget) (*inference, error) {
	inf := newInference(m, foldLimit, budget)
	if err := inf.graph(m.Graph); err != nil {
		return nil, err
	}
	return inf, nil
}

// newInference takes the budget that pays for folding; the load has one of its own.
func newInference(m *onnx.Model, foldLimit int, budget *onnx.Budget) *inference {
	inf := &inference{foldLimit: foldLimit, budget: budget, load: &load{budget: onnx.NewBudget(m)},
		opset: onnx.ClampInt(m.Opset()),
		facts: map[string]*fact{}, counter: new(int), bodies: new(int),
		foreign: map[string]string{}, local: map[string]bool{}}
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
	least  int          // the rank is no lower, where it is unknown
}

// ranked takes nil, an operand that is left out, for one of unknown rank.
func (f *fact) ranked() bool { return f != nil && f.shape != nil }

// constant is the value as a tensor where it is wholly known. It makes a tensor of followed
// elements, of int64, int32 or bool alone; other types give nil. Cost is O(elements) at each call,
// which maxFollowed bounds.
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

// inference is the state of one walk over a graph. A subgraph has an inference of its own, with
// facts of its own names. Counter, bodies, foreign, local, budget and load are those of the whole
// model.
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

// fresh is a symbol that was never used, of the kind ?, ~ or $.
func (inf *inference) fresh(kind string) expr {
	*inf.counter++
	return symbol(fmt.Sprintf("%s%d", kind, *inf.counter))
}

//go:noinline
func (inf *inference) unknownSize() expr { return inf.fresh("?") }

// lookup finds a value of this graph or of those around it, from the inside out.
func (inf *inference) lookup(name string) *fact {
	for i := inf; i != nil; i = i.outer {
		if f, ok := i.facts[name]; ok {
			return f
		}
	}
	return nil
}

// declared turns a file's type of a value into a fact. A symbol of the file that does not parse as
// an expression is kept by a "$k" in foreign. Equal texts get one "$k", so that their sizes are
// equal.
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

// info returns the description of a value. An unknown name gives an Undefined type and no shape.
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

// dim is e as a file can state it: a number, a symbol or an expression. It is open where e holds a
// symbol of inference alone, or is beyond the bounds. Symbols of inference mean nothing outside it,
// where two runs would number them differently.
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

// graph infers the nodes in their order. The file's own types are hints for outputs of which no
// rule tells. Values go before Outputs where a file types one name in both. An initializer goes
// before the type of an input of its name.
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

// elements are those of a small tensor of integers or booleans; nil of others. Integers beyond an
// int become the largest or smallest int on machines of 32 bits.
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

// node applies the rule of one node. Operators of other domains, and those that the model itself
// defines, leave their outputs to the hints. Schema.Fits is asked first, so that a rule may read
// every required input without a check.
func (inf *inference) node(n *onnx.Node, hints map[string]onnx.ValueInfo) error {
	if len(n.Outputs) == 0 {
		return nil // Check says what is wrong with it
	}
	c := &call{inf: inf, node: n, attrs: op.Attrs(n, inf.opset), opset: inf.opset}
	// allConstant allows folding; fixed is wider, as it holds for constants that were too large to
	// fold. A node without inputs is neither, and Constant states its value by its rule.
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
// within the bounds of sizes and memory. Sizes are from 0 to onnx.MaxElements, and another known
// size is the node's error. Expressions beyond the bounds become symbols of inference: "?" for
// sizes, "~" for elements.
func (inf *inference) learn(name string, f *fact, hints map[string]onnx.ValueInfo) error {
	if h, ok := hints[name]; ok {
		if f.dtype == onnx.Undefined {
			f.dtype = h.DType
		}
		if f.shape == nil && len(h.Shape) >= f.least {
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

// shapeText is a shape for an error.
func (inf *inference) shapeText(shape []expr) string {
	parts := make([]string, len(shape))
	for i, e := range shape {
		parts[i] = inf.dim(e).String()
	}
	return "[" + strings.Join(parts, ",") + "]"
}

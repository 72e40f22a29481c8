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

// call is one node under inference: the facts that its rule reads and writes.
type call struct {
	inf   *inference
	node  *onnx.Node
	attrs op.Values
	// opset is the version of the standard domain, from which defaults of attributes follow as
	// well.
	opset int
	in    []*fact // nil for an optional input left out
	out   []*fact
}

// rule sets the facts of a node's outputs from those of its inputs, or ends by package try where
// they contradict each other. Facts that it does not set are unknown.
type rule func(c *call)

// rules holds the rule of each standard operator. Each family has a table in the file of its rules.
// It is filled once, by init, since rules of subgraphs refer to it in a circle; nothing writes it
// after.
var rules map[string]rule

func init() {
	rules = merge(
		elementwiseRules, reductionRules, movementRules, shapeRules, convolutionRules, matmulRules,
		normalizationRules, generatorRules, recurrentRules, quantizationRules, controlRules,
	)
}

// HasRule reports whether there is a rule for an operator of the standard set.
func HasRule(op string) bool { return rules[op] != nil }

// Moves reports whether an operator only moves or makes elements, and computes none. The makers are
// those of constant.go, such as Shape, Range and OneHot.
func Moves(op string) bool { return movementRules[op] != nil || shapeRules[op] != nil }

// Elementwise reports whether an operator computes each element of its result from one of each
// operand.
func Elementwise(op string) bool { return elementwiseRules[op] != nil }

// apply runs a rule, which may end by package try. A panic that is not of package try goes on.
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

// merge joins tables of rules. An operator in two tables has the rule of the later one.
func merge(families ...map[string]rule) map[string]rule {
	out := map[string]rule{}
	for _, f := range families {
		maps.Copy(out, f)
	}
	return out
}

// wrap names the node in an error, with the types and shapes of its inputs.
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

// arg is the i-th input, an empty fact where it is left out. A change of the empty fact is seen by
// no other call.
func (c *call) arg(i int) *fact {
	if i >= 0 && i < len(c.in) && c.in[i] != nil {
		return c.in[i]
	}
	return &fact{}
}

// has reports whether input i is given.
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

// follow gives output 0 known elements. More than maxFollowed elements are dropped without an
// error, which leaves them unknown.
func (c *call) follow(data []expr) {
	if data != nil && len(data) <= maxFollowed && len(c.out) > 0 {
		c.out[0].data = slices.Clone(data)
	}
}

// ints is input i as known integers. Only constants of int64 and int32 count; a float or a followed
// symbol gives false.
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
// given reports whether the node has it at all, known whether its value is. Such lists moved to
// inputs with operator set 13 (Squeeze, Unsqueeze, Split, ReduceSum) and 18.
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

// axesOf turns axes into a set; an axis given twice is an error. Keys are from 0 to rank-1; a nil
// list gives an empty set, and each rule says how that reads.
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

// meet is the size of two axes that must agree. A known size is kept before a symbol, and a symbol
// of the file before one of inference. Two different symbols are taken as equal: a run may give
// both one size.
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

// agree ends the rule where two sizes differ, in words of a format and its arguments. The size
// itself is not returned; callers that need it call [meet].
func agree(a, b expr, format string, args ...any) {
	if _, err := meet(a, b); err != nil {
		try.Fail(format+": %w", append(args, err)...)
	}
}

// spatialRank ends the rule of a value that is not [N, C, D1, ...]. A rank of 3 is one spatial
// axis.
func spatialRank(shape []expr) {
	if len(shape) < 3 {
		try.Fail("an input of rank %d; [N, C, D1, ...] is needed", len(shape))
	}
}

// typeFrom is the rule of an output of the first input's shape and of the type of input i.
func typeFrom(i int) rule {
	return func(c *call) { c.set(0, c.arg(i).dtype, c.arg(0).shape) }
}

// sameType is the type of operands that must have one type. Operands that are left out, or of
// unknown type, agree with every type; none known gives Undefined.
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

// broadcast is ONNX's multidirectional broadcasting of shapes. A symbol beside a known size above 1
// must turn out as 1 or that size, so that the known one is the result. Shapes are aligned at the
// right, as numpy's; a nil one makes the result nil, without an error. Two different symbols on an
// axis give a new unknown size, since either may be 1.
func (c *call) broadcast(shapes ...[]expr) ([]expr, error) {
	rank, open := 0, false
	for _, s := range shapes {
		open = open || s == nil
		rank = max(rank, len(s))
	}
	if open {
		c.out[0].least = rank
		return nil, nil
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

// broadcastTo ends the rule where input i is not broadcast to a shape one way: it has no more axes,
// and each of its sizes is 1 or the shape's. Unlike [call.broadcast], a 1 of the shape never grows.
// Output 0 has the shape: where that is unknown, its rank is no lower than that of the input.
func (c *call) broadcastTo(shape []expr, i int) {
	from := c.arg(i).shape
	if shape == nil {
		c.out[0].least = max(c.out[0].least, len(from))
		return
	}
	first := len(shape) - len(from)
	if first < 0 {
		try.Fail("input %d is of rank %d and the value of rank %d", i, len(from), len(shape))
	}
	for j, size := range from {
		if !size.is(1) {
			agree(shape[first+j], size, "input %d on axis %d", i, first+j)
		}
	}
}

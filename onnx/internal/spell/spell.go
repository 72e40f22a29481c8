// Package spell writes operators out in others: recurrent layers, attention and gates of the
// standard set, operators of com.microsoft, and the linear models and trees of ai.onnx.ml. The
// engines and gradients use it.
package spell

import (
	"fmt"
	"math"
	"strings"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// Around answers the questions of a node that is being spelt out about the graph around it.
type Around struct {
	Opset int                             // of the standard operators
	Type  func(value string) onnx.DType   // Undefined where it is not known
	Shape func(value string) []onnx.Dim   // nil where it is not known
	Fresh func(base string) (name string) // makes a name that nothing has
}

// IsSpelt reports whether [Spell] spells a node's operator out in others: recurrent layers,
// attention and gates of the standard set, operators of com.microsoft, and, with [EnableClassical],
// the linear models and trees of ai.onnx.ml. Gradients, and the pure engine, know these operators
// in no other way.
func IsSpelt(n *onnx.Node) bool { return HasSpelling(n) && n.Op != "GridSample" }

// SpeltOpset returns the operator set that [Spell] spells a node out in, for a model of the given
// one: files of ai.onnx.ml name early ones, in which trees cannot be written, and detectors those
// before part of a shape could be taken, as do files that a runtime has optimised. The softmax of
// sets before 13 is another. An operator is of one version in both.
func SpeltOpset(n *onnx.Node, opset int) int {
	switch {
	case n.Domain == classical:
		return max(opset, classicalOpset)
	case n.Op == "RoiAlign", n.Domain == microsoft && (n.Op == "QGemm" || n.Op == "QLinearSoftmax" ||
		strings.HasPrefix(n.Op, "Fused") || strings.HasSuffix(n.Op, "Attention")):
		return max(opset, 15)
	}
	return opset
}

// HasSpelling reports whether [Spell] can spell a node out: beside those of [IsSpelt], where it is
// differentiated, GridSample.
func HasSpelling(n *onnx.Node) bool {
	_, ok := spellings[onnx.OpName{Domain: n.Domain, Name: n.Op}]
	return ok || IsRecurrent(n)
}

// Spell spells a node out as nodes of the model's operator set. Half-precision values are computed
// in float32 and rounded once.
//
// Source: the equations of the operators' own pages.
//
// The node is not changed, and each of its outputs is given by the last nodes under its own name.
// An error does not name the node, which is the caller's to do.
func Spell(n *onnx.Node, a Around) (nodes []*onnx.Node, err error) {
	defer try.Catch(&err)
	d := a.Type(n.Input(0))
	if d == onnx.Undefined {
		d = onnx.Float32
	}
	if least := SpeltOpset(n, a.Opset); a.Opset < least {
		return nil, fmt.Errorf("it can be spelt out from operator set %d on, the model imports %d; "+
			"export it with a later one", least, a.Opset)
	}
	if schema := op.Last(n.Domain, n.Op, a.Opset); schema != nil {
		if err := schema.Fits(n); err != nil {
			return nil, err
		}
	}
	if IsRecurrent(n) {
		hidden := 0
		if s := a.Shape(n.Input(2)); len(s) == 3 && s[2].IsKnown() {
			hidden = s[2].Size
		}
		return spellRecurrent(n, a.Opset, d, hidden, a.Fresh), nil
	}
	s := &speller{emit: emit{fresh: a.Fresh, base: n.Called()}, Around: a,
		attrs: op.Attrs(n, a.Opset), d: d}
	s.node = onnx.CloneNode(n)
	s.halves = map[string]string{}
	for i, in := range n.Inputs {
		if t := a.Type(in); in != "" && (isHalf(t) || t == onnx.Undefined && isHalf(d)) {
			s.node.Inputs[i] = s.opInt("Cast", []string{in}, "to", int(onnx.Float32))
			// Shapes are those of the half-precision input, as nobody outside knows the cast's
			// name.
			s.halves[s.node.Inputs[i]] = in
		}
	}
	if isHalf(d) {
		s.d = onnx.Float32
	}
	s.Shape = func(v string) []onnx.Dim {
		if half, ok := s.halves[v]; ok {
			v = half
		}
		return a.Shape(v)
	}
	outs := spellings[onnx.OpName{Domain: n.Domain, Name: n.Op}](s)
	for i, out := range n.Outputs {
		if out == "" {
			continue
		}
		if i >= len(outs) || outs[i] == "" {
			return nil, fmt.Errorf("its output %d is not supported", i)
		}
		to := s.result(i, d)
		if !isHalf(to) {
			to = onnx.Undefined
		}
		s.give(outs[i], out, to)
	}
	return s.nodes, nil
}

func isHalf(d onnx.DType) bool { return d == onnx.Float16 || d == onnx.BFloat16 }

// speller is a node that is being spelt out.
type speller struct {
	emit
	Around
	node  *onnx.Node
	attrs op.Values
	d     onnx.DType // that it is computed in
	state onnx.DType // of the second output, where it may differ from the first input's
	// halves are the half-precision inputs that a value was cast from.
	halves map[string]string
}

// result is the type of output i, where d is that of the first input.
func (s *speller) result(i int, d onnx.DType) onnx.DType {
	if s.state != onnx.Undefined && i == 1 {
		return s.state
	}
	return d
}

// spellings gives the values of a node's outputs, "" where one is not made; they end by package try
// where a node is refused. Only [EnableClassical] writes to it, before anything runs; after that it
// is read at once by many.
var spellings = map[onnx.OpName]func(s *speller) []string{
	{Name: "Attention"}: spellAttention, {Name: "RMSNormalization"}: spellRMSNormalization,
	{Name: "RotaryEmbedding"}: spellRotaryEmbedding,
	{Name: "DeformConv"}:      spellDeformConv, {Name: "GridSample"}: spellGridSample,
	{Name: "RoiAlign"}:            spellRoiAlign,
	{Name: "CausalConvWithState"}: spellCausalConv, {Name: "Swish"}: spellSwish,
	{Name: "SwiGLU"}:                       spellSwish,
	{Domain: microsoft, Name: "QuickGelu"}: spellSwish, {Domain: microsoft, Name: "Gelu"}: spellGelu,
	{Name: "LinearAttention"}: spellLinearAttention, {Name: "AffineGrid"}: spellAffineGrid,
	{Domain: microsoft, Name: "BiasGelu"}:                         spellGelu,
	{Domain: microsoft, Name: "FastGelu"}:                         spellGelu,
	{Domain: microsoft, Name: "FusedMatMul"}:                      spellFusedMatMul,
	{Domain: microsoft, Name: "TransposeMatMul"}:                  spellFusedMatMul,
	{Domain: microsoft, Name: "SkipLayerNormalization"}:           spellSkipNormalization,
	{Domain: microsoft, Name: "SkipSimplifiedLayerNormalization"}: spellSkipNormalization,
	{Domain: microsoft, Name: "QLinearAdd"}:                       spellQuantizedPair,
	{Domain: microsoft, Name: "QLinearMul"}:                       spellQuantizedPair,
	{Domain: microsoft, Name: "QLinearSigmoid"}:                   spellQuantized,
	{Domain: microsoft, Name: "QLinearLeakyRelu"}:                 spellQuantized,
	{Domain: microsoft, Name: "QLinearGlobalAveragePool"}:         spellQuantized,
	{Domain: microsoft, Name: "QLinearAveragePool"}:               spellQuantized,
	{Domain: microsoft, Name: "QLinearSoftmax"}:                   spellQuantizedSoftmax,
	{Domain: microsoft, Name: "QLinearConcat"}:                    spellQuantizedConcat,
	{Domain: microsoft, Name: "QLinearWhere"}:                     spellQuantizedWhere,
	{Domain: microsoft, Name: "QGemm"}:                            spellQuantizedGemm,
	{Domain: microsoft, Name: "DynamicQuantizeMatMul"}:            spellIntegerProduct,
	{Domain: microsoft, Name: "MatMulIntegerToFloat"}:             spellIntegerProduct,
	{Domain: microsoft, Name: "FusedGemm"}:                        spellFusedGemm,
	{Domain: microsoft, Name: "FusedConv"}:                        spellFusedConv,
	{Domain: microsoft, Name: "MultiHeadAttention"}:               spellMultiHead,
	{Domain: microsoft, Name: "Attention"}:                        spellPackedAttention,
}

const microsoft = "com.microsoft"

//go:noinline
func (e *emit) un(op, x string) string { return e.op(op, []string{x}) }

//go:noinline
func (e *emit) bi(op, x, y string) string { return e.op(op, []string{x, y}) }

// whole is a scalar, an integer.
//
//go:noinline
func (e *emit) whole(v int) string { return e.constant(onnx.Scalar(int64(v))) }

// span is the vector from, from + 1, ... below a scalar. Range is of operator set 11 and later.
func (e *emit) span(from int, to string) string {
	return e.op("Range", []string{e.whole(from), to, e.whole(1)})
}

//go:noinline
func (e *emit) ints(v ...int64) string { return e.constant(onnx.Vector(v...)) }

// int64s are the integers of attributes as tensors take them.
func int64s(v []int) []int64 {
	out := make([]int64, len(v))
	for i, x := range v {
		out[i] = int64(x)
	}
	return out
}

// dims takes axes from to to - 1 of a value's shape.
//
//go:noinline
func (e *emit) dims(v string, from, to int) string {
	return e.op("Shape", []string{v}, onnx.IntAttr("start", from), onnx.IntAttr("end", to))
}

// num is a scalar of the type that is computed in.
//
//go:noinline
func (s *speller) num(v float64) string { return s.number(float32(v), s.d) }

// shaped reshapes a value to sizes that are vectors of the graph, joined in their order.
func (s *speller) shaped(v string, parts ...string) string {
	return s.bi("Reshape", v, s.opInt("Concat", parts, "axis", 0))
}

// spellSwish: x σ(αx), times b where a second operand gates. QuickGelu is the same function with
// another default of alpha, 1.702.
func spellSwish(s *speller) []string {
	x := s.node.Input(0)
	scaled := x
	if a := s.attrs.Float("alpha"); a != 1 {
		scaled = s.mul(x, s.num(float64(a)))
	}
	y := s.mul(x, s.un("Sigmoid", scaled))
	if b := s.node.Input(1); b != "" {
		y = s.mul(y, b)
	}
	return []string{y}
}

// spellCausalConv: a convolution of each channel with its own kernel of k positions, over the last
// k - 1 positions of the past and the input. x is [N, C, L], the weight [C, 1, k] and the past [N,
// C, k-1], zeros where it is left out. The second output is the last k - 1 positions, which the
// next call takes as its past.
func spellCausalConv(s *speller) []string {
	x, w := s.node.Input(0), s.node.Input(1)
	shape := s.Shape(w)
	if len(shape) != 3 || !shape[0].IsKnown() || !shape[2].IsKnown() {
		try.Fail("the shape of its weight is not known")
	}
	past := s.node.Input(3)
	if past == "" {
		zero := try.Get(onnx.Zeros(s.d, 1))
		past = s.op("ConstantOfShape",
			[]string{s.op("Concat", []string{s.dims(x, 0, 2), s.ints(int64(shape[2].Size - 1))},
				onnx.IntAttr("axis", 0))}, onnx.TensorAttr("value", zero))
	}
	whole := s.opInt("Concat", []string{past, x}, "axis", 2)
	y := s.opInt("Conv", without(whole, w, s.node.Input(2)), "group", shape[0].Size)
	if s.attrs.Str("activation") != "none" { // silu and swish are the same
		y = s.mul(y, s.un("Sigmoid", y))
	}
	state := s.op("Slice", []string{whole, s.op("Shape", []string{x}, onnx.IntAttr("start", 2)),
		s.ints(math.MaxInt64), s.ints(2)})
	return []string{y, state}
}

// lastAxes are the axes of x from a on: a list where a counts from the end, else a range up to the
// rank. a is among them whatever the rank is, so that the node which takes them checks it.
func (s *speller) lastAxes(x string, a int) string {
	if a < -onnx.MaxRank || a >= onnx.MaxRank {
		try.Fail("axis %d; no value has more than %d axes", a, onnx.MaxRank)
	}
	if a < 0 {
		var axes []int64
		for ; a < 0; a++ {
			axes = append(axes, int64(a))
		}
		return s.ints(axes...)
	}
	rest := s.span(a+1, s.un("Size", s.un("Shape", x)))
	return s.opInt("Concat", []string{s.ints(int64(a)), rest}, "axis", 0)
}

// overRoot is x over the root of a mean square.
func (s *speller) overRoot(x, mean string) string {
	return s.bi("Div", x, s.un("Sqrt", s.add(mean, s.num(float64(s.attrs.Float("epsilon"))))))
}

// spellRMSNormalization: x / sqrt(mean x² + ε) · scale over the axes from axis on (Zhang and
// Sennrich 2019). Unlike layer normalisation it subtracts no mean and adds no bias.
func spellRMSNormalization(s *speller) []string {
	x := s.node.Input(0)
	axes := s.lastAxes(x, s.attrs.Int("axis"))
	y := s.overRoot(x, s.bi("ReduceMean", s.mul(x, x), axes))
	return []string{s.mul(y, s.node.Input(1))}
}

// spellRotaryEmbedding turns pairs of features by angles of their positions (Su et al., arXiv
// 2104.09864): [B, H, S, D], or [B, S, H·D].
func spellRotaryEmbedding(s *speller) []string {
	x, heads := s.node.Input(0), s.attrs.Int("num_heads")
	half := []string{s.node.Input(1), s.node.Input(2)} // [B, S, D/2]
	for i, cache := range half {
		if p := s.node.Input(3); p != "" {
			cache = s.bi("Gather", cache, p)
		}
		half[i] = s.bi("Unsqueeze", cache, s.ints(1))
	}
	if heads > 0 {
		x = s.splitHeads(x, heads)
	}
	rest, dim := "", s.attrs.Int("rotary_embedding_dim")
	if dim > 0 {
		rest = s.op("Slice", []string{x, s.ints(int64(dim)), s.ints(math.MaxInt64), s.ints(-1)})
		x = s.op("Slice", []string{x, s.ints(0), s.ints(int64(dim)), s.ints(-1)})
	}
	// The pairs stand beside each other on an axis of their own: [..., D/2, 2] interleaved, else
	// [..., 2, D/2].
	axis, pairs := -2, []int64{0, 0, 0, 2, -1}
	if s.attrs.Bool("interleaved") {
		axis, pairs = -1, []int64{0, 0, 0, -1, 2}
	}
	apart := s.bi("Reshape", x, s.ints(pairs...))
	part := func(i int64) string {
		return s.opInt("Gather", []string{apart, s.constant(onnx.Scalar(i))},
			"axis", axis)
	}
	re, im := part(0), part(1)
	turned := []string{
		s.bi("Sub", s.mul(half[0], re), s.mul(half[1], im)),
		s.add(s.mul(half[1], re), s.mul(half[0], im)),
	}
	for i, v := range turned {
		turned[i] = s.bi("Unsqueeze", v, s.ints(int64(axis)))
	}
	y := s.bi("Reshape", s.opInt("Concat", turned, "axis", axis), s.un("Shape", x))
	if rest != "" {
		y = s.opInt("Concat", []string{y, rest}, "axis", -1)
	}
	if heads > 0 {
		y = s.joinHeads(y)
	}
	return []string{y}
}

// splitHeads: [B, S, H·D] to [B, H, S, D].
func (s *speller) splitHeads(x string, heads int) string {
	return s.op("Transpose", []string{s.bi("Reshape", x, s.ints(0, 0, int64(heads), -1))},
		onnx.IntsAttr("perm", 0, 2, 1, 3))
}

// joinHeads undoes splitHeads.
func (s *speller) joinHeads(x string) string {
	return s.bi("Reshape", s.op("Transpose", []string{x}, onnx.IntsAttr("perm", 0, 2, 1, 3)),
		s.ints(0, 0, -1))
}

// spellGelu: x Φ(x), or by tanh for FastGelu; a second input is a bias. Φ(x) is (1 + erf(x/√2))/2,
// and by tanh (1 + tanh(√(2/π) (x + 0.044715 x³)))/2.
func spellGelu(s *speller) []string {
	x := s.node.Input(0)
	if b := s.node.Input(1); b != "" {
		x = s.add(x, b)
	}
	inner := s.un("Erf", s.mul(x, s.num(math.Sqrt2/2)))
	if s.node.Op == "FastGelu" {
		cube := s.mul(s.mul(x, x), x)
		inner = s.un("Tanh", s.mul(s.add(x, s.mul(cube, s.num(0.044715))), s.num(math.Sqrt(2/math.Pi))))
	}
	return []string{s.mul(s.mul(x, s.num(.5)), s.add(inner, s.num(1)))}
}

// spellFusedMatMul: α A' B'; a vector is not turned.
func spellFusedMatMul(s *speller) []string {
	if s.attrs.Bool("transBatchA") || s.attrs.Bool("transBatchB") {
		try.Fail("transBatchA and transBatchB are not supported")
	}
	in := []string{s.node.Input(0), s.node.Input(1)}
	for i, name := range []string{"transA", "transB"} {
		if !s.attrs.Bool(name) {
			continue
		}
		rank := len(s.Shape(in[i]))
		if rank == 1 {
			continue
		}
		if rank == 0 {
			try.Fail("%s is set and the rank of input %d is not known", name, i)
		}
		perm := make([]int, rank)
		for k := range perm {
			perm[k] = k
		}
		perm[rank-1], perm[rank-2] = rank-2, rank-1
		in[i] = s.op("Transpose", []string{in[i]}, onnx.IntsAttr("perm", perm...))
	}
	y := s.op("MatMul", in)
	if a := s.attrs.Float("alpha"); a != 1 {
		y = s.mul(y, s.num(float64(a)))
	}
	return []string{y}
}

// spellSkipNormalization: a normalisation over the last axis of input + skip (+ bias); the sum is
// the fourth output. Mean and inverse deviation, the outputs between, are not made.
func spellSkipNormalization(s *speller) []string {
	simple := strings.Contains(s.node.Op, "Simplified")
	bias := 4
	if simple {
		bias = 3
	}
	sum := s.add(s.node.Input(0), s.node.Input(1))
	if b := s.node.Input(bias); b != "" {
		sum = s.add(sum, b)
	}
	centred := sum
	if !simple {
		centred = s.bi("Sub", sum, s.last("ReduceMean", sum))
	}
	y := s.mul(s.overRoot(centred, s.last("ReduceMean", s.mul(centred, centred))), s.node.Input(2))
	if beta := s.node.Input(3); beta != "" && !simple {
		y = s.add(y, beta)
	}
	return []string{y, "", "", sum}
}

package spell

import (
	"math"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// spellAttention: softmax(scale Q Kᵀ + bias) V over heads (Vaswani et al. 2017), where several
// heads of Q may share one of K and V (Ainslie et al. 2023). Q is [B, Hq, S, D], K and V [B, H, T,
// ·], or both [B, S, H·D] with the numbers of heads as attributes. A row whose bias is -inf
// throughout gives zeros.
func spellAttention(s *speller) []string {
	qHeads, heads := s.attrs.Int("q_num_heads"), s.attrs.Int("kv_num_heads")
	q, k, v := s.node.Input(0), s.node.Input(1), s.node.Input(2)
	flat := qHeads > 0
	if flat != (heads > 0) || flat && qHeads%heads != 0 {
		try.Fail("q_num_heads is %d and kv_num_heads %d; both or none are given, and the "+
			"first is a multiple of the second", qHeads, heads)
	}
	if flat {
		q, k, v = s.splitHeads(q, qHeads), s.splitHeads(k, heads), s.splitHeads(v, heads)
	}
	// The past stands before the new keys and values along the sequence, [B, H, past, ·].
	if past := s.node.Input(4); past != "" {
		k = s.opInt("Concat", []string{past, k}, "axis", 2)
		v = s.opInt("Concat", []string{s.node.Input(5), v}, "axis", 2)
	}
	a := &attention{speller: s, shared: !flat || qHeads != heads, q: q, k: k, v: v}
	a.sizeQ, a.sizeK = s.pick(s.un("Shape", q), 2), s.pick(s.un("Shape", k), 2)
	raw := a.scores()
	logits := raw
	// c tanh(scores / c) holds the scores within ±c.
	if c := s.attrs.Float("softcap"); c > 0 {
		logits = s.mul(s.un("Tanh", s.bi("Div", raw, s.num(float64(c)))), s.num(float64(c)))
	}
	capped := logits
	bias, mayBeEmpty := a.bias()
	empty := ""
	if bias != "" {
		if mayBeEmpty {
			// Such a row is left without a bias before, so that nothing in it is NaN, and is
			// cleared after. Less than the least finite float32 is -inf alone.
			most := s.last("ReduceMax", bias)
			empty = s.bi("Less", most, s.num(-math.MaxFloat32))
			bias = s.op("Where", []string{empty, s.num(0), bias})
		}
		logits = s.add(logits, bias)
	}
	p := s.softmax(logits)
	if empty != "" {
		p = s.op("Where", []string{empty, s.num(0), p})
	}
	y := a.mix(p)
	if flat {
		y = s.joinHeads(y)
	}
	biased := logits
	if empty != "" { // the raw product with its bias is asked for
		biased = s.op("Where", []string{empty, s.num(math.Inf(-1)), logits})
	}
	shown := map[int]string{0: raw, 1: capped, 2: biased, 3: p}[s.attrs.Int("qk_matmul_output_mode")]
	return []string{y, k, v, shown}
}

// attention is one that is being spelt out.
type attention struct {
	*speller
	shared       bool // heads of q may share one of k
	q, k, v      string
	sizeQ, sizeK string // scalars: S and T
}

// grouped reshapes [B, Hq, S, ·] to [B, H, Hq/H, S, ·] where heads are shared. A head of K then
// serves its group by broadcasting, and is not copied.
func (a *attention) grouped(x string) string {
	if !a.shared {
		return x
	}
	return a.shaped(x, a.dims(a.k, 0, 2), a.ints(-1), a.dims(x, 2, 4))
}

// ungrouped undoes it.
func (a *attention) ungrouped(x string) string {
	if !a.shared {
		return x
	}
	return a.shaped(x, a.dims(a.q, 0, 3), a.ints(-1))
}

// one puts an axis of one before the sequence of k or v where heads are shared.
func (a *attention) one(x string) string {
	if !a.shared {
		return x
	}
	return a.bi("Unsqueeze", x, a.ints(2))
}

// scores: scale Q Kᵀ, [B, Hq, S, T]. The queries are scaled and not the scores, which are S T in
// number where the queries are S D. The scale is 1/√D where none is given.
func (a *attention) scores() string {
	var scale string
	if a.attrs.Has("scale") {
		scale = a.num(float64(a.attrs.Float("scale")))
	} else {
		size := a.opInt("Cast", []string{a.pick(a.un("Shape", a.q), 3)}, "to", int(a.d))
		scale = a.un("Reciprocal", a.un("Sqrt", size))
	}
	transposed := a.op("Transpose", []string{a.k}, onnx.IntsAttr("perm", 0, 1, 3, 2))
	return a.ungrouped(a.bi("MatMul", a.grouped(a.mul(a.q, scale)), a.one(transposed)))
}

// mix: the values in the shares p.
func (a *attention) mix(p string) string {
	return a.ungrouped(a.bi("MatMul", a.grouped(p), a.one(a.v)))
}

// bias is the addend of the scores, "" where nothing is, and whether all of a row can be -inf.
func (a *attention) bias() (bias string, mayBeEmpty bool) {
	never := a.num(math.Inf(-1))
	// A boolean mask is true where a key is seen; one of numbers is added as it is.
	if mask := a.node.Input(3); mask != "" {
		if a.Type(mask) == onnx.Bool {
			mask = a.op("Where", []string{mask, a.num(0), never})
		}
		// A mask may end before the keys do. Pads are 2 rank numbers: zeros, and the missing keys
		// behind the last axis.
		rank := a.un("Size", a.un("Shape", mask))
		before := a.op("ConstantOfShape",
			[]string{a.vector(a.bi("Sub", a.add(rank, rank), a.whole(1)))},
			onnx.TensorAttr("value", onnx.Vector[int64](0)))
		missing := a.bi("Sub", a.bi("Reshape", a.sizeK, a.ints(1)),
			a.bi("Gather", a.un("Shape", mask), a.ints(-1)))
		if !a.covers(mask) {
			mask = a.op("Pad", []string{mask,
				a.op("Concat", []string{before, missing}, onnx.IntAttr("axis", 0)), never})
		}
		bias, mayBeEmpty = mask, true
	}
	lengths := a.node.Input(6)
	// -1 is no bound on that side; a causal node sees no key behind the query's own place.
	left, right := -1, -1
	if a.attrs.Has("left_window_size") {
		left = a.attrs.Int("left_window_size")
	}
	if a.attrs.Has("right_window_size") {
		right = a.attrs.Int("right_window_size")
	}
	if a.attrs.Bool("is_causal") && (right < 0 || right > 0) {
		right = 0
	}
	keys := a.span(0, a.sizeK) // [T]
	allowed := ""
	allow := func(op, x, y string) {
		c := a.bi(op, x, y)
		if allowed != "" {
			c = a.bi("And", allowed, c)
		}
		allowed = c
	}
	perBatch := ""
	if lengths != "" {
		perBatch = a.bi("Reshape", lengths, a.ints(-1, 1, 1, 1))
		allow("Less", keys, perBatch)
		mayBeEmpty = true
	}
	if left >= 0 || right >= 0 {
		// [S, 1]
		at := a.bi("Unsqueeze", a.span(0, a.sizeQ), a.ints(-1))
		switch {
		// Queries stand behind the past, or at the end of each sequence where its length is given.
		case a.node.Input(4) != "":
			at = a.add(at, a.pick(a.un("Shape", a.node.Input(4)), 2))
		case perBatch != "":
			at = a.add(at, a.bi("Sub", perBatch, a.sizeQ))
		}
		if right >= 0 {
			allow("LessOrEqual", keys, a.add(at, a.whole(right)))
		}
		if left >= 0 {
			allow("GreaterOrEqual", keys, a.bi("Sub", at, a.whole(left)))
			mayBeEmpty = true
		}
	}
	if allowed != "" {
		only := a.op("Where", []string{allowed, a.num(0), never})
		if bias == "" {
			bias = only
		} else {
			bias = a.add(bias, only)
		}
	}
	return bias, mayBeEmpty
}

// covers reports whether a mask's last axis is known to be as long as the keys. It spares a Pad,
// whose size is worked out where the model runs.
func (a *attention) covers(mask string) bool {
	m, k := a.Shape(a.node.Input(3)), a.Shape(a.node.Input(1))
	if a.node.Input(4) != "" || len(m) == 0 || len(k) < 3 {
		return false
	}
	last, keys := m[len(m)-1], k[len(k)-2]
	return last == keys && (last.IsKnown() || last.Symbol != "")
}

// softmax over the last axis, in the type that the node asks for. A precision of halves is not
// taken, as it would only lose bits.
func (s *speller) softmax(x string) string {
	precision := s.attrs.DType("softmax_precision")
	cast := s.attrs.Has("softmax_precision") && precision != s.d && !isHalf(precision)
	if cast {
		x = s.opInt("Cast", []string{x}, "to", int(precision))
	}
	x = s.opInt("Softmax", []string{x}, "axis", -1)
	if cast {
		x = s.opInt("Cast", []string{x}, "to", int(s.d))
	}
	return x
}

// last reduces the last axis to one position; from operator set 18 on, its number is an input.
func (s *speller) last(op, x string) string {
	if s.Opset >= 18 {
		return s.bi(op, x, s.ints(-1))
	}
	return s.op(op, []string{x}, onnx.IntsAttr("axes", -1))
}

package models

import (
	"cmp"
	"math"
	"math/rand/v2"

	"fmp/onnx/build"
)

// residual selects the term that a block adds to its attention output.
type residual int

const (
	// residualQuery adds the query itself: the published block.
	residualQuery residual = iota
	// residualProjected adds a linear map of the query, which starts at zero on the first Keep
	// coordinates.
	residualProjected
	// residualNone adds nothing.
	residualNone
)

// block is the configuration of a multihead attention block (Lee et al. 2019, equations 6 and 7):
//
//	H   = N(R(Q) + Multihead(Q, K, K))
//	MAB = N(H + rFF(H))
//
// where Multihead concatenates, over heads j, softmax(beta Qj Kj^T / sqrt(d)) Vj with Qj = Q Wq_j,
// Kj = K Wk_j + bk_j, Vj = K Wv_j + bv_j, N is layer normalisation or the identity, R is chosen by
// Residual, and rFF is relu of a linear map, or with Hidden > 0 two linear maps with a relu between
// them.
//
// The published block has several heads, LayerNorm, Residual "query" and Project. The
// identity-initialised one has one head and Value "identity": its output starts as a convex
// combination of the points attended to.
type block struct {
	// Dim is the width d of queries, keys and output.
	Dim int
	// Heads is the number of attention heads; it must divide Dim.
	Heads     int
	LayerNorm bool // N is layer normalisation, otherwise the identity
	Residual  residual
	// Project multiplies the concatenated heads by an output matrix Wo (equation 4).
	Project bool
	// IdentityValue starts Wv as the identity and bv at zero, so that values are the points
	// themselves.
	IdentityValue bool
	// Keep is the number of leading coordinates on which a projected residual starts at zero.
	Keep int
	// Beta is the initial value of the learned factor on the logits; 0 omits the factor.
	Beta float32
	// Hidden is the hidden width of a two-layer feed-forward part, whose second layer starts at
	// zero; 0 means one layer.
	Hidden int

	// Initialisers that replace the defaults; nil keeps the default.
	query, key, keyBias, feed, project initial
}

// publishedBlock returns the block of Lee et al. 2019 of width d.
func publishedBlock(d, heads int) block {
	return block{Dim: d, Heads: heads, LayerNorm: true, Residual: residualQuery, Project: true}
}

// identityBlock returns the identity-initialised block of width d whose first keep coordinates
// start as a convex combination of the points attended to.
func identityBlock(d, keep int, beta float32) block {
	return block{Dim: d, Heads: 1, Residual: residualProjected, IdentityValue: true,
		Keep: keep, Beta: beta}
}

// fillWidth sets the heads and the width of blocks for points of dz numbers that are not given.
func fillWidth(heads, dim *int, published bool, dz int) {
	if *heads == 0 {
		*heads = 1
		if published {
			*heads = 4
		}
	}
	*dim = cmp.Or(*dim, (dz+64+*heads-1) / *heads * *heads)
}

// check reports whether the sizes are within their bounds, and fails the graph where they are not.
func (c block) check(b *build.Builder) bool {
	switch {
	case c.Dim < 1 || c.Dim > maxWidth:
		b.Fail("attention block of width %d; allowed are 1 to %d", c.Dim, maxWidth)
	case c.Heads < 1 || c.Dim%c.Heads != 0:
		b.Fail("attention block of width %d with %d heads; the number of heads must divide the "+
			"width", c.Dim, c.Heads)
	case c.Hidden < 0 || c.Hidden > maxWidth:
		b.Fail("attention block with %d hidden units; allowed are 0 to %d", c.Hidden, maxWidth)
	default:
		return true
	}
	return false
}

// orElse returns an initialiser, or another one where it is nil.
func orElse(init, otherwise initial) initial {
	if init != nil {
		return init
	}
	return otherwise
}

// MAB builds the block: q [batch or 1, nq, d] attends to k [batch or 1, nk, d]; the output is
// [batch, nq, d]. logWeight, where given, is [batch or 1, 1, nk] and is added to the logits of
// every query, so that a point of weight w counts as w points. The returned logits, [batch, heads,
// nq, nk] or, with one head, [batch, nq, nk], exclude logWeight.
func (c block) MAB(w layers, q, k, logWeight build.Ref) (out, logits build.Ref) {
	b, d := w.b, c.Dim
	if !c.check(b) {
		return q, q
	}
	value, valueBias := fanIn(d), fanIn(d)
	if c.IdentityValue {
		value, valueBias = eye(func(int) float32 { return 1 }), constant(0)
	}
	qs := w.Linear("q", q, d, d, orElse(c.query, fanIn(d)), nil)
	ks := w.Linear("k", k, d, d, orElse(c.key, fanIn(d)), orElse(c.keyBias, fanIn(d)))
	vs := w.Linear("v", k, d, d, value, valueBias)

	// The logits' scale is applied to the queries, the smallest of the operands.
	scale := b.F32(float32(1 / math.Sqrt(float64(d))))
	if c.Beta != 0 {
		scale = b.Mul(w.Param("beta", constant(c.Beta)), scale)
	}
	qs = b.Mul(qs, scale)

	axis := 2
	if c.Heads > 1 {
		split := func(x build.Ref, perm ...int) build.Ref {
			return b.Transpose(b.Reshape(x, 0, 0, c.Heads, d/c.Heads), perm...)
		}
		qs, vs = split(qs, 0, 2, 1, 3), split(vs, 0, 2, 1, 3)
		logits = b.MatMul(qs, split(ks, 0, 2, 3, 1))
		axis = 3
		if logWeight != "" {
			logWeight = b.Unsqueeze(logWeight, 1)
		}
	} else {
		logits = b.MatMul(qs, b.Transpose(ks, 0, 2, 1))
	}
	weighted := logits
	if logWeight != "" {
		weighted = b.Add(logits, logWeight)
	}
	h := b.MatMul(b.Softmax(weighted, axis), vs)
	if c.Heads > 1 {
		h = b.Reshape(b.Transpose(h, 0, 2, 1, 3), 0, 0, d)
	}
	if c.Project {
		h = w.Linear("project", h, d, d, orElse(c.project, fanIn(d)), nil)
	}
	switch c.Residual {
	case residualQuery:
		h = b.Add(q, h)
	case residualProjected:
		h = b.Add(w.Linear("r", q, d, d, zeroColumns(multiplied(fanIn(d), 0.1), c.Keep), nil), h)
	}
	if c.LayerNorm {
		h = w.LayerNorm("norm0", h, d)
	}
	out = b.Add(h, c.rowFeedForward(w, h))
	if c.LayerNorm {
		out = w.LayerNorm("norm1", out, d)
	}
	return out, logits
}

// rowFeedForward is the rFF of the block: the same small network on every row.
func (c block) rowFeedForward(w layers, h build.Ref) build.Ref {
	weight, bias := orElse(c.feed, fanIn(c.Dim)), fanIn(c.Dim)
	if c.IdentityValue {
		weight, bias = orElse(c.feed, multiplied(fanIn(c.Dim), 0.1)), constant(0)
	}
	if c.Hidden == 0 {
		return w.b.Relu(w.Linear("o", h, c.Dim, c.Dim, weight, bias))
	}
	h = w.b.Relu(w.Linear("o0", h, c.Dim, c.Hidden, fanIn(c.Dim), fanIn(c.Dim)))
	return w.Linear("o1", h, c.Hidden, c.Dim, constant(0), constant(0))
}

// zeroColumns returns init with the first n output coordinates set to zero.
func zeroColumns(init initial, n int) initial {
	return func(r *rand.Rand, t []float32, shape []int) {
		init(r, t, shape)
		for i := range shape[0] {
			for j := range min(n, shape[1]) {
				t[i*shape[1]+j] = 0
			}
		}
	}
}

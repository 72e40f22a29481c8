package spell

import (
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// spellLinearAttention is a Scan over the steps of a sequence, whose state S is [B, H, Dk, Dv]
// (Katharopoulos et al. 2020, arXiv:2006.16236, equations 18 to 20; Yang et al. 2024,
// arXiv:2412.06464, equation 10). Each line is for the rules behind it:
//
//	S = exp(decay) S                     gated, gated_delta
//	v = beta (v - Sᵀk)                   delta, gated_delta
//	S = S + k vᵀ;  output = scale Sᵀq    all
//
// Queries are [B, T, Hq·Dk], keys and values [B, T, H·D]; Hq/H heads of queries read one state. The
// state in and out is the whole of the past, so that a step costs the same at any length. A scale
// of 0 stands for 1/√Dk.
func spellLinearAttention(s *speller) []string {
	rule, qHeads, heads := s.attrs.Str("update_rule"), s.attrs.Int("q_num_heads"),
		s.attrs.Int("kv_num_heads")
	gated, delta := rule == "gated" || rule == "gated_delta", rule == "delta" ||
		rule == "gated_delta"
	decay, beta := s.node.Input(4), s.node.Input(5)
	if heads < 1 || qHeads < 1 || qHeads%heads != 0 {
		try.Fail("q_num_heads is %d and kv_num_heads %d; the first is a multiple of the second",
			qHeads, heads)
	}
	try.Do(op.LinearAttention(s.node))
	q, k, v := s.node.Input(0), s.node.Input(1), s.node.Input(2)
	count, per := s.ints(int64(qHeads)), s.ints(int64(heads))
	dk := s.div(s.dims(q, 2, 3), count)
	scale := s.num(float64(s.attrs.Float("scale")))
	if s.attrs.Float("scale") == 0 {
		scale = s.un("Reciprocal", s.un("Sqrt", s.real(dk)))
	}
	q = s.mul(q, scale)
	state := s.node.Input(3)
	if state == "" {
		zero := try.Get(onnx.Zeros(s.d, 1))
		shape := s.opInt("Concat", []string{s.dims(q, 0, 1), per, dk, s.div(s.dims(v, 2, 3), per)},
			"axis", 0)
		state = s.op("ConstantOfShape", []string{shape}, onnx.TensorAttr("value", zero))
	} else {
		// It may be of another type than the queries; it is computed in theirs, and comes back in
		// its own.
		s.state = s.Type(state)
		if held, ok := s.halves[state]; ok {
			s.state = s.Type(held)
		} else if s.state != s.d && s.state != onnx.Undefined {
			state = s.real(state)
		}
	}
	inputs := slices.DeleteFunc([]string{q, k, v, decay, beta}, func(v string) bool { return v == "" })
	body := s.linearStep(inputs, heads, gated, delta)
	y, last := s.fresh(s.base+"/scan"), s.fresh(s.base+"/state")
	axes := slices.Repeat([]int{1}, len(inputs))
	s.nodes = append(s.nodes,
		&onnx.Node{Name: y, Op: "Scan", Inputs: append([]string{state}, inputs...),
			Outputs: []string{last, y},
			Attrs: []onnx.Attr{{Name: "body", Kind: onnx.AttrGraph, Graph: body},
				onnx.IntAttr("num_scan_inputs", len(inputs)), onnx.IntsAttr("scan_input_axes", axes...),
				onnx.IntsAttr("scan_output_axes", 1)}})
	return []string{y, last}
}

// linearStep is the graph of one step: the state, and rows [B, ·] of query, key, value, and of
// decay and beta where there are any. Within it q is [B, H, Hq/H, Dk], k [B, H, 1, Dk] and v [B, H,
// 1, Dv]. Names of its values are made by the graph around it, so that none hides another.
func (s *speller) linearStep(inputs []string, heads int, gated, delta bool) *onnx.Graph {
	e := &speller{emit: emit{fresh: s.fresh, base: s.base + "/step"}, Around: s.Around,
		attrs: s.attrs, d: s.d}
	g := &onnx.Graph{Name: s.base + "/step", Initializers: map[string]*onnx.Tensor{}}
	take := func(base string, rank int) string {
		name := s.fresh(s.base + "/" + base)
		g.Inputs = append(g.Inputs,
			onnx.ValueInfo{Name: name, DType: s.d,
				Shape: slices.Repeat([]onnx.Dim{onnx.Symbolic("")}, rank)})
		return name
	}
	state := take("in", 4)
	rows := make([]string, len(inputs))
	for i := range rows {
		rows[i] = take("row", 2)
	}
	shaped := func(v string, shape ...int64) string {
		return e.bi("Reshape", v, e.ints(shape...))
	}
	q, k, v := shaped(rows[0], 0, int64(heads), int64(s.attrs.Int("q_num_heads")/heads), -1),
		shaped(rows[1], 0, int64(heads), 1, -1),
		shaped(rows[2], 0, int64(heads), 1, -1)
	if gated { // one number for a head, or one for each of its keys
		state = e.mul(state, e.un("Exp", shaped(rows[3], 0, int64(heads), -1, 1)))
	}
	if delta {
		v = e.mul(shaped(rows[len(rows)-1], 0, -1, 1, 1), e.sub(v, e.bi("MatMul", k, state)))
	}
	state = e.add(state, e.mul(e.op("Transpose", []string{k}, onnx.IntsAttr("perm", 0, 1, 3, 2)), v))
	y := shaped(e.bi("MatMul", q, state), 0, -1)
	g.Nodes = e.nodes
	g.Outputs = []onnx.ValueInfo{{Name: state, DType: s.d, Shape: slices.Repeat([]onnx.Dim{onnx.Symbolic("")}, 4)},
		{Name: y, DType: s.d, Shape: slices.Repeat([]onnx.Dim{onnx.Symbolic("")}, 2)}}
	return g
}

// spellAffineGrid: positions (x, y) or (x, y, z) in -1..1 of the pixels of an image of size [n, c,
// (d,) h, w], times theta [n, r, r + 1] (Jaderberg et al. 2015, arXiv:1506.02025, equation 1).
// Pixel i of s stands at 2i/(s - 1) - 1 where corners are aligned, else at (2i + 1)/s - 1; the only
// pixel of an axis stands at -1 where they are. The result is [n, (d,) h, w, r], with x first among
// its r coordinates.
func spellAffineGrid(s *speller) []string {
	theta, size := s.node.Input(0), s.node.Input(1)
	space := s.op("Slice", []string{size, s.ints(2), s.ints(math.MaxInt64), s.ints(0)})
	lengths := s.bi("Unsqueeze", s.real(space), s.ints(1))
	// The indices of all pixels, [r, d·h·w].
	at := s.real(s.un("NonZero",
		s.op("ConstantOfShape", []string{space}, onnx.TensorAttr("value", onnx.Vector[int64](1)))))
	at = s.add(at, at)
	if s.attrs.Bool("align_corners") {
		at = s.div(at, s.bi("Max", s.sub(lengths, s.num(1)), s.num(1)))
	} else {
		at = s.div(s.add(at, s.num(1)), lengths)
	}
	at = s.sub(at, s.num(1))
	one := s.bi("Expand", s.num(1), s.opInt("Concat", []string{s.ints(1), s.dims(at, 1, 2)}, "axis", 0))
	last := s.op("Slice", []string{at, s.ints(-1), s.ints(math.MinInt64), s.ints(0), s.ints(-1)}) // x first
	y := s.bi("MatMul", theta, s.opInt("Concat", []string{last, one}, "axis", 0))
	y = s.op("Transpose", []string{y}, onnx.IntsAttr("perm", 0, 2, 1))
	return []string{s.shaped(y, s.dims(theta, 0, 1), space, s.dims(theta, 1, 2))}
}

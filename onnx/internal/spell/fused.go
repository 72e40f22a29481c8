package spell

import (
	"math"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// fusable are the activations that the runtime fuses; parameters are their alpha, then their beta.
const fusable = "Elu HardSigmoid LeakyRelu Relu Sigmoid Softplus Softsign Tanh ThresholdedRelu"

// activated is an activation of y by the name and the parameters that the node gives it. Parameters
// that the activation has no use for are left unread.
func (s *speller) activated(y string, params []float32) []string {
	name := s.attrs.Str("activation")
	switch {
	case name == "":
		return []string{y}
	case name == "Clip" && len(params) == 2:
		return []string{s.op("Clip", []string{y, s.num(float64(params[0])), s.num(float64(params[1]))})}
	case !slices.Contains(strings.Fields(fusable), name):
		try.Fail("activation %q with %d parameters is not supported", name, len(params))
	}
	var attrs []onnx.Attr
	for i, of := range []string{"alpha", "beta"} {
		if op.Last("", name, s.Opset).Attr(of) != nil && i < len(params) {
			attrs = append(attrs, onnx.FloatAttr(of, params[i]))
		}
	}
	return []string{s.op(name, []string{y}, attrs...)}
}

// spellFusedGemm: an activation of alpha A'B' + beta C. activation_gamma is dropped, which no
// supported activation has.
func spellFusedGemm(s *speller) []string {
	y := s.op("Gemm", s.node.Inputs,
		s.attributes("activation", "activation_alpha", "activation_beta", "activation_gamma")...)
	if s.attrs.Has("activation_beta") && !s.attrs.Has("activation_alpha") {
		try.Fail("activation_beta without activation_alpha is not supported; give both")
	}
	var params []float32
	for _, name := range []string{"activation_alpha", "activation_beta"} {
		if s.attrs.Has(name) {
			params = append(params, s.attrs.Float(name))
		}
	}
	return s.activated(y, params)
}

// spellFusedConv: an activation of a convolution plus Z. Z is of the result's shape and is added
// before the activation.
func spellFusedConv(s *speller) []string {
	in := s.node.Inputs[:min(len(s.node.Inputs), 3)]
	y := s.op("Conv", without(in...), s.attributes("activation", "activation_params")...)
	if z := s.node.Input(3); z != "" {
		y = s.add(y, z)
	}
	return s.activated(y, s.attrs.Floats("activation_params"))
}

// spellMultiHead: attention of flat queries, keys and values, [B, S, H·D] and [B, T, H·D], with a
// bias of all three, [3 H·D]. Past keys and packed tensors are refused by name.
func spellMultiHead(s *speller) []string {
	s.without("past_key", 6)
	qkv := []string{s.node.Input(0), s.node.Input(1), s.node.Input(2)}
	if slices.Contains(qkv, "") {
		try.Fail("queries, keys and values in one tensor are not supported")
	}
	for i, v := range qkv {
		if r := len(s.Shape(v)); r != 0 && r != 3 {
			try.Fail("input %d of rank %d is not supported; give queries, keys and values of rank 3", i, r)
		}
	}
	if bias := s.node.Input(3); bias != "" {
		sizes := make([]string, 3) // widths of the three, [1]
		for i, v := range qkv {
			sizes[i] = s.bi("Gather", s.un("Shape", v), s.ints(2))
		}
		qkv = s.addParts(qkv, bias, sizes)
	}
	return s.heads(qkv, s.masked(s.node.Input(4), s.node.Input(5), qkv, false))
}

// addParts adds to each value its part of a vector, which holds them all one after another.
func (s *speller) addParts(values []string, vector string, sizes []string) []string {
	out, from := make([]string, len(values)), s.ints(0)
	for i, v := range values {
		to := s.add(from, sizes[i])
		out[i] = s.add(v, s.op("Slice", []string{vector, from, to, s.ints(0)}))
		from = to
	}
	return out
}

// spellPackedAttention: attention of one input, whose queries, keys and values are its products
// with the columns of one matrix, plus a bias. The input is [B, S, I] and the matrix [I, sum of the
// three widths].
func spellPackedAttention(s *speller) []string {
	s.without("past", 4)
	if s.attrs.Bool("do_rotary") {
		try.Fail("do_rotary is not supported")
	}
	all := s.bi("MatMul", s.node.Input(0), s.node.Input(1))
	if bias := s.node.Input(2); bias != "" {
		all = s.add(all, bias)
	}
	sizes := s.attrs.Ints("qkv_hidden_sizes")
	var widths string // of the three, which Split holds against that of all
	switch {
	case len(sizes) == 0: // a third each
		widths = s.bi("Div", s.bi("Gather", s.un("Shape", all), s.ints(2, 2, 2)), s.ints(3))
	case len(sizes) != 3 || slices.Min(sizes) < 1:
		try.Fail("qkv_hidden_sizes is %v; want 3 numbers of 1 or more", sizes)
	default:
		widths = s.ints(int64s(sizes)...)
	}
	qkv := []string{s.fresh(s.base + "/q"), s.fresh(s.base + "/k"), s.fresh(s.base + "/v")}
	s.nodes = append(s.nodes, &onnx.Node{Name: qkv[0], Op: "Split", Inputs: []string{all, widths},
		Outputs: qkv, Attrs: []onnx.Attr{onnx.IntAttr("axis", 2)}})
	return s.heads(qkv, s.masked(s.node.Input(3), s.node.Input(5), qkv, true))
}

// masked adds to a bias of scores, which may be none, a finite number for each key that a mask of whole
// numbers does not let be seen, by numbers up to 0. The mask is [B, T], [B, S, T] or [B, 1, S, T]; where
// none may be given by one of [1, 1] or [B, 1], that one hides nothing. The bias ends in T numbers.
func (s *speller) masked(mask, bias string, qkv []string, none bool) string {
	q, k := qkv[0], qkv[1]
	batch, keys := s.dims(q, 0, 1), s.dims(k, 1, 2)
	if bias != "" {
		bias = s.sized(bias, -1, keys)
	}
	if mask == "" {
		return bias
	}
	base := s.base
	defer func() { s.base = base }()
	s.base += "/mask of [batch, keys] or [batch, queries, keys]" // which errors of the run then name
	if len(s.Shape(mask)) == 1 {
		try.Fail("a mask of one axis, of lengths or positions, is not supported")
	}
	seen := s.bi("Greater", s.opInt("Cast", []string{mask}, "to", int(onnx.Int64)), s.whole(0))
	// The runtime's own default; a finite number leaves a row without a seen key the softmax of its
	// scores.
	filter := float32(-10000)
	if s.attrs.Has("mask_filter_value") {
		filter = s.attrs.Float("mask_filter_value")
	}
	added := s.op("Where", []string{seen, s.num(0), s.num(float64(filter))})
	one := s.ints(1)
	pair := s.bi("Equal", s.un("Shape", s.un("Shape", mask)), s.ints(2)) // is it of two axes?
	if none {
		hidesNothing := s.bi("And", pair, s.bi("Equal", s.dims(mask, -1, math.MaxInt32), one))
		all := s.opInt("Concat", []string{batch, keys}, "axis", 0)
		added = s.op("Where", []string{hidesNothing, s.num(0), added})
		added = s.bi("Expand", added, s.op("Where", []string{hidesNothing, all, one}))
	}
	// With these two sizes, the one between is right where the number of elements is.
	added = s.sized(s.sized(added, 0, batch), -1, keys)
	added = s.shaped(added, batch, one, s.op("Where", []string{pair, one, s.dims(q, 1, 2)}), keys)
	if bias == "" {
		return added
	}
	return s.add(bias, added)
}

// sized is a value, which ends the run where an axis is not of a size, [1]. A Split into one part
// moves nothing, and its sizes must add up to the axis.
func (s *speller) sized(v string, axis int, size string) string {
	return s.opInt("Split", []string{v, size}, "axis", axis)
}

// without refuses a node that has an input which is not supported.
func (s *speller) without(name string, input int) {
	if s.node.Input(input) != "" {
		try.Fail("%s is not supported", name)
	}
}

// heads is attention over num_heads heads, and a bias of its scores, as the standard's operator has
// it.
func (s *speller) heads(qkv []string, bias string) []string {
	if n := s.attrs.Int("num_heads"); n < 1 { // which the standard's reads as none given
		try.Fail("num_heads is %d; want 1 or more", n)
	}
	n := &onnx.Node{Op: "Attention", Inputs: append(qkv, bias)}
	for _, of := range [][2]string{{"q_num_heads", "num_heads"}, {"kv_num_heads", "num_heads"},
		{"is_causal", "unidirectional"}} {
		n.Attrs = append(n.Attrs, onnx.IntAttr(of[0], s.attrs.Int(of[1])))
	}
	if scale := s.attrs.Float("scale"); s.attrs.Has("scale") && scale != 0 {
		n.Attrs = append(n.Attrs, onnx.FloatAttr("scale", scale))
	}
	// The copy appends to the nodes written so far, which go back to s at the end.
	standard := *s
	standard.node, standard.attrs = n, op.Attrs(n, attentionOpset)
	out := spellAttention(&standard)
	s.nodes = standard.nodes
	return out[:1]
}

// attentionOpset has the standard's attention.
const attentionOpset = 23

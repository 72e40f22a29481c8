package spell

import (
	"strings"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// dequantized is input i with its scale and zero point in the two inputs after it, in float32. A
// vector of scales has one for each position of axis 1. x = (q - zero point) scale; a zero point
// that is left out is 0.
func (s *speller) dequantized(i int, attrs ...onnx.Attr) string {
	return s.op("DequantizeLinear",
		without(s.node.Input(i), s.node.Input(i+1), s.node.Input(i+2)), attrs...)
}

// quantized quantises a result with the scale and zero point of inputs i and i + 1. QuantizeLinear
// without a zero point gives uint8, whichever type the node's own output has.
func (s *speller) quantized(v string, i int) []string {
	if s.node.Input(i+1) == "" && s.d != onnx.Uint8 {
		try.Fail("its output's zero point is left out, which is supported for uint8")
	}
	return []string{s.op("QuantizeLinear", without(v, s.node.Input(i), s.node.Input(i+1)))}
}

// without leaves out an empty name at the end.
func without(names ...string) []string {
	if names[len(names)-1] == "" {
		return names[:len(names)-1]
	}
	return names
}

// attributes are the node's own but for those named.
func (s *speller) attributes(except ...string) []onnx.Attr {
	var out []onnx.Attr
next:
	for _, a := range s.node.Attrs {
		for _, name := range except {
			if a.Name == name {
				continue next
			}
		}
		out = append(out, a)
	}
	return out
}

// spellQuantizedPair: a sum or product of two quantised values, quantised again.
func spellQuantizedPair(s *speller) []string {
	op := strings.TrimPrefix(s.node.Op, "QLinear")
	return s.quantized(s.bi(op, s.dequantized(0), s.dequantized(3)), 6)
}

// spellQuantized: a function of one quantised value, quantised again.
func spellQuantized(s *speller) []string {
	if s.attrs.Bool("channels_last") {
		try.Fail("channels_last is not supported")
	}
	op := strings.TrimPrefix(s.node.Op, "QLinear")
	x := s.dequantized(0)
	return s.quantized(s.op(op, []string{x}, s.attributes("channels_last")...), 3)
}

// spellQuantizedSoftmax: before operator set 13 a softmax is over all axes from axis on, which is
// the last one of a matrix.
func spellQuantizedSoftmax(s *speller) []string {
	axis, x := s.attrs.Int("axis"), s.dequantized(0)
	if s.attrs.Int("opset") >= 13 {
		return s.quantized(s.opInt("Softmax", []string{x}, "axis", axis), 3)
	}
	y := s.softmax(s.opInt("Flatten", []string{x}, "axis", axis))
	return s.quantized(s.bi("Reshape", y, s.un("Shape", x)), 3)
}

// spellQuantizedConcat: values that each have a scale and zero point, under one of both.
func spellQuantizedConcat(s *speller) []string {
	if n := len(s.node.Inputs) - 2; n%3 != 0 {
		try.Fail("%d inputs after its scale and zero point; want three for each value", n)
	}
	var parts []string
	for i := 2; i < len(s.node.Inputs); i += 3 {
		parts = append(parts, s.dequantized(i))
	}
	return s.quantized(s.op("Concat", parts, s.attributes()...), 0)
}

// spellQuantizedWhere: the first value where the condition holds, else the second.
func spellQuantizedWhere(s *speller) []string {
	in := []string{s.node.Input(0), s.dequantized(1), s.dequantized(4)}
	return s.quantized(s.op("Where", in), 7)
}

// spellQuantizedGemm: alpha (A'B' + a_scale b_scale C) of int32 C, quantised again where the output
// has a scale. b_scale is one number, or one for each column of B'. Gemm multiplies A'B' by alpha
// and adds C as it is, so that alpha goes into the scale of C.
func spellQuantizedGemm(s *speller) []string {
	var axis []onnx.Attr
	if s.attrs.Bool("transB") {
		axis = append(axis, onnx.IntAttr("axis", 0))
	}
	in := []string{s.dequantized(0), s.dequantized(3, axis...)}
	if c := s.node.Input(6); c != "" {
		scale := s.mul(s.node.Input(1), s.node.Input(4))
		if alpha := s.attrs.Float("alpha"); alpha != 1 {
			scale = s.mul(scale, s.number(alpha, onnx.Float32))
		}
		in = append(in, s.mul(s.toFloat(c), scale))
	}
	y := s.op("Gemm", in, s.attributes()...)
	if s.node.Input(7) == "" {
		return []string{y}
	}
	return s.quantized(y, 7)
}

// toFloat is a value in float32.
func (s *speller) toFloat(v string) string {
	return s.opInt("Cast", []string{v}, "to", int(onnx.Float32))
}

// spellIntegerProduct: a_scale b_scale (A - a_zero)(B - b_zero) + bias, of integers; A is quantised
// here where the node is dynamic. The sum of products is exact in int32, and is scaled in float32
// after it.
func spellIntegerProduct(s *speller) []string {
	a, b := s.node.Input(0), s.node.Input(1)
	aScale, bScale, aZero, bZero, bias := s.node.Input(2), s.node.Input(3), s.node.Input(4),
		s.node.Input(5), s.node.Input(6)
	if s.node.Op == "DynamicQuantizeMatMul" {
		bScale, bZero, bias = s.node.Input(2), s.node.Input(3), s.node.Input(4)
		parts := []string{s.fresh(s.base + "/quantized"), s.fresh(s.base + "/scale"),
			s.fresh(s.base + "/zero")}
		s.nodes = append(s.nodes, &onnx.Node{Name: parts[0], Op: "DynamicQuantizeLinear",
			Inputs: []string{a}, Outputs: parts})
		a, aScale, aZero = parts[0], parts[1], parts[2]
	}
	if isHalf(s.Type(s.node.Input(2))) {
		try.Fail("scales of half precision are not supported")
	}
	product := s.toFloat(s.op("MatMulInteger", without(without(a, b, aZero, bZero)...)))
	y := s.mul(product, s.mul(aScale, bScale))
	if bias != "" {
		y = s.add(y, bias)
	}
	return []string{y}
}

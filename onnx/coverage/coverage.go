// Package coverage states the parts of each operator of the standard set that the packages have:
// its schema, shape rule, kernel of the pure engine (which folds constants as well) and gradient.
// Where one is missing, [Reasons] has the reason; a test holds the list against the registries.
package coverage

import (
	"fmt"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/grad"
	"fmp/onnx/internal/kernel"
	"fmp/onnx/internal/spell"
	"fmp/onnx/op"
	_ "fmp/onnx/rare" // its operators count
	"fmp/onnx/shape"
	_ "fmp/onnx/text" // and so do these
)

// Part names one part of an operator's implementation beside its schema.
type Part string

// The parts.
const (
	Shape    Part = "shape"    // a rule of package shape
	Kernel   Part = "kernel"   // an implementation of package kernel
	Gradient Part = "gradient" // a rule of package grad, or the knowledge that the gradient is zero
)

// Standard lists the standard operators that some operator set from [onnx.MinOpset] to
// [onnx.MaxOpset] has.
func Standard() []string {
	return slices.DeleteFunc(op.Names(""), func(name string) bool {
		for v := onnx.MinOpset; v <= onnx.MaxOpset; v++ {
			if s := op.Lookup("", name, v); s != nil && !s.Deprecated {
				return false
			}
		}
		return true
	})
}

// Has reports whether an operator has a part.
func Has(name string, part Part) bool {
	switch part {
	case Shape:
		return shape.HasRule(name)
	case Kernel:
		return kernel.Opsets(name) != "" || spelt(name)
	}
	return slices.Contains(grad.Operators(), name) || grad.IsConstant(name) ||
		spell.HasSpelling(&onnx.Node{Op: name})
}

// spelt reports whether the pure engine and the gradient spell an operator out in others.
func spelt(name string) bool { return spell.IsSpelt(&onnx.Node{Op: name}) }

const (
	sequences = "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt " +
		"SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap " +
		"SplitToSequence"
	texts    = "RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer"
	random   = "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"
	integers = "BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor ConvInteger MatMulInteger " +
		"QLinearConv QLinearMatMul"
)

// missing holds every gap with its reason.
var missing = []struct {
	part      Part
	operators string
	why       string
}{
	{Shape, sequences, "sequences and optionals are not held: a model with one is refused when it is read"},
	{Shape, texts, "text; the file's own word on the result is taken"},
	{Shape, "Attention BitCast CausalConvWithState ImageDecoder LinearAttention RotaryEmbedding " +
		"SwiGLU Swish", "no rule yet; the file's own word on the result is taken"},

	{Kernel, sequences, "sequences and optionals are not held: a model with one is refused when " +
		"it is read"},
	{Kernel, random, "draws at random: no two runs, and no two engines, agree"},
	{Kernel, "ImageDecoder MaxRoiPool", "no kernel yet; engine ort runs it"},

	{Gradient, sequences, "sequences and optionals are not held: a model with one is refused " +
		"when it is read"},
	{Gradient, texts, "text has no gradient"},
	{Gradient, integers, "its values are integers"},
	{Gradient, "DequantizeLinear DynamicQuantizeLinear QuantizeLinear",
		"quantised values: differentiate the model before it is quantised"},
	{Gradient, "Scatter", "grad upgrades it to ScatterElements first, which has one"},
	{Gradient, "NonMaxSuppression Unique",
		"its result is a choice or an order of its inputs, and a loss does not pass through it"},
	{Gradient, "BitCast ImageDecoder MaxRoiPool", "no rule yet; grad names the node"},
}

// Cell describes an operator's part for a table: the operator sets of a kernel, "yes", "zero" for a
// gradient that is zero, or a dash where it is missing.
func Cell(name string, part Part) string {
	switch {
	case !Has(name, part):
		return "–"
	case part == Kernel && spelt(name):
		return fmt.Sprintf("%d-%d", max(onnx.MinOpset, op.Versions("", name)[0].Since),
			onnx.MaxOpset)
	case part == Kernel && name == "Scan": // that of operator set 8 is spelt out in those of 9
		return fmt.Sprintf("8-%d", onnx.MaxOpset)
	case part == Kernel:
		return kernel.Opsets(name)
	case part == Gradient && grad.IsConstant(name):
		return "zero"
	}
	return "yes"
}

// Reasons lists the missing parts and their reasons, as lines of Markdown.
func Reasons() []string {
	var lines []string
	for _, m := range missing {
		lines = append(lines, fmt.Sprintf("| %s | %s | %s |", m.part,
			strings.ReplaceAll(m.operators, " ", ", "), m.why))
	}
	return lines
}

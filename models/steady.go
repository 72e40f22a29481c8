package models

import (
	"fmt"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/shape"
)

// steady are the operators that may see the content of an image: the steps that their kernels make for an element are bounded alike for all
// values. Others are refused, among them Mod, whose loop is as long as the quotient has bits; TopK, Unique and NonMaxSuppression, which
// compare as long as values lie; Sin and Cos, which reduce large arguments by another road; and all that branch, loop or draw random
// numbers.
var steady = map[string]bool{}

func init() {
	for _, ops := range [][]string{
		// Sums of products, over extents that shapes give.
		{"Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "MatMul", "MatMulInteger", "QLinearMatMul", "Gemm", "Einsum", "Attention"},
		// Windows and sums over extents that shapes give; maxima compare every element once.
		{"AveragePool", "MaxPool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "ReduceSum", "ReduceMean", "ReduceMax",
			"ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ArgMax", "ArgMin", "CumSum",
			"BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization", "LRN",
			"LpNormalization", "MeanVarianceNormalization", "Softmax", "LogSoftmax"},
		// One element at a time: arithmetic of the processor, or polynomials of a fixed degree.
		{"Add", "Sub", "Mul", "Div", "Neg", "Abs", "Sign", "Sqrt", "Reciprocal", "Floor", "Ceil", "Round", "Min", "Max", "Sum", "Mean", "Exp",
			"Log", "Erf", "Tanh", "Relu", "LeakyRelu", "PRelu", "ThresholdedRelu", "Elu", "Selu", "Celu", "Clip", "Sigmoid",
			"HardSigmoid", "HardSwish", "Swish", "Mish", "Gelu", "Softplus", "Softsign", "Pow", "Equal", "Greater", "GreaterOrEqual", "Less",
			"LessOrEqual", "And", "Or", "Not", "Xor", "Where", "IsNaN", "IsInf", "Cast", "CastLike", "QuantizeLinear", "DequantizeLinear",
			"DynamicQuantizeLinear", "Dropout", "Identity"},
		// Copies, of elements at places that shapes or constants give.
		{"Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Split", "Slice", "Pad", "Expand", "Tile", "Gather",
			"GatherElements", "DepthToSpace", "SpaceToDepth", "Resize", "Upsample", "Trilu"},
		// As many steps as their constant lengths say.
		{"RNN", "GRU", "LSTM"},
		// Of shapes alone.
		{"Shape", "Size"},
	} {
		for _, o := range ops {
			steady[o] = true
		}
	}
}

// integral are operators whose time depends on values where these are whole numbers, since processors divide those by steps.
var integral = map[string]bool{"Div": true, "ReduceMean": true, "Mean": true, "Pow": true}

// constantFrom gives the inputs, by number, from which on operators take constants alone: places to copy from, and exponents.
var constantFrom = map[string]int{"Gather": 1, "GatherElements": 1, "Pow": 1, "Resize": 1, "Upsample": 1, "Slice": 1, "Pad": 1, "Tile": 1,
	"Expand": 1, "Reshape": 1, "Split": 1}

// lengths lists the inputs of recurrent operators that say how many steps are made.
var lengths = map[string]int{"RNN": 4, "GRU": 4, "LSTM": 4}

// Steady returns an error unless the work of a model follows from the shapes of its inputs alone, so that neither the number of steps nor
// memory nor the number of rows that come out tells of the content of an image: operators of an allow-list alone see it, and every value
// has a shape that is known once the inputs' are. Symbolic sizes of the inputs are taken for 1. Numbers below 1.2e-38 take some processors
// longer, which no list of operators mends.
func Steady(m *onnx.Model) error {
	one := onnx.Clone(m)
	for _, in := range one.Graph.Inputs {
		for i, d := range in.Shape {
			if !d.IsKnown() {
				in.Shape[i] = onnx.Known(1)
			}
		}
	}
	types, err := shape.Types(one)
	if err != nil {
		return fmt.Errorf("the extractor: %w", err)
	}
	seen := map[string]bool{} // values that follow from the content of an image
	for _, in := range one.Graph.Inputs {
		seen[in.Name] = true
	}
	for _, n := range one.Graph.Nodes {
		if len(n.Subgraphs()) > 0 {
			return fmt.Errorf("the extractor's %s branches or loops; what it does must not depend on what is in an image", n.Label())
		}
		if err := steadyNode(n, seen, types); err != nil {
			return err
		}
		if i, ok := lengths[n.Op]; ok && n.Input(i) != "" && one.Graph.Initializers[n.Input(i)] == nil {
			return fmt.Errorf("the extractor's %s computes how many steps it makes; what it does must not depend on what is in an image", n.Label())
		}
		for _, o := range n.Outputs {
			v := types[o]
			if o == "" || v.Shape != nil && v.DType != onnx.Undefined &&
				!slices.ContainsFunc(v.Shape, func(d onnx.Dim) bool { return !d.IsKnown() }) {
				continue
			}
			return fmt.Errorf("the extractor's %s gives %v: its shape cannot be told before an image is read; what it does must not depend on "+
				"what is in an image", n.Label(), v)
		}
	}
	return nil
}

// steadyNode returns an error for a node that may take a time of its own for an image, and adds its outputs to the values that follow from
// images. Random numbers are refused whatever they follow from.
func steadyNode(n *onnx.Node, seen map[string]bool, types map[string]onnx.ValueInfo) error {
	from := slices.ContainsFunc(n.Inputs, func(in string) bool { return seen[in] })
	if strings.HasPrefix(n.Op, "Random") || n.Op == "Bernoulli" || n.Op == "Multinomial" {
		return fmt.Errorf("the extractor's %s draws random numbers; what it does must not depend on what is in an image", n.Label())
	}
	if !from {
		return nil
	}
	if n.Domain != "" && n.Domain != "ai.onnx" || !steady[n.Op] {
		return fmt.Errorf("the extractor's %s is none of the operators whose time is known to be the same for all images; what it does must not "+
			"depend on what is in an image", n.Label())
	}
	if integral[n.Op] && len(n.Inputs) > 0 && !types[n.Inputs[0]].DType.IsFloat() {
		return fmt.Errorf("the extractor's %s divides whole numbers, in a time that depends on them; what it does must not depend on what is in "+
			"an image", n.Label())
	}
	if i, ok := constantFrom[n.Op]; ok && slices.ContainsFunc(n.Inputs[min(i, len(n.Inputs)):], func(in string) bool { return seen[in] }) {
		return fmt.Errorf("the extractor's %s follows from pixels where it takes places, sizes or exponents; what it does must not depend on "+
			"what is in an image", n.Label())
	}
	if slices.ContainsFunc(n.Outputs, func(o string) bool { return types[o].DType == onnx.String }) {
		return fmt.Errorf("the extractor's %s makes text of numbers, whose length depends on them; what it does must not depend on what "+
			"is in an image", n.Label())
	}
	if n.Op != "Shape" && n.Op != "Size" {
		for _, o := range n.Outputs {
			seen[o] = true
		}
	}
	return nil
}

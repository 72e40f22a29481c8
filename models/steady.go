package models

import (
	"fmt"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/op"
	"fmp/onnx/shape"
)

// reasons are why the time of operators that may see the content of an image is bounded alike for
// all values, and which these are. Others are refused, among them Mod, whose loop is as long as the
// quotient has bits; TopK, Unique and NonMaxSuppression, which compare as long as values lie; Sin
// and Cos, which reduce large arguments by another road; LRN and LpPool, whose powers do; and all
// that branch, loop or draw random numbers.
var reasons = []struct {
	why       string
	operators []string
}{
	{"sums of products, over extents that shapes give",
		[]string{"Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "MatMul", "MatMulInteger",
			"QLinearMatMul", "Gemm", "Einsum", "Attention"}},
	{"windows and sums over extents that shapes give, each element compared or added once",
		[]string{"AveragePool", "MaxPool", "GlobalAveragePool", "GlobalMaxPool", "ReduceSum",
			"ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
			"ReduceSumSquare", "ReduceLogSum", "ArgMax", "ArgMin", "CumSum", "BatchNormalization",
			"InstanceNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization",
			"LpNormalization", "MeanVarianceNormalization"}},
	{"arithmetic of the processor on one element at a time",
		[]string{"Add", "Sub", "Mul", "Div", "Neg", "Abs", "Sign", "Sqrt", "Reciprocal",
			"Floor", "Ceil", "Round", "Min", "Max", "Sum", "Mean", "Relu", "LeakyRelu", "PRelu",
			"ThresholdedRelu", "Clip", "HardSigmoid", "HardSwish", "Softsign", "Equal", "Greater",
			"GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Not", "Xor", "Where", "IsNaN",
			"IsInf", "Cast", "CastLike", "QuantizeLinear", "DequantizeLinear",
			"DynamicQuantizeLinear", "Dropout", "Identity"}},
	{"sums and products of one element at a time, as many for every number, in float32 (TestEven)",
		[]string{"Exp", "Log", "Erf", "Tanh", "Elu", "Selu", "Celu", "Sigmoid", "Swish", "Mish",
			"Gelu", "Softplus", "Pow", "Softmax", "LogSoftmax"}},
	{"copies of elements to places that shapes or constants give",
		[]string{"Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Split",
			"Slice", "Pad", "Expand", "Tile", "Gather", "GatherElements", "DepthToSpace",
			"SpaceToDepth", "Resize", "Upsample", "Trilu"}},
	{"as many steps as constant lengths say", []string{"RNN", "GRU", "LSTM"}},
	{"of shapes alone", []string{"Shape", "Size"}},
}

// steady has the reason of each operator that may see the content of an image.
var steady = map[string]string{}

func init() {
	for _, r := range reasons {
		for _, o := range r.operators {
			steady[o] = r.why
		}
	}
}

// single are operators that take the same time for all numbers in float32 alone, and in half
// precision, which is computed in it.
var single = map[string]bool{"Exp": true, "Log": true, "Erf": true, "Tanh": true, "Elu": true,
	"Selu": true, "Celu": true, "Sigmoid": true, "Swish": true, "Mish": true, "Gelu": true,
	"Softplus": true, "Pow": true, "Softmax": true, "LogSoftmax": true, "Attention": true,
	"RNN": true, "GRU": true, "LSTM": true}

// integral are operators whose time depends on values where these are whole numbers, since
// processors divide those by steps.
var integral = map[string]bool{"Div": true, "ReduceMean": true, "Mean": true, "Pow": true}

// constantFrom gives the inputs, by number, from which on operators take constants alone: places to
// copy from, and exponents. So do all inputs that an operator's definition has as whole numbers and
// nothing else: axes, sizes, lengths and diagonals.
var constantFrom = map[string]int{"Gather": 1, "GatherElements": 1, "Pow": 1, "Resize": 1,
	"Upsample": 1, "Slice": 1, "Pad": 1, "Tile": 1, "Expand": 1, "Reshape": 1,
	"Split": 1, "Dropout": 1}

// wholeNumbers reports whether an input is of whole numbers of 32 or 64 bits by an operator's
// definition. Inputs that may be of other types as well are not among these.
func wholeNumbers(s *op.Schema, i int) bool {
	if s == nil {
		return false
	}
	p, ok := s.Input(i)
	for _, d := range []onnx.DType{onnx.Float32, onnx.Float64, onnx.Float16, onnx.Uint8, onnx.Int8,
		onnx.Bool} {
		ok = ok && !p.Types.Has(d)
	}
	return ok && (p.Types.Has(onnx.Int64) || p.Types.Has(onnx.Int32))
}

// lengths lists the inputs of recurrent operators that say how many steps are made.
var lengths = map[string]int{"RNN": 4, "GRU": 4, "LSTM": 4}

// Steady returns an error unless the work of a model follows from the shapes of its inputs alone,
// so that neither the number of steps nor memory nor the number of rows that come out tells of the
// content of an image: operators of an allow-list alone see it, and every value has a shape that is
// known once the inputs' are. Symbolic sizes of the inputs are taken for 1. Numbers below 1.2e-38
// take some processors longer, which no list of operators mends. Sizes are taken for 1 since a
// batch's number is no secret of an image. It costs one inference of shapes.
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
			return fmt.Errorf(
				"the extractor's %s branches or loops; what it does must not depend on what is in "+
					"an image", n.Label())
		}
		if err := steadyNode(n, op.Find(n, one.Opsets), seen, types); err != nil {
			return err
		}
		if i, ok := lengths[n.Op]; ok && n.Input(i) != "" &&
			one.Graph.Initializers[n.Input(i)] == nil {
			return fmt.Errorf("the extractor's %s computes how many steps it makes; what it does "+
				"must not depend on what is in an image", n.Label())
		}
		for _, o := range n.Outputs {
			v := types[o]
			if o == "" || v.Shape != nil && v.DType != onnx.Undefined &&
				!slices.ContainsFunc(v.Shape, func(d onnx.Dim) bool { return !d.IsKnown() }) {
				continue
			}
			// A shape that is not known could follow from values, as that of NonZero does.
			return fmt.Errorf("the extractor's %s gives %v: its shape cannot be told before an "+
				"image is read; what it does must not depend on what is in an image", n.Label(), v)
		}
	}
	return nil
}

// steadyNode returns an error for a node, with its definition, that may take a time of its own for
// an image, and adds its outputs to the values that follow from images. Random numbers are refused
// whatever they follow from. Shape and Size give nothing of the content, since shapes are the same
// for all images.
func steadyNode(n *onnx.Node, s *op.Schema, seen map[string]bool,
	types map[string]onnx.ValueInfo) error {
	from := slices.ContainsFunc(n.Inputs, func(in string) bool { return seen[in] })
	if strings.HasPrefix(n.Op, "Random") || n.Op == "Bernoulli" || n.Op == "Multinomial" {
		return fmt.Errorf(
			"the extractor's %s draws random numbers; what it does must not depend on what is in "+
				"an image", n.Label())
	}
	if !from {
		return nil
	}
	if n.Domain != "" && n.Domain != "ai.onnx" || steady[n.Op] == "" {
		return fmt.Errorf("the extractor's %s is none of the operators whose time is known to be "+
			"the same for all images; what it does must not depend on what is in an image",
			n.Label())
	}
	if integral[n.Op] && !inputType(n, types).IsFloat() {
		return fmt.Errorf("the extractor's %s divides whole numbers, in a time that depends on "+
			"them; what it does must not depend on what is in an image", n.Label())
	}
	if d := inputType(n, types); single[n.Op] && d != onnx.Float32 && d != onnx.Float16 &&
		d != onnx.BFloat16 {
		return fmt.Errorf("the extractor's %s is of %v, which takes a time of its own for some "+
			"numbers; what it does must not depend on what is in an image", n.Label(), d)
	}
	first, placed := constantFrom[n.Op]
	for i, in := range n.Inputs {
		if !seen[in] || !(placed && i >= first) && !wholeNumbers(s, i) {
			continue
		}
		return fmt.Errorf("the extractor's %s follows from pixels where it takes places, sizes or "+
			"exponents; what it does must not depend on what is in an image", n.Label())
	}
	if slices.ContainsFunc(n.Outputs,
		func(o string) bool { return types[o].DType == onnx.String }) {
		return fmt.Errorf("the extractor's %s makes text of numbers, whose length depends on "+
			"them; what it does must not depend on what is in an image", n.Label())
	}
	if n.Op != "Shape" && n.Op != "Size" {
		for _, o := range n.Outputs {
			seen[o] = true
		}
	}
	return nil
}

// inputType returns the type of a node's first input.
func inputType(n *onnx.Node, types map[string]onnx.ValueInfo) onnx.DType {
	if len(n.Inputs) == 0 {
		return onnx.Undefined
	}
	return types[n.Inputs[0]].DType
}

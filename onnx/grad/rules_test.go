package grad

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/shape"
)

// arg is one input of the node under test.
type arg struct {
	shape  []int
	draw   func(r *rand.Rand, i, n int) float32
	value  *onnx.Tensor // a constant that is not differentiated
	weight bool         // an initializer that is
	fixed  bool         // its shape stays known when the others become symbolic
	absent bool
}

func normal(shape ...int) arg {
	return arg{shape: shape,
		draw: func(r *rand.Rand, _, _ int) float32 { return float32(r.NormFloat64()) }}
}

func uniform(lo, hi float64, shape ...int) arg {
	return arg{shape: shape,
		draw: func(r *rand.Rand, _, _ int) float32 { return float32(lo + (hi-lo)*r.Float64()) }}
}

// away keeps clear of 0, where slopes jump.
func away(shape ...int) arg {
	return arg{shape: shape, draw: func(r *rand.Rand, _, _ int) float32 {
		v := float32(0.2 + r.Float64())
		if r.IntN(2) == 0 {
			return -v
		}
		return v
	}}
}

// spaced values differ by 0.2 or more.
func spaced(shape ...int) arg {
	return arg{shape: shape, draw: func(r *rand.Rand, i, n int) float32 {
		step := 1
		for _, s := range []int{7, 11, 13, 17} {
			if n%s != 0 {
				step = s
				break
			}
		}
		return 0.2 * float32((i*step)%n-n/2)
	}}
}

func weight(shape ...int) arg          { a := normal(shape...); a.weight = true; return a }
func constant(t *onnx.Tensor) arg      { return arg{value: t} }
func indices(v ...int64) arg           { return constant(onnx.Vector(v...)) }
func vector(v ...float32) arg          { return constant(onnx.Vector(v...)) }
func index(v int64) arg                { return constant(onnx.Scalar(v)) }
func number(v float32) arg             { return constant(onnx.Scalar(v)) }
func grid(shape []int, v ...int64) arg { return constant(onnx.NewTensor(v, shape...)) }

var absent = arg{absent: true}

type ruleCase struct {
	name    string // the operator, and more
	attrs   string // as for [modeltest.Attrs]
	in      []arg
	outputs int
	opset   int
	static  bool // not to be run with symbolic shapes
}

func vjp(name, attrs string, in ...arg) ruleCase {
	return ruleCase{name, attrs, in, 1, onnx.DefaultOpset, false}
}

func (k ruleCase) at(opset int) ruleCase { k.opset = opset; return k }
func (k ruleCase) known() ruleCase       { k.static = true; return k }

// gives is the case with n outputs; of a negative number only the first is differentiated.
func (k ruleCase) gives(n int) ruleCase { k.outputs = n; return k }

func (k ruleCase) op() string {
	op, _, _ := strings.Cut(k.name, " ")
	return op
}

var ruleCases = []ruleCase{
	// Elementwise, with broadcasting on either side.
	vjp("Add", "", normal(2, 3), normal(2, 3)),
	vjp("Add left", "", normal(3), normal(2, 1)),
	vjp("Add right", "", normal(4, 2, 3), normal(2, 1)),
	vjp("Add scalar", "", normal(2, 3), normal()),
	vjp("Sub", "", normal(2, 3), normal(1, 3)),
	vjp("Sub left", "", normal(1), normal(4, 3)),
	vjp("Mul", "", normal(2, 1, 3), normal(4, 1)),
	vjp("Mul both", "", normal(2, 1), normal(1, 3)),
	vjp("Div", "", normal(2, 3), uniform(0.5, 2, 3)),
	vjp("Div left", "", normal(3), uniform(0.5, 2, 2, 1)),
	vjp("Pow", "", uniform(0.5, 2, 2, 3), normal(3)),
	vjp("Pow left", "", uniform(0.5, 2, 3), uniform(0.5, 3, 2, 3)),
	vjp("Pow square", "", normal(2, 3), number(2)),
	vjp("Pow cube", "", normal(2, 3), number(3)),
	vjp("Pow root", "", uniform(0.5, 2, 2, 3), number(0.5)),
	vjp("Pow one", "", normal(2, 3), number(1)),
	vjp("Pow zero", "", normal(2, 3), number(0)),
	vjp("Pow several", "", away(2, 3), vector(0, 1, 2)),
	vjp("Max", "", spaced(2, 3), uniform(0.07, 0.13, 3)),
	vjp("Max three", "", spaced(2, 3), uniform(0.07, 0.13, 3), vector(0.3, -0.3, -0.3)),
	vjp("Max one", "", normal(3)),
	vjp("Min", "", spaced(2, 3), uniform(0.07, 0.13, 2, 1)),
	vjp("Sum", "", normal(2, 3), normal(3), normal()),
	vjp("Mean", "", normal(2, 3), normal(3), normal(2, 1)),
	vjp("Neg", "", normal(3)),
	vjp("Abs", "", away(5)),
	vjp("Exp", "", normal(5)),
	vjp("Log", "", uniform(0.5, 2, 5)),
	vjp("Sqrt", "", uniform(0.5, 2, 5)),
	vjp("Reciprocal", "", uniform(0.5, 2, 5)),
	vjp("Erf", "", normal(5)),
	vjp("Sin", "", normal(5)),
	vjp("Cos", "", normal(5)),
	vjp("Tan", "", uniform(-1, 1, 5)),
	vjp("Asin", "", uniform(-0.8, 0.8, 5)),
	vjp("Acos", "", uniform(-0.8, 0.8, 5)),
	vjp("Atan", "", normal(5)),
	vjp("Sinh", "", normal(5)),
	vjp("Cosh", "", normal(5)),
	vjp("Asinh", "", normal(5)),
	vjp("Acosh", "", uniform(1.5, 3, 5)),
	vjp("Atanh", "", uniform(-0.7, 0.7, 5)),
	vjp("Clip", "", spaced(9), number(-0.5), number(0.5)),
	vjp("Clip bounds", "", spaced(9), uniform(-0.52, -0.48), uniform(0.48, 0.52)),
	vjp("Clip bounds that cross", "", spaced(9), uniform(.48, .52), uniform(-.52, -.48)),
	vjp("Clip below", "", spaced(9), absent, number(0.1)),
	vjp("Clip none", "", normal(3)),
	vjp("Where", "", constant(onnx.NewTensor([]bool{true, false, true}, 3)), normal(2, 3),
		normal(2, 1)),
	vjp("Where condition is larger", "", constant(onnx.NewTensor([]bool{true, false}, 2, 1)),
		normal(3), normal()),
	vjp("Identity", "", normal(3)),
	vjp("Cast", "to=11", normal(3)),
	vjp("Dropout", "", normal(3)),
	vjp("Dropout off", "", normal(3), number(0.3), constant(onnx.Scalar(false))),

	// Activations.
	vjp("Sigmoid", "", normal(5)),
	vjp("Tanh", "", normal(5)),
	vjp("Relu", "", away(7)),
	vjp("LeakyRelu", "alpha=0.3", away(7)),
	vjp("PRelu", "", away(2, 3, 4), normal(3, 1)),
	vjp("PRelu shared", "", away(2, 3), normal(1)),
	vjp("Elu", "alpha=0.7", away(7)),
	vjp("Celu", "alpha=0.7", away(7)),
	vjp("Selu", "", away(7)),
	vjp("Softplus", "", normal(5)),
	vjp("Softsign", "", away(5)),
	vjp("ThresholdedRelu", "alpha=0.3", spaced(9)),
	vjp("HardSigmoid", "", constantDraw(-4, -1, -0.3, 0.4, 1.2, 4)),
	vjp("HardSwish", "", constantDraw(-4, -2.5, -0.3, 0.4, 2.5, 4)),
	vjp("Gelu", "", normal(5)).at(20),
	vjp("Gelu tanh", "approximate=tanh", normal(5)).at(20),
	vjp("Mish", "", normal(5)).at(18),
	vjp("Softmax", "", normal(3, 4)),
	vjp("Softmax axis 1 of 3", "axis=1", normal(2, 3, 4)),
	vjp("LogSoftmax", "axis=-2", normal(2, 3, 4)),

	// Products.
	vjp("MatMul", "", normal(2, 3), normal(3, 4)),
	vjp("MatMul stack", "", normal(2, 2, 3), normal(2, 3, 4)),
	vjp("MatMul stack by matrix", "", normal(2, 2, 3), normal(3, 4)),
	vjp("MatMul deep stack by weight", "", normal(2, 3, 2, 3), weight(3, 2)),
	vjp("MatMul matrix by stack", "", normal(2, 3), normal(2, 3, 4)),
	vjp("MatMul broadcast stacks", "", normal(2, 1, 2, 3), normal(3, 3, 2)),
	vjp("MatMul broadcast left stack of 1", "", normal(1, 2, 3), normal(4, 3, 2)),
	vjp("MatMul broadcast right stack of 1", "", normal(4, 2, 3), normal(1, 3, 4)),
	vjp("MatMul broadcast right stacks of 1", "", normal(2, 4, 2, 3), normal(1, 1, 3, 4)),
	vjp("MatMul nothing to add up", "", normal(3, 3, 0), weight(0, 3)),
	vjp("MatMul vector left", "", normal(3), normal(3, 4)),
	vjp("MatMul vector left of stack", "", normal(3), normal(2, 3, 4)),
	vjp("MatMul vector right", "", normal(2, 3), normal(3)),
	vjp("MatMul vector right of stack", "", normal(2, 2, 3), normal(3)),
	vjp("MatMul vectors", "", normal(3), normal(3)),
	vjp("Gemm", "", normal(2, 3), normal(3, 4), normal(4)),
	vjp("Gemm transposed", "transA=1 transB=1 alpha=0.5 beta=2", normal(3, 2), normal(4, 3),
		normal(2, 1)),
	vjp("Gemm transposed left", "transA=1", normal(3, 2), normal(3, 4)),
	vjp("Gemm transposed right", "transB=1", normal(2, 3), normal(4, 3), normal()),
	vjp("Einsum", "equation=ij,jk->ik", normal(2, 3), normal(3, 4)),
	vjp("Einsum batched", "equation=bqd,bkd->bqk", normal(2, 3, 4), normal(2, 5, 4)),
	vjp("Einsum sum", "equation=ij,j->j", normal(2, 3), normal(3)),
	vjp("Einsum implicit", "equation=ij,jk", normal(2, 3), normal(3, 4)),
	vjp("Einsum broadcast", "equation=ij,ij->ij", normal(1, 3), normal(2, 3)),
	vjp("Einsum broadcast and summed", "equation=ij,ij->j", normal(2, 3), normal(1, 3)),
	vjp("Einsum one", "equation=ij->j", normal(2, 3)),

	// Convolutions.
	vjp("Conv", "", normal(2, 3, 5, 6), weight(4, 3, 3, 3), weight(4)),
	vjp("Conv padded", "pads=1,1,1,1", normal(2, 3, 5, 4), weight(2, 3, 3, 3)),
	vjp("Conv pads differ", "pads=0,1,2,0", normal(1, 2, 5, 4), weight(2, 2, 3, 2)),
	vjp("Conv pads beyond kernel", "pads=2,1,0,3", normal(1, 2, 3, 4), weight(2, 2, 2, 2)),
	vjp("Conv wide", "pads=1,1,1,0", normal(2, 17, 4, 3), weight(2, 17, 3, 2)),
	vjp("Conv wide 3-D stride", "strides=1,2,1", normal(1, 16, 3, 3, 2), weight(2, 16, 2, 2, 2)),
	vjp("Conv 1x1", "", normal(2, 3, 3, 4), weight(2, 3, 1, 1)),
	vjp("Conv 1x1 stride 2", "strides=2,2", normal(2, 3, 4, 5), weight(2, 3, 1, 1)),
	vjp("Conv stride 2", "strides=2,2 pads=1,1,1,1", normal(2, 2, 6, 7), weight(3, 2, 3, 3)),
	vjp("Conv stride 3 leaves rows", "strides=3,2", normal(1, 2, 8, 7), weight(3, 2, 2, 3)),
	vjp("Conv dilated", "dilations=2,3 pads=2,1,2,1", normal(1, 2, 7, 7), weight(3, 2, 3, 2)),
	vjp("Conv dilated stride", "dilations=2,3 strides=2,2", normal(1, 2, 8, 7), weight(3, 2, 2, 2)),
	vjp("Conv groups", "group=2 pads=1,1,1,1", normal(2, 4, 4, 4), weight(6, 2, 3, 3), weight(6)),
	vjp("Conv groups stride", "group=2 strides=2,2", normal(2, 4, 5, 4), weight(6, 2, 3, 3)),
	vjp("Conv depthwise", "group=3 pads=1,1,1,1", normal(2, 3, 4, 4), weight(3, 1, 3, 3)),
	vjp("Conv same upper", "auto_pad=SAME_UPPER", normal(1, 2, 5, 4), weight(2, 2, 2, 3)),
	vjp("Conv same lower", "auto_pad=SAME_LOWER", normal(1, 2, 5, 4), weight(2, 2, 2, 3)),
	vjp("Conv same upper stride", "auto_pad=SAME_UPPER strides=2,2", normal(1, 2, 6, 5),
		weight(2, 2, 3, 3)).known(),
	vjp("Conv valid", "auto_pad=VALID", normal(1, 2, 5, 4), weight(2, 2, 2, 3)),
	vjp("Conv 1-D", "strides=2 pads=1,1", normal(2, 3, 7), weight(2, 3, 3)),
	vjp("Conv 3-D", "pads=1,0,0,0,1,1", normal(1, 2, 3, 4, 3), weight(2, 2, 2, 2, 2)),
	vjp("ConvTranspose", "", normal(2, 3, 4, 3), weight(3, 2, 3, 3), weight(2)),
	vjp("ConvTranspose stride", "strides=2,2 pads=1,1,1,1 output_padding=1,1", normal(1, 3, 3, 4),
		weight(3, 2, 3, 3)),
	vjp("ConvTranspose groups", "group=2 strides=2,1", normal(1, 4, 3, 3), weight(4, 2, 2, 3)),
	vjp("ConvTranspose dilated", "dilations=2,2", normal(1, 2, 3, 3), weight(2, 2, 2, 2)),
	vjp("ConvTranspose same", "auto_pad=SAME_UPPER strides=2,2", normal(1, 2, 3, 3),
		weight(2, 2, 3, 3)),
	vjp("ConvTranspose same lower", "auto_pad=SAME_LOWER strides=2,2", normal(1, 2, 3, 3),
		weight(2, 2, 3, 3)),

	// Attention, gates, and normalisations of operator sets 23 and later: spelt out in others.
	vjp("Attention", "", normal(2, 2, 3, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 3)).at(23),
	vjp("Attention causal", "is_causal=1 scale=.3 softcap=2", normal(1, 2, 3, 4), normal(1, 2, 3, 4),
		normal(1, 2, 3, 4)).at(23),
	vjp("Attention grouped", "", normal(1, 4, 3, 2), normal(1, 2, 3, 2), normal(1, 2, 3, 2)).at(23),
	vjp("Attention rank 3, masked, with a past", "q_num_heads=4 kv_num_heads=2", normal(1, 2, 8),
		normal(1, 2, 4), normal(1, 2, 6), constant(onnx.NewTensor([]float32{0, -1, .5, 2}, 1, 1, 1, 4)),
		normal(1, 2, 2, 2), normal(1, 2, 2, 3)).at(23).gives(3),
	vjp("Attention a row without keys", "", normal(1, 1, 2, 3), normal(1, 1, 3, 3), normal(1, 1, 3, 3),
		constant(onnx.NewTensor([]bool{false, false, false, true, false, true}, 2, 3))).at(23),
	vjp("RMSNormalization", "", normal(2, 3, 4), weight(4)).at(23),
	vjp("RMSNormalization axis 1", "axis=1", normal(2, 3, 4), weight(3, 4)).at(23),
	vjp("RotaryEmbedding", "", normal(1, 2, 3, 4), normal(1, 3, 2), normal(1, 3, 2)).at(23),
	vjp("RotaryEmbedding interleaved, in part, by position",
		"interleaved=1 num_heads=2 rotary_embedding_dim=4",
		normal(1, 3, 12), normal(5, 2), normal(5, 2), grid([]int{1, 3}, 4, 0, 2)).at(23),
	vjp("Swish", "alpha=1.5", normal(2, 3)).at(24),
	vjp("SwiGLU", "", normal(2, 3), normal(2, 3)).at(28),

	// Poolings.
	vjp("MaxPool", "kernel_shape=2,2 strides=2,2", spaced(2, 2, 4, 4)),
	vjp("MaxPool overlapping", "kernel_shape=3,3 strides=2,2 pads=1,1,1,1", spaced(1, 2, 5, 5)),
	vjp("MaxPool ceil", "kernel_shape=3,2 strides=2,2 ceil_mode=1", spaced(1, 2, 6, 5)),
	vjp("MaxPool ceil, a window beyond the axis", "kernel_shape=4,2 strides=2,2 ceil_mode=1",
		spaced(1, 2, 3, 5)),
	vjp("AveragePool", "kernel_shape=2,2 strides=2,2", normal(2, 2, 4, 6)),
	vjp("AveragePool overlapping", "kernel_shape=3,3 strides=2,2", normal(1, 2, 5, 6)),
	vjp("AveragePool padded", "kernel_shape=3,3 strides=2,2 pads=1,1,1,1", normal(1, 2, 5, 5)),
	vjp("AveragePool padded stride 1", "kernel_shape=3,2 pads=1,0,1,1", normal(1, 2, 5, 5)),
	vjp("AveragePool padding counted", "kernel_shape=3,3 strides=2,2 pads=1,1,1,1 count_include_pad=1",
		normal(1, 2, 5, 5)),
	vjp("AveragePool ceil", "kernel_shape=3,2 strides=2,2 ceil_mode=1", normal(1, 2, 6, 5)).known(),
	vjp("AveragePool ceil, a window beyond the axis", "kernel_shape=4,2 strides=2,2 ceil_mode=1",
		normal(1, 2, 3, 5)).known(),
	vjp("GlobalAveragePool", "", normal(2, 3, 4, 5)),
	vjp("GlobalMaxPool", "", spaced(2, 3, 2, 3)),

	// Normalizations.
	vjp("BatchNormalization", "", normal(2, 3, 2, 4), weight(3), weight(3), weight(3),
		uniformWeight(0.5, 2, 3)),
	vjp("BatchNormalization rank 2", "", normal(4, 3), weight(3), weight(3), weight(3),
		uniformWeight(0.5, 2, 3)),
	vjp("BatchNormalization training", "training_mode=1", normal(4, 3, 2, 2), weight(3), weight(3),
		vector(0, 0, 0), vector(1, 1, 1)).gives(-3),
	vjp("BatchNormalization training, long memory", "training_mode=1 momentum=0.999",
		normal(4, 3, 2, 2), weight(3), weight(3), vector(0, 0, 0), vector(1, 1, 1)).gives(-3),
	vjp("LayerNormalization", "", normal(3, 4), weight(4), weight(4)),
	vjp("LayerNormalization axis 1", "axis=1", normal(2, 3, 4), weight(3, 4)),
	vjp("InstanceNormalization", "", normal(2, 3, 3, 4), weight(3), weight(3)),
	vjp("GroupNormalization", "num_groups=2",
		arg{shape: []int{2, 4, 2, 3}, draw: normal().draw, fixed: true}, weight(4), weight(4)).at(21),
	vjp("LpNormalization", "axis=1", away(3, 4)),
	vjp("LpNormalization p 1", "axis=0 p=1", away(3, 4)),

	vjp("MeanVarianceNormalization", "", normal(3, 2, 2, 3)),
	vjp("MeanVarianceNormalization axes", "axes=-1", normal(3, 4)),
	vjp("GlobalLpPool", "", away(2, 3, 4)),
	vjp("GlobalLpPool p 1", "p=1", away(2, 3, 2, 2)),
	vjp("GlobalLpPool p 3", "p=3", away(2, 3, 4)),
	vjp("LpPool", "kernel_shape=2,2 strides=2,2", away(2, 2, 4, 6)),
	vjp("LpPool p 1, overlapping", "kernel_shape=3,2 p=1", away(1, 2, 5, 6)),
	vjp("LpPool p 3, padded", "kernel_shape=3,3 pads=1,0,1,2 strides=2,1 p=3", away(1, 2, 5, 5)),
	vjp("LRN", "size=3 alpha=.5", normal(2, 6, 2, 3)).known(),
	vjp("LRN five channels of five", "size=5 alpha=.9 beta=.6 bias=1.5", normal(1, 5, 2, 2)).known(),
	vjp("CenterCropPad", "", normal(4, 3, 5), indices(2, 6, 5)).at(18),
	vjp("CenterCropPad axes, odd", "axes=-1,1", normal(2, 5, 4), indices(7, 2)).at(18),
	vjp("CenterCropPad cut, odd", "", normal(6, 5), indices(3, 2)).at(18),
	vjp("Det", "", normal(2, 3, 3)).known(),
	vjp("Det singular", "", fixedValues([]int{2, 2}, 1, 2, 2, 4)).known(),
	vjp("Det of one row", "", normal(3, 1, 1)).known(),
	vjp("MaxUnpool", "kernel_shape=2,2 strides=2,2", normal(1, 1, 2, 2),
		grid([]int{1, 1, 2, 2}, 5, 2, 8, 15)),
	vjp("MaxUnpool of a size", "kernel_shape=2,2", normal(1, 1, 2, 2),
		grid([]int{1, 1, 2, 2}, 0, 3, 5, 8), indices(1, 1, 3, 3)),
	vjp("TensorScatter", "", normal(2, 5, 3), normal(2, 2, 3), indices(1, 3)).at(24),
	vjp("TensorScatter from the first", "axis=2", normal(2, 2, 5), normal(2, 2, 3)).at(24),
	vjp("TensorScatter circular", "mode=circular", normal(2, 5, 3), normal(2, 2, 3),
		indices(4, 3)).at(24),
	vjp("Range", "", normal(), number(9), uniform(1, 2)).known(),
	vjp("SpaceToDepth by columns", "blocksize=2 mode=CRD", normal(1, 3, 4, 6)).at(28).known(),
	vjp("CumProd", "", away(3, 4), index(1)).at(26),
	vjp("CumProd zeros", "", fixedValues([]int{4}, 2, 0, .5, 3), index(0)).at(26),
	vjp("CumProd exclusive", "exclusive=1", away(4, 3), index(-2)).at(26),
	vjp("CumProd reverse", "reverse=1", away(2, 4, 2), index(1)).at(26),
	vjp("CumProd both", "reverse=1 exclusive=1", away(2, 4), index(1)).at(26),
	vjp("AffineGrid", "", normal(2, 2, 3), indices(2, 3, 4, 5)).at(20),
	vjp("AffineGrid volumes, corners aligned", "align_corners=1", normal(2, 3, 4),
		indices(2, 3, 2, 3, 2)).at(20),
	vjp("LinearAttention", "q_num_heads=4 kv_num_heads=2 update_rule=linear", normal(2, 3, 8),
		normal(2, 3, 4), normal(2, 3, 6)).at(27).gives(2),
	vjp("LinearAttention gated", "q_num_heads=2 kv_num_heads=2 update_rule=gated", normal(2, 3, 4),
		normal(2, 3, 4), normal(2, 3, 6), normal(2, 2, 2, 3), uniform(-1, 0, 2, 3, 4)).at(27).gives(2),
	vjp("LinearAttention delta", "q_num_heads=2 kv_num_heads=2 update_rule=delta scale=.3",
		normal(2, 3, 4), normal(2, 3, 4), normal(2, 3, 6), absent, absent, uniform(0, 1, 2, 3, 1)).at(27).gives(2),
	vjp("LinearAttention gated delta", "q_num_heads=2 kv_num_heads=2", normal(1, 3, 4),
		normal(1, 3, 4), normal(1, 3, 6), absent, uniform(-1, 0, 1, 3, 2),
		uniform(0, 1, 1, 3, 2)).at(27).gives(2),
	vjp("RoiAlign maximum", "mode=max output_height=2 output_width=2 sampling_ratio=2",
		spaced(2, 2, 6, 7),
		constant(onnx.NewTensor([]float32{.3, .2, 5.1, 4.7, 1.1, .9, 6.2, 5.3}, 2, 4)),
		indices(1, 0)).at(16),
	vjp("Compress", "", normal(3, 4),
		constant(onnx.Vector(true, false, true, true, false, true, true))),
	vjp("Compress along an axis", "axis=-2", normal(2, 4, 3),
		constant(onnx.Vector(false, true, true))),
	vjp("NegativeLogLikelihoodLoss", "", normal(3, 4), indices(1, 0, 3)),
	vjp("NegativeLogLikelihoodLoss weights, one ignored", "ignore_index=-7", normal(3, 4, 2),
		grid([]int{3, 2}, 1, 0, 3, -7, 2, 1), vector(.5, 2, 1, .2)),
	vjp("NegativeLogLikelihoodLoss each", "reduction=none", normal(3, 4, 2),
		grid([]int{3, 2}, 1, 0, 3, 2, 2, 1)),
	vjp("SoftmaxCrossEntropyLoss", "", normal(3, 4), indices(1, 0, 3)),
	vjp("SoftmaxCrossEntropyLoss of int32 labels, two outputs", "", normal(3, 4, 2),
		constant(onnx.NewTensor([]int32{1, 0, 3, 2, 2, 1}, 3, 2))).gives(2),
	vjp("SoftmaxCrossEntropyLoss sum, weights, one ignored", "ignore_index=2 reduction=sum",
		normal(3, 4), indices(1, 2, 3), vector(.5, 2, 1, .2)),

	vjp("Mod", "fmod=1", fixedValues([]int{2, 3}, 2.3, -2.4, 5.2, -5.5, .4, 7.3),
		fixedValues([]int{3}, 1.5, -1.1, 2)),
	vjp("Shrink", "lambd=0.05 bias=0.02", away(3, 4)),

	// Reductions.
	vjp("ReduceSum", "", normal(2, 3)),
	vjp("ReduceSum axes", "keepdims=0", normal(2, 3, 4), indices(0, -1)),
	vjp("ReduceSum nothing", "noop_with_empty_axes=1", normal(2, 3)),
	vjp("ReduceMean", "axes=1", normal(2, 3, 4)),
	vjp("ReduceMean all", "keepdims=0", normal(2, 3)),
	vjp("ReduceMean opset 18", "keepdims=0", normal(2, 3, 4), indices(-1)).at(18),
	vjp("ReduceMax", "axes=1 keepdims=0", spaced(2, 3, 4)),
	vjp("ReduceMin", "axes=0,2", spaced(2, 3, 4)),
	vjp("ReduceLogSumExp", "axes=-1 keepdims=0", normal(2, 3, 4)),
	vjp("ReduceLogSum", "axes=1", uniform(0.5, 2, 2, 3)),
	vjp("ReduceL1", "axes=1 keepdims=0", away(2, 3)),
	vjp("ReduceL2", "axes=1 keepdims=0", normal(2, 3)),
	vjp("ReduceSumSquare", "axes=0", normal(2, 3)),
	vjp("ReduceProd", "axes=1 keepdims=0", away(2, 3)),
	vjp("ReduceProd zeros", "axes=1", fixedValues([]int{3, 3}, 0, 1, 2, 0, 0, 3, 1, 2, 3)),
	vjp("CumSum", "", normal(2, 4), index(1)),
	vjp("CumSum exclusive reverse", "exclusive=1 reverse=1", normal(3, 2), index(0)),

	// Movement.
	vjp("Reshape", "", normal(2, 3), indices(3, -1)),
	vjp("Flatten", "", normal(2, 3, 2)),
	vjp("Squeeze", "", normal(2, 1, 3), indices(1)),
	vjp("Unsqueeze", "", normal(2, 3), indices(0, 2)),
	vjp("Transpose", "perm=2,0,1", normal(2, 3, 4)),
	vjp("Transpose reversed", "", normal(2, 3, 4)),
	vjp("Concat", "axis=-1", normal(2, 1), normal(2, 3), normal(2, 2)),
	vjp("Split", "axis=1", normal(2, 6), indices(1, 3, 2)).gives(3),
	vjp("Expand", "", normal(3, 1), indices(2, 1, 4)),
	vjp("Tile", "", normal(2, 3), indices(2, 3)),
	vjp("DepthToSpace", "blocksize=2", normal(1, 8, 2, 3)),
	vjp("DepthToSpace CRD", "blocksize=2 mode=CRD", normal(1, 8, 2, 3)),
	vjp("SpaceToDepth", "blocksize=2", normal(1, 2, 4, 6)),
	vjp("Trilu", "", normal(3, 4)),
	vjp("Trilu lower", "upper=0", normal(3, 4), index(1)),
	vjp("Einsum three operands", "equation=ij,jk,ikl->il", normal(2, 3), normal(3, 4),
		normal(2, 4, 2)),
	vjp("Resize", "coordinate_transformation_mode=asymmetric nearest_mode=floor", normal(1, 2, 2, 3),
		absent, vector(1, 1, 2, 3)),
	vjp("Resize half pixel", "", normal(1, 2, 2, 3), absent, vector(1, 1, 3, 2)),
	vjp("Resize sizes", "", normal(1, 2, 2, 3), absent, absent, indices(1, 2, 4, 9)).known(),

	vjp("Resize linear", "mode=linear", normal(1, 2, 3, 4), absent, vector(1, 1, 2, 1.5)),
	vjp("Resize linear to sizes, smaller, corners aligned",
		"mode=linear coordinate_transformation_mode=align_corners",
		normal(2, 2, 5, 4), absent, absent, indices(2, 2, 3, 7)),
	vjp("Resize linear, antialias, axes", "mode=linear antialias=1 axes=2,3", normal(1, 2, 6, 7),
		absent, absent, indices(3, 3)).at(18),
	vjp("Resize cubic", "mode=cubic cubic_coeff_a=-0.5 exclude_outside=1", normal(1, 2, 4, 5), absent,
		vector(1, 1, 1.5, 0.6)),
	vjp("Resize nearest by parts", "nearest_mode=ceil", normal(1, 2, 4, 5), absent,
		vector(1, 1, 1.5, 0.6)),
	vjp("Col2Im", "strides=2,2 pads=0,1,1,0", normal(2, 12, 6), indices(4, 7), indices(2, 3)).at(18),
	vjp("GridSample", "", normal(1, 2, 4, 5), between(false, 4, 5)).at(20),
	vjp("GridSample border, corners aligned", "padding_mode=border align_corners=1",
		normal(1, 2, 4, 5), between(true, 4, 5)).at(20),
	vjp("GridSample reflection", "padding_mode=reflection", normal(1, 2, 4, 5),
		between(false, 4, 5)).at(20),
	vjp("GridSample cubic, reflection, corners aligned",
		"padding_mode=reflection mode=cubic align_corners=1",
		normal(1, 2, 4, 5), between(true, 4, 5)).at(20),
	vjp("GridSample nearest", "mode=nearest", normal(1, 2, 4, 5), between(false, 4, 5)).at(20),
	vjp("RoiAlign", "output_height=2 output_width=3", normal(2, 2, 6, 7),
		constant(onnx.NewTensor([]float32{.6, .7, 5.3, 4.4, -1, 1.3, 9.2, 8.4, 2, 2, 2.5, 6}, 3, 4)),
		indices(1, 0, 1)),
	vjp("RoiAlign two points, scaled, old corners",
		"output_height=2 output_width=2 sampling_ratio=2"+
			" spatial_scale=0.5 coordinate_transformation_mode=output_half_pixel",
		normal(2, 2, 6, 7), constant(onnx.NewTensor([]float32{1, 2, 9, 8, 3, 0, 4, 11}, 2, 4)),
		indices(1, 0)),
	vjp("RoiAlign of one image", "output_height=2 output_width=3", normal(1, 2, 6, 7),
		constant(onnx.NewTensor([]float32{.6, .7, 5.3, 4.4, -1, 1.3, 9.2, 8.4}, 2, 4)), indices(0, 0)),
	vjp("DeformConv", "", normal(2, 2, 4, 5), uniformWeight(-1, 1, 3, 2, 2, 2),
		uniform(.1, .4, 2, 8, 3, 4)).at(19),
	vjp("DeformConv groups, bias, mask",
		"group=2 offset_group=2 strides=2,1 pads=1,1,1,0 dilations=1,1",
		normal(1, 4, 5, 5), uniformWeight(-1, 1, 2, 2, 3, 2), uniform(-.8, -.6, 1, 24, 3, 5), normal(2),
		normal(1, 12, 3, 5)).at(19),

	// Transforms; complex numbers are pairs on the last axis.
	vjp("DFT", "", normal(2, 5, 3, 1)),
	vjp("DFT complex", "axis=2", normal(2, 3, 4, 2)),
	vjp("DFT inverse", "inverse=1", normal(2, 5, 2)),
	vjp("DFT one side", "onesided=1", normal(2, 6, 1)),
	vjp("DFT cut", "", normal(2, 6, 2), index(4)),
	vjp("DFT filled", "onesided=1", normal(2, 3, 1), index(5)),
	vjp("DFT axis as an input", "", normal(4, 2, 1), absent, index(0)).at(20),
	vjp("DFT axis by default", "inverse=1", normal(2, 4, 2), index(3)).at(20),
	vjp("DFT inverse of one side", "inverse=1 onesided=1", normal(2, 4, 2)),
	vjp("DFT inverse of one side, odd", "inverse=1 onesided=1", normal(2, 3, 2, 2), index(5)),
	vjp("DFT inverse of one side, axis as an input", "inverse=1 onesided=1", normal(4, 2, 2),
		index(6), index(0)).at(20),
	vjp("STFT", "", normal(2, 9, 1), index(2), normal(4)),
	vjp("STFT two sides, gaps", "onesided=0", normal(2, 9, 1), index(4), normal(3), index(3)),
	vjp("STFT no window", "", normal(1, 7, 1), index(1), absent, index(5)),

	// Indexing.
	vjp("Slice", "", normal(4, 5), indices(1), indices(3)),
	vjp("Slice axes", "", normal(4, 5), indices(1, 0), indices(1000, 2), indices(1, 0)),
	vjp("Slice from the end", "", normal(4, 5), indices(-2), indices(1000), indices(-1)),
	vjp("Slice steps", "", normal(4, 7), indices(1), indices(6), indices(1), indices(2)),
	vjp("Slice backwards", "", normal(4, 7), indices(-1, 3), indices(-8, 0), indices(1, 0),
		indices(-2, -1)),
	vjp("Gather", "", normal(4, 3), indices(0, 2, 2, -1)),
	vjp("Gather axis 1", "axis=1", normal(2, 4, 3), grid([]int{2, 2}, 3, 0, 3, 1)),
	vjp("Gather one", "axis=-1", normal(2, 4), index(2)),
	vjp("GatherElements", "", normal(3, 3), grid([]int{2, 3}, 0, 2, 1, 0, 0, 2)),
	vjp("GatherND", "", normal(3, 4), grid([]int{3, 1}, 2, 0, 2)),
	vjp("ScatterElements", "", normal(3, 3), grid([]int{2, 3}, 0, 2, 1, 1, 0, 2), normal(2, 3)),
	vjp("ScatterElements add", "reduction=add", normal(3, 3), grid([]int{2, 3}, 0, 2, 1, 0, 0, 2),
		normal(2, 3)),
	vjp("ScatterElements max", "reduction=max", spaced(3, 3), grid([]int{2, 3}, 0, 2, 1, 0, 0, 1),
		spaced(2, 3)).at(18),
	vjp("ScatterElements min", "reduction=min axis=1", spaced(3, 3),
		grid([]int{3, 2}, 0, -1, 1, 1, 0, 2), spaced(3, 2)).at(18),
	vjp("ScatterElements mul, zeros", "reduction=mul", normal(3, 3),
		grid([]int{3, 3}, 0, 2, 1, 0, 0, 1, 0, 2, 0),
		fixedValues([]int{3, 3}, 0, 2, 0, 3, 1.5, 0, -1, .5, 2)),
	vjp("ScatterND max", "reduction=max", spaced(4, 2), grid([]int{3, 1}, 3, 1, 3),
		spaced(3, 2)).at(18),
	vjp("ScatterND mul", "reduction=mul", normal(4, 2), grid([]int{3, 1}, 3, 1, 3), away(3, 2)),
	vjp("ScatterND", "", normal(4, 2), grid([]int{2, 1}, 3, 1), normal(2, 2)),
	vjp("ReverseSequence", "", normal(4, 3, 2), indices(2, 4, 1)),
	vjp("ReverseSequence batch first", "time_axis=1 batch_axis=0", normal(3, 4), indices(2, 4, 3)),
	vjp("TopK", "", spaced(3, 5), indices(2)).gives(-2),
	vjp("Pad", "", normal(2, 3), indices(0, 1, 2, 0)),
	vjp("Pad value and crop", "", normal(2, 3), indices(1, -1, 0, 2), normal()),
	vjp("Pad reflect", "mode=reflect", normal(3, 4), indices(1, 2, 2, 1)),
	vjp("Pad edge", "mode=edge", normal(3, 4), indices(1, 2, 2, 1)),
	vjp("Pad axes", "", normal(3, 4), indices(1, 2), absent, indices(1)).at(18),
	vjp("OneHot", "", indices(0, 2, 5), index(3), normal(2)),
	vjp("OneHot axis 0", "axis=0", grid([]int{2, 2}, 0, -1, 1, 1), index(3), normal(2)),
}

// between is a grid [1, 3, 3, 2] of positions between pixels [h, w] and around them, away from
// where the gradient jumps.
func between(align bool, h, w int) arg {
	at := []float64{0.3, 1.7, 2.3, -0.7, 0.7, 3.7, 1.3, -1.3, 4.3}
	v := make([]float32, 18)
	for i := range v {
		size := []int{w, h}[i%2]
		p := at[(i/2+i%2*4)%len(at)]
		v[i] = float32((2*p+1)/float64(size) - 1)
		if align {
			v[i] = float32(2*p/float64(size-1) - 1)
		}
	}
	return fixedValues([]int{1, 3, 3, 2}, v...)
}

func constantDraw(v ...float32) arg { return fixedValues([]int{len(v)}, v...) }

func fixedValues(shape []int, v ...float32) arg {
	return arg{shape: shape, draw: func(_ *rand.Rand, i, _ int) float32 { return v[i] }}
}

func uniformWeight(lo, hi float64, shape ...int) arg {
	a := uniform(lo, hi, shape...)
	a.weight = true
	return a
}

// model is the case as a model of one node, with the values that its inputs get.
func (k ruleCase) model(symbolic bool,
	seed uint64) (m *onnx.Model, feeds map[string]*onnx.Tensor, wrt []string) {
	r := rand.New(rand.NewPCG(seed, 1))
	g := &onnx.Graph{Name: k.op(), Initializers: map[string]*onnx.Tensor{}}
	node := &onnx.Node{Name: "node", Op: k.op(), Attrs: modeltest.Attrs(k.op(), k.opset, k.attrs)}
	feeds = map[string]*onnx.Tensor{}
	for i, a := range k.in {
		name := fmt.Sprintf("x%d", i)
		if a.absent {
			node.Inputs = append(node.Inputs, "")
			continue
		}
		node.Inputs = append(node.Inputs, name)
		if a.value != nil {
			g.Initializers[name] = a.value
			continue
		}
		t := onnx.ZerosF32(a.shape...)
		for j := range t.F32() {
			t.F32()[j] = a.draw(r, j, t.Len())
		}
		wrt = append(wrt, name)
		if a.weight {
			g.Initializers[name] = t
			continue
		}
		feeds[name] = t
		dims := make([]onnx.Dim, len(a.shape))
		for j, d := range a.shape {
			dims[j] = onnx.Known(d)
			if symbolic && !a.fixed {
				dims[j] = onnx.Symbolic(fmt.Sprintf("d%d_%d", i, j))
			}
		}
		g.Inputs = append(g.Inputs, onnx.ValueInfo{Name: name, DType: onnx.Float32, Shape: dims})
	}
	for i := range max(k.outputs, -k.outputs) {
		name := fmt.Sprintf("y%d", i)
		node.Outputs = append(node.Outputs, name)
		if i == 0 || k.outputs > 0 {
			g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: name})
		}
	}
	g.Nodes = []*onnx.Node{node}
	m = onnx.NewModel(g)
	m.Opsets[""] = int64(k.opset)
	return m, feeds, wrt
}

func load(t testing.TB, eng engine.Engine, m *onnx.Model) engine.Session {
	t.Helper()
	s := must.Get(eng.Load(m))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// TestRulesAgainstCentralDifferences checks every rule, with known and with symbolic shapes.
func TestRulesAgainstCentralDifferences(t *testing.T) {
	eng := orttest.New(t)
	tested := map[string]bool{}
	for _, k := range ruleCases {
		tested[k.op()] = true
		for _, symbolic := range []bool{false, true} {
			if symbolic && k.static {
				continue
			}
			name := k.name
			if symbolic {
				name += " symbolic"
			}
			t.Run(name, func(t *testing.T) {
				m, feeds, wrt := k.model(symbolic, 7)
				checkGradient(t, eng, m, feeds, wrt)
				if !symbolic {
					checkForward(t, eng, m, feeds, wrt)
					checkCurvature(t, eng, m, feeds, wrt)
				}
			})
		}
	}
	for _, op := range Operators() {
		// these have tests of their own
		if !tested[op] && op != "CastLike" && op != "Upsample" && op != "If" &&
			op != "Loop" && op != "Scan" {
			t.Errorf("the rule of %s is not tested", op)
		}
	}
}

// checkGradient compares the gradient model of m with central differences of fourth order, element
// by element, for random cotangents.
func checkGradient(t *testing.T, eng engine.Engine, m *onnx.Model,
	feeds map[string]*onnx.Tensor, wrt []string) {
	t.Helper()
	// The primal with every differentiated initializer as an input, so that it can be varied.
	free := onnx.Clone(m)
	values := map[string]*onnx.Tensor{}
	for n, v := range feeds {
		values[n] = v.Clone()
	}
	for _, w := range wrt {
		if init, ok := free.Graph.Initializers[w]; ok {
			delete(free.Graph.Initializers, w)
			free.Graph.Inputs = append(free.Graph.Inputs,
				onnx.ValueInfo{Name: w, DType: init.DType, Shape: knownShape(init.Shape)})
			values[w] = init.Clone()
		}
	}
	must.Do(t, shape.Infer(free))
	primal := load(t, eng, free)
	eval := func() map[string]*onnx.Tensor {
		return must.Get(engine.Eval(primal, values))(t)
	}

	gm := must.Get(Build(m, Options{WRT: wrt, Prefix: "bar_"}))(t)
	gs := load(t, eng, gm)
	gFeeds := maps.Clone(feeds)
	r := rand.New(rand.NewPCG(3, 4))
	for name, y := range eval() {
		if y.DType.IsFloat() {
			gFeeds["bar_"+name] = drawnLike(y, r.NormFloat64)
		}
	}
	got := must.Get(engine.Eval(gs, gFeeds))(t)

	// ⟨ȳ, y⟩ with the element at x moved by each of four steps.
	inner := func() float64 {
		var s float64
		for name, y := range eval() {
			if c := gFeeds["bar_"+name]; c != nil {
				s += dot(c, y)
			}
		}
		return s
	}
	const h = 0.02
	for _, w := range wrt {
		g := got["bar_"+w]
		if fmt.Sprint(g.Shape) != fmt.Sprint(values[w].Shape) {
			t.Errorf("grad_%s has shape %v, want %v", w, g.Shape, values[w].Shape)
			continue
		}
		x := values[w].F32()
		for i := range x {
			was := x[i]
			at := func(step float32) float64 { x[i] = was + step; return inner() }
			want := (8*(at(h)-at(-h)) - (at(2*h) - at(-2*h))) / (12 * h)
			x[i] = was
			if diff := math.Abs(float64(g.F32()[i]) - want); !(diff <= 2e-3*(1+math.Abs(want))) {
				t.Errorf("grad_%s[%d] is %g, central differences give %g", w, i, g.F32()[i], want)
			}
		}
	}
}

// drawnLike is a tensor of another's type and shape, of numbers that draw returns.
func drawnLike(x *onnx.Tensor, draw func() float64) *onnx.Tensor {
	x = x.Clone()
	for i := range x.Len() {
		switch d := x.Data.(type) {
		case []float32:
			d[i] = float32(draw())
		case []float64:
			d[i] = draw()
		}
	}
	return x
}

// inputsOf draws the inputs of a derivative's graph that are none of the model's, between -1 and 1.
func inputsOf(m *onnx.Model, feeds map[string]*onnx.Tensor,
	like func(name string) *onnx.Tensor) map[string]*onnx.Tensor {
	r := rand.New(rand.NewPCG(5, 6))
	all := maps.Clone(feeds)
	for _, v := range m.Graph.Inputs {
		if all[v.Name] == nil {
			all[v.Name] = drawnLike(like(v.Name), func() float64 { return 2*r.Float64() - 1 })
		}
	}
	return all
}

func dot(a, b *onnx.Tensor) float64 {
	s := 0.0
	for i := range a.Len() {
		s += a.At(i) * b.At(i)
	}
	return s
}

func valueOf(m *onnx.Model, feeds map[string]*onnx.Tensor, name string) *onnx.Tensor {
	if t := feeds[name]; t != nil {
		return t
	}
	return m.Graph.Initializers[name]
}

// checkForward: ⟨ȳ, J v⟩ = ⟨Jᵀȳ, v⟩ for random cotangents ȳ and vectors v.
func checkForward(t *testing.T, eng engine.Engine, m *onnx.Model,
	feeds map[string]*onnx.Tensor, wrt []string) {
	t.Helper()
	jm := must.Get(JVP(m, Options{WRT: wrt}))(t)
	vectors := inputsOf(jm, feeds,
		func(n string) *onnx.Tensor { return valueOf(m, feeds, strings.TrimPrefix(n, "vector_")) })
	forward := must.Get(engine.Eval(load(t, eng, jm), vectors))(t)
	gm := must.Get(Build(m, Options{WRT: wrt}))(t)
	cotangents := inputsOf(gm, feeds,
		func(n string) *onnx.Tensor { return forward["jvp_"+strings.TrimPrefix(n, "grad_")] })
	back := must.Get(engine.Eval(load(t, eng, gm), cotangents))(t)
	left, right, scale := 0.0, 0.0, 1.0
	for name, y := range forward {
		if c := cotangents["grad_"+strings.TrimPrefix(name, "jvp_")]; c != nil {
			left += dot(c, y)
			scale += math.Sqrt(dot(c, c) * dot(y, y))
		}
	}
	for _, w := range wrt {
		right += dot(back["grad_"+w], vectors["vector_"+w])
	}
	if !(math.Abs(left-right) <= 1e-4*scale) {
		t.Errorf("forward mode gives %g and reverse mode %g", left, right)
	}
}

// checkCurvature compares Hessian-vector products with central differences of gradients.
func checkCurvature(t *testing.T, eng engine.Engine, m *onnx.Model,
	feeds map[string]*onnx.Tensor, wrt []string) {
	t.Helper()
	hm, err := HVP(m, Options{WRT: wrt, ParamsAsInputs: true})
	if op := m.Graph.Nodes[0].Op; errors.Is(err, errTwice) &&
		(op == "ReduceProd" || strings.HasPrefix(op, "Scatter")) {
		return
	}
	must.Do(t, err)
	gm := must.Get(Build(m, Options{WRT: wrt, ParamsAsInputs: true}))(t)
	full := maps.Clone(feeds)
	for _, w := range wrt {
		full[w] = valueOf(m, feeds, w)
	}
	first := must.Get(Build(m, Options{WRT: wrt, UnitCotangent: true, KeepOutputs: true}))(t)
	primal := must.Get(engine.Eval(load(t, eng, first), feeds))(t)
	all := inputsOf(hm, full, func(n string) *onnx.Tensor {
		if w, ok := strings.CutPrefix(n, "vector_"); ok {
			return full[w]
		}
		return primal[strings.TrimPrefix(n, "grad_")]
	})
	given := func(m *onnx.Model, all map[string]*onnx.Tensor) map[string]*onnx.Tensor {
		some := map[string]*onnx.Tensor{}
		for _, v := range m.Graph.Inputs {
			some[v.Name] = all[v.Name]
		}
		return some
	}
	got := must.Get(engine.Eval(load(t, eng, hm), given(hm, all)))(t)
	gradient := load(t, eng, gm)
	const h = 0.01
	at := func(step float32) map[string]*onnx.Tensor {
		moved := maps.Clone(all)
		for _, w := range wrt {
			x := all[w].Clone()
			for i := range x.F32() {
				x.F32()[i] += step * all["vector_"+w].F32()[i]
			}
			moved[w] = x
		}
		return must.Get(engine.Eval(gradient, given(gm, moved)))(t)
	}
	up, down, up2, down2 := at(h), at(-h), at(2*h), at(-2*h)
	for _, w := range wrt {
		key, g := "grad_"+w, got["hvp_"+w]
		for i := range g.Len() {
			want := (8*(up[key].At(i)-down[key].At(i)) - (up2[key].At(i) - down2[key].At(i))) / (12 * h)
			if !(math.Abs(g.At(i)-want) <= 5e-3*(1+math.Abs(want))) {
				t.Errorf("hvp_%s[%d] is %g, central differences of gradients give %g", w, i, g.At(i), want)
			}
		}
	}
}

func TestMissingRuleNamesNodeAndOperator(t *testing.T) {
	m, _, wrt := vjp("MaxRoiPool", "pooled_shape=1,1", normal(1, 1, 2, 2),
		constant(onnx.ZerosF32(1, 5))).model(false, 1)
	m.Graph.Nodes[0].Name = "the_node"
	_, err := Build(m, Options{WRT: wrt})
	if !errors.Is(err, errNoRule) || !strings.Contains(err.Error(), "the_node") ||
		!strings.Contains(err.Error(), "MaxRoiPool") {
		t.Errorf("error is %v; want one that names node and operator", err)
	}
	must.Fail(Supports(m))(t, "MaxRoiPool")
}

func TestBuildRefusesUnknownNames(t *testing.T) {
	m, _, _ := vjp("Add", "", normal(2), weight(2)).model(false, 1)
	for _, c := range []struct {
		opt  Options
		want string
	}{
		{Options{}, "nothing to differentiate"},
		{Options{WRT: []string{"nope"}}, `"nope"`},
		{Options{WRT: []string{"x0", "x0"}}, "twice"},
		{Options{Outputs: []string{"x0"}, WRT: []string{"x0"}}, `no output "x0"`},
		{Options{Outputs: []string{"y0", "y0"}, WRT: []string{"x0"}}, "twice"},
	} {
		must.Fail(Build(m, c.opt))(t, c.want, c.opt)
	}
	must.Fail(Build(nil, Options{}))(t, "", "a nil model was accepted")
}

// In training Dropout draws its mask once: the gradient passes what that run kept, scaled as the
// result is.
func TestDropoutsGradientPassesWhatWasKept(t *testing.T) {
	const n, ratio = 64, 0.25
	m, _, wrt := vjp("Dropout", "", normal(n), number(ratio),
		constant(onnx.Scalar(true))).model(false, 1)
	gm := must.Get(Build(m, Options{WRT: wrt, Prefix: "bar_", KeepOutputs: true}))(t)
	x, bar := onnx.ZerosF32(n), onnx.ZerosF32(n)
	for i := range n {
		x.F32()[i], bar.F32()[i] = float32(i+1), float32(i+2)
	}
	out := must.Get(engine.Eval(load(t, orttest.New(t), gm), map[string]*onnx.Tensor{"x0": x, "bar_y0": bar}))(t)
	kept := 0
	for i, y := range out["y0"].F32() {
		want := float32(0)
		if y != 0 {
			kept++
			want = bar.F32()[i] / (1 - ratio)
		}
		if got := out["bar_x0"].F32()[i]; math.Abs(float64(got-want)) > 1e-4 {
			t.Errorf("element %d: the result is %v and the gradient %v, want %v", i, y, got, want)
		}
	}
	if kept == 0 || kept == n {
		t.Errorf("%d of %d elements were kept", kept, n)
	}
}

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
func number(v float32) arg             { return constant(onnx.Scalar(v)) }
func grid(shape []int, v ...int64) arg { return constant(onnx.NewTensor(v, shape...)) }

var absent = arg{absent: true}

type ruleCase struct {
	op      string
	note    string
	in      []arg
	attrs   []onnx.Attr
	outputs int  // default 1
	opset   int  // default 17
	static  bool // not to be run with symbolic shapes
}

func (k ruleCase) name() string { return strings.TrimSpace(k.op + " " + k.note) }

func ints(name string, v ...int) onnx.Attr { return onnx.IntsAttr(name, v...) }
func attr(name string, v int) onnx.Attr    { return onnx.IntAttr(name, v) }

var ruleCases = []ruleCase{
	// Elementwise, with broadcasting on either side.
	{op: "Add", in: []arg{normal(2, 3), normal(2, 3)}},
	{op: "Add", note: "left", in: []arg{normal(3), normal(2, 1)}},
	{op: "Add", note: "right", in: []arg{normal(4, 2, 3), normal(2, 1)}},
	{op: "Add", note: "scalar", in: []arg{normal(2, 3), normal()}},
	{op: "Sub", in: []arg{normal(2, 3), normal(1, 3)}},
	{op: "Sub", note: "left", in: []arg{normal(1), normal(4, 3)}},
	{op: "Mul", in: []arg{normal(2, 1, 3), normal(4, 1)}},
	{op: "Mul", note: "both", in: []arg{normal(2, 1), normal(1, 3)}},
	{op: "Div", in: []arg{normal(2, 3), uniform(0.5, 2, 3)}},
	{op: "Div", note: "left", in: []arg{normal(3), uniform(0.5, 2, 2, 1)}},
	{op: "Pow", in: []arg{uniform(0.5, 2, 2, 3), normal(3)}},
	{op: "Pow", note: "left", in: []arg{uniform(0.5, 2, 3), uniform(0.5, 3, 2, 3)}},
	{op: "Pow", note: "square", in: []arg{normal(2, 3), number(2)}},
	{op: "Pow", note: "cube", in: []arg{normal(2, 3), number(3)}},
	{op: "Pow", note: "root", in: []arg{uniform(0.5, 2, 2, 3), number(0.5)}},
	{op: "Pow", note: "one", in: []arg{normal(2, 3), number(1)}},
	{op: "Pow", note: "zero", in: []arg{normal(2, 3), number(0)}},
	{op: "Pow", note: "several", in: []arg{away(2, 3), constant(onnx.Vector[float32](0, 1, 2))}},
	{op: "Max", in: []arg{spaced(2, 3), uniform(0.07, 0.13, 3)}},
	{op: "Max", note: "three",
		in: []arg{spaced(2, 3), uniform(0.07, 0.13, 3),
			constant(onnx.Vector[float32](0.3, -0.3, -0.3))}},
	{op: "Max", note: "one", in: []arg{normal(3)}},
	{op: "Min", in: []arg{spaced(2, 3), uniform(0.07, 0.13, 2, 1)}},
	{op: "Sum", in: []arg{normal(2, 3), normal(3), normal()}},
	{op: "Mean", in: []arg{normal(2, 3), normal(3), normal(2, 1)}},
	{op: "Neg", in: []arg{normal(3)}},
	{op: "Abs", in: []arg{away(5)}},
	{op: "Exp", in: []arg{normal(5)}},
	{op: "Log", in: []arg{uniform(0.5, 2, 5)}},
	{op: "Sqrt", in: []arg{uniform(0.5, 2, 5)}},
	{op: "Reciprocal", in: []arg{uniform(0.5, 2, 5)}},
	{op: "Erf", in: []arg{normal(5)}},
	{op: "Sin", in: []arg{normal(5)}},
	{op: "Cos", in: []arg{normal(5)}},
	{op: "Tan", in: []arg{uniform(-1, 1, 5)}},
	{op: "Asin", in: []arg{uniform(-0.8, 0.8, 5)}},
	{op: "Acos", in: []arg{uniform(-0.8, 0.8, 5)}},
	{op: "Atan", in: []arg{normal(5)}},
	{op: "Sinh", in: []arg{normal(5)}},
	{op: "Cosh", in: []arg{normal(5)}},
	{op: "Asinh", in: []arg{normal(5)}},
	{op: "Acosh", in: []arg{uniform(1.5, 3, 5)}},
	{op: "Atanh", in: []arg{uniform(-0.7, 0.7, 5)}},
	{op: "Clip", in: []arg{spaced(9), number(-0.5), number(0.5)}},
	{op: "Clip", note: "bounds", in: []arg{spaced(9), uniform(-0.52, -0.48), uniform(0.48, 0.52)}},
	{op: "Clip", note: "below", in: []arg{spaced(9), absent, number(0.1)}},
	{op: "Clip", note: "none", in: []arg{normal(3)}},
	{op: "Where", in: []arg{constant(onnx.NewTensor([]bool{true, false, true}, 3)),
		normal(2, 3), normal(2, 1)}},
	{op: "Where", note: "condition is larger",
		in: []arg{constant(onnx.NewTensor([]bool{true, false}, 2, 1)), normal(3), normal()}},
	{op: "Identity", in: []arg{normal(3)}},
	{op: "Cast", in: []arg{normal(3)}, attrs: []onnx.Attr{attr("to", int(onnx.Float64))}},
	{op: "Dropout", in: []arg{normal(3)}},
	{op: "Dropout", note: "off", in: []arg{normal(3), number(0.3), constant(onnx.Scalar(false))}},

	// Activations.
	{op: "Sigmoid", in: []arg{normal(5)}},
	{op: "Tanh", in: []arg{normal(5)}},
	{op: "Relu", in: []arg{away(7)}},
	{op: "LeakyRelu", in: []arg{away(7)}, attrs: []onnx.Attr{onnx.FloatAttr("alpha", 0.3)}},
	{op: "PRelu", in: []arg{away(2, 3, 4), normal(3, 1)}},
	{op: "PRelu", note: "shared", in: []arg{away(2, 3), normal(1)}},
	{op: "Elu", in: []arg{away(7)}, attrs: []onnx.Attr{onnx.FloatAttr("alpha", 0.7)}},
	{op: "Celu", in: []arg{away(7)}, attrs: []onnx.Attr{onnx.FloatAttr("alpha", 0.7)}},
	{op: "Selu", in: []arg{away(7)}},
	{op: "Softplus", in: []arg{normal(5)}},
	{op: "Softsign", in: []arg{away(5)}},
	{op: "ThresholdedRelu", in: []arg{spaced(9)}, attrs: []onnx.Attr{onnx.FloatAttr("alpha", 0.3)}},
	{op: "HardSigmoid", in: []arg{constantDraw(-4, -1, -0.3, 0.4, 1.2, 4)}},
	{op: "HardSwish", in: []arg{constantDraw(-4, -2.5, -0.3, 0.4, 2.5, 4)}},
	{op: "Gelu", opset: 20, in: []arg{normal(5)}},
	{op: "Gelu", note: "tanh", opset: 20, in: []arg{normal(5)},
		attrs: []onnx.Attr{onnx.StrAttr("approximate", "tanh")}},
	{op: "Mish", opset: 18, in: []arg{normal(5)}},
	{op: "Softmax", in: []arg{normal(3, 4)}},
	{op: "Softmax", note: "axis 1 of 3", in: []arg{normal(2, 3, 4)},
		attrs: []onnx.Attr{attr("axis", 1)}},
	{op: "LogSoftmax", in: []arg{normal(2, 3, 4)}, attrs: []onnx.Attr{attr("axis", -2)}},

	// Products.
	{op: "MatMul", in: []arg{normal(2, 3), normal(3, 4)}},
	{op: "MatMul", note: "stack", in: []arg{normal(2, 2, 3), normal(2, 3, 4)}},
	{op: "MatMul", note: "stack by matrix", in: []arg{normal(2, 2, 3), normal(3, 4)}},
	{op: "MatMul", note: "deep stack by weight", in: []arg{normal(2, 3, 2, 3), weight(3, 2)}},
	{op: "MatMul", note: "matrix by stack", in: []arg{normal(2, 3), normal(2, 3, 4)}},
	{op: "MatMul", note: "broadcast stacks", in: []arg{normal(2, 1, 2, 3), normal(3, 3, 2)}},
	{op: "MatMul", note: "broadcast left stack of 1", in: []arg{normal(1, 2, 3), normal(4, 3, 2)}},
	{op: "MatMul", note: "broadcast right stack of 1", in: []arg{normal(4, 2, 3), normal(1, 3, 4)}},
	{op: "MatMul", note: "broadcast right stacks of 1",
		in: []arg{normal(2, 4, 2, 3), normal(1, 1, 3, 4)}},
	{op: "MatMul", note: "vector left", in: []arg{normal(3), normal(3, 4)}},
	{op: "MatMul", note: "vector left of stack", in: []arg{normal(3), normal(2, 3, 4)}},
	{op: "MatMul", note: "vector right", in: []arg{normal(2, 3), normal(3)}},
	{op: "MatMul", note: "vector right of stack", in: []arg{normal(2, 2, 3), normal(3)}},
	{op: "MatMul", note: "vectors", in: []arg{normal(3), normal(3)}},
	{op: "Gemm", in: []arg{normal(2, 3), normal(3, 4), normal(4)}},
	{op: "Gemm", note: "transposed", in: []arg{normal(3, 2), normal(4, 3), normal(2, 1)},
		attrs: []onnx.Attr{attr("transA", 1), attr("transB", 1), onnx.FloatAttr("alpha", 0.5),
			onnx.FloatAttr("beta", 2)}},
	{op: "Gemm", note: "transposed left", in: []arg{normal(3, 2), normal(3, 4)},
		attrs: []onnx.Attr{attr("transA", 1)}},
	{op: "Gemm", note: "transposed right", in: []arg{normal(2, 3), normal(4, 3), normal()},
		attrs: []onnx.Attr{attr("transB", 1)}},
	{op: "Einsum", in: []arg{normal(2, 3), normal(3, 4)},
		attrs: []onnx.Attr{onnx.StrAttr("equation", "ij,jk->ik")}},
	{op: "Einsum", note: "batched", in: []arg{normal(2, 3, 4), normal(2, 5, 4)},
		attrs: []onnx.Attr{onnx.StrAttr("equation", "bqd,bkd->bqk")}},
	{op: "Einsum", note: "sum", in: []arg{normal(2, 3), normal(3)},
		attrs: []onnx.Attr{onnx.StrAttr("equation", "ij,j->j")}},
	{op: "Einsum", note: "implicit", in: []arg{normal(2, 3), normal(3, 4)},
		attrs: []onnx.Attr{onnx.StrAttr("equation", "ij,jk")}},
	{op: "Einsum", note: "one", in: []arg{normal(2, 3)},
		attrs: []onnx.Attr{onnx.StrAttr("equation", "ij->j")}},

	// Convolutions.
	{op: "Conv", in: []arg{normal(2, 3, 5, 6), weight(4, 3, 3, 3), weight(4)}},
	{op: "Conv", note: "padded", in: []arg{normal(2, 3, 5, 4), weight(2, 3, 3, 3)},
		attrs: []onnx.Attr{ints("pads", 1, 1, 1, 1)}},
	{op: "Conv", note: "pads differ", in: []arg{normal(1, 2, 5, 4), weight(2, 2, 3, 2)},
		attrs: []onnx.Attr{ints("pads", 0, 1, 2, 0)}},
	{op: "Conv", note: "pads beyond kernel", in: []arg{normal(1, 2, 3, 4), weight(2, 2, 2, 2)},
		attrs: []onnx.Attr{ints("pads", 2, 1, 0, 3)}},
	{op: "Conv", note: "wide", in: []arg{normal(2, 17, 4, 3), weight(2, 17, 3, 2)},
		attrs: []onnx.Attr{ints("pads", 1, 1, 1, 0)}},
	{op: "Conv", note: "wide 3-D stride", in: []arg{normal(1, 16, 3, 3, 2), weight(2, 16, 2, 2, 2)},
		attrs: []onnx.Attr{ints("strides", 1, 2, 1)}},
	{op: "Conv", note: "1x1", in: []arg{normal(2, 3, 3, 4), weight(2, 3, 1, 1)}},
	{op: "Conv", note: "1x1 stride 2", in: []arg{normal(2, 3, 4, 5), weight(2, 3, 1, 1)},
		attrs: []onnx.Attr{ints("strides", 2, 2)}},
	{op: "Conv", note: "stride 2", in: []arg{normal(2, 2, 6, 7), weight(3, 2, 3, 3)},
		attrs: []onnx.Attr{ints("strides", 2, 2), ints("pads", 1, 1, 1, 1)}},
	{op: "Conv", note: "stride 3 leaves rows", in: []arg{normal(1, 2, 8, 7), weight(3, 2, 2, 3)},
		attrs: []onnx.Attr{ints("strides", 3, 2)}},
	{op: "Conv", note: "dilated", in: []arg{normal(1, 2, 7, 7), weight(3, 2, 3, 2)},
		attrs: []onnx.Attr{ints("dilations", 2, 3), ints("pads", 2, 1, 2, 1)}},
	{op: "Conv", note: "dilated stride", in: []arg{normal(1, 2, 8, 7), weight(3, 2, 2, 2)},
		attrs: []onnx.Attr{ints("dilations", 2, 3), ints("strides", 2, 2)}},
	{op: "Conv", note: "groups", in: []arg{normal(2, 4, 4, 4), weight(6, 2, 3, 3), weight(6)},
		attrs: []onnx.Attr{attr("group", 2), ints("pads", 1, 1, 1, 1)}},
	{op: "Conv", note: "groups stride", in: []arg{normal(2, 4, 5, 4), weight(6, 2, 3, 3)},
		attrs: []onnx.Attr{attr("group", 2), ints("strides", 2, 2)}},
	{op: "Conv", note: "depthwise", in: []arg{normal(2, 3, 4, 4), weight(3, 1, 3, 3)},
		attrs: []onnx.Attr{attr("group", 3), ints("pads", 1, 1, 1, 1)}},
	{op: "Conv", note: "same upper", in: []arg{normal(1, 2, 5, 4), weight(2, 2, 2, 3)},
		attrs: []onnx.Attr{onnx.StrAttr("auto_pad", "SAME_UPPER")}},
	{op: "Conv", note: "same lower", in: []arg{normal(1, 2, 5, 4), weight(2, 2, 2, 3)},
		attrs: []onnx.Attr{onnx.StrAttr("auto_pad", "SAME_LOWER")}},
	{op: "Conv", note: "same upper stride", static: true,
		in:    []arg{normal(1, 2, 6, 5), weight(2, 2, 3, 3)},
		attrs: []onnx.Attr{onnx.StrAttr("auto_pad", "SAME_UPPER"), ints("strides", 2, 2)}},
	{op: "Conv", note: "valid", in: []arg{normal(1, 2, 5, 4), weight(2, 2, 2, 3)},
		attrs: []onnx.Attr{onnx.StrAttr("auto_pad", "VALID")}},
	{op: "Conv", note: "1-D", in: []arg{normal(2, 3, 7), weight(2, 3, 3)},
		attrs: []onnx.Attr{ints("strides", 2), ints("pads", 1, 1)}},
	{op: "Conv", note: "3-D", in: []arg{normal(1, 2, 3, 4, 3), weight(2, 2, 2, 2, 2)},
		attrs: []onnx.Attr{ints("pads", 1, 0, 0, 0, 1, 1)}},
	{op: "ConvTranspose", in: []arg{normal(2, 3, 4, 3), weight(3, 2, 3, 3), weight(2)}},
	{op: "ConvTranspose", note: "stride", in: []arg{normal(1, 3, 3, 4), weight(3, 2, 3, 3)},
		attrs: []onnx.Attr{ints("strides", 2, 2), ints("pads", 1, 1, 1, 1),
			ints("output_padding", 1, 1)}},
	{op: "ConvTranspose", note: "groups", in: []arg{normal(1, 4, 3, 3), weight(4, 2, 2, 3)},
		attrs: []onnx.Attr{attr("group", 2), ints("strides", 2, 1)}},
	{op: "ConvTranspose", note: "dilated", in: []arg{normal(1, 2, 3, 3), weight(2, 2, 2, 2)},
		attrs: []onnx.Attr{ints("dilations", 2, 2)}},
	{op: "ConvTranspose", note: "same", in: []arg{normal(1, 2, 3, 3), weight(2, 2, 3, 3)},
		attrs: []onnx.Attr{onnx.StrAttr("auto_pad", "SAME_UPPER"), ints("strides", 2, 2)}},
	{op: "ConvTranspose", note: "same lower", in: []arg{normal(1, 2, 3, 3), weight(2, 2, 3, 3)},
		attrs: []onnx.Attr{onnx.StrAttr("auto_pad", "SAME_LOWER"), ints("strides", 2, 2)}},

	// Attention, gates, and normalisations of operator sets 23 and later: spelt out in others.
	{op: "Attention", opset: 23,
		in: []arg{normal(2, 2, 3, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 3)}},
	{op: "Attention", note: "causal", opset: 23,
		in: []arg{normal(1, 2, 3, 4), normal(1, 2, 3, 4), normal(1, 2, 3, 4)},
		attrs: []onnx.Attr{attr("is_causal", 1), onnx.FloatAttr("scale", .3),
			onnx.FloatAttr("softcap", 2)}},
	{op: "Attention", note: "grouped", opset: 23,
		in: []arg{normal(1, 4, 3, 2), normal(1, 2, 3, 2), normal(1, 2, 3, 2)}},
	{op: "Attention", note: "rank 3, masked, with a past", opset: 23, outputs: 3,
		in: []arg{normal(1, 2, 8), normal(1, 2, 4), normal(1, 2, 6),
			constant(onnx.NewTensor([]float32{0, -1, .5, 2}, 1, 1, 1, 4)), normal(1, 2, 2, 2),
			normal(1, 2, 2, 3)},
		attrs: []onnx.Attr{attr("q_num_heads", 4), attr("kv_num_heads", 2)}},
	{op: "Attention", note: "a row without keys", opset: 23,
		in: []arg{normal(1, 1, 2, 3), normal(1, 1, 3, 3), normal(1, 1, 3, 3),
			constant(onnx.NewTensor([]bool{false, false, false, true, false, true}, 2, 3))}},
	{op: "RMSNormalization", opset: 23, in: []arg{normal(2, 3, 4), weight(4)}},
	{op: "RMSNormalization", note: "axis 1", opset: 23, in: []arg{normal(2, 3, 4), weight(3, 4)},
		attrs: []onnx.Attr{attr("axis", 1)}},
	{op: "RotaryEmbedding", opset: 23,
		in: []arg{normal(1, 2, 3, 4), normal(1, 3, 2), normal(1, 3, 2)}},
	{op: "RotaryEmbedding", note: "interleaved, in part, by position", opset: 23,
		in: []arg{normal(1, 3, 12), normal(5, 2), normal(5, 2), grid([]int{1, 3}, 4, 0, 2)},
		attrs: []onnx.Attr{attr("interleaved", 1), attr("num_heads", 2),
			attr("rotary_embedding_dim", 4)}},
	{op: "Swish", opset: 24, in: []arg{normal(2, 3)},
		attrs: []onnx.Attr{onnx.FloatAttr("alpha", 1.5)}},
	{op: "SwiGLU", opset: 28, in: []arg{normal(2, 3), normal(2, 3)}},

	// Poolings.
	{op: "MaxPool", in: []arg{spaced(2, 2, 4, 4)},
		attrs: []onnx.Attr{ints("kernel_shape", 2, 2), ints("strides", 2, 2)}},
	{op: "MaxPool", note: "overlapping", in: []arg{spaced(1, 2, 5, 5)},
		attrs: []onnx.Attr{ints("kernel_shape", 3, 3), ints("strides", 2, 2),
			ints("pads", 1, 1, 1, 1)}},
	{op: "MaxPool", note: "ceil", in: []arg{spaced(1, 2, 6, 5)},
		attrs: []onnx.Attr{ints("kernel_shape", 3, 2), ints("strides", 2, 2), attr("ceil_mode", 1)}},
	{op: "MaxPool", note: "ceil, a window beyond the axis", in: []arg{spaced(1, 2, 3, 5)},
		attrs: []onnx.Attr{ints("kernel_shape", 4, 2), ints("strides", 2, 2), attr("ceil_mode", 1)}},
	{op: "AveragePool", in: []arg{normal(2, 2, 4, 6)},
		attrs: []onnx.Attr{ints("kernel_shape", 2, 2), ints("strides", 2, 2)}},
	{op: "AveragePool", note: "overlapping", in: []arg{normal(1, 2, 5, 6)},
		attrs: []onnx.Attr{ints("kernel_shape", 3, 3), ints("strides", 2, 2)}},
	{op: "AveragePool", note: "padded", in: []arg{normal(1, 2, 5, 5)},
		attrs: []onnx.Attr{ints("kernel_shape", 3, 3), ints("strides", 2, 2),
			ints("pads", 1, 1, 1, 1)}},
	{op: "AveragePool", note: "padded stride 1", in: []arg{normal(1, 2, 5, 5)},
		attrs: []onnx.Attr{ints("kernel_shape", 3, 2), ints("pads", 1, 0, 1, 1)}},
	{op: "AveragePool", note: "padding counted", in: []arg{normal(1, 2, 5, 5)},
		attrs: []onnx.Attr{ints("kernel_shape", 3, 3), ints("strides", 2, 2), ints("pads", 1, 1, 1, 1),
			attr("count_include_pad", 1)}},
	{op: "AveragePool", note: "ceil", static: true, in: []arg{normal(1, 2, 6, 5)},
		attrs: []onnx.Attr{ints("kernel_shape", 3, 2), ints("strides", 2, 2), attr("ceil_mode", 1)}},
	{op: "AveragePool", note: "ceil, a window beyond the axis", static: true, in: []arg{normal(1, 2, 3, 5)},
		attrs: []onnx.Attr{ints("kernel_shape", 4, 2), ints("strides", 2, 2), attr("ceil_mode", 1)}},
	{op: "GlobalAveragePool", in: []arg{normal(2, 3, 4, 5)}},
	{op: "GlobalMaxPool", in: []arg{spaced(2, 3, 2, 3)}},

	// Normalizations.
	{op: "BatchNormalization",
		in: []arg{normal(2, 3, 2, 4), weight(3), weight(3), weight(3), uniformWeight(0.5, 2, 3)}},
	{op: "BatchNormalization", note: "rank 2",
		in: []arg{normal(4, 3), weight(3), weight(3), weight(3), uniformWeight(0.5, 2, 3)}},
	{op: "BatchNormalization", note: "training",
		in: []arg{normal(4, 3, 2, 2), weight(3), weight(3), constant(onnx.Vector[float32](0, 0, 0)),
			constant(onnx.Vector[float32](1, 1, 1))},
		attrs: []onnx.Attr{attr("training_mode", 1)}, outputs: -3},
	{op: "BatchNormalization", note: "training, long memory",
		in: []arg{normal(4, 3, 2, 2), weight(3), weight(3), constant(onnx.Vector[float32](0, 0, 0)),
			constant(onnx.Vector[float32](1, 1, 1))},
		attrs: []onnx.Attr{attr("training_mode", 1), onnx.FloatAttr("momentum", 0.999)}, outputs: -3},
	{op: "LayerNormalization", in: []arg{normal(3, 4), weight(4), weight(4)}},
	{op: "LayerNormalization", note: "axis 1", in: []arg{normal(2, 3, 4), weight(3, 4)},
		attrs: []onnx.Attr{attr("axis", 1)}},
	{op: "InstanceNormalization", in: []arg{normal(2, 3, 3, 4), weight(3), weight(3)}},
	{op: "GroupNormalization", opset: 21,
		in: []arg{{shape: []int{2, 4, 2, 3}, draw: normal().draw, fixed: true},
			weight(4), weight(4)},
		attrs: []onnx.Attr{attr("num_groups", 2)}},
	{op: "LpNormalization", in: []arg{away(3, 4)}, attrs: []onnx.Attr{attr("axis", 1)}},
	{op: "LpNormalization", note: "p 1", in: []arg{away(3, 4)},
		attrs: []onnx.Attr{attr("axis", 0), attr("p", 1)}},

	{op: "MeanVarianceNormalization", in: []arg{normal(3, 2, 2, 3)}},
	{op: "MeanVarianceNormalization", note: "axes", in: []arg{normal(3, 4)},
		attrs: []onnx.Attr{ints("axes", -1)}},
	{op: "GlobalLpPool", in: []arg{away(2, 3, 4)}},
	{op: "GlobalLpPool", note: "p 1", in: []arg{away(2, 3, 2, 2)}, attrs: []onnx.Attr{attr("p", 1)}},
	{op: "GlobalLpPool", note: "p 3", in: []arg{away(2, 3, 4)}, attrs: []onnx.Attr{attr("p", 3)}},
	{op: "LpPool", in: []arg{away(2, 2, 4, 6)},
		attrs: []onnx.Attr{ints("kernel_shape", 2, 2), ints("strides", 2, 2)}},
	{op: "LpPool", note: "p 1, overlapping", in: []arg{away(1, 2, 5, 6)},
		attrs: []onnx.Attr{ints("kernel_shape", 3, 2), attr("p", 1)}},
	{op: "LpPool", note: "p 3, padded", in: []arg{away(1, 2, 5, 5)},
		attrs: []onnx.Attr{ints("kernel_shape", 3, 3), ints("pads", 1, 0, 1, 2),
			ints("strides", 2, 1), attr("p", 3)}},
	{op: "LRN", static: true, in: []arg{normal(2, 6, 2, 3)},
		attrs: []onnx.Attr{attr("size", 3), onnx.FloatAttr("alpha", .5)}},
	{op: "LRN", note: "five channels of five", static: true, in: []arg{normal(1, 5, 2, 2)},
		attrs: []onnx.Attr{attr("size", 5), onnx.FloatAttr("alpha", .9), onnx.FloatAttr("beta", .6),
			onnx.FloatAttr("bias", 1.5)}},
	{op: "CenterCropPad", opset: 18, in: []arg{normal(4, 3, 5), indices(2, 6, 5)}},
	{op: "CenterCropPad", note: "axes, odd", opset: 18, in: []arg{normal(2, 5, 4), indices(7, 2)},
		attrs: []onnx.Attr{ints("axes", -1, 1)}},
	{op: "CenterCropPad", note: "cut, odd", opset: 18, in: []arg{normal(6, 5), indices(3, 2)}},
	{op: "Det", in: []arg{normal(2, 3, 3)}, static: true},
	{op: "Det", note: "singular", in: []arg{fixedValues([]int{2, 2}, 1, 2, 2, 4)}, static: true},
	{op: "Det", note: "of one row", in: []arg{normal(3, 1, 1)}, static: true},
	{op: "MaxUnpool", in: []arg{normal(1, 1, 2, 2), grid([]int{1, 1, 2, 2}, 5, 2, 8, 15)},
		attrs: []onnx.Attr{ints("kernel_shape", 2, 2), ints("strides", 2, 2)}},
	{op: "MaxUnpool", note: "of a size",
		in:    []arg{normal(1, 1, 2, 2), grid([]int{1, 1, 2, 2}, 0, 3, 5, 8), indices(1, 1, 3, 3)},
		attrs: []onnx.Attr{ints("kernel_shape", 2, 2)}},
	{op: "TensorScatter", opset: 24, in: []arg{normal(2, 5, 3), normal(2, 2, 3), indices(1, 3)}},
	{op: "TensorScatter", note: "from the first", opset: 24,
		in: []arg{normal(2, 2, 5), normal(2, 2, 3)}, attrs: []onnx.Attr{attr("axis", 2)}},
	{op: "TensorScatter", note: "circular", opset: 24,
		in:    []arg{normal(2, 5, 3), normal(2, 2, 3), indices(4, 3)},
		attrs: []onnx.Attr{onnx.StrAttr("mode", "circular")}},
	{op: "Range", in: []arg{normal(), constant(onnx.Scalar[float32](9)), uniform(1, 2)}, static: true},
	{op: "SpaceToDepth", note: "by columns", opset: 28, in: []arg{normal(1, 3, 4, 6)},
		attrs: []onnx.Attr{attr("blocksize", 2), onnx.StrAttr("mode", "CRD")}, static: true},
	{op: "CumProd", opset: 26, in: []arg{away(3, 4), constant(onnx.Scalar[int64](1))}},
	{op: "CumProd", note: "zeros", opset: 26,
		in: []arg{fixedValues([]int{4}, 2, 0, .5, 3), constant(onnx.Scalar[int64](0))}},
	{op: "CumProd", note: "exclusive", opset: 26,
		in:    []arg{away(4, 3), constant(onnx.Scalar[int64](-2))},
		attrs: []onnx.Attr{attr("exclusive", 1)}},
	{op: "CumProd", note: "reverse", opset: 26,
		in:    []arg{away(2, 4, 2), constant(onnx.Scalar[int64](1))},
		attrs: []onnx.Attr{attr("reverse", 1)}},
	{op: "CumProd", note: "both", opset: 26, in: []arg{away(2, 4), constant(onnx.Scalar[int64](1))},
		attrs: []onnx.Attr{attr("reverse", 1), attr("exclusive", 1)}},
	{op: "AffineGrid", opset: 20, in: []arg{normal(2, 2, 3), indices(2, 3, 4, 5)}},
	{op: "AffineGrid", note: "volumes, corners aligned", opset: 20,
		in:    []arg{normal(2, 3, 4), indices(2, 3, 2, 3, 2)},
		attrs: []onnx.Attr{attr("align_corners", 1)}},
	{op: "LinearAttention", opset: 27, in: []arg{normal(2, 3, 8), normal(2, 3, 4), normal(2, 3, 6)},
		attrs: []onnx.Attr{attr("q_num_heads", 4), attr("kv_num_heads", 2),
			onnx.StrAttr("update_rule", "linear")}, outputs: 2},
	{op: "LinearAttention", note: "gated", opset: 27,
		in: []arg{normal(2, 3, 4), normal(2, 3, 4), normal(2, 3, 6), normal(2, 2, 2, 3),
			uniform(-1, 0, 2, 3, 4)},
		attrs: []onnx.Attr{attr("q_num_heads", 2), attr("kv_num_heads", 2),
			onnx.StrAttr("update_rule", "gated")}, outputs: 2},
	{op: "LinearAttention", note: "delta", opset: 27,
		in: []arg{normal(2, 3, 4), normal(2, 3, 4), normal(2, 3, 6), absent, absent,
			uniform(0, 1, 2, 3, 1)},
		attrs: []onnx.Attr{attr("q_num_heads", 2), attr("kv_num_heads", 2),
			onnx.StrAttr("update_rule", "delta"), onnx.FloatAttr("scale", .3)}},
	{op: "LinearAttention", note: "gated delta", opset: 27,
		in: []arg{normal(1, 3, 4), normal(1, 3, 4), normal(1, 3, 6), absent, uniform(-1, 0, 1, 3, 2),
			uniform(0, 1, 1, 3, 2)},
		attrs: []onnx.Attr{attr("q_num_heads", 2), attr("kv_num_heads", 2)}, outputs: 2},
	{op: "RoiAlign", note: "maximum", in: []arg{spaced(2, 2, 6, 7),
		constant(onnx.NewTensor([]float32{.3, .2, 5.1, 4.7, 1.1, .9, 6.2, 5.3}, 2, 4)), indices(1, 0)},
		attrs: []onnx.Attr{onnx.StrAttr("mode", "max"), attr("output_height", 2),
			attr("output_width", 2), attr("sampling_ratio", 2)}, opset: 16},
	{op: "Compress", in: []arg{normal(3, 4), constant(onnx.Vector(true, false, true, true, false, true, true))}},
	{op: "Compress", note: "along an axis",
		in:    []arg{normal(2, 4, 3), constant(onnx.Vector(false, true, true))},
		attrs: []onnx.Attr{attr("axis", -2)}},
	{op: "NegativeLogLikelihoodLoss", in: []arg{normal(3, 4), indices(1, 0, 3)}},
	{op: "NegativeLogLikelihoodLoss", note: "weights, one ignored",
		in: []arg{normal(3, 4, 2), grid([]int{3, 2}, 1, 0, 3, -7, 2, 1),
			constant(onnx.Vector[float32](.5, 2, 1, .2))},
		attrs: []onnx.Attr{attr("ignore_index", -7)}},
	{op: "NegativeLogLikelihoodLoss", note: "each",
		in:    []arg{normal(3, 4, 2), grid([]int{3, 2}, 1, 0, 3, 2, 2, 1)},
		attrs: []onnx.Attr{onnx.StrAttr("reduction", "none")}},
	{op: "SoftmaxCrossEntropyLoss", in: []arg{normal(3, 4), indices(1, 0, 3)}},
	{op: "SoftmaxCrossEntropyLoss", note: "of int32 labels, two outputs",
		in:      []arg{normal(3, 4, 2), constant(onnx.NewTensor([]int32{1, 0, 3, 2, 2, 1}, 3, 2))},
		outputs: 2},
	{op: "SoftmaxCrossEntropyLoss", note: "sum, weights, one ignored",
		in:    []arg{normal(3, 4), indices(1, 2, 3), constant(onnx.Vector[float32](.5, 2, 1, .2))},
		attrs: []onnx.Attr{attr("ignore_index", 2), onnx.StrAttr("reduction", "sum")}},

	{op: "Mod", in: []arg{fixedValues([]int{2, 3}, 2.3, -2.4, 5.2, -5.5, .4, 7.3),
		fixedValues([]int{3}, 1.5, -1.1, 2)},
		attrs: []onnx.Attr{attr("fmod", 1)}},
	{op: "Shrink", in: []arg{away(3, 4)},
		attrs: []onnx.Attr{onnx.FloatAttr("lambd", 0.05), onnx.FloatAttr("bias", 0.02)}},

	// Reductions.
	{op: "ReduceSum", in: []arg{normal(2, 3)}},
	{op: "ReduceSum", note: "axes", in: []arg{normal(2, 3, 4), indices(0, -1)},
		attrs: []onnx.Attr{attr("keepdims", 0)}},
	{op: "ReduceSum", note: "nothing", in: []arg{normal(2, 3)},
		attrs: []onnx.Attr{attr("noop_with_empty_axes", 1)}},
	{op: "ReduceMean", in: []arg{normal(2, 3, 4)}, attrs: []onnx.Attr{ints("axes", 1)}},
	{op: "ReduceMean", note: "all", in: []arg{normal(2, 3)}, attrs: []onnx.Attr{attr("keepdims", 0)}},
	{op: "ReduceMean", note: "opset 18", opset: 18, in: []arg{normal(2, 3, 4), indices(-1)},
		attrs: []onnx.Attr{attr("keepdims", 0)}},
	{op: "ReduceMax", in: []arg{spaced(2, 3, 4)},
		attrs: []onnx.Attr{ints("axes", 1), attr("keepdims", 0)}},
	{op: "ReduceMin", in: []arg{spaced(2, 3, 4)}, attrs: []onnx.Attr{ints("axes", 0, 2)}},
	{op: "ReduceLogSumExp", in: []arg{normal(2, 3, 4)},
		attrs: []onnx.Attr{ints("axes", -1), attr("keepdims", 0)}},
	{op: "ReduceLogSum", in: []arg{uniform(0.5, 2, 2, 3)}, attrs: []onnx.Attr{ints("axes", 1)}},
	{op: "ReduceL1", in: []arg{away(2, 3)}, attrs: []onnx.Attr{ints("axes", 1), attr("keepdims", 0)}},
	{op: "ReduceL2", in: []arg{normal(2, 3)},
		attrs: []onnx.Attr{ints("axes", 1), attr("keepdims", 0)}},
	{op: "ReduceSumSquare", in: []arg{normal(2, 3)}, attrs: []onnx.Attr{ints("axes", 0)}},
	{op: "ReduceProd", in: []arg{away(2, 3)},
		attrs: []onnx.Attr{ints("axes", 1), attr("keepdims", 0)}},
	{op: "ReduceProd", note: "zeros", in: []arg{fixedValues([]int{3, 3}, 0, 1, 2, 0, 0, 3, 1, 2, 3)},
		attrs: []onnx.Attr{ints("axes", 1)}},
	{op: "CumSum", in: []arg{normal(2, 4), constant(onnx.Scalar(int64(1)))}},
	{op: "CumSum", note: "exclusive reverse", in: []arg{normal(3, 2), constant(onnx.Scalar(int64(0)))},
		attrs: []onnx.Attr{attr("exclusive", 1), attr("reverse", 1)}},

	// Movement.
	{op: "Reshape", in: []arg{normal(2, 3), indices(3, -1)}},
	{op: "Flatten", in: []arg{normal(2, 3, 2)}},
	{op: "Squeeze", in: []arg{normal(2, 1, 3), indices(1)}},
	{op: "Unsqueeze", in: []arg{normal(2, 3), indices(0, 2)}},
	{op: "Transpose", in: []arg{normal(2, 3, 4)}, attrs: []onnx.Attr{ints("perm", 2, 0, 1)}},
	{op: "Transpose", note: "reversed", in: []arg{normal(2, 3, 4)}},
	{op: "Concat", in: []arg{normal(2, 1), normal(2, 3), normal(2, 2)},
		attrs: []onnx.Attr{attr("axis", -1)}},
	{op: "Split", in: []arg{normal(2, 6), indices(1, 3, 2)},
		attrs: []onnx.Attr{attr("axis", 1)}, outputs: 3},
	{op: "Expand", in: []arg{normal(3, 1), indices(2, 1, 4)}},
	{op: "Tile", in: []arg{normal(2, 3), indices(2, 3)}},
	{op: "DepthToSpace", in: []arg{normal(1, 8, 2, 3)}, attrs: []onnx.Attr{attr("blocksize", 2)}},
	{op: "DepthToSpace", note: "CRD", in: []arg{normal(1, 8, 2, 3)},
		attrs: []onnx.Attr{attr("blocksize", 2), onnx.StrAttr("mode", "CRD")}},
	{op: "SpaceToDepth", in: []arg{normal(1, 2, 4, 6)}, attrs: []onnx.Attr{attr("blocksize", 2)}},
	{op: "Trilu", in: []arg{normal(3, 4)}},
	{op: "Trilu", note: "lower", in: []arg{normal(3, 4), constant(onnx.Scalar(int64(1)))},
		attrs: []onnx.Attr{attr("upper", 0)}},
	{op: "Einsum", note: "three operands", in: []arg{normal(2, 3), normal(3, 4), normal(2, 4, 2)},
		attrs: []onnx.Attr{onnx.StrAttr("equation", "ij,jk,ikl->il")}},
	{op: "Resize", in: []arg{normal(1, 2, 2, 3), absent, constant(onnx.Vector[float32](1, 1, 2, 3))},
		attrs: []onnx.Attr{onnx.StrAttr("coordinate_transformation_mode", "asymmetric"),
			onnx.StrAttr("nearest_mode", "floor")}},
	{op: "Resize", note: "half pixel",
		in: []arg{normal(1, 2, 2, 3), absent, constant(onnx.Vector[float32](1, 1, 3, 2))}},
	{op: "Resize", note: "sizes", static: true,
		in: []arg{normal(1, 2, 2, 3), absent, absent, indices(1, 2, 4, 9)}},

	{op: "Resize", note: "linear",
		in:    []arg{normal(1, 2, 3, 4), absent, constant(onnx.Vector[float32](1, 1, 2, 1.5))},
		attrs: []onnx.Attr{onnx.StrAttr("mode", "linear")}},
	{op: "Resize", note: "linear to sizes, smaller, corners aligned",
		in: []arg{normal(2, 2, 5, 4), absent, absent, indices(2, 2, 3, 7)},
		attrs: []onnx.Attr{onnx.StrAttr("mode", "linear"),
			onnx.StrAttr("coordinate_transformation_mode", "align_corners")}},
	{op: "Resize", note: "linear, antialias, axes", opset: 18,
		in:    []arg{normal(1, 2, 6, 7), absent, absent, indices(3, 3)},
		attrs: []onnx.Attr{onnx.StrAttr("mode", "linear"), attr("antialias", 1), ints("axes", 2, 3)}},
	{op: "Resize", note: "cubic",
		in: []arg{normal(1, 2, 4, 5), absent, constant(onnx.Vector[float32](1, 1, 1.5, 0.6))},
		attrs: []onnx.Attr{onnx.StrAttr("mode", "cubic"), onnx.FloatAttr("cubic_coeff_a", -0.5),
			attr("exclude_outside", 1)}},
	{op: "Resize", note: "nearest by parts",
		in:    []arg{normal(1, 2, 4, 5), absent, constant(onnx.Vector[float32](1, 1, 1.5, 0.6))},
		attrs: []onnx.Attr{onnx.StrAttr("nearest_mode", "ceil")}},
	{op: "Col2Im", opset: 18, in: []arg{normal(2, 12, 6), indices(4, 7), indices(2, 3)},
		attrs: []onnx.Attr{ints("strides", 2, 2), ints("pads", 0, 1, 1, 0)}},
	{op: "GridSample", opset: 20, in: []arg{normal(1, 2, 4, 5), between(false, 4, 5)}},
	{op: "GridSample", note: "border, corners aligned",
		in: []arg{normal(1, 2, 4, 5), between(true, 4, 5)}, opset: 20,
		attrs: []onnx.Attr{onnx.StrAttr("padding_mode", "border"), attr("align_corners", 1)}},
	{op: "GridSample", note: "reflection", in: []arg{normal(1, 2, 4, 5), between(false, 4, 5)},
		opset: 20,
		attrs: []onnx.Attr{onnx.StrAttr("padding_mode", "reflection")}},
	{op: "GridSample", note: "cubic, reflection, corners aligned",
		in: []arg{normal(1, 2, 4, 5), between(true, 4, 5)}, opset: 20,
		attrs: []onnx.Attr{onnx.StrAttr("padding_mode", "reflection"), onnx.StrAttr("mode", "cubic"),
			attr("align_corners", 1)}},
	{op: "GridSample", note: "nearest", in: []arg{normal(1, 2, 4, 5), between(false, 4, 5)}, opset: 20,
		attrs: []onnx.Attr{onnx.StrAttr("mode", "nearest")}},
	{op: "RoiAlign", in: []arg{normal(2, 2, 6, 7),
		constant(onnx.NewTensor([]float32{.6, .7, 5.3, 4.4, -1, 1.3, 9.2, 8.4, 2, 2, 2.5, 6}, 3, 4)),
		indices(1, 0, 1)},
		attrs: []onnx.Attr{attr("output_height", 2), attr("output_width", 3)}},
	{op: "RoiAlign", note: "two points, scaled, old corners", in: []arg{normal(2, 2, 6, 7),
		constant(onnx.NewTensor([]float32{1, 2, 9, 8, 3, 0, 4, 11}, 2, 4)), indices(1, 0)},
		attrs: []onnx.Attr{attr("output_height", 2), attr("output_width", 2), attr("sampling_ratio", 2),
			onnx.FloatAttr("spatial_scale", 0.5),
			onnx.StrAttr("coordinate_transformation_mode", "output_half_pixel")}},
	{op: "DeformConv", opset: 19,
		in: []arg{normal(2, 2, 4, 5), uniformWeight(-1, 1, 3, 2, 2, 2), uniform(.1, .4, 2, 8, 3, 4)}},
	{op: "DeformConv", note: "groups, bias, mask", opset: 19,
		in: []arg{normal(1, 4, 5, 5), uniformWeight(-1, 1, 2, 2, 3, 2), uniform(-.8, -.6, 1, 24, 3, 5),
			normal(2), normal(1, 12, 3, 5)},
		attrs: []onnx.Attr{attr("group", 2), attr("offset_group", 2), ints("strides", 2, 1),
			ints("pads", 1, 1, 1, 0), ints("dilations", 1, 1)}},

	// Transforms; complex numbers are pairs on the last axis.
	{op: "DFT", in: []arg{normal(2, 5, 3, 1)}},
	{op: "DFT", note: "complex", in: []arg{normal(2, 3, 4, 2)}, attrs: []onnx.Attr{attr("axis", 2)}},
	{op: "DFT", note: "inverse", in: []arg{normal(2, 5, 2)}, attrs: []onnx.Attr{attr("inverse", 1)}},
	{op: "DFT", note: "one side", in: []arg{normal(2, 6, 1)}, attrs: []onnx.Attr{attr("onesided", 1)}},
	{op: "DFT", note: "cut", in: []arg{normal(2, 6, 2), constant(onnx.Scalar(int64(4)))}},
	{op: "DFT", note: "filled", in: []arg{normal(2, 3, 1), constant(onnx.Scalar(int64(5)))},
		attrs: []onnx.Attr{attr("onesided", 1)}},
	{op: "DFT", note: "axis as an input", opset: 20,
		in: []arg{normal(4, 2, 1), absent, constant(onnx.Scalar(int64(0)))}},
	{op: "DFT", note: "axis by default", opset: 20,
		in:    []arg{normal(2, 4, 2), constant(onnx.Scalar(int64(3)))},
		attrs: []onnx.Attr{attr("inverse", 1)}},
	{op: "DFT", note: "inverse of one side", in: []arg{normal(2, 4, 2)},
		attrs: []onnx.Attr{attr("inverse", 1), attr("onesided", 1)}},
	{op: "DFT", note: "inverse of one side, odd",
		in:    []arg{normal(2, 3, 2, 2), constant(onnx.Scalar(int64(5)))},
		attrs: []onnx.Attr{attr("inverse", 1), attr("onesided", 1)}},
	{op: "DFT", note: "inverse of one side, axis as an input", opset: 20,
		in:    []arg{normal(4, 2, 2), constant(onnx.Scalar(int64(6))), constant(onnx.Scalar(int64(0)))},
		attrs: []onnx.Attr{attr("inverse", 1), attr("onesided", 1)}},
	{op: "STFT", in: []arg{normal(2, 9, 1), constant(onnx.Scalar(int64(2))), normal(4)}},
	{op: "STFT", note: "two sides, gaps",
		in: []arg{normal(2, 9, 1), constant(onnx.Scalar(int64(4))), normal(3),
			constant(onnx.Scalar(int64(3)))}, attrs: []onnx.Attr{attr("onesided", 0)}},
	{op: "STFT", note: "no window",
		in: []arg{normal(1, 7, 1), constant(onnx.Scalar(int64(1))), absent,
			constant(onnx.Scalar(int64(5)))}},

	// Indexing.
	{op: "Slice", in: []arg{normal(4, 5), indices(1), indices(3)}},
	{op: "Slice", note: "axes",
		in: []arg{normal(4, 5), indices(1, 0), indices(1000, 2), indices(1, 0)}},
	{op: "Slice", note: "from the end",
		in: []arg{normal(4, 5), indices(-2), indices(1000), indices(-1)}},
	{op: "Slice", note: "steps",
		in: []arg{normal(4, 7), indices(1), indices(6), indices(1), indices(2)}},
	{op: "Slice", note: "backwards",
		in: []arg{normal(4, 7), indices(-1, 3), indices(-8, 0), indices(1, 0), indices(-2, -1)}},
	{op: "Gather", in: []arg{normal(4, 3), indices(0, 2, 2, -1)}},
	{op: "Gather", note: "axis 1", in: []arg{normal(2, 4, 3), grid([]int{2, 2}, 3, 0, 3, 1)},
		attrs: []onnx.Attr{attr("axis", 1)}},
	{op: "Gather", note: "one", in: []arg{normal(2, 4), constant(onnx.Scalar(int64(2)))},
		attrs: []onnx.Attr{attr("axis", -1)}},
	{op: "GatherElements", in: []arg{normal(3, 3), grid([]int{2, 3}, 0, 2, 1, 0, 0, 2)}},
	{op: "GatherND", in: []arg{normal(3, 4), grid([]int{3, 1}, 2, 0, 2)}},
	{op: "ScatterElements", in: []arg{normal(3, 3), grid([]int{2, 3}, 0, 2, 1, 1, 0, 2), normal(2, 3)}},
	{op: "ScatterElements", note: "add",
		in:    []arg{normal(3, 3), grid([]int{2, 3}, 0, 2, 1, 0, 0, 2), normal(2, 3)},
		attrs: []onnx.Attr{onnx.StrAttr("reduction", "add")}},
	{op: "ScatterElements", note: "max", opset: 18,
		in:    []arg{spaced(3, 3), grid([]int{2, 3}, 0, 2, 1, 0, 0, 1), spaced(2, 3)},
		attrs: []onnx.Attr{onnx.StrAttr("reduction", "max")}},
	{op: "ScatterElements", note: "min", opset: 18,
		in:    []arg{spaced(3, 3), grid([]int{3, 2}, 0, -1, 1, 1, 0, 2), spaced(3, 2)},
		attrs: []onnx.Attr{onnx.StrAttr("reduction", "min"), attr("axis", 1)}},
	{op: "ScatterElements", note: "mul, zeros",
		in: []arg{normal(3, 3), grid([]int{3, 3}, 0, 2, 1, 0, 0, 1, 0, 2, 0),
			fixedValues([]int{3, 3}, 0, 2, 0, 3, 1.5, 0, -1, .5, 2)},
		attrs: []onnx.Attr{onnx.StrAttr("reduction", "mul")}},
	{op: "ScatterND", note: "max", opset: 18,
		in:    []arg{spaced(4, 2), grid([]int{3, 1}, 3, 1, 3), spaced(3, 2)},
		attrs: []onnx.Attr{onnx.StrAttr("reduction", "max")}},
	{op: "ScatterND", note: "mul", in: []arg{normal(4, 2), grid([]int{3, 1}, 3, 1, 3), away(3, 2)},
		attrs: []onnx.Attr{onnx.StrAttr("reduction", "mul")}},
	{op: "ScatterND", in: []arg{normal(4, 2), grid([]int{2, 1}, 3, 1), normal(2, 2)}},
	{op: "ReverseSequence", in: []arg{normal(4, 3, 2), constant(onnx.Vector[int64](2, 4, 1))}},
	{op: "ReverseSequence", note: "batch first",
		in:    []arg{normal(3, 4), constant(onnx.Vector[int64](2, 4, 3))},
		attrs: []onnx.Attr{attr("time_axis", 1), attr("batch_axis", 0)}},
	{op: "TopK", in: []arg{spaced(3, 5), indices(2)}, outputs: -2},
	{op: "Pad", in: []arg{normal(2, 3), indices(0, 1, 2, 0)}},
	{op: "Pad", note: "value and crop", in: []arg{normal(2, 3), indices(1, -1, 0, 2), normal()}},
	{op: "Pad", note: "reflect", in: []arg{normal(3, 4), indices(1, 2, 2, 1)},
		attrs: []onnx.Attr{onnx.StrAttr("mode", "reflect")}},
	{op: "Pad", note: "edge", in: []arg{normal(3, 4), indices(1, 2, 2, 1)},
		attrs: []onnx.Attr{onnx.StrAttr("mode", "edge")}},
	{op: "Pad", note: "axes", opset: 18, in: []arg{normal(3, 4), indices(1, 2), absent, indices(1)}},
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
	g := &onnx.Graph{Name: k.op, Initializers: map[string]*onnx.Tensor{}}
	node := &onnx.Node{Name: "node", Op: k.op, Attrs: k.attrs}
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
	// A negative number of outputs: only the first is differentiated.
	n := max(1, k.outputs, -k.outputs)
	for i := range n {
		name := fmt.Sprintf("y%d", i)
		node.Outputs = append(node.Outputs, name)
		if i == 0 || k.outputs > 0 {
			g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: name})
		}
	}
	g.Nodes = []*onnx.Node{node}
	m = onnx.NewModel(g)
	if k.opset != 0 {
		m.Opsets[""] = int64(k.opset)
	}
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
		tested[k.op] = true
		for _, symbolic := range []bool{false, true} {
			if symbolic && k.static {
				continue
			}
			name := k.name()
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
		out := must.Get(engine.Eval(primal, values))(t)
		return out
	}

	gm := must.Get(Build(m, Options{WRT: wrt, Prefix: "bar_"}))(t)
	gs := load(t, eng, gm)
	gFeeds := map[string]*onnx.Tensor{}
	for n, v := range feeds {
		gFeeds[n] = v
	}
	r := rand.New(rand.NewPCG(3, 4))
	cot := map[string][]float64{}
	for name, y := range eval() {
		if !y.DType.IsFloat() {
			continue
		}
		c := y.Clone()
		cot[name] = make([]float64, y.Len())
		for i := range cot[name] {
			v := r.NormFloat64()
			switch d := c.Data.(type) {
			case []float32:
				d[i] = float32(v)
				cot[name][i] = float64(d[i])
			case []float64:
				d[i] = v
				cot[name][i] = v
			}
		}
		gFeeds["bar_"+name] = c
	}
	got := must.Get(engine.Eval(gs, gFeeds))(t)

	// ⟨ȳ, y⟩ with the element at x moved by each of four steps.
	inner := func() float64 {
		var s float64
		for name, y := range eval() {
			for i, c := range cot[name] {
				switch d := y.Data.(type) {
				case []float32:
					s += c * float64(d[i])
				case []float64:
					s += c * d[i]
				}
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

// inputsOf draws the inputs of a derivative's graph that are none of the model's, between -1 and 1.
func inputsOf(m *onnx.Model, feeds map[string]*onnx.Tensor,
	like func(name string) *onnx.Tensor) map[string]*onnx.Tensor {
	r := rand.New(rand.NewPCG(5, 6))
	all := maps.Clone(feeds)
	for _, v := range m.Graph.Inputs {
		if all[v.Name] != nil {
			continue
		}
		x := like(v.Name).Clone()
		for i := range x.Len() {
			draw := 2*r.Float64() - 1
			switch d := x.Data.(type) {
			case []float32:
				d[i] = float32(draw)
			case []float64:
				d[i] = draw
			}
		}
		all[v.Name] = x
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
	if err != nil {
		t.Fatal(err)
	}
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
		out := must.Get(engine.Eval(gradient, given(gm, moved)))(t)
		return out
	}
	up, down, up2, down2 := at(h), at(-h), at(2*h), at(-2*h)
	for _, w := range wrt {
		key, g := "grad_"+w, got["hvp_"+w]
		for i := range g.Len() {
			want := (8*(up[key].At(i)-down[key].At(i)) - (up2[key].At(i) - down2[key].At(i))) / (12 * h)
			if !(math.Abs(g.At(i)-want) <= 5e-3*(1+math.Abs(want))) {
				t.Errorf("hvp_%s[%d] is %g, central differences of gradients give %g", w,
					i, g.At(i), want)
			}
		}
	}
}

func TestMissingRuleNamesNodeAndOperator(t *testing.T) {
	g := &onnx.Graph{Name: "pool",
		Inputs:  []onnx.ValueInfo{{Name: "x", DType: onnx.Float32, Shape: onnx.Shape(1, 1, 2, 2)}},
		Outputs: []onnx.ValueInfo{{Name: "y", DType: onnx.Float32}},
		Nodes: []*onnx.Node{{Name: "the_node", Op: "MaxRoiPool", Inputs: []string{"x", "rois"},
			Outputs: []string{"y"},
			Attrs:   []onnx.Attr{ints("pooled_shape", 1, 1)}}},
		Initializers: map[string]*onnx.Tensor{"rois": onnx.ZerosF32(1, 5)}}
	m := onnx.NewModel(g)
	_, err := Build(m, Options{WRT: []string{"x"}})
	if !errors.Is(err, errNoRule) || !strings.Contains(err.Error(), "the_node") ||
		!strings.Contains(err.Error(), "MaxRoiPool") {
		t.Errorf("error is %v; want one that names node and operator", err)
	}
	if err := Supports(m); err == nil || !strings.Contains(err.Error(), "MaxRoiPool") {
		t.Errorf("Supports says %v", err)
	}
}

func TestBuildRefusesUnknownNames(t *testing.T) {
	k := ruleCase{op: "Add", in: []arg{normal(2), weight(2)}}
	m, _, _ := k.model(false, 1)
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
		if _, err := Build(m, c.opt); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error is %v; want one with %s", c.opt, err, c.want)
		}
	}
	if _, err := Build(nil, Options{}); err == nil {
		t.Error("a nil model was accepted")
	}
}

// In training Dropout draws its mask once: the gradient passes what that run kept, scaled as the
// result is.
func TestDropoutsGradientPassesWhatWasKept(t *testing.T) {
	const n, ratio = 64, 0.25
	g := &onnx.Graph{
		Name:    "dropout",
		Inputs:  []onnx.ValueInfo{{Name: "x", DType: onnx.Float32, Shape: onnx.Shape(n)}},
		Outputs: []onnx.ValueInfo{{Name: "y"}},
		Initializers: map[string]*onnx.Tensor{"ratio": onnx.Scalar[float32](ratio),
			"training": onnx.Scalar(true)},
		Nodes: []*onnx.Node{{Name: "node", Op: "Dropout",
			Inputs: []string{"x", "ratio", "training"}, Outputs: []string{"y"}}},
	}
	m := onnx.NewModel(g)
	gm := must.Get(Build(m, Options{WRT: []string{"x"}, Prefix: "bar_", KeepOutputs: true}))(t)
	x, bar := onnx.ZerosF32(n), onnx.ZerosF32(n)
	for i := range n {
		x.F32()[i], bar.F32()[i] = float32(i+1), float32(i+2)
	}
	out := must.Get(engine.Eval(load(t, orttest.New(t), gm), map[string]*onnx.Tensor{"x": x, "bar_y": bar}))(t)
	kept := 0
	for i, y := range out["y"].F32() {
		want := float32(0)
		if y != 0 {
			kept++
			want = bar.F32()[i] / (1 - ratio)
		}
		if got := out["bar_x"].F32()[i]; math.Abs(float64(got-want)) > 1e-4 {
			t.Errorf("element %d: the result is %v and the gradient %v, want %v", i, y, got, want)
		}
	}
	if kept == 0 || kept == n {
		t.Errorf("%d of %d elements were kept", kept, n)
	}
}

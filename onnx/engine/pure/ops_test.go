//go:build cgo

package pure_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

// opCase is one row of the table.
type opCase struct {
	op      string
	opset   int64
	in      []*onnx.Tensor
	attrs   []onnx.Attr
	outputs int // 0 means 1
}

// random makes tensors for the table.
type random struct{ *rand.Rand }

func (r random) f(shape ...int) *onnx.Tensor {
	t := onnx.ZerosF32(shape...)
	for i := range t.F32() {
		t.F32()[i] = float32(r.NormFloat64())
	}
	return t
}

// pos is above 0.1 and below 0.9.
func (r random) pos(shape ...int) *onnx.Tensor {
	t := onnx.ZerosF32(shape...)
	for i := range t.F32() {
		t.F32()[i] = 0.1 + 0.8*r.Float32()
	}
	return t
}

func (r random) double(shape ...int) *onnx.Tensor {
	t, _ := onnx.Zeros(onnx.Float64, shape...)
	for i := range t.F64() {
		t.F64()[i] = r.NormFloat64()
	}
	return t
}

// i is between lo and hi-1.
func (r random) i(lo, hi int, shape ...int) *onnx.Tensor {
	t, _ := onnx.Zeros(onnx.Int64, shape...)
	for i := range t.I64() {
		t.I64()[i] = int64(lo + r.IntN(hi-lo))
	}
	return t
}

func (r random) b(shape ...int) *onnx.Tensor {
	t, _ := onnx.Zeros(onnx.Bool, shape...)
	for i := range t.Data.([]bool) {
		t.Data.([]bool)[i] = r.IntN(2) == 0
	}
	return t
}

func (r random) u8(shape ...int) *onnx.Tensor {
	t, _ := onnx.Zeros(onnx.Uint8, shape...)
	for i := range t.U8() {
		t.U8()[i] = uint8(r.IntN(256))
	}
	return t
}

func ax(v ...int64) *onnx.Tensor { return onnx.Vector(v...) }

func opCases() []opCase {
	r := random{rand.New(rand.NewPCG(7, 7))}
	var cs []opCase
	add := func(op string, opset int64, in []*onnx.Tensor, attrs ...onnx.Attr) {
		cs = append(cs, opCase{op: op, opset: opset, in: in, attrs: attrs})
	}
	many := func(outputs int, op string, opset int64, in []*onnx.Tensor, attrs ...onnx.Attr) {
		cs = append(cs, opCase{op: op, opset: opset, in: in, attrs: attrs, outputs: outputs})
	}
	ts := func(t ...*onnx.Tensor) []*onnx.Tensor { return t }
	I, Is, F, S := onnx.IntAttr, onnx.IntsAttr, onnx.FloatAttr, onnx.StrAttr

	for _, op := range []string{"Exp", "Neg", "Abs", "Sign", "Ceil", "Floor", "Round", "Sin", "Cos",
		"Tan", "Atan", "Sinh", "Cosh", "Asinh", "Tanh", "Erf", "Sigmoid", "Softplus",
		"Softsign", "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish",
		"ThresholdedRelu", "Shrink", "Identity", "IsNaN", "IsInf", "Flatten",
		"Softmax", "LogSoftmax", "Hardmax"} {
		add(op, 17, ts(r.f(3, 4, 5)))
	}
	for _, op := range []string{"Log", "Sqrt", "Reciprocal", "Asin", "Acos", "Atanh"} {
		add(op, 17, ts(r.pos(3, 70)))
	}
	add("Gelu", 20, ts(r.f(3, 5)))
	add("Gelu", 20, ts(r.f(3, 5)), S("approximate", "tanh"))
	add("Mish", 18, ts(r.f(3, 5)))
	for _, op := range []string{"Add", "Sub", "Mul", "Div"} {
		add(op, 17, ts(r.f(2, 3, 4), r.f(2, 3, 4)))
		add(op, 17, ts(r.f(2, 3, 4), r.f(4)))
		add(op, 17, ts(r.f(3, 1), r.f(2, 1, 4)))
		add(op, 17, ts(r.f(), r.f(2, 3)))
		add(op, 17, ts(r.double(2, 1, 3), r.double(5, 1)))
		add(op, 17, ts(r.i(-9, 9, 2, 3), r.i(1, 9, 3)))
		add(op, 17, ts(r.f(0, 3), r.f(1, 3)))
	}
	add("Pow", 17, ts(r.pos(3, 4), r.f(4)))
	add("Pow", 17, ts(r.f(3, 4), onnx.Scalar[float32](2)))
	add("Pow", 17, ts(r.i(-5, 5, 3, 4), r.i(0, 4, 4)))
	add("Pow", 17, ts(r.pos(3, 4), r.i(0, 4, 4)))
	add("Mod", 17, ts(r.i(-9, 9, 3, 4), onnx.Vector[int64](3, -3, 2, 5)))
	add("Mod", 17, ts(r.f(3, 4), r.pos(4)), I("fmod", 1))
	for _, op := range []string{"Max", "Min", "Sum", "Mean"} {
		add(op, 17, ts(r.f(2, 3), r.f(3), r.f(2, 1)))
		add(op, 17, ts(r.f(3, 1), r.f(1, 4), r.f(2, 1, 1)))
		add(op, 17, ts(r.f(2, 3)))
	}
	for _, op := range []string{"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"} {
		add(op, 17, ts(r.i(0, 3, 4, 5), r.i(0, 3, 5)))
		add(op, 17, ts(r.f(4, 5), r.f(4, 1)))
	}
	for _, op := range []string{"And", "Or", "Xor"} {
		add(op, 17, ts(r.b(4, 5), r.b(5)))
	}
	add("Not", 17, ts(r.b(4)))
	add("Where", 17, ts(r.b(3, 1), r.f(4), r.f(2, 3, 4)))
	add("Where", 17, ts(r.b(3, 1), r.i(0, 9, 4), r.i(0, 9, 2, 3, 4)))
	add("Where", 17, ts(r.b(3), r.u8(1), r.u8(3)))
	add("Clip", 17, ts(r.f(3, 4), onnx.Scalar[float32](-0.5), onnx.Scalar[float32](0.5)))
	add("Clip", 17, ts(r.f(3, 4), nil, onnx.Scalar[float32](0.5)))
	add("Clip", 10, ts(r.f(3, 4)), F("min", -0.3))
	add("PRelu", 17, ts(r.f(2, 3, 4), r.f(3, 1)))

	add("MatMul", 17, ts(r.f(5, 70), r.f(70, 130)))
	add("MatMul", 17, ts(r.f(2, 3, 4, 5), r.f(2, 1, 5, 6)))
	add("MatMul", 17, ts(r.f(3, 1, 4, 5), r.f(2, 5, 3)))
	add("MatMul", 17, ts(r.f(3, 100, 5), r.f(5, 6)))
	add("MatMul", 17, ts(r.f(5), r.f(2, 5, 6)))
	add("MatMul", 17, ts(r.f(2, 5), r.f(5)))
	add("MatMul", 17, ts(r.f(5), r.f(5)))
	add("MatMul", 17, ts(r.double(4, 5), r.double(5, 3)))
	add("MatMul", 17, ts(r.i(-4, 4, 4, 5), r.i(-4, 4, 5, 3)))
	add("MatMul", 17, ts(r.f(2, 0), r.f(0, 3)))
	for _, ta := range []int{0, 1} {
		for _, tb := range []int{0, 1} {
			a, b := r.f(7, 5), r.f(5, 6)
			if ta == 1 {
				a = r.f(5, 7)
			}
			if tb == 1 {
				b = r.f(6, 5)
			}
			add("Gemm", 17, ts(a, b, r.f(6)), I("transA", ta), I("transB", tb),
				F("alpha", 0.5), F("beta", 2))
		}
	}
	add("Gemm", 17, ts(r.f(3, 4), r.f(4, 2)))
	add("Gemm", 9, ts(r.f(3, 4), r.f(4, 2), r.f(3, 1)))

	add("Conv", 17, ts(r.f(2, 3, 8, 9), r.f(4, 3, 3, 3), r.f(4)), Is("pads", 1, 1, 1, 1))
	add("Conv", 17, ts(r.f(2, 3, 8, 9), r.f(4, 3, 1, 1)))
	add("Conv", 17, ts(r.f(2, 4, 9, 9), r.f(6, 2, 3, 2)), I("group", 2), Is("strides", 2, 1),
		Is("dilations", 1, 2), Is("pads", 0, 1, 2, 1))
	add("Conv", 17, ts(r.f(1, 4, 9, 9), r.f(4, 1, 3, 3), r.f(4)), I("group", 4), Is("strides", 2, 2),
		Is("pads", 1, 1, 1, 1))
	add("Conv", 17, ts(r.f(1, 4, 9, 9), r.f(8, 1, 3, 3)), I("group", 4))
	add("Conv", 17, ts(r.f(1, 2, 7, 8), r.f(3, 2, 3, 2)), S("auto_pad", "SAME_UPPER"),
		Is("strides", 2, 2))
	add("Conv", 17, ts(r.f(1, 2, 7, 8), r.f(3, 2, 3, 2)), S("auto_pad", "SAME_LOWER"),
		Is("strides", 2, 2))
	add("Conv", 17, ts(r.f(1, 2, 7, 8), r.f(3, 2, 3, 2)), S("auto_pad", "VALID"))
	add("Conv", 17, ts(r.f(2, 3, 12), r.f(4, 3, 5)), Is("pads", 2, 2))
	add("Conv", 17, ts(r.f(1, 2, 5, 6, 7), r.f(3, 2, 2, 3, 2)), Is("pads", 1, 0, 1, 0, 1, 0))
	// more than one tile
	add("Conv", 17, ts(r.f(1, 32, 64, 64), r.f(8, 32, 3, 3)), Is("pads", 1, 1, 1, 1))
	add("ConvTranspose", 17, ts(r.f(1, 3, 4, 5), r.f(3, 2, 3, 3), r.f(2)), Is("strides", 2, 2),
		Is("pads", 1, 1, 1, 1), Is("output_padding", 1, 1))
	add("ConvTranspose", 17, ts(r.f(2, 4, 4, 5), r.f(4, 2, 3, 3)), I("group", 2),
		Is("dilations", 2, 1))

	for _, op := range []string{"MaxPool", "AveragePool", "LpPool"} {
		add(op, 17, ts(r.f(2, 3, 8, 9)), Is("kernel_shape", 3, 2), Is("strides", 2, 2),
			Is("pads", 1, 0, 1, 1))
		add(op, 17, ts(r.f(2, 3, 9)), Is("kernel_shape", 3))
	}
	add("MaxPool", 17, ts(r.f(1, 2, 8, 9)), Is("kernel_shape", 3, 3), Is("strides", 2, 2),
		I("ceil_mode", 1), Is("dilations", 2, 1))
	many(2, "MaxPool", 17, ts(r.f(2, 2, 6, 7)), Is("kernel_shape", 2, 3), I("storage_order", 1))
	add("MaxPool", 17, ts(r.f(1, 2, 5, 6, 7)), Is("kernel_shape", 2, 2, 3))
	add("AveragePool", 17, ts(r.f(1, 2, 8, 9)), Is("kernel_shape", 3, 3), Is("strides", 2, 2),
		Is("pads", 1, 1, 1, 1), I("count_include_pad", 1))
	add("AveragePool", 17, ts(r.f(1, 2, 7, 8)), Is("kernel_shape", 3, 3), S("auto_pad", "SAME_UPPER"))
	for _, opset := range []int64{11, 19} {
		for _, include := range []int{0, 1} {
			add("AveragePool", opset, ts(r.f(1, 1, 8, 9)), Is("kernel_shape", 3, 2),
				Is("strides", 2, 2), Is("pads", 1, 0, 0, 1), I("ceil_mode", 1), I("count_include_pad", include))
		}
	}
	add("AveragePool", 19, ts(r.f(1, 2, 9, 9)), Is("kernel_shape", 2, 2), Is("dilations", 2, 3),
		Is("pads", 1, 1, 0, 1), I("count_include_pad", 1))
	add("MaxPool", 12, ts(r.f(1, 1, 6, 7)), Is("kernel_shape", 2, 2), Is("strides", 3, 3),
		Is("pads", 1, 1, 1, 1), I("ceil_mode", 1))
	add("MaxPool", 12, ts(r.u8(1, 2, 6, 7)), Is("kernel_shape", 3, 2), S("auto_pad", "SAME_LOWER"))
	add("MaxPool", 8, ts(r.f(1, 2, 6, 7)), Is("kernel_shape", 3, 2))
	add("Upsample", 9, ts(r.f(1, 2, 4, 5), onnx.Vector[float32](1, 1, 2, 3)))
	add("Upsample", 9, ts(r.f(1, 2, 4, 5), onnx.Vector[float32](1, 1, 2, 3)), S("mode", "linear"))
	add("Resize", 10, ts(r.f(1, 2, 4, 5), onnx.Vector[float32](1, 1, 2, 0.5)))
	add("Resize", 10, ts(r.f(1, 2, 4, 6), onnx.Vector[float32](1, 1, 2, 0.5)), S("mode", "linear"))
	for _, nm := range []string{"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"} {
		add("Resize", 13, ts(r.f(1, 1, 4, 6), nil, onnx.Vector[float32](1, 1, 0.5, 1.5)),
			S("nearest_mode", nm))
	}
	add("Resize", 18, ts(r.f(1, 1, 4, 6), nil, nil, ax(3, 3)), Is("axes", 2, 3), S("mode", "linear"),
		S("keep_aspect_ratio_policy", "not_larger"))
	add("Resize", 13, ts(r.f(1, 1, 4, 6), onnx.Vector[float32](0, 0, 0.2, 0.1, 1, 1, 1.3, 0.8), nil,
		ax(1, 1, 3, 5)), S("mode", "linear"), S("coordinate_transformation_mode", "tf_crop_and_resize"),
		F("extrapolation_value", 7))
	add("GridSample", 16, ts(r.f(1, 2, 4, 5), r.f(1, 3, 3, 2)))
	add("GridSample", 16, ts(r.f(1, 2, 4, 5), r.f(1, 3, 3, 2)), S("padding_mode", "reflection"),
		S("mode", "bicubic"), I("align_corners", 1))
	add("Softmax", 11, ts(r.f(3, 4, 5)), I("axis", -1))
	add("Hardmax", 11, ts(r.f(3, 4, 5)))
	add("Add", 17, ts(r.i(-99, 99, 7), r.i(-99, 99, 7)))
	for _, op := range []string{"Add", "Sub", "Mul", "Max", "Min", "Div"} {
		b := r.u8(3, 4)
		for i := range b.U8() {
			b.U8()[i] |= 1
		}
		add(op, 17, ts(r.u8(3, 4), b))
	}
	add("ReduceSum", 13, ts(r.f(4, 0, 3), ax(1)))
	add("ReduceMax", 20, ts(r.f(4, 0, 3), ax(1)))
	add("ReduceProd", 18, ts(r.i(-3, 4, 3, 4), ax(0)))
	add("ReduceMean", 18, ts(r.i(-30, 40, 3, 4), ax(0)))
	add("QuantizeLinear", 17,
		ts(r.f(3, 4), onnx.Vector[float32](0.02, 0.01, 0.03), onnx.Vector[int8](1, 2, -3)), I("axis", 0))
	add("Slice", 17, ts(r.f(5, 6), ax(math.MinInt64, -1), ax(math.MaxInt64, math.MinInt64),
		ax(0, 1), ax(1, -1)))
	add("Gemm", 7, ts(r.f(3, 4), r.f(4, 2), r.f()))
	add("Concat", 17, ts(r.u8(2, 3), r.u8(2, 3)), I("axis", -1))
	add("LayerNormalization", 17, ts(r.f(4, 8), r.f(8)), I("axis", -1), F("epsilon", 1e-2))
	add("NonMaxSuppression", 17,
		ts(r.pos(1, 6, 4), r.pos(1, 2, 6), ax(3), onnx.Vector[float32](0.3), onnx.Vector[float32](0.2)),
		I("center_point_box", 1))
	add("Pad", 19, ts(r.f(3, 4), ax(2, 5), nil, ax(1)), S("mode", "wrap"))
	add("Pad", 10, ts(r.f(3, 4)), Is("pads", 1, 0, 2, 1), F("value", 3))
	add("GlobalAveragePool", 17, ts(r.f(2, 3, 4, 5)))
	add("GlobalMaxPool", 17, ts(r.f(2, 3, 4, 5)))

	add("BatchNormalization", 17, ts(r.f(2, 3, 4, 5), r.f(3), r.f(3), r.f(3), r.pos(3)),
		F("epsilon", 1e-3))
	add("BatchNormalization", 9, ts(r.f(4, 3), r.f(3), r.f(3), r.f(3), r.pos(3)))
	add("InstanceNormalization", 17, ts(r.f(2, 3, 4, 5), r.f(3), r.f(3)))
	many(3, "LayerNormalization", 17, ts(r.f(2, 3, 8), r.f(8), r.f(8)))
	add("LayerNormalization", 17, ts(r.f(2, 3, 8), r.f(3, 8)), I("axis", 1))
	add("GroupNormalization", 21, ts(r.f(2, 6, 4, 5), r.f(6), r.f(6)), I("num_groups", 3))
	add("LRN", 17, ts(r.f(2, 7, 4, 5)), I("size", 3))
	add("LpNormalization", 17, ts(r.f(3, 4)), I("p", 1), I("axis", 0))
	add("MeanVarianceNormalization", 13, ts(r.f(2, 3, 4, 5)))
	add("Softmax", 17, ts(r.f(3, 4, 5)), I("axis", 1))
	add("Softmax", 11, ts(r.f(3, 4, 5)))
	add("LogSoftmax", 11, ts(r.f(3, 4, 5)), I("axis", 2))

	for _, op := range []string{"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd",
		"ReduceL1", "ReduceL2", "ReduceSumSquare",
		"ReduceLogSumExp"} {
		add(op, 18, ts(r.f(3, 4, 5), ax(1)))
		add(op, 18, ts(r.f(3, 4, 5), ax(-1, 0)), I("keepdims", 0))
		add(op, 18, ts(r.f(3, 4, 5)))
		if op != "ReduceSum" {
			add(op, 13, ts(r.f(3, 4, 5)), Is("axes", 0, 2))
			add(op, 13, ts(r.f(3, 4)), Is("axes"))
		}
	}
	add("ReduceSum", 13, ts(r.f(3, 4), ax()), I("noop_with_empty_axes", 1))
	add("ReduceSum", 13, ts(r.i(-5, 5, 3, 4), ax(0)))
	add("ReduceMax", 18, ts(r.u8(3, 4), ax(0)))
	add("ReduceLogSum", 18, ts(r.pos(3, 4), ax(0)))
	for _, op := range []string{"ArgMax", "ArgMin"} {
		add(op, 17, ts(r.f(3, 4, 5)), I("axis", 1), I("keepdims", 0))
		add(op, 17, ts(r.i(0, 3, 3, 8)), I("axis", -1), I("select_last_index", 1))
	}
	many(2, "TopK", 17, ts(r.f(3, 8), ax(3)))
	many(2, "TopK", 17, ts(r.f(5, 3), ax(2)), I("axis", 0), I("largest", 0))
	add("CumSum", 17, ts(r.f(3, 4), onnx.Scalar[int64](1)), I("reverse", 1), I("exclusive", 1))

	add("Reshape", 17, ts(r.f(3, 4), ax(2, -1)))
	add("Reshape", 17, ts(r.f(3, 4), ax(0, 2, 2)))
	add("Squeeze", 17, ts(r.f(1, 3, 1), ax(0)))
	add("Squeeze", 17, ts(r.f(1, 3, 1)))
	add("Unsqueeze", 17, ts(r.f(3, 4), ax(0, -1)))
	add("Transpose", 17, ts(r.f(2, 3, 4, 5)), Is("perm", 2, 0, 3, 1))
	add("Transpose", 17, ts(r.u8(2, 3, 4)))
	add("Concat", 17, ts(r.f(2, 3), r.f(2, 1), r.f(2, 0)), I("axis", 1))
	many(3, "Split", 17, ts(r.f(7, 2), ax(2, 4, 1)))
	many(2, "Split", 11, ts(r.f(3, 4)), I("axis", 1))
	add("Slice", 17, ts(r.f(5, 6, 7), ax(-1, 1), ax(-100, 5), ax(0, 2), ax(-2, 3)))
	add("Slice", 17, ts(r.f(5, 6), ax(3), ax(2)))
	add("Slice", 9, ts(r.f(5, 6)), Is("starts", 1, -3), Is("ends", 4, 1000))
	add("Expand", 17, ts(r.f(3, 1), ax(2, 1, 4)))
	add("Tile", 17, ts(r.f(2, 3), ax(2, 3)))
	add("Pad", 17, ts(r.f(3, 4), ax(1, 0, 2, 1), onnx.Scalar[float32](9)))
	add("Pad", 17, ts(r.f(3, 4), ax(1, 2, 2, 1)), S("mode", "reflect"))
	add("Pad", 17, ts(r.f(3, 4), ax(1, 2, 2, 1)), S("mode", "edge"))
	add("Pad", 17, ts(r.f(5, 4), ax(-1, 2, -2, -1)))
	add("Gather", 17, ts(r.f(5, 3, 2), r.i(-3, 3, 2, 2)), I("axis", 1))
	add("GatherElements", 17, ts(r.f(4, 3), r.i(-4, 4, 2, 3)))
	add("GatherND", 17, ts(r.f(2, 3, 4), r.i(0, 2, 2, 3, 1)), I("batch_dims", 1))
	add("ScatterElements", 17, ts(r.f(3, 3), onnx.NewTensor([]int64{0, 2, 1, 1}, 2, 2), r.f(2, 2)),
		I("axis", 1))
	add("ScatterElements", 17, ts(r.f(3, 3), onnx.NewTensor([]int64{0, 0, 1, 1}, 2, 2), r.f(2, 2)),
		I("axis", 1), S("reduction", "add"))
	add("ScatterND", 17, ts(r.f(4, 3), onnx.NewTensor([]int64{2, 0}, 2, 1), r.f(2, 3)))
	add("OneHot", 17, ts(r.i(-3, 3, 2, 2), onnx.Scalar[int64](3), onnx.Vector[float32](-1, 1)),
		I("axis", 1))
	add("Trilu", 17, ts(r.f(2, 4, 5), onnx.Scalar[int64](1)))
	add("Trilu", 17, ts(r.f(5, 4), onnx.Scalar[int64](-2)), I("upper", 0))
	add("DepthToSpace", 17, ts(r.f(2, 8, 3, 2)), I("blocksize", 2))
	add("DepthToSpace", 17, ts(r.f(2, 8, 3, 2)), I("blocksize", 2), S("mode", "CRD"))
	add("SpaceToDepth", 17, ts(r.f(2, 3, 4, 6)), I("blocksize", 2))
	add("Compress", 17, ts(r.f(3, 4), onnx.Vector(true, false, true)), I("axis", 1))
	add("ReverseSequence", 17, ts(r.f(4, 3, 2), ax(1, 3, 4)))
	add("NonZero", 17, ts(r.i(0, 2, 3, 4)))
	add("Shape", 17, ts(r.f(3, 4, 5)), I("start", 1))
	add("Size", 17, ts(r.f(3, 4, 5)))
	add("ConstantOfShape", 17, ts(ax(2, 3)), onnx.TensorAttr("value", onnx.Vector[int64](7)))
	add("Range", 17, ts(onnx.Scalar[int64](7), onnx.Scalar[int64](-3), onnx.Scalar[int64](-4)))
	add("EyeLike", 17, ts(r.f(3, 4)), I("k", 1))
	add("Cast", 17, ts(r.f(3, 4)), I("to", int(onnx.Int32)))
	add("Cast", 17, ts(r.u8(3, 4)), I("to", int(onnx.Float32)))
	add("Cast", 17, ts(r.i(-300, 300, 3, 4)), I("to", int(onnx.Int8)))
	add("Cast", 17, ts(r.f(3, 4)), I("to", int(onnx.Float16)))
	add("Cast", 17, ts(r.f(3, 4)), I("to", int(onnx.Bool)))
	for _, mode := range []string{"nearest", "linear", "cubic"} {
		for _, tr := range []string{"half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"} {
			add("Resize", 17, ts(r.f(1, 2, 4, 5), nil, nil, ax(1, 2, 7, 9)), S("mode", mode),
				S("coordinate_transformation_mode", tr))
			if tr != "align_corners" { // the engines differ where scale x size is no whole number
				add("Resize", 17, ts(r.f(1, 2, 4, 5), nil, onnx.Vector[float32](1, 1, 0.6, 1.7)),
					S("mode", mode), S("coordinate_transformation_mode", tr))
			}
		}
	}
	add("Einsum", 17, ts(r.f(2, 3, 4), r.f(2, 4, 5)), S("equation", "bij,bjk->bik"))
	add("Einsum", 17, ts(r.f(3, 3)), S("equation", "ii->i"))
	add("Einsum", 17, ts(r.f(2, 3, 4), r.f(4, 5)), S("equation", "...j,jk"))
	add("NegativeLogLikelihoodLoss", 17, ts(r.f(5, 3), r.i(0, 3, 5), r.pos(3)))
	many(2, "SoftmaxCrossEntropyLoss", 17, ts(r.f(5, 3, 2), r.i(0, 3, 5, 2)), I("ignore_index", 1))
	add("QuantizeLinear", 17, ts(r.f(3, 4), onnx.Scalar[float32](0.02), onnx.Scalar[uint8](128)))
	add("DequantizeLinear", 17, ts(r.u8(3, 4), onnx.Scalar[float32](0.02), onnx.Scalar[uint8](128)))
	many(3, "DynamicQuantizeLinear", 17, ts(r.f(3, 4)))
	add("MatMulInteger", 17, ts(r.u8(3, 4), r.u8(4, 2), onnx.Scalar[uint8](12), onnx.Scalar[uint8](0)))
	add("Dropout", 17, ts(r.f(3, 4)))
	add("BitShift", 17, ts(r.u8(3), onnx.Vector[uint8](1, 2, 3)), S("direction", "LEFT"))
	many(4, "Unique", 17, ts(r.i(0, 4, 3, 5)))
	many(4, "Unique", 17, ts(r.i(0, 4, 3, 5)), I("sorted", 0))
	many(4, "Unique", 17, ts(r.i(0, 2, 2, 6, 2)), I("axis", 1))
	many(4, "Unique", 17, ts(r.i(0, 2, 2, 6, 2)), I("axis", -2), I("sorted", 0))
	many(2, "Unique", 17, ts(onnx.Vector[float32](2, -1, 2, 0, -1)))
	add("Col2Im", 18, ts(r.f(2, 3*6, 4), onnx.Vector[int64](5, 5), onnx.Vector[int64](2, 3)),
		Is("strides", 2, 2), Is("pads", 0, 1, 0, 0), Is("dilations", 2, 1))
	add("Col2Im", 18, ts(r.f(1, 4, 12), onnx.Vector[int64](4, 5), onnx.Vector[int64](2, 2)))
	add("Det", 17, ts(r.f(2, 3, 5, 5)))
	add("Det", 17, ts(onnx.NewTensor([]float32{1, 2, 2, 4}, 2, 2)))
	add("MaxUnpool", 17, ts(r.f(1, 1, 2, 2), onnx.NewTensor([]int64{5, 2, 8, 15}, 1, 1, 2, 2)),
		Is("kernel_shape", 2, 2), Is("strides", 2, 2))
	add("MaxUnpool", 17, ts(r.f(1, 1, 2, 2), onnx.NewTensor([]int64{0, 3, 5, 8}, 1, 1, 2, 2)),
		Is("kernel_shape", 2, 2), Is("strides", 1, 1))
	for _, padding := range []string{"zeros", "border", "reflection"} {
		for _, mode := range []string{"linear", "nearest"} {
			add("GridSample", 20, ts(r.f(2, 2, 3, 4, 5), r.f(2, 2, 3, 2, 3)), S("mode", mode),
				S("padding_mode", padding))
		}
	}
	for _, mode := range []string{"linear", "cubic"} {
		add("Resize", 18, ts(r.f(1, 1, 9, 11), nil, onnx.Vector[float32](1, 1, .45, .6)),
			S("mode", mode), I("antialias", 1))
		add("Resize", 18, ts(r.f(1, 1, 9, 11), nil, nil, onnx.Vector[int64](1, 1, 4, 15)),
			S("mode", mode), I("antialias", 1), I("exclude_outside", 1))
	}
	for _, corners := range []int{0, 1} {
		add("AffineGrid", 20, ts(r.f(2, 2, 3), onnx.Vector[int64](2, 3, 4, 5)),
			I("align_corners", corners))
		add("AffineGrid", 20, ts(r.f(2, 3, 4), onnx.Vector[int64](2, 3, 2, 4, 5)),
			I("align_corners", corners))
	}
	rois := onnx.NewTensor([]float32{0, 0, 6, 5, -2, 1, 3, 9, 2, 2, 2.5, 2.5}, 3, 4)
	for _, transform := range []string{"half_pixel", "output_half_pixel"} {
		for _, ratio := range []int{0, 2} {
			add("RoiAlign", 16, ts(r.pos(2, 2, 6, 7), rois, onnx.Vector[int64](0, 1, 1)),
				S("mode", "max"), I("output_height", 2), I("output_width", 3),
				I("sampling_ratio", ratio), S("coordinate_transformation_mode", transform),
				F("spatial_scale", .9))
		}
	}
	for _, opset := range []int64{10, 12, 14} { // whose corners are those of the output
		for _, mode := range []string{"avg", "max"} {
			add("RoiAlign", opset, ts(r.pos(2, 2, 6, 7), rois, onnx.Vector[int64](0, 1, 1)),
				S("mode", mode), I("output_height", 2), I("output_width", 3), F("spatial_scale", .9))
		}
	}
	return cs
}

// TestOperators compares every operator of the table with the ONNX Runtime, on one thread and on
// four, twice in one session.
func TestOperators(t *testing.T) {
	_, reference := engines(t, 1)
	one, four := newPure(t, 1), newPure(t, 4)
	for i, c := range opCases() {
		t.Run(fmt.Sprintf("%03d_%s", i, c.op), func(t *testing.T) {
			m, feeds := opModel(c.op, c.opset, c.in, max(1, c.outputs), c.attrs...)
			s := must.Get(one.Load(m))(t)
			defer s.Close()
			got := must.Get(engine.Eval(s, feeds))(t)
			again := must.Get(engine.Eval(s, feeds))(t)
			parallel := modeltest.Eval(t, four, m, feeds)
			want := modeltest.Eval(t, reference, m, feeds)
			for name, w := range want {
				near(t, name, got[name], w)
				if !identical(got[name], again[name]) || !identical(got[name], parallel[name]) {
					t.Errorf("%s differs from run to run or with the number of threads", name)
				}
			}
		})
	}
}

// near demands the same type and shape and |got - want| <= 1e-5 (1 + max |want|); integers must be
// equal.
func near(t *testing.T, name string, got, want *onnx.Tensor) {
	t.Helper()
	if got.DType != want.DType || fmt.Sprint(got.Shape) != fmt.Sprint(want.Shape) {
		t.Errorf("%s is %v, want %v", name, got, want)
		return
	}
	scale := 1.0
	for i := range want.Len() {
		if w := math.Abs(number(want, i)); !math.IsInf(w, 0) {
			scale = math.Max(scale, w)
		}
	}
	for i := range want.Len() {
		g, w := number(got, i), number(want, i)
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		if !want.DType.IsFloat() || !(math.Abs(g-w) <= 1e-5*(1+scale)) {
			t.Errorf("%s[%d] = %v, want %v", name, i, g, w)
			return
		}
	}
}

func number(t *onnx.Tensor, i int) float64 {
	switch d := t.Data.(type) {
	case []float32:
		return float64(d[i])
	case []float64:
		return d[i]
	case []int64:
		return float64(d[i])
	case []int32:
		return float64(d[i])
	case []int8:
		return float64(d[i])
	case []uint8:
		return float64(d[i])
	case []uint16:
		return float64(d[i])
	case []bool:
		if d[i] {
			return 1
		}
		return 0
	}
	panic(fmt.Sprintf("no number in a tensor of %v", t.DType))
}

func identical(a, b *onnx.Tensor) bool {
	for i := range a.Len() {
		x, y := number(a, i), number(b, i)
		if math.Float64bits(x) != math.Float64bits(y) {
			return false
		}
	}
	return fmt.Sprint(a.Shape) == fmt.Sprint(b.Shape)
}

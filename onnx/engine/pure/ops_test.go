//go:build cgo

package pure_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"fmp/onnx"
	"fmp/onnx/conformance"
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
	outputs int
}

// random makes tensors for the table.
type random struct{ *rand.Rand }

func (r random) f(shape ...int) *onnx.Tensor { return modeltest.Normal(r.Rand, 1, shape...) }

// pos is above 0.1 and below 0.9.
func (r random) pos(shape ...int) *onnx.Tensor {
	t := onnx.ZerosF32(shape...)
	for i := range t.F32() {
		t.F32()[i] = 0.1 + 0.8*r.Float32()
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

func (r random) u8(shape ...int) *onnx.Tensor {
	t, _ := onnx.Zeros(onnx.Uint8, shape...)
	for i := range t.U8() {
		t.U8()[i] = uint8(r.IntN(256))
	}
	return t
}

func ax(v ...int64) *onnx.Tensor { return onnx.Vector(v...) }

// opCases are of operators, attributes and sizes that the random graphs of package differential do
// not have; the standard's tests have each operator's own examples.
func opCases() []opCase {
	r := random{rand.New(rand.NewPCG(7, 7))}
	var cs []opCase
	many := func(outputs int, op string, opset int64, in []*onnx.Tensor, attrs ...onnx.Attr) {
		cs = append(cs, opCase{op, opset, in, attrs, outputs})
	}
	add := func(op string, opset int64, in []*onnx.Tensor, attrs ...onnx.Attr) {
		many(1, op, opset, in, attrs...)
	}
	ts := func(t ...*onnx.Tensor) []*onnx.Tensor { return t }
	I, Is, F, S := onnx.IntAttr, onnx.IntsAttr, onnx.FloatAttr, onnx.StrAttr

	add("MatMul", 17, ts(r.f(5, 70), r.f(70, 130)))
	add("MatMul", 17, ts(r.f(3, 100, 5), r.f(5, 6)))
	add("Conv", 17, ts(r.f(1, 4, 9, 9), r.f(4, 1, 3, 3), r.f(4)), I("group", 4), Is("strides", 2, 2),
		Is("pads", 1, 1, 1, 1))
	add("Conv", 17, ts(r.f(1, 4, 9, 9), r.f(8, 1, 3, 3)), I("group", 4))
	add("Conv", 17, ts(r.f(1, 2, 5, 6, 7), r.f(3, 2, 2, 3, 2)), Is("pads", 1, 0, 1, 0, 1, 0))
	// more than one tile
	add("Conv", 17, ts(r.f(1, 32, 64, 64), r.f(8, 32, 3, 3)), Is("pads", 1, 1, 1, 1))
	many(2, "MaxPool", 17, ts(r.f(2, 2, 6, 7)), Is("kernel_shape", 2, 3), I("storage_order", 1))
	add("MaxPool", 17, ts(r.f(1, 2, 5, 6, 7)), Is("kernel_shape", 2, 2, 3))
	add("MaxPool", 12, ts(r.f(1, 1, 6, 7)), Is("kernel_shape", 2, 2), Is("strides", 3, 3),
		Is("pads", 1, 1, 1, 1), I("ceil_mode", 1))
	add("MaxPool", 12, ts(r.u8(1, 2, 6, 7)), Is("kernel_shape", 3, 2), S("auto_pad", "SAME_LOWER"))
	add("Upsample", 9, ts(r.f(1, 2, 4, 5), onnx.Vector[float32](1, 1, 2, 3)), S("mode", "linear"))
	add("Resize", 18, ts(r.f(1, 1, 4, 6), nil, nil, ax(3, 3)), Is("axes", 2, 3), S("mode", "linear"),
		S("keep_aspect_ratio_policy", "not_larger"))
	add("Resize", 13, ts(r.f(1, 1, 4, 6), onnx.Vector[float32](0, 0, 0.2, 0.1, 1, 1, 1.3, 0.8), nil,
		ax(1, 1, 3, 5)), S("mode", "linear"), S("coordinate_transformation_mode", "tf_crop_and_resize"),
		F("extrapolation_value", 7))
	add("GridSample", 16, ts(r.f(1, 2, 4, 5), r.f(1, 3, 3, 2)))
	add("GridSample", 16, ts(r.f(1, 2, 4, 5), r.f(1, 3, 3, 2)), S("padding_mode", "reflection"),
		S("mode", "bicubic"), I("align_corners", 1))
	add("QuantizeLinear", 17,
		ts(r.f(3, 4), onnx.Vector[float32](0.02, 0.01, 0.03), onnx.Vector[int8](1, 2, -3)), I("axis", 0))
	add("Slice", 17, ts(r.f(5, 6), ax(math.MinInt64, -1), ax(math.MaxInt64, math.MinInt64),
		ax(0, 1), ax(1, -1)))
	add("LayerNormalization", 17, ts(r.f(4, 8), r.f(8)), I("axis", -1), F("epsilon", 1e-2))
	add("LayerNormalization", 17, ts(r.f(2, 4, 6), r.f(4, 6)), I("axis", -1))
	add("LayerNormalization", 17, ts(r.f(2, 4, 6), r.f(6), r.f(2, 1, 6)), I("axis", 2))
	add("LayerNormalization", 17, ts(r.f(2, 4, 6), r.f(1, 1, 6), r.f(6)))
	add("NonMaxSuppression", 17,
		ts(r.pos(1, 6, 4), r.pos(1, 2, 6), ax(3), onnx.Vector[float32](0.3), onnx.Vector[float32](0.2)),
		I("center_point_box", 1))
	add("Pad", 19, ts(r.f(3, 4), ax(2, 5), nil, ax(1)), S("mode", "wrap"))
	add("BatchNormalization", 9, ts(r.f(4, 3), r.f(3), r.f(3), r.f(3), r.pos(3)))
	add("GroupNormalization", 21, ts(r.f(2, 6, 4, 5), r.f(6), r.f(6)), I("num_groups", 3))
	add("LRN", 17, ts(r.f(2, 7, 4, 5)), I("size", 3))
	for _, op := range []string{"ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
		"ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"} {
		add(op, 13, ts(r.f(3, 4)), Is("axes"))
	}
	for _, op := range []string{"ArgMax", "ArgMin"} {
		add(op, 17, ts(r.f(3, 4, 5)), I("axis", 1), I("keepdims", 0))
		add(op, 17, ts(r.i(0, 3, 3, 8)), I("axis", -1), I("select_last_index", 1))
	}
	add("Cast", 17, ts(r.i(-300, 300, 3, 4)), I("to", int(onnx.Int8)))
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
	// The last two have no area, and a width below 0.
	rois := onnx.NewTensor([]float32{0, 0, 6, 5, -2, 1, 3, 9, 2, 2, 2.5, 2.5, 4, 4, 4, 4, 5, 1, 3, 4}, 5, 4)
	of := onnx.Vector[int64](0, 1, 1, 0, 1)
	for _, transform := range []string{"half_pixel", "output_half_pixel"} {
		for _, ratio := range []int{0, 2} {
			for _, mode := range []string{"avg", "max"} {
				add("RoiAlign", 16, ts(r.pos(2, 2, 6, 7), rois, of), S("mode", mode),
					I("output_height", 2), I("output_width", 3), I("sampling_ratio", ratio),
					S("coordinate_transformation_mode", transform), F("spatial_scale", .9))
			}
		}
	}
	for _, opset := range []int64{10, 12, 14} { // whose corners are those of the output
		for _, mode := range []string{"avg", "max"} {
			add("RoiAlign", opset, ts(r.pos(2, 2, 6, 7), rois, of), S("mode", mode),
				I("output_height", 2), I("output_width", 3), F("spatial_scale", .9))
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
			m, feeds := opModel(c.op, c.opset, c.in, c.outputs, c.attrs...)
			s := must.Get(one.Load(m))(t)
			defer s.Close()
			got := must.Get(engine.Eval(s, feeds))(t)
			again := must.Get(engine.Eval(s, feeds))(t)
			parallel := modeltest.Eval(t, four, m, feeds)
			want := modeltest.Eval(t, reference, m, feeds)
			for name, w := range want {
				near(t, name, got[name], w)
				bits := fmt.Sprint(got[name].Shape, got[name].Data)
				if other := parallel[name]; bits != fmt.Sprint(again[name].Shape, again[name].Data) ||
					bits != fmt.Sprint(other.Shape, other.Data) {
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
	scale := 1.0
	for i := range want.Len() {
		if w := math.Abs(want.At(i)); w > scale && !math.IsInf(w, 0) {
			scale = w
		}
	}
	tolerance := conformance.Tolerance{}
	if want.DType.IsFloat() {
		tolerance.Absolute = 1e-5 * (1 + scale)
	}
	if err := conformance.Compare(got, want, tolerance); err != nil {
		t.Errorf("%s %v", name, err)
	}
}

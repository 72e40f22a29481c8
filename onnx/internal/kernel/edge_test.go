package kernel

import (
	"math"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
)

// TestClipWithoutBounds: a bound that is left out is the type's lowest or greatest finite number.
func TestClipWithoutBounds(t *testing.T) {
	inf := math.Inf(1)
	x := onnx.NewTensor([]float32{float32(-inf), 1, float32(inf)}, 3)
	d := onnx.NewTensor([]float64{-inf, 1, inf}, 3)
	five := onnx.Scalar(float32(5))
	half := func(d onnx.DType, bits ...uint16) *onnx.Tensor {
		return &onnx.Tensor{DType: d, Shape: []int{len(bits)}, Data: bits}
	}
	for _, c := range []struct {
		in   []*onnx.Tensor
		want [3]float64
	}{
		{[]*onnx.Tensor{x}, [3]float64{-math.MaxFloat32, 1, math.MaxFloat32}},
		{[]*onnx.Tensor{d}, [3]float64{-math.MaxFloat64, 1, math.MaxFloat64}},
		{[]*onnx.Tensor{x, five}, [3]float64{5, 5, math.MaxFloat32}},
		{[]*onnx.Tensor{half(onnx.Float16, 0xfc00, 0x3c00, 0x7c00)}, [3]float64{-65504, 1, 65504}},
		{[]*onnx.Tensor{half(onnx.BFloat16, 0xff80, 0x3f80, 0x7f80)},
			[3]float64{-0xffp120, 1, 0xffp120}},
		{[]*onnx.Tensor{onnx.NewTensor([]int64{math.MinInt64, 1, 7}, 3)}, [3]float64{math.MinInt64, 1, 7}},
	} {
		got := evaluated(t, 1, &onnx.Node{Op: "Clip"}, nil, c.in...)
		for i, v := range c.want {
			if got.At(i) != v {
				t.Errorf("%v of %v: element %d is %v, want %v", got.DType, c.in[0].Data, i, got.At(i), v)
			}
		}
	}
}

// TestProductOverNothing: a product over an inner axis of size 0 is zero, in any number of rows.
func TestProductOverNothing(t *testing.T) {
	for _, rows := range []int{1, 25, 64, 300} {
		got := evaluated(t, 2, &onnx.Node{Op: "MatMul"}, nil, onnx.ZerosF32(rows, 0), onnx.ZerosF32(0, 6))
		if got.Len() != rows*6 {
			t.Fatalf("%d rows: %v", rows, got)
		}
		for i := range got.Len() {
			if got.At(i) != 0 {
				t.Fatalf("%d rows: element %d is %v", rows, i, got.At(i))
			}
		}
	}
}

// TestRangeOfFarIntegers: the elements of a range are counted exactly, whatever the bounds.
func TestRangeOfFarIntegers(t *testing.T) {
	const far = 1 << 53
	for _, c := range []struct {
		start, limit, delta int64
		want                []int64
	}{
		{far + 1, far + 3, 1, []int64{far + 1, far + 2}},
		{far + 3, far + 1, -1, []int64{far + 3, far + 2}},
		{far, far + 1, 1, []int64{far}},
		{far + 1, far + 1, 1, nil},
		{1, 0, 1, nil},
		{0, 1, -1, nil},
		{5, 0, -2, []int64{5, 3, 1}},
		{math.MinInt64, math.MaxInt64, math.MaxInt64, []int64{math.MinInt64, -1, math.MaxInt64 - 1}},
		{math.MaxInt64, math.MinInt64, math.MinInt64, []int64{math.MaxInt64, -1}},
	} {
		got := evaluated(t, 1, &onnx.Node{Op: "Range"}, nil, onnx.Scalar(c.start), onnx.Scalar(c.limit),
			onnx.Scalar(c.delta))
		if !slices.Equal(got.I64(), c.want) {
			t.Errorf("from %d to %d by %d: %v, want %v", c.start, c.limit, c.delta, got.I64(), c.want)
		}
	}
}

// TestSpecialNumbers: functions of numbers below the normal range, of infinities and of NaN.
func TestSpecialNumbers(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		op       string
		d        onnx.DType
		in, want []float64
	}{
		{"Log", onnx.Float64, []float64{5e-324, 1e-310, 0x1p-1022, 0, 1},
			[]float64{-744.4400719213812, -713.8013788281542, -708.3964185322641, -inf, 0}},
		{"ReduceLogSum", onnx.Float64, []float64{5e-324, 5e-324}, []float64{-743.7469247408213}},
		{"ReduceLogSumExp", onnx.Int64, []float64{-740}, []float64{-739}},
		{"Mish", onnx.Float32, []float64{-inf, -1e30, inf, nan}, []float64{0, 0, inf, nan}},
		{"Mish", onnx.Float64, []float64{-inf, -1e300, inf, nan}, []float64{0, 0, inf, nan}},
		{"ThresholdedRelu", onnx.Float32, []float64{nan, 1, 2, inf, -inf}, []float64{0, 0, 2, inf, 0}},
		{"ThresholdedRelu", onnx.Float64, []float64{nan, 1, 2, inf, -inf}, []float64{0, 0, 2, inf, 0}},
	} {
		in := must.Get(onnx.Zeros(c.d, len(c.in)))(t)
		castInto(in, onnx.Vector(c.in...))
		got := evaluated(t, 1, &onnx.Node{Op: c.op}, nil, in)
		for i, want := range c.want {
			if v := got.At(i); v != want && !(math.Abs(v-want) <= 1e-12*math.Abs(want)) && (v == v || want == want) {
				t.Errorf("%s of %v, %v: %v; want %v", c.op, c.in[i], in.DType, v, want)
			}
		}
	}
}

// TestModOfNone: the remainder of a number that is none or not finite is none, of any divisor, and an
// infinite divisor of the other sign is the result else.
func TestModOfNone(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range [][3]float64{
		{nan, -inf, nan}, {nan, inf, nan}, {inf, -inf, nan}, {-inf, -inf, nan}, {-inf, inf, nan}, {inf, 2, nan},
		{nan, -2, nan}, {3, 0, nan}, {3, -inf, -inf}, {-3, inf, inf}, {-3, -inf, -3}, {3, nan, nan}, {7, -4, -1},
	} {
		got := evaluated(t, 1, &onnx.Node{Op: "Mod"}, nil, onnx.Vector(c[0]), onnx.Vector(c[1])).At(0)
		if got != c[2] && (got == got || c[2] == c[2]) {
			t.Errorf("%v mod %v is %v, want %v", c[0], c[1], got, c[2])
		}
	}
}

// TestWindowsOfPaddingAlone: maxima of no element are refused, on several goroutines too.
func TestWindowsOfPaddingAlone(t *testing.T) {
	s := &Spec{Node: &onnx.Node{Op: "MaxPool", Attrs: []onnx.Attr{onnx.IntsAttr("kernel_shape", 1, 1),
		onnx.IntsAttr("pads", 1, 1, 1, 1)}, Inputs: []string{"x"}, Outputs: []string{"y"}},
		Opset: 12, In: []onnx.DType{onnx.Float32}, Const: make([]*onnx.Tensor, 1)}
	k := must.Get(Prepare(s))(t)
	for _, threads := range []int{1, 4} {
		c := NewCall(&Env{Pool: &Pool{}, Threads: threads}, 1, 1)
		c.In[0], c.Want[0] = onnx.ZerosF32(4, 64, 40, 40), true
		must.Fail(c.Do(k))(t, "output [0 0] lies in the padding alone", "a window that sees no element")
	}
}

// TestConcatWithoutAxis: before operator set 4 inputs are joined on axis 1 where a node names none.
func TestConcatWithoutAxis(t *testing.T) {
	n := &onnx.Node{Op: "Concat", Inputs: []string{"a", "b"}, Outputs: []string{"y"}}
	in := []*onnx.Tensor{onnx.NewTensor([]float32{1, 2}, 2, 1), onnx.NewTensor([]float32{3, 4}, 2, 1)}
	out := must.Get(Evaluate(n, 3, in))(t)
	if got := out[0]; !slices.Equal(got.Shape, []int{2, 2}) || !slices.Equal(got.F32(), []float32{1, 3, 2, 4}) {
		t.Errorf("joined to %v of shape %v", got.F32(), got.Shape)
	}
	_, err := Evaluate(n, 4, in)
	must.Fail(err)(t, "axis", "no axis in operator set 4")
}

// TestOneHotOfFloats: indices and depth of floats are cut to whole numbers before an index is counted
// from the end.
func TestOneHotOfFloats(t *testing.T) {
	for _, c := range []struct {
		indices []float32
		depth   float32
		want    []int // where each row is on; -1 for nowhere
	}{
		{[]float32{0, 3, 2.9}, 3.7, []int{0, -1, 2}},
		{[]float32{-.5, -.9, -5.5, 1.9, -6, 5, float32(math.NaN())}, 5, []int{0, 0, 0, 1, -1, -1, -1}},
	} {
		out := evaluated(t, 1, &onnx.Node{Op: "OneHot"}, nil, onnx.Vector(c.indices...), onnx.Scalar(c.depth),
			onnx.Vector[float32](2, 7))
		for i, want := range c.want {
			row := out.F32()[i*int(c.depth) : (i+1)*int(c.depth)]
			for k, v := range row {
				if (v == 7) != (k == want) {
					t.Errorf("index %v of depth %v: %v; want it on at %d", c.indices[i], c.depth, row, want)
				}
			}
		}
	}
}

// TestPoolsBeyondTheirPlane: a window that is mostly padding has the elements of its plane, and takes the
// time of these.
func TestPoolsBeyondTheirPlane(t *testing.T) {
	x := onnx.NewTensor([]float32{1, -2, 4, 3, 0, -5}, 1, 1, 2, 3)
	for _, c := range []struct {
		op   string
		want float64
	}{{"MaxPool", 4}, {"AveragePool", 1. / 6}, {"LpPool", math.Sqrt(55)}} {
		for _, wide := range []*onnx.Tensor{x, converted(x, onnx.Float64)} {
			for _, size := range [][]int{{8, 8}, {4096, 4096}, {1 << 20, 16}, {16, 1 << 20}} {
				out := evaluated(t, 1, &onnx.Node{Op: c.op, Attrs: []onnx.Attr{onnx.IntsAttr("kernel_shape", size...),
					onnx.StrAttr("auto_pad", "SAME_UPPER")}}, nil, wide)
				for i := range out.Len() {
					if v := out.At(i); math.Abs(v-c.want) > 1e-6 {
						t.Errorf("%s of %v: element %d is %v, want %v", c.op, size, i, v, c.want)
					}
				}
			}
		}
	}
}

// TestScatterOfNoIndices: a tensor scatter without a place for each sample is refused.
func TestScatterOfNoIndices(t *testing.T) {
	n := &onnx.Node{Op: "TensorScatter", Inputs: []string{"cache", "update", "at"}, Outputs: []string{"y"},
		Attrs: []onnx.Attr{onnx.IntAttr("axis", 1)}}
	for places, refused := range map[int]bool{0: true, 1: true, 2: false, 3: true} {
		in := []*onnx.Tensor{onnx.ZerosF32(2, 5, 3), onnx.ZerosF32(2, 2, 3),
			onnx.Vector(make([]int64, places)...)}
		if _, err := Evaluate(n, 24, in); (err != nil) != refused {
			t.Errorf("%d places for two samples: %v", places, err)
		}
	}
}

package pure_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
)

// TestWideIntegers: numbers of 64 bits in attributes and values, and sizes whose product has more
// than 32, mean on a machine of 32 bits what they mean on one of 64 (GOARCH=386 go test runs there
// as well).
func TestWideIntegers(t *testing.T) {
	// wide is 2 where its upper half is lost
	const end, low, wide = math.MaxInt64, math.MinInt64, 1<<32 + 2
	row := onnx.Vector[float32](1, 2, 3, 4, 5)
	plane := onnx.NewTensor([]float32{1, 2, 3, 4, 5, 6}, 1, 1, 2, 3)
	square := onnx.NewTensor([]float32{1, 2, 3, 4}, 2, 2)
	integer := func(name string, v int64) onnx.Attr {
		return onnx.Attr{Name: name, Kind: onnx.AttrInt, Int: v}
	}
	integers := func(name string, v ...int64) onnx.Attr {
		return onnx.Attr{Name: name, Kind: onnx.AttrInts, Ints: v}
	}
	scalar, vector := onnx.Scalar[int64], func(v ...int64) *onnx.Tensor { return onnx.Vector(v...) }
	type ts = []*onnx.Tensor
	type as = []onnx.Attr
	for _, c := range []struct {
		name  string
		op    string
		opset int64
		in    []*onnx.Tensor
		attrs []onnx.Attr
		want  any    // the elements of the result
		fails string // or a part of the error
	}{
		{"an open slice by attributes", "Slice", 9, ts{row},
			as{integers("starts", 0), integers("ends", end)}, []float32{1, 2, 3, 4, 5}, ""},
		{"an open slice from the end", "Slice", 9, ts{row},
			as{integers("starts", -wide), integers("ends", wide)}, []float32{1, 2, 3, 4, 5}, ""},
		{"an open slice by inputs", "Slice", 13, ts{row, vector(1), vector(end)}, nil,
			[]float32{2, 3, 4, 5}, ""},
		{"a slice backwards", "Slice", 13,
			ts{row, vector(end), vector(low), vector(0),
				vector(-2)}, nil, []float32{5, 3, 1}, ""},
		{"a stride beyond the axis", "Slice", 13,
			ts{row, vector(1), vector(end), vector(0),
				vector(wide)}, nil, []float32{2}, ""},
		{"a constant", "Constant", 13, nil, as{integer("value_int", wide)}, []int64{wide}, ""},
		{"a list of constants", "Constant", 13, nil, as{integers("value_ints", wide, low)},
			[]int64{wide, low}, ""},
		{"a type beyond all", "Cast", 13, ts{row},
			as{integer("to", 1<<32+int64(onnx.Int32))}, nil, "undefined"},
		{"a flag", "ReduceSum", 11, ts{row}, as{integer("keepdims", 1<<32)}, []float32{15}, ""},
		{"an axis", "Concat", 13, ts{row, row}, as{integer("axis", 1<<32)}, nil, "axis"},
		{"a band", "Trilu", 14, ts{square, scalar(1 << 32)}, nil, []float32{0, 0, 0, 0}, ""},
		{"a diagonal", "EyeLike", 9, ts{square},
			as{integer("k", 1<<32), integer("dtype", int64(onnx.Float32))}, []float32{0, 0, 0, 0}, ""},
		{"a diagonal at the limit", "EyeLike", 9, ts{square},
			as{integer("k", math.MaxInt32), integer("dtype", int64(onnx.Float32))},
			[]float32{0, 0, 0, 0}, ""},
		{"more than there are", "TopK", 11, ts{row, vector(wide)}, nil, nil, "of an axis of size 5"},
		{"a length", "ReverseSequence", 10, ts{square, vector(1, wide)}, nil, nil, "outside 0 to 2"},
		{"an index", "Gather", 13, ts{row, scalar(wide)}, nil, nil, "outside"},
		{"a shape", "Reshape", 13, ts{square, vector(wide, 2)}, nil, nil, "elements"},
		{"two sizes that wrap round", "Reshape", 13,
			ts{onnx.Vector[float32](1), vector(641, 6700417)}, nil, nil, "elements"},
		{"paddings that wrap round", "Pad", 11, ts{row, vector(math.MaxInt32, math.MaxInt32)}, nil, nil,
			"allowed are 0 to"},
		{"a cut and a padding that cancel", "Pad", 11, ts{row, vector(-math.MaxInt32, math.MaxInt32)},
			as{onnx.StrAttr("mode", "edge")}, []float32{5, 5, 5, 5, 5}, ""},
		{"a window that wraps round", "MaxPool", 12, ts{plane},
			as{integers("kernel_shape", 1, 65537), integers("dilations", 1, 65536)}, nil, "65537"},
		{"a block whose square wraps round", "SpaceToDepth", 13, ts{plane},
			as{integer("blocksize", 65536)}, nil, "blocksize"},
		{"parts that wrap round", "Split", 13, ts{row, vector(math.MaxInt32, math.MaxInt32, 7)},
			nil, nil, "split"},
		{"repeats that wrap round", "Tile", 13, ts{square, vector(1<<16, 1<<16)}, nil, nil, "elements"},
	} {
		t.Run(c.name, func(t *testing.T) {
			outputs := 1
			if c.op == "Split" {
				outputs = 3
			}
			if c.op == "TopK" {
				outputs = 2
			}
			y, err := attempt(t, c.op, c.opset, c.in, outputs, c.attrs...)
			if c.fails != "" {
				must.Fail(err)(t, c.fails)
				if err != nil && strings.Contains(err.Error(), "kernel failed") {
					t.Errorf("error %q", err)
				}
				return
			}
			must.Do(t, err)
			same := false
			switch w := c.want.(type) {
			case []float32:
				same = slices.Equal(w, y.F32())
			case []int64:
				same = slices.Equal(w, y.I64())
			}
			if !same {
				t.Errorf("it gave %v, want %v", y.Data, c.want)
			}
		})
	}
}

package pure_test

import (
	"math"
	"strings"
	"testing"

	"fmp/onnx"
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
		want  string // the elements of the result, or a part of the error
	}{
		{"an open slice by attributes", "Slice", 9, ts{row},
			as{integers("starts", 0), integers("ends", end)}, "[1 2 3 4 5]"},
		{"an open slice from the end", "Slice", 9, ts{row},
			as{integers("starts", -wide), integers("ends", wide)}, "[1 2 3 4 5]"},
		{"an open slice by inputs", "Slice", 13, ts{row, vector(1), vector(end)}, nil, "[2 3 4 5]"},
		{"a slice backwards", "Slice", 13,
			ts{row, vector(end), vector(low), vector(0), vector(-2)}, nil, "[5 3 1]"},
		{"a stride beyond the axis", "Slice", 13,
			ts{row, vector(1), vector(end), vector(0), vector(wide)}, nil, "[2]"},
		{"a constant", "Constant", 13, nil, as{integer("value_int", wide)}, "[4294967298]"},
		{"a list of constants", "Constant", 13, nil, as{integers("value_ints", wide, low)},
			"[4294967298 -9223372036854775808]"},
		{"a type beyond all", "Cast", 13, ts{row},
			as{integer("to", 1<<32+int64(onnx.Int32))}, "undefined"},
		{"a flag", "ReduceSum", 11, ts{row}, as{integer("keepdims", 1<<32)}, "[15]"},
		{"an axis", "Concat", 13, ts{row, row}, as{integer("axis", 1<<32)}, "axis"},
		{"a band", "Trilu", 14, ts{square, scalar(1 << 32)}, nil, "[0 0 0 0]"},
		{"a diagonal", "EyeLike", 9, ts{square},
			as{integer("k", 1<<32), integer("dtype", int64(onnx.Float32))}, "[0 0 0 0]"},
		{"a diagonal at the limit", "EyeLike", 9, ts{square},
			as{integer("k", math.MaxInt32), integer("dtype", int64(onnx.Float32))}, "[0 0 0 0]"},
		{"more than there are", "TopK", 11, ts{row, vector(wide)}, nil, "of an axis of size 5"},
		{"a length", "ReverseSequence", 10, ts{square, vector(1, wide)}, nil, "outside 0 to 2"},
		{"an index", "Gather", 13, ts{row, scalar(wide)}, nil, "outside"},
		{"a shape", "Reshape", 13, ts{square, vector(wide, 2)}, nil, "elements"},
		{"two sizes that wrap round", "Reshape", 13,
			ts{onnx.Vector[float32](1), vector(641, 6700417)}, nil, "elements"},
		{"paddings that wrap round", "Pad", 11, ts{row, vector(math.MaxInt32, math.MaxInt32)}, nil,
			"allowed are 0 to"},
		{"a cut and a padding that cancel", "Pad", 11, ts{row, vector(-math.MaxInt32, math.MaxInt32)},
			as{onnx.StrAttr("mode", "edge")}, "[5 5 5 5 5]"},
		{"a window that wraps round", "MaxPool", 12, ts{plane},
			as{integers("kernel_shape", 1, 65537), integers("dilations", 1, 65536)}, "65537"},
		{"a block whose square wraps round", "SpaceToDepth", 13, ts{plane},
			as{integer("blocksize", 65536)}, "blocksize"},
		{"parts that wrap round", "Split", 13, ts{row, vector(math.MaxInt32, math.MaxInt32, 7)}, nil,
			"split"},
		{"repeats that wrap round", "Tile", 13, ts{square, vector(1<<16, 1<<16)}, nil, "elements"},
	} {
		if got := outcome(t, c.op, c.opset, c.in, c.attrs...); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

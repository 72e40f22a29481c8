package kernel

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// Kernels are written for these types. Halves are computed as float32, and narrow integers of both
// signs in 64 bits: see via.
type floating interface{ float32 | float64 }

type signed interface{ int8 | int16 | int32 | int64 }

type unsigned interface {
	uint8 | uint16 | uint32 | uint64
}

type integer interface{ signed | unsigned }

type number interface{ floating | integer }

// set is the set of these types.
func set(ds ...onnx.DType) (t op.TypeSet) {
	for _, d := range ds {
		t |= 1 << d
	}
	return t
}

// Sets of element types.
var (
	floats     = set(onnx.Float32, onnx.Float64)
	signeds    = set(onnx.Int8, onnx.Int16, onnx.Int32, onnx.Int64)
	unsigneds  = set(onnx.Uint8, onnx.Uint16, onnx.Uint32, onnx.Uint64)
	integers   = signeds | unsigneds
	numbers    = floats | integers
	halves     = set(onnx.Float16, onnx.BFloat16)
	boolean    = set(onnx.Bool)
	bytes      = set(onnx.Int8, onnx.Uint8)
	narrowInts = integers &^ set(onnx.Int64, onnx.Uint64)
)

// data is the elements of a tensor that the signature has already checked to hold T. Another type
// is a defect of the program, and panics.
func data[T any](t *onnx.Tensor) []T {
	d, ok := t.Data.([]T)
	if !ok {
		panic(fmt.Errorf("a tensor of %v where %T was expected", t.DType, d))
	}
	return d
}

// ints reads an int32 or int64 tensor (axes, shapes, indices) as ints. The slice is the caller's.
// Numbers beyond an int become the nearest int.
//
//go:noinline
func ints(t *onnx.Tensor) ([]int, error) { return t.Ints() }

// whole is the one element of an integer tensor, by the name that errors give it. It ends the
// kernel by package try where there is not one element.
func whole(t *onnx.Tensor, what string) int {
	v, err := ints(t)
	if err == nil && len(v) != 1 {
		err = fmt.Errorf("it has shape %v where one element is expected", t.Shape)
	}
	if err != nil {
		try.Fail("%s: %w", what, err)
	}
	return v[0]
}

// only is the one element of a tensor that holds T, by the name that errors give it.
func only[T any](t *onnx.Tensor, what string) T {
	if t.Len() != 1 {
		try.Fail("%s has shape %v where one element is expected", what, t.Shape)
	}
	return data[T](t)[0]
}

// strides of a dense row-major tensor: stride_k = prod_{j>k} shape_j.
//
//go:noinline
func strides(shape []int) []int {
	s := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		s[i] = n
		n *= shape[i]
	}
	return s
}

// product is the number of elements of a shape, 1 of a scalar's. It does not check for overflow,
// which [onnx.Elements] does.
//
//go:noinline
func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// upTo is 0, 1, ..., n - 1.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// axisOf makes a possibly negative axis non-negative: -rank <= axis < rank.
func axisOf(axis, rank int) (int, error) {
	if axis < -rank || axis >= rank {
		return 0, fmt.Errorf("axis %d is outside a tensor of rank %d", axis, rank)
	}
	if axis < 0 {
		axis += rank
	}
	return axis, nil
}

// axesOf does so for several, each of which may occur once. The result is a new slice, in the order
// of axes.
func axesOf(axes []int, rank int) ([]int, error) {
	out := make([]int, len(axes))
	seen := make([]bool, rank)
	for i, a := range axes {
		k, err := axisOf(a, rank)
		if err != nil {
			return nil, err
		}
		if seen[k] {
			return nil, fmt.Errorf("axis %d is named twice", a)
		}
		seen[k] = true
		out[i] = k
	}
	return out, nil
}

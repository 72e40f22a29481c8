package kernel

import (
	"reflect"
	"slices"

	"fmp/onnx"
)

// moves are loops over slices of one element type, that of data.
type moves interface {
	copy(dst any, d int, src any, s, n int)
	fill(dst any, d, n int, src any, s int)
	gather(c *Call, out, src *onnx.Tensor, offset int, stride []int)
}

// movesOf is no part of its callers' code: loops ask it once.
//
//go:noinline
func movesOf(data any) moves {
	switch data.(type) {
	case []float32:
		return &moving[float32]{}
	case []float64:
		return &moving[float64]{}
	case []int8:
		return &moving[int8]{}
	case []int16:
		return &moving[int16]{}
	case []int32:
		return &moving[int32]{}
	case []int64:
		return &moving[int64]{}
	case []uint8:
		return &moving[uint8]{}
	case []uint16:
		return &moving[uint16]{}
	case []uint32:
		return &moving[uint32]{}
	case []uint64:
		return &moving[uint64]{}
	case []bool:
		return &moving[bool]{}
	}
	return &moving[string]{}
}

// moving is the moves of elements of type T.
type moving[T any] struct{}

// copy, fill and gather panic on slices of another type than []T, which is a defect of the program.
func (*moving[T]) copy(dst any, d int, src any, s, n int) {
	copy(dst.([]T)[d:d+n], src.([]T)[s:s+n])
}

func (*moving[T]) fill(dst any, d, n int, src any, s int) {
	fillRange(dst.([]T)[d:d+n], src.([]T)[s])
}

func (*moving[T]) gather(c *Call, out, src *onnx.Tensor, offset int, stride []int) {
	gatherOf(c, out.Data.([]T), out.Shape, src.Data.([]T), offset, stride)
}

// copyRange copies n elements src[s:] to dst[d:]; both are slices of one element type.
func copyRange(dst any, d int, src any, s, n int) { movesOf(dst).copy(dst, d, src, s, n) }

// fill sets dst[d:d+n] to src[s].
func fill(dst any, d, n int, src any, s int) { movesOf(dst).fill(dst, d, n, src, s) }

// fillRange sets 16 elements and then copies the part that is set, which doubles it each time:
// copying is quicker than a loop.
func fillRange[T any](dst []T, v T) {
	head := dst[:min(len(dst), 16)]
	for i := range head {
		head[i] = v
	}
	for n := len(head); n < len(dst); n *= 2 {
		copy(dst[n:], dst[:n])
	}
}

// clearData sets all elements to zero (false, "").
func clearData(t *onnx.Tensor) { reflect.ValueOf(t.Data).Clear() }

// gather fills the dense tensor out with src read from offset with the given strides:
//
//	out[i_1, ..., i_r] = src[offset + sum_k i_k stride_k]
//
// It serves every operator that moves elements without changing them: Transpose, Slice, Expand, ...
func gather(c *Call, out, src *onnx.Tensor, offset int, stride []int) {
	movesOf(out.Data).gather(c, out, src, offset, stride)
}

func gatherOf[T any](c *Call, dst []T, shape []int, src []T, offset int, stride []int) {
	if len(dst) == 0 {
		return
	}
	dims, st := collapse(shape, stride)
	if to, ok := any(dst).([]float32); ok && turned(c, to, dims, any(src).([]float32)[offset:], st[0]) {
		return
	}
	runs(c, dims, st, 1, func(lo, hi int, from, step []int) {
		row, at := dst[lo:hi], offset+from[0]
		switch step[0] {
		case 1:
			copy(row, src[at:])
		case 0:
			fillRange(row, src[at])
		default:
			for j := range row {
				row[j] = src[at]
				at += step[0]
			}
		}
	})
}

// turnedLines bounds the lines of the output that are written before their next columns, so that
// they stay in the first-level cache.
const turnedLines = 128

// turned is gatherOf where the last two axes change places, or returns false: it goes through
// blocks of lines of the output, eight columns at a time.
func turned(c *Call, dst []float32, dims []int, src []float32, stride []int) bool {
	r := len(dims)
	if r < 2 || stride[r-2] != 1 || dims[r-2] < 8 || dims[r-1] < 8 || stride[r-1] < dims[r-2] ||
		slices.Min(stride) < 0 {
		return false
	}
	high, wide, apart := dims[r-2], dims[r-1], stride[r-1]
	parts := (high + turnedLines - 1) / turnedLines
	outer, by := dims[:r-2], [][]int{stride[:r-2]}
	c.Parallel(product(outer)*parts, turnedLines*wide, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			y := i % parts * turnedLines
			n := min(turnedLines, high-y)
			from := src[newOdometer(outer, by, i/parts).off[0]+y:]
			to, j := dst[(i/parts*high+y)*wide:], 0
			for ; j+8 <= wide; j += 8 {
				k := turn(n, to[j:], wide, from[j*apart:], apart)
				for ; k < n; k++ {
					for q := j; q < j+8; q++ {
						to[k*wide+q] = from[q*apart+k]
					}
				}
			}
			for ; j < wide; j++ {
				for k := range n {
					to[k*wide+j] = from[j*apart+k]
				}
			}
		}
	})
	return true
}

// Copy copies the elements of src to dst, which has the same element type and shape.
func Copy(dst, src *onnx.Tensor) { copyRange(dst.Data, 0, src.Data, 0, src.Len()) }

// Capacity returns the number of elements that a slice of elements can hold.
func Capacity(data any) int {
	if v := reflect.ValueOf(data); v.IsValid() {
		return v.Cap()
	}
	return 0
}

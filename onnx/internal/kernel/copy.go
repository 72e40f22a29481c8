package kernel

import (
	"reflect"
	"slices"

	"fmp/onnx"
)

// copyRange copies n elements src[s:] to dst[d:]; both are slices of one element type.
func copyRange(dst any, d int, src any, s, n int) {
	switch to := dst.(type) {
	case []float32:
		copy(to[d:d+n], src.([]float32)[s:s+n])
	case []float64:
		copy(to[d:d+n], src.([]float64)[s:s+n])
	case []int8:
		copy(to[d:d+n], src.([]int8)[s:s+n])
	case []int16:
		copy(to[d:d+n], src.([]int16)[s:s+n])
	case []int32:
		copy(to[d:d+n], src.([]int32)[s:s+n])
	case []int64:
		copy(to[d:d+n], src.([]int64)[s:s+n])
	case []uint8:
		copy(to[d:d+n], src.([]uint8)[s:s+n])
	case []uint16:
		copy(to[d:d+n], src.([]uint16)[s:s+n])
	case []uint32:
		copy(to[d:d+n], src.([]uint32)[s:s+n])
	case []uint64:
		copy(to[d:d+n], src.([]uint64)[s:s+n])
	case []bool:
		copy(to[d:d+n], src.([]bool)[s:s+n])
	case []string:
		copy(to[d:d+n], src.([]string)[s:s+n])
	}
}

// fill sets dst[d:d+n] to src[s].
func fill(dst any, d, n int, src any, s int) {
	switch to := dst.(type) {
	case []float32:
		fillRange(to[d:d+n], src.([]float32)[s])
	case []float64:
		fillRange(to[d:d+n], src.([]float64)[s])
	case []int8:
		fillRange(to[d:d+n], src.([]int8)[s])
	case []int16:
		fillRange(to[d:d+n], src.([]int16)[s])
	case []int32:
		fillRange(to[d:d+n], src.([]int32)[s])
	case []int64:
		fillRange(to[d:d+n], src.([]int64)[s])
	case []uint8:
		fillRange(to[d:d+n], src.([]uint8)[s])
	case []uint16:
		fillRange(to[d:d+n], src.([]uint16)[s])
	case []uint32:
		fillRange(to[d:d+n], src.([]uint32)[s])
	case []uint64:
		fillRange(to[d:d+n], src.([]uint64)[s])
	case []bool:
		fillRange(to[d:d+n], src.([]bool)[s])
	case []string:
		fillRange(to[d:d+n], src.([]string)[s])
	}
}

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
	switch d := out.Data.(type) {
	case []float32:
		gatherOf(c, d, out.Shape, src.Data.([]float32), offset, stride)
	case []float64:
		gatherOf(c, d, out.Shape, src.Data.([]float64), offset, stride)
	case []int8:
		gatherOf(c, d, out.Shape, src.Data.([]int8), offset, stride)
	case []int16:
		gatherOf(c, d, out.Shape, src.Data.([]int16), offset, stride)
	case []int32:
		gatherOf(c, d, out.Shape, src.Data.([]int32), offset, stride)
	case []int64:
		gatherOf(c, d, out.Shape, src.Data.([]int64), offset, stride)
	case []uint8:
		gatherOf(c, d, out.Shape, src.Data.([]uint8), offset, stride)
	case []uint16:
		gatherOf(c, d, out.Shape, src.Data.([]uint16), offset, stride)
	case []uint32:
		gatherOf(c, d, out.Shape, src.Data.([]uint32), offset, stride)
	case []uint64:
		gatherOf(c, d, out.Shape, src.Data.([]uint64), offset, stride)
	case []bool:
		gatherOf(c, d, out.Shape, src.Data.([]bool), offset, stride)
	case []string:
		gatherOf(c, d, out.Shape, src.Data.([]string), offset, stride)
	}
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

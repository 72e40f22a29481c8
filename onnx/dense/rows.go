package dense

import (
	"fmt"

	"gonum.org/v1/gonum/blas/blas64"
)

// As returns numbers in another precision. The result is new memory, also where both are the same.
func As[T, F float32 | float64](x []F) []T {
	out := make([]T, len(x))
	for i, v := range x {
		out[i] = T(v)
	}
	return out
}

// General returns the matrix of numbers that lie row by row. It shares data, and the stride is
// cols.
func General(rows, cols int, data []float64) blas64.General {
	return blas64.General{Rows: rows, Cols: cols, Stride: cols, Data: data}
}

// Dots sets out, n numbers, to the products of the rows of a, n x len(x), with x. It reads a once,
// at the speed of memory, and as it lies. The order of its sums is its own.
func Dots[T float32 | float64](a, x, out []T) {
	checkRows(len(a), len(out), len(x))
	dotRows(a, len(x), x, out)
}

// dotRows is [Dots] of rows that are as apart. Four rows at a time share the reads of x; dots4 does
// the first `done` numbers in vectors.
func dotRows[T float32 | float64](a []T, as int, x, out []T) {
	n, d := len(out), len(x)
	i := 0
	for ; i+4 <= n; i += 4 {
		done := dots4(d, a[i*as:], as, x, out[i:])
		for r := i; r < i+4; r++ {
			var sum T
			for j, v := range a[r*as+done : r*as+d] {
				sum += v * x[done+j]
			}
			if done > 0 {
				sum += out[r]
			}
			out[r] = sum
		}
	}
	for ; i < n; i++ {
		var sum T
		for j, v := range a[i*as : i*as+d] {
			sum += v * x[j]
		}
		out[i] = sum
	}
}

// AddRows adds the rows of a, len(by) x len(y), times by to y. It reads a once, as [Dots] does. It
// panics unless a has len(by) len(y) numbers.
func AddRows[T float32 | float64](a, by, y []T) {
	checkRows(len(a), len(by), len(y))
	addRows(a, len(y), by, y)
}

// addRows is [AddRows] of rows that are as apart. Four rows at a time share the read and the write
// of y.
func addRows[T float32 | float64](a []T, as int, by, y []T) {
	n, d := len(by), len(y)
	i := 0
	for ; i+4 <= n; i += 4 {
		done := adds4(d, a[i*as:], as, by[i:], y)
		b := (*[4]T)(by[i:])
		r0, r1 := a[i*as:i*as+d], a[(i+1)*as:(i+1)*as+d]
		r2, r3 := a[(i+2)*as:(i+2)*as+d], a[(i+3)*as:(i+3)*as+d]
		for j := done; j < d; j++ {
			y[j] += b[0]*r0[j] + b[1]*r1[j] + b[2]*r2[j] + b[3]*r3[j]
		}
	}
	for ; i < n; i++ {
		for j, v := range a[i*as : i*as+d] {
			y[j] += by[i] * v
		}
	}
}

// checkRows panics unless the numbers are n rows of d.
func checkRows(numbers, n, d int) {
	if numbers != n*d {
		panic(fmt.Sprintf("dense: %d rows of %d numbers in %d", n, d, numbers))
	}
}

// Package moment computes the moments of labelled rows that describe Gaussian classes: class means,
// and covariances within and between classes.
package moment

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/dense"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Classes are the moments of N rows of k numbers with labels 0 to C-1.
type Classes struct {
	Count  []float64     // C
	Means  *mat.Dense    // C x k; zero for a class without rows
	Centre []float64     // k: the mean of the class means
	Within *mat.SymDense // k x k: covariance of the rows about their class means, denominator N - C
	// Rest holds the rows less their class means, N x k.
	Rest *mat.Dense
}

// Compute computes moments. Classes need not be equally frequent; a class with fewer than least
// rows is an error. Within is sum_i r_i r_i'/(N - C), with r_i a row less the mean of its class. It
// costs N k^2 multiplications, and holds a copy of the rows.
func Compute(rows *mat.Dense, labels []int, c, least int) (*Classes, error) {
	n, k := rows.Dims()
	m := &Classes{Centre: make([]float64, k), Rest: mat.NewDense(n, k, nil)}
	var err error
	if m.Count, m.Means, err = means(rows, labels, c, least); err != nil {
		return nil, err
	}
	for y := range c {
		for j, v := range m.Means.RawRowView(y) {
			m.Centre[j] += v / float64(c)
		}
	}
	for i, y := range labels {
		floats.SubTo(m.Rest.RawRowView(i), rows.RawRowView(i), m.Means.RawRowView(y))
	}
	m.Within = Gram(1/float64(n-c), m.Rest)
	return m, nil
}

// means returns the counts and means of classes. It is an error if labels are out of bounds, or a
// class has fewer than least rows.
func means(rows *mat.Dense, labels []int, c, least int) ([]float64, *mat.Dense, error) {
	n, k := rows.Dims()
	if n != len(labels) || c < 2 || n <= c {
		return nil, nil, fmt.Errorf("moments: %d rows, %d labels of %d classes; want a label a "+
			"row, two classes at least and more rows than classes", n, len(labels), c)
	}
	count, sum := make([]float64, c), mat.NewDense(c, k, nil)
	for i, y := range labels {
		if y < 0 || y >= c {
			return nil, nil, fmt.Errorf("moments: label %d of row %d; allowed are 0 to %d",
				y, i, c-1)
		}
		count[y]++
		floats.Add(sum.RawRowView(y), rows.RawRowView(i))
	}
	for y, n := range count {
		if n < float64(least) {
			return nil, nil, fmt.Errorf(
				"moments: class %d has %v rows; it needs %d and more: "+
					"enlarge dataset.splits.corpus", y, n, least)
		}
		mean := sum.RawRowView(y)
		for j := range mean {
			mean[j] /= max(n, 1)
		}
	}
	return count, sum, nil
}

// Between returns the covariance of the class means, denominator C - 1, less the part due to
// sampling: the given covariance within classes times the mean of 1/n_c. It may have negative
// eigenvalues.
func (m *Classes) Between(within mat.Symmetric) *mat.SymDense {
	c, k := m.Means.Dims()
	spread := mat.NewDense(c, k, nil)
	sampling := 0.0
	for y, n := range m.Count {
		floats.SubTo(spread.RawRowView(y), m.Means.RawRowView(y), m.Centre)
		sampling += 1 / n / float64(c)
	}
	out, noise := Gram(1/float64(c-1), spread), mat.NewSymDense(k, nil)
	noise.ScaleSym(-sampling, within)
	out.AddSym(out, noise)
	return out
}

// Tensor returns a matrix in float32; Rows is the reverse.
func Tensor(m mat.Matrix) *onnx.Tensor {
	r, c := m.Dims()
	return onnx.NewTensor(dense.As[float32](mat.DenseCopyOf(m).RawMatrix().Data), r, c)
}

// Rows returns float32 values as a float64 matrix with rows of k numbers.
func Rows(values []float32, k int) *mat.Dense {
	n := len(values) / k
	return mat.NewDense(n, k, dense.As[float64](values[:n*k]))
}

package meta

import (
	"fmt"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models"
	"fmp/pipeline/internal/moment"
)

// widening returns the mean over classes of tr(G W_c G W_c) / tr(G G W_c), where W_c is the
// covariance of class c in w and G = R R'. With rows x of a class less its mean, the first trace is
// the sum of squares of their Gram matrix of x R, a matrix of the class's size, over (n_c - 1)^2;
// the second is the sum of squares of x R R' over n_c - 1. Classes of one row have no covariance,
// and do not count. With X_c the rows of class c less their mean, it is the mean over classes of
//
//	|X_c R (X_c R)'|^2 / (|X_c R R'|^2 (n_c - 1)),   Frobenius norms
//
// It costs n_c k^2 + n_c^2 k multiplications a class.
func (t *conjugateTrainee) widening() (float64, error) {
	m, err := moment.Compute(coordinates(t.values, t.Corpus), t.Corpus.Labels, t.Corpus.C, 1)
	if err != nil {
		return 0, fmt.Errorf("corpus: %w", err)
	}
	r := matrix(t.values[models.ConjMetric])
	k := t.sizes.K
	members := make([][]int, t.Corpus.C)
	for i, y := range t.Corpus.Labels {
		members[y] = append(members[y], i)
	}
	var sum, classes float64
	for _, of := range members {
		n := float64(len(of))
		if n < 2 {
			continue
		}
		x := mat.NewDense(len(of), k, nil)
		for i, row := range of {
			copy(x.RawRowView(i), m.Rest.RawRowView(row))
		}
		xr := moment.Product(x, r, false)
		gram := moment.Product(xr, xr, true)
		out := moment.Product(xr, r, true)
		sum += square(gram) / square(out) / (n - 1)
		classes++
	}
	return sum / classes, nil
}

func square(m *mat.Dense) float64 {
	data := m.RawMatrix().Data
	return floats.Dot(data, data)
}

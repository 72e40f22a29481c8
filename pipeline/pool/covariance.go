package pool

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/blas/blas64"

	"fmp/onnx/dense"
	"fmp/pipeline/federate"
	"fmp/pipeline/moments"
)

var errImproper = errors.New("its scatter is no covariance: it has negative directions beyond rounding")

// rounding is the largest eigenvalue that rounding of an upload's precision takes off a matrix of k
// rows whose diagonal is 1, over the root of k. Independent errors of e to either side have
// 2 e sqrt(k/3); e is 1/254 of int8 and 1/2048 of float16 (Wigner 1955).
var rounding = map[federate.Precision]float64{federate.Single: 1e-5, federate.Half: 1.5e-3,
	federate.Int8: 1e-2}

// checkCovariance returns an error where a scatter has directions more negative than rounding makes
// them, each coordinate in units of its own deviation. A factor has none.
func checkCovariance(w *moments.Within, precision federate.Precision) error {
	if w.Dof == 0 || w.Rank > 0 {
		return nil
	}
	k := w.K
	s := make([]float64, k*k)
	w.AddTo(s)
	size := make([]float64, k)
	for i := range k {
		size[i] = math.Sqrt(s[i*k+i])
	}
	slack, known := rounding[precision]
	if !known {
		slack = rounding[federate.Single]
	}
	for i := range k {
		for j := i; j < k; j++ {
			switch v := &s[i*k+j]; {
			case i == j:
				*v = 1 + slack*math.Sqrt(float64(k))
			case *v == 0:
			case size[i] == 0 || size[j] == 0:
				return errImproper
			default:
				*v /= size[i] * size[j]
			}
		}
	}
	if _, ok := dense.Cholesky(blas64.General{Rows: k, Cols: k, Stride: k, Data: s}, nil); !ok {
		return errImproper
	}
	return nil
}

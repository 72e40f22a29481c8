package pool

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/blas/blas64"

	"fmp/onnx/dense"
	"fmp/pipeline/federate"
	"fmp/pipeline/moments"
)

var errImproper = errors.New("its scatter is no covariance: it has negative directions beyond " +
	"rounding")

// rounding is the largest eigenvalue that rounding of an upload's precision takes off a matrix of k
// rows whose diagonal is 1, over the root of k. Independent errors of e to either side have
// 2 e sqrt(k/3); e is 1/254 of int8 and 1/2048 of float16 (Wigner 1955).
var rounding = map[federate.Precision]float64{federate.Single: 1e-5, federate.Half: 1.5e-3,
	federate.Int8: 1e-2}

// underflow is half of the least step of an upload's precision: rounding takes k times that off an
// eigenvalue at most, however small the coordinates. Steps of int8 are as small as the coordinates.
var underflow = map[federate.Precision]float64{federate.Single: 0x1p-150, federate.Half: 0x1p-25,
	federate.Int8: 0x1p-150}

// checkCovariance returns an error where a scatter has directions more negative than rounding makes
// them, each coordinate in units of its own deviation. A factor has none. With S the scatter, a
// Cholesky factor must exist of
//
//	A_ij = S_ij/(d_i d_j),   A_ii = 1 + rounding sqrt(k),   d_i = sqrt(S_ii + k underflow)
//
// It costs O(k^3). Within.Check has made sure that no S_ii is negative.
func checkCovariance(w *moments.Within, precision federate.Precision) error {
	if w.Dof == 0 || w.Rank > 0 {
		return nil
	}
	k, s := w.K, w.Whole()
	if _, known := rounding[precision]; !known {
		precision = federate.Single
	}
	slack, size := rounding[precision], make([]float64, k)
	for i := range k {
		size[i] = math.Sqrt(s[i*k+i] + float64(k)*underflow[precision])
	}
	for i := range k {
		for j := i; j < k; j++ {
			if s[i*k+j] /= size[i] * size[j]; i == j {
				s[i*k+j] = 1 + slack*math.Sqrt(float64(k))
			}
		}
	}
	if _, ok := dense.Cholesky(blas64.General{Rows: k, Cols: k, Stride: k, Data: s}, nil); !ok {
		return errImproper
	}
	return nil
}

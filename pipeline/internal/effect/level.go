package effect

import (
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// maxResiduals bounds the residuals whose products tell the effective number of coordinates.
const maxResiduals = 96

// residual is sqrt(a) (r_mc - b_m).
type residual struct {
	client, cell int
	v            []float64
}

// effectiveNumber returns q = tr(V)^2/tr(V^2), 1 to k, of the covariance V of the residuals: tr(V)
// is their mean square, and tr(V^2) the variance of products of two of other clients and classes,
// which are independent but for the means that are taken off them. It is k where V is a multiple of
// I, and where too few residuals tell. At most [maxResiduals] residuals make pairs.
// For independent r and s of mean 0 and covariance V, E (r's)^2 = tr(V^2). Every step-th residual
// is taken, so that there are 96 x 95/2 = 4560 products at most.
func effectiveNumber(all []*difference, k int) float64 {
	var residuals []residual
	var square, freedom float64
	for m, d := range all {
		if d == nil {
			continue
		}
		square, freedom = square+d.r1, freedom+d.shared-1
		for i, row := range d.rows {
			residuals = append(residuals, residual{m, i, row})
		}
	}
	step := (len(residuals) + maxResiduals - 1) / maxResiduals
	var products []float64
	for i := 0; i < len(residuals); i += step {
		for j := 0; j < i; j += step {
			a, b := residuals[i], residuals[j]
			if a.client != b.client && a.cell != b.cell {
				weight := all[a.client].weights[a.cell] * all[b.client].weights[b.cell]
				products = append(products, math.Sqrt(weight)*floats.Dot(a.v, b.v))
			}
		}
	}
	if len(products) < 2 || !(freedom > 0) {
		return float64(k)
	}
	trace := square / freedom
	squares := stat.Variance(products, nil)
	if !(squares > 0) {
		return float64(k)
	}
	return min(max(trace*trace/squares, 1), float64(k))
}

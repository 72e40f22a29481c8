package candidate

import (
	"math"

	"fmp/pipeline/internal/moment"
)

// within is how the images of a class vary about their mean, in k coordinates where W is I: V is
// their covariance, |x| the length of such a difference.
type within struct {
	size float64 // tr V / k
	free float64 // tr(V)^2 / tr(V^2): the coordinates in which they vary (Satterthwaite 1946)
	// tails is (E|x|^4 - tr(V)^2 - 2 tr(V^2)) / tr(V)^2, 0 of a Gaussian: few images far away make
	// class means of few images lie far from one another too.
	tails float64
}

// freedom returns the coordinates in which the squared distance |d|^2 of two means of n and m
// images varies: 2 (E|d|^2)^2 / Var |d|^2, where with a = 1/n + 1/m
//
//	E|d|^2 = a tr V,   Var |d|^2 = 2 a^2 tr(V^2) + (1/n^3 + 1/m^3) tails tr(V)^2
func (w *within) freedom(n, m float64) float64 {
	a := 1/n + 1/m
	return 1 / (1/w.free + (1/(n*n*n)+1/(m*m*m))*w.tails/(2*a*a))
}

// measure returns how the images of some rows vary about their class mean; as W, Gaussian, of fewer
// than two rows. With S their scatter, x_i one about its mean and n of them
//
//	size = tr S/(d (n - 1)),   free = tr(S)^2/tr(S^2)
//	tails = n sum_i |x_i|^4/tr(S)^2 - 1 - 2 tr(S^2)/tr(S)^2, 0 at least
func (k *known) measure(y int, rows []int, d int) within {
	v := make([]float64, d*d)
	f := moment.Factor{K: d, To: v}
	var fourth float64
	for _, i := range rows {
		row := f.Row()
		axpy(1, k.rows[i*d:][:d], row)
		axpy(-1, k.centre[y*d:][:d], row)
		fourth += math.Pow(dot(row, row), 2) / float64(len(rows))
	}
	f.Flush()
	var trace, squares float64
	for i := range d {
		trace += v[i*d+i]
		squares += v[i*d+i] * v[i*d+i]
		for _, x := range v[i*d+i+1 : (i+1)*d] {
			squares += 2 * x * x
		}
	}
	if len(rows) < 2 || !(squares > 0) {
		return within{size: 1, free: float64(d)}
	}
	n := float64(len(rows))
	return within{size: trace / float64(d) / (n - 1), free: trace * trace / squares,
		tails: max(fourth*n*n/(trace*trace)-1-2*squares/(trace*trace), 0)}
}

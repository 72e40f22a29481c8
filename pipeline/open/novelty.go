package open

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// threshold is the value of [Predictor.Novelty] above which a task's classes are taken to be ones
// that the corpus lacks, before the allowance for the variation of the novelty of few classes in
// few coordinates.
const threshold = 1.3

// drift is the variance, in units of that within classes, by which means of a class of the corpus
// may differ from the corpus's in each coordinate, in large rounds of other images: the classes of
// 4,000 drawn digits as photographs differ by 0.0024, a common shift left out.
const drift = 1. / 400

// Novelty returns the energy of the uploads' class means outside the span of the corpus's class
// means, about their mean, relative to the energy of noise alone there: about 1 if the task's
// classes are the corpus's, 1.5 to 8 if they are not. A shift common to all classes is another
// camera, and does not count; nor does a difference as small as drift. It is 0 if the corpus's
// class means span all coordinates, or if there is one class alone. The coordinates are those in
// which W is I. With d_c the part of class mean c outside the span, of rank r, and P classes
// present
//
//	w_c     = n_c/(1 + n_c drift),   d = sum_c w_c d_c / sum_c w_c
//	novelty = sum_c w_c |d_c - d|^2 / free,   free = (k - r)(P - 1)
//	limit   = threshold + 2 sqrt(2/free)
//
// Classes count as new above limit: two standard deviations of a mean of squares of free normal
// variates beyond the threshold.
func (p *Predictor) Novelty(s *Stats) (novelty, limit float64, err error) {
	at, err := p.frame()
	if err != nil {
		return 0, 0, fmt.Errorf("novelty: %w", err)
	}
	if at.span == nil {
		return 0, threshold, nil
	}
	k, rank := at.span.Dims()
	means, err := at.white(s.Mean)
	if err != nil {
		return 0, 0, fmt.Errorf("novelty: %w", err)
	}
	var along, inside mat.Dense
	along.Mul(at.span.T(), means)
	inside.Mul(at.span, &along)
	means.Sub(means, &inside)
	classes, _ := s.present()
	if classes < 2 {
		return 0, threshold, nil
	}
	weights := make([]float64, len(s.Mass)) // inverse variances of class means
	for y, n := range s.Mass {
		weights[y] = n / (1 + n*drift)
	}
	total := floats.Sum(weights)
	energy := 0.0
	for j := range k {
		row := means.RawRowView(j)
		common := floats.Dot(row, weights) / total
		for y, w := range weights {
			energy += w * (row[y] - common) * (row[y] - common)
		}
	}
	free := float64(k-rank) * (classes - 1)
	return energy / free, threshold + 2*math.Sqrt(2/free), nil
}

// frame is the coordinates u = L^-1 (phi - m0) in which the covariance within the corpus's classes,
// LL', is I, and the span there of the corpus's class means about m0, [k, rank], orthonormal; nil
// where they span all coordinates.
type frame struct {
	l      mat.TriDense
	centre []float64
	span   *mat.Dense
}

func (p *Predictor) frame() (*frame, error) {
	n, k := p.Known.Dims()
	chol, ok := factor(p.W)
	if !ok {
		return nil, fmt.Errorf("the within-class covariance of the corpus is singular")
	}
	f := &frame{centre: p.M0}
	chol.LTo(&f.l)
	rank := min(n-1, k)
	if rank == k {
		return f, nil
	}
	known, err := f.white(p.Known)
	if err != nil {
		return nil, err
	}
	var svd mat.SVD
	if !svd.Factorize(known, mat.SVDThin) {
		return nil, fmt.Errorf("the class means of the corpus have no singular values; check the " +
			"model's moments")
	}
	var left mat.Dense
	svd.UTo(&left)
	f.span = mat.DenseCopyOf(left.Slice(0, k, 0, rank))
	return f, nil
}

// white returns rows [n, k] in the coordinates u, [k, n].
func (f *frame) white(rows *mat.Dense) (*mat.Dense, error) {
	n, k := rows.Dims()
	centred := mat.NewDense(n, k, nil)
	for i := range n {
		floats.SubTo(centred.RawRowView(i), rows.RawRowView(i), f.centre)
	}
	out := new(mat.Dense)
	return out, out.Solve(&f.l, centred.T())
}

package open

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// threshold is the value of [Predictor.Novelty] above which a task's classes are taken to be ones that the corpus lacks, before the
// allowance for the variation of the novelty of few classes in few coordinates.
const threshold = 1.3

// Novelty returns the energy of the uploads' class means outside the span of the corpus's class means, relative to what noise alone
// would leave there: about 1 if the task's classes are the corpus's, 1.5 to 8 if they are not. It is 0 if the corpus's class means
// span all coordinates, so that nothing lies outside. Classes count as new above limit: 1.3 plus two standard deviations of a mean of
// squares of as many normal variates.
func (p *Predictor) Novelty(s *Stats) (novelty, limit float64, err error) {
	n, k := p.Known.Dims()
	chol, ok := factor(p.W)
	if !ok {
		return 0, 0, fmt.Errorf("novelty: the within-class covariance of the corpus is singular")
	}
	var l mat.TriDense
	chol.LTo(&l)
	// In coordinates where the within-class covariance is I, about the mean of the known class means.
	white := func(rows *mat.Dense) (*mat.Dense, error) {
		r, _ := rows.Dims()
		centred := mat.NewDense(r, k, nil)
		for i := range r {
			row := centred.RawRowView(i)
			for j, v := range rows.RawRowView(i) {
				row[j] = v - p.M0[j]
			}
		}
		out := new(mat.Dense)
		err := out.Solve(&l, centred.T())
		return out, err // [k, r]
	}
	known, err := white(p.Known)
	if err != nil {
		return 0, 0, fmt.Errorf("novelty: %w", err)
	}
	var svd mat.SVD
	if !svd.Factorize(known, mat.SVDThin) {
		return 0, 0, fmt.Errorf("novelty: the class means of the corpus have no singular values; check the model's moments")
	}
	rank := min(n-1, k)
	if rank == k {
		return 0, threshold, nil
	}
	var left mat.Dense
	svd.UTo(&left)
	span := left.Slice(0, k, 0, rank)
	means, err := white(s.Mean)
	if err != nil {
		return 0, 0, fmt.Errorf("novelty: %w", err)
	}
	var along, inside mat.Dense
	along.Mul(span.T(), means)
	inside.Mul(span, &along)
	means.Sub(means, &inside)
	energy, classes := 0.0, 0.0
	for y, mass := range s.Mass {
		if mass == 0 {
			continue
		}
		classes++
		for j := range k {
			energy += mass * means.At(j, y) * means.At(j, y)
		}
	}
	free := float64(k-rank) * classes
	return energy / free, threshold + 2*math.Sqrt(2/free), nil
}

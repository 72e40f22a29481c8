package effect

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// evident reports whether the class means of clients tell that clients have effects: whether the
// evidence lower bound of the model of shrinkage with T = t0 I is above that of the model without
// effects, by the Bayesian information criterion of one parameter more at a prior probability of
// .05. Both count coordinates as far as they are effective ([effectiveNumber]). The first bound is
// below its evidence, as q(mu) q(b) is no joint posterior, and the second is exact.
func evident(cells [][]cell, classes, k int, effective float64) (bool, error) {
	with, err := fitted(cells, classes, k, isotropic)
	if err != nil {
		return false, err
	}
	plain, err := fitted(cells, classes, k, none)
	if err != nil {
		return false, err
	}
	var numbers float64
	for _, of := range cells {
		numbers += float64(len(of)) * effective
	}
	return (with.bound()-plain.bound())*effective/float64(k) > math.Log(1/prior-1)+math.Log(numbers)/2,
		nil
}

// bound returns the evidence lower bound, but for terms that both models have in common.
func (s *shrinkage) bound() (out float64) {
	k := float64(s.k)
	off := make([]float64, s.k)
	for m, of := range s.cells {
		var precision float64
		for _, l := range of {
			precision += l.a / s.noise[m]
		}
		var variance float64 // of b_m, in each direction
		if s.rest > 0 && len(of) > 0 {
			variance = 1 / (precision + 1/s.rest)
			out -= (floats.Dot(s.shift[m], s.shift[m])/s.rest + k*(variance/s.rest-1+math.Log(s.rest/variance))) / 2
		}
		for _, l := range of {
			floats.SubTo(off, l.x, s.mean[l.class])
			floats.Sub(off, s.shift[m])
			out -= (k*math.Log(s.noise[m]) + l.a/s.noise[m]*(floats.Dot(off, off)+k*(s.vary[l.class]+variance))) / 2
		}
	}
	for y, v := range s.vary {
		if v > 0 {
			floats.SubTo(off, s.mean[y], s.centre)
			out -= (floats.Dot(off, off)/s.between + k*(v/s.between-1+math.Log(s.between/v))) / 2
		}
	}
	return out
}

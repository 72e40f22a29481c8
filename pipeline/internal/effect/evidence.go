package effect

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// evident reports whether the class means of clients tell that clients have effects: whether the
// evidence lower bound of the model of shrinkage with T = t0 I is above that of the model without
// effects, by the Bayesian information criterion of one parameter more at a prior probability of
// .05. Both count coordinates as far as they are effective, q of k ([effectiveNumber]). With N
// cells
//
//	(bound - bound without effects) q/k > log(1/prior - 1) + log(N q)/2
//
// The first bound is below its evidence, as q(mu) q(b) is no joint posterior, and the second is
// exact.
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
	gain := (with.bound() - plain.bound()) * effective / float64(k)
	return gain > math.Log(1/prior-1)+math.Log(numbers)/2, nil
}

// bound returns the evidence lower bound, in nats, but for terms that both models have in common.
// Posterior means are mu_c and b_m, and variances v_c and w_m in each of k directions. t and t0 are
// those of the priors, and m is the mean of all. It is minus half of
//
//	sum_mc (k log s_m^2 + a_mc/s_m^2 (|x_mc - mu_c - b_m|^2 + k (v_c + w_m)))
//	+ sum_m (|b_m|^2/t0 + k (w_m/t0 - 1 + log(t0/w_m)))
//	+ sum_c (|mu_c - m|^2/t + k (v_c/t - 1 + log(t/v_c)))
//
// the second line of clients with cells, where T = t0 I.
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
			out -= (floats.Dot(s.shift[m], s.shift[m])/s.rest +
				k*(variance/s.rest-1+math.Log(s.rest/variance))) / 2
		}
		for _, l := range of {
			floats.SubTo(off, l.x, s.mean[l.class])
			floats.Sub(off, s.shift[m])
			out -= (k*math.Log(s.noise[m]) +
				l.a/s.noise[m]*(floats.Dot(off, off)+k*(s.vary[l.class]+variance))) / 2
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

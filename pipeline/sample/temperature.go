package sample

import (
	"math"

	"fmp/pipeline/erm"
)

// Cooled is the temperature of an ensemble that labelled rows ask for.
type Cooled struct {
	// Log is log T, Value the log-likelihood of the labels there plus the log prior of log T, and
	// Variance the sampling variance of Log: the inverse of the log-likelihood's curvature, +Inf
	// where that is none.
	Log, Value, Variance float64
}

// nllFloor keeps the score of an impossible event finite, as in package metric.
const nllFloor = 1e-12

// Temperatures are tried within e^±logReach, at last in steps of e^minStep; curvature is measured
// over e^±bend.
const logReach, minStep, bend = 3.0, 0.01, 0.1

// Temperature returns the temperature T, by which heads are divided, of the largest
//
//	sum_i log mean_s softmax(head_s(x_i)/T)_(y_i) - log(1 + (log T / scale)²)
//
// over labelled rows x_i [k] and S heads. The second term is a Cauchy prior of log T about 0; it is
// flat where scale is +Inf. Of equal temperatures T is the one nearest to 1. The first may have
// several maxima, so that a grid comes before the search. The grid has 25 values over e^-3 to e^3,
// and each finer one is around the best so far. It costs O(S n C) for each value.
func Temperature(heads []erm.Theta, rows []float32, labels []int, scale float64) Cooled {
	n, classes := len(labels), heads[0].C
	k := len(rows) / n
	logits := make([]float32, len(heads)*n*classes) // less that of the label
	z := make([]float64, classes)
	for s, h := range heads {
		for i, y := range labels {
			h.Logits(rows[i*k:(i+1)*k], z)
			for c, v := range z {
				logits[(s*n+i)*classes+c] = float32(v - z[y])
			}
		}
	}
	p := make([]float64, n)
	likelihood := func(u float64) (sum float64) {
		clear(p)
		inverse := float32(math.Exp(-u))
		for s := range heads {
			for i := range p {
				var odds float64
				for _, v := range logits[(s*n+i)*classes : (s*n+i+1)*classes] {
					odds += math.Exp(float64(v * inverse))
				}
				p[i] += 1 / odds
			}
		}
		for _, v := range p {
			sum += math.Log(v/float64(len(heads)) + nllFloor)
		}
		return sum
	}
	at := func(u float64) float64 { return likelihood(u) - math.Log1p(u/scale*(u/scale)) }
	out := Cooled{Value: at(0)}
	for step := logReach / 12; step >= minStep; step /= 5 {
		from, to := -logReach, logReach
		if step < logReach/12 {
			from, to = out.Log-4*step, out.Log+4*step
		}
		for u := from; u <= to+step/2; u += step {
			if v := at(u); v > out.Value {
				out.Log, out.Value = u, v
			}
		}
	}
	out.Variance = math.Inf(1)
	if curve := (2*likelihood(out.Log) - likelihood(out.Log-bend) - likelihood(out.Log+bend)) /
		(bend * bend); curve > 0 {
		out.Variance = 1 / curve
	}
	return out
}

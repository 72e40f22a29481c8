package audit

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// lowerBound returns the epsilon that an audit proves, at the given confidence: each of the given
// number of canaries was included by a fair coin of its own, and the auditor guessed some of the
// coins, right of them correctly. It is the largest epsilon for which that many correct guesses
// have a probability below 1 - confidence under (epsilon, delta)-differential privacy (Steinke,
// Nasr and Jagielski 2023, Privacy auditing with one (1) training run, theorem 5.2), or 0. It is
// found by bisection of 0 to 50, in 60 steps: the binomial tail grows with epsilon. Sixty halvings
// leave 50/2^60, below the rounding of a number near 1. An epsilon of 50 or more is reported as 50.
func lowerBound(canaries, guesses, right int, delta, confidence float64) float64 {
	low, high := 0.0, 50.0
	if chance(canaries, guesses, right, 0, delta) > 1-confidence {
		return 0
	}
	for range 60 {
		mid := (low + high) / 2
		if chance(canaries, guesses, right, mid, delta) <= 1-confidence {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// chance bounds the probability of at least right correct guesses: the binomial tail at
// e^epsilon/(1 + e^epsilon), plus the effect of delta, 2 m delta max_i P(v - i <= W < v)/i. W is
// the number of right guesses, binomial of that probability, m is canaries and v is right. It costs
// O(guesses) probabilities.
func chance(canaries, guesses, right int, epsilon, delta float64) float64 {
	of := distuv.Binomial{N: float64(guesses), P: 1 / (1 + math.Exp(-epsilon))}
	var tail, below, most float64
	for k := right; k <= guesses; k++ {
		tail += of.Prob(float64(k))
	}
	for i := 1; i <= right; i++ {
		below += of.Prob(float64(right - i))
		most = max(most, below/float64(i))
	}
	return min(tail+2*float64(canaries)*delta*most, 1)
}

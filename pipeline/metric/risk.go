package metric

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat/distuv"
)

// Risk is one point of the risk-coverage curve (Geifman, Uziel and El-Yaniv 2019, arXiv
// 1805.08206): the error rate when the least confident points are left to people.
type Risk struct {
	Coverage float64 `json:"coverage"` // share of the points that are answered, the surest first
	Risk     float64 `json:"risk"`     // error rate of the answered points
	// Confidence is the least confidence of an answered point: the threshold that gives this
	// coverage.
	Confidence float64 `json:"confidence"`
}

// RiskCoverage returns the curve at min(points, N) evenly spaced coverages, the last of them 1.
// Points of equal confidence have their error rate in common.
func RiskCoverage(p *Probabilities, labels []int, points int) ([]Risk, error) {
	if len(labels) != p.N || p.N == 0 || points < 1 {
		return nil, fmt.Errorf("risk and coverage: %d labels of %d points at %d places; "+
			"want one label a point, and one of each at least", len(labels), p.N, points)
	}
	confidence, right := byConfidence(p, labels)
	points = min(points, p.N)
	out := make([]Risk, points)
	errors := errorRates(confidence, right)
	wrong, n := 0.0, 0
	for i := range out {
		for to := (i + 1) * p.N / points; n < to; n++ {
			wrong += errors[n]
		}
		out[i] = Risk{float64(n) / float64(p.N), wrong / float64(n), confidence[n-1]}
	}
	return out, nil
}

// Confusion returns the number of points by true class (row) and most probable class (column).
func Confusion(p *Probabilities, labels []int) [][]int {
	out := make([][]int, p.C)
	for c := range out {
		out[c] = make([]int, p.C)
	}
	for i, y := range labels {
		out[y][floats.MaxIdx(p.Row(i))]++
	}
	return out
}

// Wilson returns the Wilson score interval (Wilson 1927) of a probability, given hits in n trials,
// at the given level. With q = hits/n and the normal quantile z of the level it is
//
//	(q + z^2/2n ± z sqrt(q (1-q)/n + z^2/4n^2)) / (1 + z^2/n)
//
// n is at least 1.
func Wilson(hits, n int, level float64) (lo, hi float64) {
	z := distuv.UnitNormal.Quantile((1 + level) / 2)
	k, q := float64(n), float64(hits)/float64(n)
	centre := (q + z*z/(2*k)) / (1 + z*z/k)
	half := z / (1 + z*z/k) * math.Sqrt(q*(1-q)/k+z*z/(4*k*k))
	return max(centre-half, 0), min(centre+half, 1)
}

package open

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Intervals use the variance of a class mean as if the class had n/h points (models.NewConjugate):
// classes differ in their covariance W_c, and the errors of a class mean point where the points of
// the class are scattered. Between points and class mean of class c the metric G measures tr(G W_c
// G W_c) where the shared covariance W predicts tr(G W G W_c); h is the ratio of the two, times
// excess.
//
// A scatter S with nu degrees of freedom is Wishart distributed, and tr(G S G S) - tr(G S)^2/nu
// divided by (nu-1)(nu+2) is an unbiased estimate of tr(G W_c G W_c) for any nu > 1 (Srivastava
// 2005, equation 2.3, with G for the identity): the clients' class means suffice.

const (
	// excess is a further factor that intervals of classes left out of a corpus need for their
	// stated coverage: W, B and the metric are estimates, and the classes' own covariances differ
	// from each other. A larger one widens all intervals.
	excess = 1.35
	// corpusWeight is the number of pairs of class means that the corpus's h counts for, beside the
	// uploads' own.
	corpusWeight = 20
)

// widening estimates h from the scatters S_c of classes, of nu_c degrees of freedom, and returns
// the number of pairs behind the estimate; 0 if no class has three points or more. With
// p_c = (nu_c - 1)(nu_c + 2)/2 pairs
//
//	h = excess sum_c (tr(G S_c G S_c) - tr(G S_c)^2/nu_c)/2 / sum_c p_c tr(G W G S_c)/nu_c
//
// and minWidening times excess at least.
func (g *geometry) widening(own []Scatter) (h, pairs float64) {
	var gw mat.Dense
	gw.Mul(g.metric, g.within)
	var of, by float64
	for _, s := range own {
		if s.DF < 2 {
			continue
		}
		var gs, squared, shared mat.Dense
		gs.Mul(g.metric, s.Of)
		squared.Mul(&gs, &gs)
		shared.Mul(&gw, &gs)
		trace := mat.Trace(&gs)
		of += (mat.Trace(&squared) - trace*trace/s.DF) / 2
		weight := (s.DF - 1) * (s.DF + 2) / 2
		by += weight * mat.Trace(&shared) / s.DF
		pairs += weight
	}
	if !(by > 0) {
		return 0, 0
	}
	return excess * math.Max(of/by, minWidening), pairs
}

// minWidening bounds h from below for few class means: the unbiased estimate may be negative.
const minWidening = 0.5

// widening returns h of a round: the corpus's h, which counts for corpusWeight pairs, and that of
// the uploads in proportion to theirs.
func (p *Predictor) widening(g *geometry, s *Stats) float64 {
	h, pairs := g.widening(s.Own)
	return (corpusWeight*p.Widening + pairs*h) / (corpusWeight + pairs)
}

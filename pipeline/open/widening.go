package open

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Intervals take the variance of a class mean as if the class had n/h points (models.NewConjugate): classes differ in their covariance
// W_c, and the errors of class means point where the points of the class are scattered. Between points and class means of class c the metric G
// sees tr(G W_c G W_c) where the covariance W that classes share says tr(G W G W_c); h is the ratio of the two, times excess.
//
// A scatter S of nu degrees of freedom is Wishart's, and tr(G S G S) - tr(G S)^2/nu over (nu-1)(nu+2) has the mean tr(G W_c G W_c)
// (Srivastava 2005, equation 2.3, with G for the identity), however few they are: class means of the clients will do.

const (
	// excess is what intervals of classes that were left out of a corpus ask for beside, to hold what they state: W, B and
	// the metric are estimates, and the classes' own covariances differ from each other.
	excess = 1.35
	// corpusWeight is how many pairs of class means the h of the corpus counts for, beside the uploads' own.
	corpusWeight = 20
)

// widening is h by the scatters of classes, and the number of pairs that it rests on; 0 where no class has three points or more.
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
	return excess * math.Max(of/by, leastWidening), pairs
}

// leastWidening bounds what few class means say from below: an estimate without bias may be less than 0.
const leastWidening = 0.5

// widening is h of a round: the corpus's, and the uploads' own for the pairs that they have.
func (p *Predictor) widening(g *geometry, s *Stats) float64 {
	h, pairs := g.widening(s.Own)
	return (corpusWeight*p.Widening + pairs*h) / (corpusWeight + pairs)
}

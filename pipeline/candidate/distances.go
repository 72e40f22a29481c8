package candidate

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// shifts are variances, in units of the covariance within classes W, of the class means of clients
// about those of a corpus of the same names: 0 of images of one kind, more where cameras differ,
// much where only the names agree.
var shifts = []float64{0, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10}

// priorUnlike is the prior probability that a class mean lies anywhere for a reason of its own:
// another name, or a few wrong images of few. A shift moves all classes, so that a single one tells
// little of it.
const priorUnlike = 0.01

// plainMass returns the mass of an image of n of the corpus's class at a shift, the place of one in
// shifts.
func plainMass(n float64, shift int) float64 { return 1 / (1 + n*shifts[shift]) }

// distances are log-likelihoods of each of shifts, with the prior's odds, by how far class means
// lie apart.
type distances []float64

func newDistances() distances {
	d := make(distances, len(shifts))
	d[0] = corpusOdds
	return d
}

// distance is the log-likelihood of each of shifts of one class, and the log of their mean.
type distance struct {
	log  []float64
	mean float64
}

// newDistance returns that of a squared distance, per coordinate, of variance v without a shift, in
// free coordinates. free square/(v + shift) is of chi squared with free degrees of freedom. Its log
// density, but for terms that all shifts share, is
//
//	-free/2 (log(v + shift) + square/(v + shift))
func newDistance(square, v, free float64) distance {
	log := make([]float64, len(shifts))
	for i, shift := range shifts {
		log[i] = -free / 2 * (math.Log(v+shift) + square/(v+shift))
	}
	return distance{log, floats.LogSumExp(log) - math.Log(float64(len(log)))}
}

// add counts a class, which has the shift of the others or one of its own.
func (d distances) add(of distance) {
	for i := range d {
		d[i] += of.either(i)
	}
}

// either returns the log-likelihood of a class where the others have a shift s, with L the class's
// own: log(priorUnlike mean_s L(s) + (1 - priorUnlike) L(s)).
func (of distance) either(shift int) float64 {
	return floats.LogSumExp([]float64{math.Log(priorUnlike) + of.mean,
		math.Log1p(-priorUnlike) + of.log[shift]})
}

// mass returns that of an image of n of the corpus's class where the others have no shift: less
// than 1 as the class is likely to have one of its own. With q the probability of that,
//
//	1 - q + q sum_s p(s) plainMass(n, s),   p(s) the class's own L(s) over their sum
func (of distance) mass(n float64) float64 {
	alone := math.Exp(math.Log(priorUnlike) + of.mean - of.either(0))
	out := 1 - alone
	for i, v := range of.log {
		out += alone * math.Exp(v-of.mean) / float64(len(shifts)) * plainMass(n, i)
	}
	return out
}

package candidate

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// shifts are variances, in units of the covariance within classes W, of the class means of clients
// about those of a corpus of the same names: 0 of images of one kind, more where cameras differ,
// much where only the names agree.
var shifts = []float64{0, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10}

// unlike is the probability that a class mean lies anywhere for a reason of its own: another name, or
// a few wrong images of few. A shift moves all classes, so that a single one tells little of it.
const unlike = 0.01

// plainMass returns the mass of an image of n of the corpus's class at a shift, the place of one in
// shifts.
func plainMass(n float64, shift int) float64 { return 1 / (1 + n*shifts[shift]) }

// distances are log-likelihoods of each of shifts, with the prior's odds, by how far class means lie
// apart.
type distances []float64

func newDistances() distances {
	d := make(distances, len(shifts))
	d[0] = corpusOdds
	return d
}

// own is the verdict on one class by its distance.
type own struct {
	unlike float64   // the probability that it has a shift of its own, where the others have none
	at     []float64 // the probability of each of shifts then
}

// add counts a squared distance, per coordinate, of variance v without a shift, in free coordinates.
func (d distances) add(square, v, free float64) own {
	n := len(d)
	log, out := make([]float64, n), own{at: make([]float64, n)}
	for i, shift := range shifts {
		log[i] = -free / 2 * (math.Log(v+shift) + square/(v+shift))
	}
	anywhere := floats.LogSumExp(log)
	alone := math.Log(unlike/float64(n)) + anywhere
	for i, of := range log {
		out.at[i] = math.Exp(of - anywhere)
		all := floats.LogSumExp([]float64{alone, math.Log1p(-unlike) + of})
		d[i] += all
		if i == 0 {
			out.unlike = math.Exp(alone - all)
		}
	}
	return out
}

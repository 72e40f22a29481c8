package candidate

import (
	"math"
	"math/rand/v2"
	"slices"

	"fmp/models/rng"
)

// bootstraps is the number of draws that shares are the mean of: their error is 1/40 at most, half
// over the root of 400.
const bootstraps = 400

// shares returns how sure it is that each of some predictors is the best for clients to come, by
// the log-likelihoods of the groups that were left out, [predictors, groups]: the mean of its
// weight over groups that count at random (Rubin, The Bayesian bootstrap, Annals of Statistics 9,
// 1981; pseudo-BMA+ of Yao, Vehtari, Simpson and Gelman, Bayesian Analysis 13, 2018). Their sum
// alone takes a difference of few images for certain. With l_ig the log-likelihood of predictor i
// on group g of G,
//
//	share_i = E softmax_i(sum_g G w_g l_ig),   w of Dirichlet(1, ..., 1)
func shares(left [][]float64, r *rand.Rand) []float64 {
	out, of := make([]float64, len(left)), make([]float64, len(left))
	weight := make([]float64, len(left[0]))
	for range bootstraps {
		var sum float64
		for g := range weight {
			weight[g] = r.ExpFloat64() // over their sum, Dirichlet(1, ..., 1)
			sum += weight[g]
		}
		for i, likelihood := range left {
			of[i] = 0
			for g, v := range likelihood {
				of[i] += weight[g] / sum * float64(len(weight)) * v
			}
		}
		best, total := slices.Max(of), 0.0
		for i, v := range of {
			of[i] = math.Exp(v - best)
			total += of[i]
		}
		axpy(1/total/bootstraps, of, out)
	}
	return out
}

// rated is the rating of a candidate, of which its weight follows.
type rated struct {
	score  float64   // log-likelihood
	left   []float64 // of the groups that were left out; they add up to the score
	corpus bool      // with the covariance of a corpus
}

// weights returns the weights of candidates beside the heaviest's: by their scores among those with
// a corpus's covariance and among those without, and by shares between the best of each.
func weights(all []rated, o *Options) []float64 {
	best := map[bool]int{}
	scores := make([]float64, len(all))
	for i, c := range all {
		scores[i] = c.score
		if at, ok := best[c.corpus]; !ok || c.score > all[at].score {
			best[c.corpus] = i
		}
	}
	if len(best) < 2 {
		return weigh(scores)
	}
	share := shares([][]float64{all[best[false]].left, all[best[true]].left},
		rng.New(o.Seed, "candidate", o.Stream, "bootstrap"))
	of := map[bool]float64{false: share[0] / max(share[0], share[1]),
		true: share[1] / max(share[0], share[1])}
	for i, c := range all {
		scores[i] = of[c.corpus] * math.Exp(power*(c.score-all[best[c.corpus]].score))
	}
	return scores
}

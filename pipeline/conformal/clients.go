package conformal

import (
	"math"
	"sort"

	"gonum.org/v1/gonum/mathext"
)

// heldByClients returns the level that sets hold whose threshold is the j-th largest of n scores of
// several clients' calibration points. The clients may differ from each other in any way: a new
// image is of one of the clients, drawn with a probability in proportion to its points, and each
// client's points and images are drawn alike.
//
// With Q the j-th largest score and u the probability that a new image's score is at least t, the
// number of points of scores of at least t is a sum of independent indicators of mean n u in all.
// By Hoeffding (1956, "On the distribution of the number of successes in independent trials",
// theorem 4) it is at most j - 1 at least as probably as a binomial number, where j - 1 >= n u. So
// that, with x = (j-1)/n and I the regularised incomplete beta function,
//
//	P(score >= Q) = int_0^1 P(fewer than j points of scores beyond the u-quantile) du
//	              >= int_0^x P(Bin(n, u) <= j-1) du
//	              = x (1 - I_x(j, n-j+1)) + j/(n+1) I_x(j+1, n-j+1)
//
// For points drawn alike over all clients the level is j/(n+1).
func heldByClients(n, j int) float64 {
	x := float64(j-1) / float64(n)
	a, b := float64(j), float64(n-j+1)
	return x*(1-mathext.RegIncBeta(a, b, x)) + a/float64(n+1)*mathext.RegIncBeta(a+1, b, x)
}

// heldByWeights returns the level that sets hold whose threshold t is the largest score for which
// the weights of points of scores of at least t sum to theta. Weights sum to 1 and none is above
// most. A new image is of the class, and of the client, of point i with probability w_i; points and
// images of one class of a client are drawn alike; nothing else is asked for.
//
// The weight A_u of the points beyond the new image's u-quantile is a sum of independent variables
// of mean u. By Hoeffding (1963, "Probability inequalities for sums of bounded random variables",
// theorem 1, for weights of at most most), with kl the relative entropy of two Bernoulli variables,
//
//	P(score >= t) >= int_0^1 P(A_u < theta) du >= int_0^theta 1 - exp(-kl(theta, u)/most) du
func heldByWeights(theta, most float64) float64 {
	theta = min(theta, 1)
	const steps = 100
	var sum float64
	for i := range steps { // midpoints of v, u = theta (1 - v²), as it falls near theta
		v := (float64(i) + 0.5) / steps
		u := theta * (1 - v*v)
		kl := theta * math.Log(theta/u)
		if theta < 1 {
			kl += (1 - theta) * math.Log((1-theta)/(1-u))
		}
		sum -= 2 * v * math.Expm1(-kl/most)
	}
	return theta * sum / steps
}

// ImagesOfClients returns the least number of calibration points of several clients for a level.
func ImagesOfClients(level float64) int {
	return sort.Search(math.MaxInt32,
		func(n int) bool { return n > 0 && heldByClients(n, n) >= level })
}

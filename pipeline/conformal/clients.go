package conformal

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"gonum.org/v1/gonum/mathext"
)

// ThresholdOfClients returns the score at which a class is in the set, from scores of several clients' calibration points, in any order.
// The clients may differ from each other in any way: a new image, of one of the clients drawn with a probability in proportion to its
// points, has its class in its set with a probability of at least level, if each client's points and images are drawn alike.
//
// With N points, Q the j-th largest score and u the probability that a new image's score is at least t, the number of points of scores of
// at least t is a sum of independent indicators of mean N u in all. By Hoeffding (1956, "On the distribution of the number of successes in
// independent trials", theorem 4) it is at most j - 1 at least as probably as a binomial number, where j - 1 >= N u. So that
//
//	P(score >= Q) = int_0^1 P(fewer than j points of scores beyond the u-quantile) du >= int_0^((j-1)/N) P(Bin(N, u) <= j-1) du
//
// and j is the least for which the right side reaches level. For points drawn alike over all clients it is j/(N+1), which [Threshold]
// takes.
func ThresholdOfClients(scores []float64, level float64) (float64, error) {
	if err := CheckLevel(level); err != nil {
		return 0, err
	}
	n := len(scores)
	j := 1 + sort.Search(n, func(i int) bool { return heldByClients(n, i+1) >= level })
	if j > n {
		return 0, fmt.Errorf("conformal: level %v wants at least %d calibration points of clients, and there are %d: give more, or a lower level",
			level, ImagesOfClients(level), n)
	}
	return slices.Sorted(slices.Values(scores))[n-j], nil
}

// heldByClients returns the bound of ThresholdOfClients at the j-th largest of n scores:
//
//	int_0^x P(Bin(n, u) <= j-1) du = sum_{i < j} I_x(i+1, n-i+1)/(n+1),  x = (j-1)/n
func heldByClients(n, j int) float64 {
	x := float64(j-1) / float64(n)
	if x == 0 {
		return 0
	}
	var sum float64
	for i := range j {
		sum += mathext.RegIncBeta(float64(i+1), float64(n-i+1), x)
	}
	return sum / float64(n+1)
}

// ImagesOfClients returns the least number of calibration points of several clients for a level.
func ImagesOfClients(level float64) int {
	// All n scores: the bound is x - x^(n+1)/(n+1), x = (n-1)/n, which rises with n.
	return sort.Search(math.MaxInt32, func(n int) bool { return n > 0 && heldByAll(float64(n)) >= level })
}

func heldByAll(n float64) float64 {
	x := (n - 1) / n
	return x - math.Pow(x, n+1)/(n+1)
}

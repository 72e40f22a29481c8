package privacy

import (
	"crypto/sha256"
	"fmt"
	"math"
)

// countsChange is the square of the L2 distance between the counts of a report (package tally) on
// two sets of images of which one has one image more: it is in one count of its class and in one of
// its bin.
const countsChange = 2

// CountsNoise returns the standard deviation of the noise of each count of a report, a whole
// number: the discrete Gaussian is rho-zCDP with rho = change²/2 sigma² (Canonne, Kamath and
// Steinke 2020), and that is (epsilon, delta)-DP with epsilon = rho + 2 sqrt(rho ln(1/delta)) (Bun
// and Steinke 2016). Solved for rho it is (sqrt(ln(1/delta) + epsilon) - sqrt(ln(1/delta)))^2, and
// sigma is sqrt(change^2/2)/sqrt(rho), rounded up.
func CountsNoise(epsilon, delta float64) (uint64, error) {
	if !(epsilon >= minEpsilon && epsilon <= maxEpsilon && delta >= minDelta && delta <= maxDelta) {
		return 0, fmt.Errorf("epsilon is %v and delta %v; allowed are %v to %v and %v to %v",
			epsilon, delta, minEpsilon, maxEpsilon, minDelta, maxDelta)
	}
	l := math.Log(1 / delta)
	root := math.Sqrt(l+epsilon) - math.Sqrt(l) // of rho
	return uint64(math.Ceil(math.Sqrt(countsChange/2) / root)), nil
}

// NewCountsSpending returns the record of a report of counts with noise about images with these
// digests and labels, which its maker completes; its Graph is the classifier. An image is charged
// as by Gaussian noise at exactly epsilon, so that one report costs the epsilon that it states; the
// noise of [CountsNoise] costs no more.
func NewCountsSpending(epsilon, delta float64, classes int, digests [][sha256.Size]byte,
	labels []int) (Spending, error) {
	noise, err := CountsNoise(epsilon, delta)
	s := NewSpending(Budget{Epsilon: epsilon, Delta: delta, Unit: Example, Relation: AddRemove,
		Noise: Local}, classes, 0, digests, labels)
	s.Counts, s.Noise = true, noise
	return s, err
}

// countsRatio is the change of a report of counts over its noise: by an image that is there count
// times, or by all of its images, which nothing bounds beside their number. Replacing is removing
// and adding, in other counts: sqrt(2) times as far.
func (s Spending) countsRatio(unit, relation string, count int) float64 {
	if unit == Client {
		count = len(s.Images)
	}
	const rounding = 1 + 1e-12 // so that a limit of epsilon allows one report
	ratio := float64(count) / (rounding * Sigma(s.Budget.Epsilon, s.Budget.Delta))
	if relation == ReplaceOne {
		ratio *= math.Sqrt2
	}
	return ratio
}

// checkCounts returns an error for the record of a report that was changed.
func (s Spending) checkCounts() error {
	if want, err := CountsNoise(s.Budget.Epsilon, s.Budget.Delta); err != nil || want != s.Noise ||
		s.K != 0 || s.Budget.Unit != Example ||
		s.Budget.Relation != AddRemove {
		return fmt.Errorf(
			"noise of %d and %d coordinates; its budget asks for %d and 0 of a report of counts",
			s.Noise, s.K, want)
	}
	return nil
}

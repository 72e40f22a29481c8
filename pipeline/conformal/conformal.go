// Package conformal computes prediction sets and rejection thresholds with finite-sample
// guarantees, from a classifier's probabilities for labelled images that took no part in making it,
// the calibration images.
//
// The guarantees need one assumption: calibration images and later images are exchangeable, that
// is, drawn alike. Another camera or another mix of classes voids them.
package conformal

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"
	"gonum.org/v1/gonum/stat/distuv"

	"fmp/models"
)

// Score is a conformity score of a class, given an image's probabilities. A class is in the set of
// an image where its score is large enough.
type Score string

// Scores. Their sets have the same guarantee and different sizes.
const (
	// Probability is the class's probability (Sadinle, Lei and Wasserman 2019): the smallest sets
	// on average.
	Probability Score = "probability"
	// Adaptive is 1 less the sum of the probabilities that are at least the class's (Romano, Sesia
	// and Candès 2020, without their randomisation): larger sets for images that are hard to tell.
	Adaptive Score = "adaptive"
)

// Scores lists the scores.
var Scores = []Score{Probability, Adaptive}

// Compute returns the score of every class of an image with probabilities p.
func (s Score) Compute(p []float32) []float32 {
	if s == Probability {
		return p
	}
	out, sum := make([]float32, len(p)), float32(0)
	for _, c := range descending(p) {
		sum += p[c]
		out[c] = 1 - sum
	}
	return out
}

// descending returns the places of numbers, from the largest number on, equal ones as they come.
func descending(of []float32) []int {
	order := make([]int, len(of))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(of[b], of[a]) })
	return order
}

// Points are the calibration images as a classifier saw them.
type Points struct {
	// Class are the images' classes.
	Class []int
	// True are the scores of the images' own classes.
	True map[Score][]float32
	// Top are the probabilities of the most probable classes, Right whether these are the images'
	// own.
	Top   []float32
	Right []bool
}

// Add adds an image of class y with probabilities p.
func (x *Points) Add(p []float32, y int) error {
	if y < 0 || y >= len(p) {
		return fmt.Errorf("conformal: class %d of %d: want 0 to %d", y, len(p), len(p)-1)
	}
	if x.True == nil {
		x.True = map[Score][]float32{}
	}
	for _, s := range Scores {
		x.True[s] = append(x.True[s], s.Compute(p)[y])
	}
	top := 0
	for c, v := range p {
		if v > p[top] {
			top = c
		}
	}
	x.Class, x.Top, x.Right = append(x.Class, y), append(x.Top, p[top]), append(x.Right, top == y)
	return nil
}

// CheckLevel returns an error for a level that is not taken.
func CheckLevel(level float64) error {
	if !(level >= models.MinLevel && level <= models.MaxLevel) {
		return fmt.Errorf("conformal: level is %v: allowed are %v to %v", level, models.MinLevel,
			models.MaxLevel)
	}
	return nil
}

// Images returns the least number n of calibration images of a level: the least with n/(n + 1) of
// the level or more. The lowest score of all is the threshold then.
func Images(level float64) int { return int(math.Ceil(1/(1-level)-1e-9)) - 1 }

// ClopperPearson returns the exact interval (Clopper and Pearson 1934) of a probability, given hits
// in n trials, at the given level.
func ClopperPearson(hits, n int, level float64) (low, high float64) {
	tail := (1 - level) / 2
	low, high = 0, 1
	if hits > 0 {
		low = distuv.Beta{Alpha: float64(hits), Beta: float64(n - hits + 1)}.Quantile(tail)
	}
	if hits < n {
		high = distuv.Beta{Alpha: float64(hits + 1), Beta: float64(n - hits)}.Quantile(1 - tail)
	}
	return low, high
}

// starts are the probabilities at which Answerable begins to test, in units of 1/steps, which is
// the distance to the next. A threshold is then the number nearest to its three decimals, and is
// read as it is printed. Each start has its share of delta (Bonferroni). Steps along a sequence
// cost nothing, as it ends at the first threshold that is not proved.
var starts = []int{198, 190, 180, 160}

const steps = 200

// evidence returns an e-value against a share of wrong answers above risk, from the number of wrong
// ones among n, for points of several clients that may differ in any way. Its mean is at most 1
// where the share is above risk, so that 1 over it is a valid p-value (Markov's inequality).
//
// For q < risk, L(q) = (q/risk)^wrong ((1-q)/(1-risk))^(n-wrong) has a mean of at most 1: the
// factor of one point has, over points drawn from the clients' mixture, and by the inequality of
// arithmetic and geometric means the product over clients is largest where they are alike. The
// e-value is the mean of L over q of the density 1/(2 sqrt(q risk)). With a = wrong + 1/2,
// b = n - wrong + 1, B the beta function and I the regularised incomplete one it is
//
//	B(a, b) I_risk(a, b) / (2 sqrt(risk) risk^wrong (1-risk)^(n-wrong))
func evidence(n, wrong int, risk float64) float64 {
	a, b := float64(wrong)+0.5, float64(n-wrong)+1
	logL := math.Log(mathext.RegIncBeta(a, b, risk)) + mathext.Lbeta(a, b) -
		float64(wrong)*math.Log(risk) - float64(n-wrong)*math.Log1p(-risk)
	return math.Exp(logL) / (2 * math.Sqrt(risk))
}

// Answerable returns the least probability of the most probable class at which an image may be
// answered, so that with probability 1 - delta over the calibration images at most the share risk
// of answered images is wrong (Angelopoulos et al. 2021, Learn then Test). It tests thresholds
// downwards from four starts, each at delta/4: by the exact binomial tail where all points are
// drawn alike, and by an e-value where several clients sent them. Without a threshold it returns
// false. With n images answered at a threshold, w of them wrong, the p-value is P(Bin(n, risk) <=
// w) or 1 over the e-value. A sequence of tests in an order fixed beforehand has no further price:
// it stops at the first that fails. The cost is O(n log n), and O(n) for each threshold that is
// tested.
func (x *Points) Answerable(risk, delta float64,
	clients bool) (threshold float64, answered int, ok bool) {
	order := descending(x.Top)
	count := func(at float64) (n, wrong int) {
		for _, i := range order {
			if float64(x.Top[i]) < at {
				break
			}
			n++
			if !x.Right[i] {
				wrong++
			}
		}
		return n, wrong
	}
	p := func(n, wrong int) float64 {
		return (distuv.Binomial{N: float64(n), P: risk}).CDF(float64(wrong))
	}
	if clients {
		p = func(n, wrong int) float64 { return 1 / evidence(n, wrong, risk) }
	}
	for _, start := range starts {
		for k := start; k >= 0; k-- {
			at := float64(k) / steps
			n, wrong := count(at)
			if n == 0 || p(n, wrong) > delta/float64(len(starts)) {
				break
			}
			if !ok || at < threshold {
				threshold, answered, ok = at, n, true
			}
		}
	}
	return threshold, answered, ok
}

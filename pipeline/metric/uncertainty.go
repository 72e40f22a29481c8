package metric

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// Uncertainty holds scores of an ensemble's own uncertainty. Where scores were averaged, each is a
// mean.
type Uncertainty struct {
	// Joint is nil where no batches were given: too few points.
	Joint *Joint `json:"joint_nll,omitempty"`
	// AURC is the area under the risk-coverage curve: the error rate of the most confident points,
	// averaged over how many of them are answered (Geifman, Uziel and El-Yaniv 2019, arXiv
	// 1805.08206).
	AURC float64 `json:"aurc"`
	// ClassECE is ECE over Bins equal-width bins of each class's probability, mean over classes
	// (Kull et al. 2019, arXiv 1910.12656); AdaptiveECE is ECE over Bins bins of confidence with
	// equally many points (Nixon et al. 2019, arXiv 1904.01685).
	ClassECE    float64 `json:"class_ece"`
	AdaptiveECE float64 `json:"adaptive_ece"`
	// Entropy is the mean entropy of the predictions, and Disagreement the part of it that is
	// mutual information of label and head, in nats.
	Entropy      float64 `json:"entropy"`
	Disagreement float64 `json:"disagreement"`
}

// ScoreAll is [Score] with [Uncertainty]. batches may be nil.
// Errors are those of [Score], before any further score is computed. With batches a.Likelihood must
// be there. It costs O(N log N + N C), and the batches' products.
func ScoreAll(a *Answers, labels []int, batches *Batches) (Scores, error) {
	s, err := Score(a.Mean, labels)
	if err != nil {
		return s, err
	}
	confidence, right := byConfidence(a.Mean, labels)
	u := &Uncertainty{AURC: aurc(confidence, right), ClassECE: classECE(a.Mean, labels),
		AdaptiveECE: adaptiveECE(confidence, right)}
	total, disagreement := a.Entropies()
	for i := range total {
		u.Entropy += total[i] / float64(len(total))
		u.Disagreement += disagreement[i] / float64(len(total))
	}
	if batches != nil {
		j := batches.Score(a.Likelihood)
		u.Joint = &j
	}
	s.Uncertainty = u
	return s, nil
}

// mean averages scores; one that some element lacks is left out.
// It is nil where any element is nil, and its Joint nil where any element has none.
func mean(all []*Uncertainty) *Uncertainty {
	out := &Uncertainty{Joint: &Joint{}}
	n := float64(len(all))
	for _, u := range all {
		if u == nil {
			return nil
		}
		out.AURC += u.AURC / n
		out.ClassECE += u.ClassECE / n
		out.AdaptiveECE += u.AdaptiveECE / n
		out.Entropy += u.Entropy / n
		out.Disagreement += u.Disagreement / n
		if u.Joint == nil {
			out.Joint = nil
		} else if out.Joint != nil {
			out.Joint.Random += u.Joint.Random / n
			out.Joint.Near += u.Joint.Near / n
		}
	}
	return out
}

// top returns the confidence of point i, and whether its most probable class is the true one.
func top(p *Probabilities, labels []int, i int) (confidence float64, right bool) {
	best := floats.MaxIdx(p.Row(i))
	return p.Row(i)[best], best == labels[i]
}

// byConfidence returns the confidences in descending order, and whether each point is right.
// At ties the order is that of the points, so that it is the same in every run.
func byConfidence(p *Probabilities, labels []int) (confidence []float64, right []bool) {
	type answer struct {
		confidence float64
		i          int32
		right      bool
	}
	all := make([]answer, p.N)
	for i := range all {
		a := &all[i]
		a.i = int32(i)
		a.confidence, a.right = top(p, labels, i)
	}
	slices.SortFunc(all, func(a, b answer) int {
		return cmp.Or(cmp.Compare(b.confidence, a.confidence), cmp.Compare(a.i, b.i))
	})
	confidence, right = make([]float64, p.N), make([]bool, p.N)
	for i, a := range all {
		confidence[i], right[i] = a.confidence, a.right
	}
	return confidence, right
}

// aurc is the mean over i of the error rate among the i most confident points. It counts points of
// equal confidence as wrong in proportion to their mean error, so that their order does not matter.
func aurc(confidence []float64, right []bool) float64 {
	var area, errors float64
	for i, rate := range errorRates(confidence, right) {
		errors += rate
		area += errors / float64(i+1)
	}
	return area / float64(len(confidence))
}

// errorRates returns, of points by descending confidence, the error rate of all that have a point's
// confidence: figures do not depend on the order of those.
// A NaN must not come in: it does not equal itself, and would never be passed.
func errorRates(confidence []float64, right []bool) []float64 {
	out := make([]float64, len(confidence))
	for from := 0; from < len(confidence); {
		to, wrong := from, 0.0
		for ; to < len(confidence) && confidence[to] == confidence[from]; to++ {
			if !right[to] {
				wrong++
			}
		}
		for rate := wrong / float64(to-from); from < to; from++ {
			out[from] = rate
		}
	}
	return out
}

// classECE is ECE of all classes' probabilities: with the bins B of the probabilities of class c,
//
//	sum_c sum_B |sum_{i in B} (p_ic - 1[y_i = c])| / (C N)
//
// Gaps are sums and not means, so that an empty bin counts nothing.
func classECE(p *Probabilities, labels []int) float64 {
	gaps := make([]float64, p.C*Bins)
	for i, y := range labels {
		for c, v := range p.Row(i) {
			gap := &gaps[c*Bins+bin(v)]
			*gap += v
			if c == y {
				*gap--
			}
		}
	}
	var sum float64
	for _, g := range gaps {
		sum += math.Abs(g)
	}
	return sum / float64(p.C*p.N)
}

// adaptiveECE is ECE with bins of as many points each, by descending confidence. A bin's gap is the
// sum of its confidences less the number of its points that are right.
// Bin b has the points from b N/Bins to (b + 1) N/Bins, so that sizes differ by one at most.
func adaptiveECE(confidence []float64, right []bool) float64 {
	n, sum := len(confidence), 0.0
	errors := errorRates(confidence, right)
	for b := range Bins {
		var gap float64
		for i := b * n / Bins; i < (b+1)*n/Bins; i++ {
			gap += confidence[i]
			gap -= 1 - errors[i]
		}
		sum += math.Abs(gap)
	}
	return sum / float64(n)
}

// AUROC returns the area under the ROC curve: the probability that a positive scores above a
// negative; ties count half. It is the statistic U of Mann and Whitney by the number of pairs, in
// O(n log n): both sides are sorted and passed once.
// The slices given are not changed.
func AUROC(positives, negatives []float64) (float64, error) {
	if len(positives) == 0 || len(negatives) == 0 {
		return 0, fmt.Errorf("AUROC: %d positives and %d negatives; want one of each at least",
			len(positives), len(negatives))
	}
	// NaN first
	positives, negatives = slices.Sorted(slices.Values(positives)),
		slices.Sorted(slices.Values(negatives))
	if math.IsNaN(positives[0]) || math.IsNaN(negatives[0]) {
		return 0, fmt.Errorf("AUROC: a score is NaN; want numbers")
	}
	var area float64 // pairs won
	below, upTo := 0, 0
	for _, v := range positives {
		for ; below < len(negatives) && negatives[below] < v; below++ {
		}
		for ; upTo < len(negatives) && negatives[upTo] <= v; upTo++ {
		}
		area += float64(below+upTo) / 2
	}
	return area / float64(len(positives)) / float64(len(negatives)), nil
}

// Coverage returns the share of the elements of limit that lie in their interval, low to high.
// The ends belong to the interval.
func Coverage(low, high, limit []float64) (float64, error) {
	if len(low) != len(limit) || len(high) != len(limit) || len(limit) == 0 {
		return 0, fmt.Errorf("coverage: %d and %d ends of intervals for %d numbers; want "+
			"one of each a number, and one number at least", len(low), len(high), len(limit))
	}
	var held float64
	for i, v := range limit {
		if low[i] <= v && v <= high[i] {
			held++
		}
	}
	return held / float64(len(limit)), nil
}

package score

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/pipeline/internal/moment"
	"fmp/pipeline/metric"
)

// Attacker performs membership inference: it holds a client's upload of class means, knows the mean
// mu_c of every class and the covariance W within classes, and decides of an image whether it was
// among those averaged. The knowledge is more than a real adversary has, so that the area errs on
// the side of the client. Nothing writes to an Attacker once it is made: several uploads may be
// attacked at a time.
type Attacker struct {
	known  *moment.Classes
	chol   mat.Cholesky
	labels []int
	others *mat.Dense // W^-1/2 (x - mu_c) of the non-members
}

// NewAttacker returns an attacker that estimates the class moments from labelled rows of k numbers,
// in the coordinates of the upload; these rows are also its non-members. It is nil where they are
// too few for W, or W is singular. W has a rank of len(labels) - c at most, so that more than k + c
// rows are asked for. A caller takes nil as a figure that cannot be had. The cost is O(n k^2 +
// k^3).
func NewAttacker(rows []float32, k int, labels []int, c int) (*Attacker, error) {
	if len(labels) <= k+c {
		return nil, nil
	}
	m, err := moment.Compute(moment.Rows(rows, k), labels, c, 0)
	if err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
	a := &Attacker{known: m, labels: labels}
	if !a.chol.Factorize(m.Within) {
		return nil, nil
	}
	a.others, err = Whitened(&a.chol, m.Rest)
	return a, err
}

// Whitened returns the rows of x times L^-T of a decomposition LL' of their covariance W. A row x
// becomes z = L^-1 x with |z|^2 = x'W^-1 x. It solves with the triangle and forms no inverse. x
// stays as it is, and the result has memory of its own.
func Whitened(chol *mat.Cholesky, x *mat.Dense) (*mat.Dense, error) {
	var lower mat.TriDense
	chol.LTo(&lower)
	var out mat.Dense
	if err := out.Solve(&lower, x.T()); err != nil {
		return nil, fmt.Errorf("membership: covariance: %w", err)
	}
	return mat.DenseCopyOf(out.T()), nil
}

// AUC returns the area under the ROC curve of telling the rows behind one upload's class means
// (members) from others of their class, averaged over classes, and the number of members; a class
// without members or without others does not count. 0.5 is chance, 1 certainty. For Gaussian
// classes the test is optimal: for a mean m of n points less mu_c,
//
//	m ~ N(x/n, (n-1)/n^2 W) with a point at mu_c + x,  N(0, W/n) without,
//
// whose likelihood ratio falls with |n m - x|^2 in the metric of W. The area is about Phi(sqrt(k /
// 2n)). rows are the members, [n, k], in the coordinates of the attacker's own rows. The member
// under test stays in the sum, as it does in the upload that a real attacker sees. Classes are
// weighted by their members.
func (a *Attacker) AUC(rows []float32, labels []int) (auc float64, members int, err error) {
	k := len(a.known.Centre)
	if len(rows) != len(labels)*k {
		return 0, 0, fmt.Errorf("membership: %d numbers for %d rows of %d", len(rows),
			len(labels), k)
	}
	own := moment.Rows(rows, k)
	for i, y := range labels {
		floats.Sub(own.RawRowView(i), a.known.Means.RawRowView(y))
	}
	in, err := Whitened(&a.chol, own)
	if err != nil {
		return 0, 0, err
	}
	for c, n := range a.known.Count {
		if n == 0 {
			continue
		}
		// n m: the whitened sum of the client's images of the class.
		sum, held := make([]float64, k), 0
		for i, y := range labels {
			if y == c {
				floats.Add(sum, in.RawRowView(i))
				held++
			}
		}
		if held == 0 {
			continue
		}
		d := make([]float64, k)
		scores := func(points *mat.Dense, labels []int) (out []float64) {
			for i, y := range labels {
				if y == c {
					floats.SubTo(d, sum, points.RawRowView(i))
					out = append(out, -floats.Dot(d, d))
				}
			}
			return out
		}
		area, err := metric.AUROC(scores(in, labels), scores(a.others, a.labels))
		if err != nil {
			return 0, 0, fmt.Errorf("membership: %w", err)
		}
		auc += float64(held) * area
		members += held
	}
	if members > 0 {
		auc /= float64(members)
	}
	return auc, members, nil
}

// TruePositives returns the true positive rate at a false positive rate of at most rate; NaN
// without positives or negatives. Of n negatives floor(rate n) at most are above the threshold, as
// scores equal to it count on neither side. The rate lies in [0, 1). This is the measure of Carlini
// et al. 2022, "Membership inference attacks from first principles": a mean over thresholds hides
// attacks that are certain of a few.
func TruePositives(positives, negatives []float64, rate float64) float64 {
	if len(positives) == 0 || len(negatives) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(negatives))
	threshold := sorted[len(sorted)-1-int(rate*float64(len(sorted)))]
	above := 0
	for _, v := range positives {
		if v > threshold {
			above++
		}
	}
	return float64(above) / float64(len(positives))
}

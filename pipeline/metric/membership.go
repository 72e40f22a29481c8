package metric

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"fmp/pipeline/moment"
)

// Attacker is somebody who holds a client's upload of class means and asks of an image whether it was among those behind them,
// and who knows the mean mu_c of every class and the covariance W within them.
type Attacker struct {
	known  *moment.Classes
	chol   mat.Cholesky
	labels []int
	others *mat.Dense // W^-1/2 (x - mu_c): those who are no members
}

// NewAttacker takes what the attacker knows from labelled rows of k numbers, in the coordinates of the upload, which are also
// those who are no members. It is nil where they are too few for W, or say the same.
func NewAttacker(rows []float32, k int, labels []int, c int) (*Attacker, error) {
	if len(labels) <= k+c {
		return nil, nil
	}
	m, err := moment.Of(moment.Rows(rows, k), labels, c, 0)
	if err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
	a := &Attacker{known: m, labels: labels}
	if !a.chol.Factorize(m.Within) {
		return nil, nil
	}
	a.others, err = a.white(m.Rest)
	return a, err
}

// white is W^-1/2 times the rows of rest.
func (a *Attacker) white(rest *mat.Dense) (*mat.Dense, error) {
	var lower mat.TriDense
	a.chol.LTo(&lower)
	var out mat.Dense
	if err := out.Solve(&lower, rest.T()); err != nil {
		return nil, fmt.Errorf("membership: covariance within classes: %w", err)
	}
	return mat.DenseCopyOf(out.T()), nil
}

// AUC returns the area under the ROC curve of telling the rows behind one upload's class means from others of their class, the
// mean over classes, and their number; a class that only one side has does not count. 0.5 gives nothing away, 1 everything. For
// Gaussian classes the test is the best there is: of a mean m of n points less mu_c,
//
//	m ~ N(x/n, (n-1)/n^2 W) with a point at mu_c + x,  N(0, W/n) without,
//
// whose likelihood ratio falls with |n m - x|^2 in the metric of W. The area is about Phi(sqrt(k / 2n)).
func (a *Attacker) AUC(rows []float32, labels []int) (auc float64, members int, err error) {
	auc, _, members, err = a.Rates(rows, labels)
	return auc, members, err
}

// Rates are [Attacker.AUC], and the rate of members found where one in a hundred of the others is taken for one.
func (a *Attacker) Rates(rows []float32, labels []int) (auc, tpr float64, members int, err error) {
	k := len(a.known.Centre)
	if len(rows) != len(labels)*k {
		return 0, 0, 0, fmt.Errorf("membership: %d numbers for %d rows of %d", len(rows), len(labels), k)
	}
	own := moment.Rows(rows, k)
	for i, y := range labels {
		row := own.RawRowView(i)
		for j, v := range a.known.Means.RawRowView(y) {
			row[j] -= v
		}
	}
	in, err := a.white(own)
	if err != nil {
		return 0, 0, 0, err
	}
	for c, n := range a.known.Count {
		if n == 0 {
			continue
		}
		sum, held := mat.NewVecDense(k, nil), 0
		for i, y := range labels {
			if y == c {
				sum.AddVec(sum, in.RowView(i))
				held++
			}
		}
		if held == 0 {
			continue
		}
		var d mat.VecDense
		scores := func(points *mat.Dense, labels []int) (out []float64) {
			for i, y := range labels {
				if y == c {
					d.SubVec(sum, points.RowView(i))
					out = append(out, -mat.Dot(&d, &d))
				}
			}
			return out
		}
		mine, theirs := scores(in, labels), scores(a.others, a.labels)
		area, err := AUROC(mine, theirs)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("membership: %w", err)
		}
		auc += float64(held) * area
		tpr += float64(held) * TruePositives(mine, theirs, 0.01)
		members += held
	}
	if members > 0 {
		auc /= float64(members)
		tpr /= float64(members)
	}
	return auc, tpr, members, nil
}

// TruePositives returns the share of positives above the threshold that at most the given share of negatives is above.
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

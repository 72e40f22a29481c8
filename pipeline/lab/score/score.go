// Package score scores methods' predictions: accuracy, calibration and likelihood, single and
// joint; the coverage of intervals; classes that no client holds; other and corrupted images; and
// membership inference from class means.
package score

import (
	"context"
	"fmt"
	"slices"

	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// Prefix holds the scores of the first Samples heads of an ensemble. The first heads stand for any
// others of that number.
type Prefix struct {
	Samples int     `json:"samples"`
	ACC     float64 `json:"acc"`
	ECE     float64 `json:"ece"`
	NLL     float64 `json:"nll"`
	// Joint is nil where no batches were given.
	Joint *metric.Joint `json:"joint_nll,omitempty"`
}

// prefixes are the ensemble sizes at which scores against S are computed, about evenly spaced on a
// logarithmic axis. Those of the ensemble's size or above are left out, and the size itself is
// added.
var prefixes = []int{1, 2, 5, 10, 20, 40, 100, 200, 400}

// Test holds the labelled points that results are scored on: n x dx features, row-major, and one
// class index per row. Scoring writes to no field: several results may be scored at a time.
type Test struct {
	Features []float32
	Labels   []int
	// Batches are the batches of joint scores; nil for no joint scores.
	Batches *metric.Batches
	// Limit is the limit of softmax regression on the features as data grow (LimitHead); nil:
	// coverage is measured only for results with limits of their own.
	Limit *posterior.Theta
	// Regression is a second reference of intervals, beside their method's own limit
	// (RegressionHead); nil: none.
	Regression *posterior.Theta
	// Shifts are points from other distributions, scored in addition.
	Shifts []Shift
}

// Report holds the scores of a result.
type Report struct {
	Scores metric.Scores
	// First scores the first 1, 2, 5, ... heads of one ensemble of several heads; nil for others.
	First []Prefix
	// Coverage is nil for single heads and where no limit is known.
	Coverage *Coverage
	// Absent holds the scores on points of classes that no client holds; nil where every class is
	// held, and for several ensembles.
	Absent *Absent
	// Shifted holds the scores on the test's shifts, in their order.
	Shifted []Shifted
	// Membership is the AUC, 0.5 to 1, of membership inference from an uploaded class mean; nil
	// where none is uploaded.
	Membership *float64
}

// Absent holds scores on the test points of classes that no client holds.
type Absent struct {
	Classes int     `json:"classes"`
	Points  int     `json:"points"`
	ACC     float64 `json:"acc"`
	NLL     float64 `json:"nll"`
}

// absent scores the points of classes that no client holds; nil where there are none. A class
// counts as held where a point of positive weight has a positive share of it. A method that sends
// nothing of a class can only know it from the corpus. Classes counts those without test points as
// well.
func absent(clients []*point.Set, p *metric.Probabilities, labels []int) (*Absent, error) {
	// All sets have the classes of the first.
	held := make([]bool, clients[0].C)
	for _, set := range clients {
		for i, w := range set.W {
			for c, share := range set.Row(i)[set.Dx:] {
				held[c] = held[c] || w*share > 0
			}
		}
	}
	out := &Absent{}
	some := &metric.Probabilities{C: p.C}
	var of []int
	for _, h := range held {
		if !h {
			out.Classes++
		}
	}
	for i, y := range labels {
		if !held[y] {
			some.P, of = append(some.P, p.Row(i)...), append(of, y)
		}
	}
	if some.N = len(of); some.N == 0 {
		return nil, nil
	}
	s, err := metric.Score(some, of)
	if err != nil {
		return nil, fmt.Errorf("classes that no client holds: %w", err)
	}
	out.Points, out.ACC, out.NLL = some.N, s.ACC, s.NLL
	return out, nil
}

// Score scores a result for clients of these points (none: no Membership or Absent): its ensemble,
// or the mean of the scores of its ensembles. Coverage and shifts are means over all ensembles as
// well. Every prefix of a single ensemble is scored in one pass over its heads. A result without
// ensembles and a test without labels are errors. r is not changed.
func (k *Test) Score(ctx context.Context, clients []*point.Set, r *posterior.Result,
	threads int) (*Report, error) {
	rows, err := r.Rows(ctx, k.Features)
	if err != nil {
		return nil, err
	}
	if len(r.Ensembles) == 0 || len(k.Labels) == 0 {
		return nil, fmt.Errorf("%d ensembles on %d labelled points; want one of each at least",
			len(r.Ensembles), len(k.Labels))
	}
	out := &Report{}
	all := make([]metric.Scores, len(r.Ensembles))
	for i, e := range r.Ensembles {
		// Scores by number of heads are of a single ensemble alone.
		wanted := []int{len(e)}
		// Methods of each client alone have one ensemble a client, and a curve over heads would mix
		// them.
		if len(r.Ensembles) == 1 {
			wanted = append(slices.DeleteFunc(slices.Clone(prefixes),
				func(n int) bool { return n >= len(e) }), len(e))
		}
		answers, err := metric.ExamineFirst(ctx, e, wanted, rows, k.Labels, threads)
		if err != nil {
			return nil, fmt.Errorf("ensemble %d: %w", i, err)
		}
		// The last answer is of all heads.
		a := answers[len(answers)-1]
		if all[i], err = metric.ScoreAll(a, k.Labels, k.Batches); err != nil {
			return nil, fmt.Errorf("ensemble %d: %w", i, err)
		}
		if len(wanted) > 1 {
			if out.First, err = k.first(answers, all[i]); err != nil {
				return nil, err
			}
		}
		if len(clients) > 0 && len(r.Ensembles) == 1 {
			if out.Absent, err = absent(clients, a.Mean, k.Labels); err != nil {
				return nil, err
			}
		}
	}
	if out.Scores, err = metric.Mean(all); err != nil {
		return nil, err
	}
	if out.Coverage, err = k.coverage(ctx, r, rows, threads); err != nil {
		return nil, err
	}
	if out.Shifted, err = k.shifted(ctx, r, rows, threads); err != nil || len(clients) == 0 {
		return out, err
	}
	out.Membership, err = membership(ctx, clients, r.Means, k)
	return out, err
}

// first returns the scores of an ensemble's first heads, the last of which are all, with the scores
// given. The scores of all heads are not computed a second time.
func (k *Test) first(answers []*metric.Answers, whole metric.Scores) (out []Prefix, err error) {
	for j, a := range answers {
		s, last := whole, j == len(answers)-1
		if !last {
			if s, err = metric.Score(a.Mean, k.Labels); err != nil {
				return nil, err
			}
		}
		p := Prefix{Samples: a.Heads, ACC: s.ACC, ECE: s.ECE, NLL: s.NLL}
		if k.Batches != nil && last {
			p.Joint = s.Uncertainty.Joint
		} else if k.Batches != nil {
			joint := k.Batches.Score(a.Likelihood)
			p.Joint = &joint
		}
		out = append(out, p)
	}
	return out, nil
}

// Probabilities scores an ensemble of which only its members' probabilities of the labelled points
// are known. batches may be nil. The predictive is the members' mean, as for heads. It serves
// ensembles whose members are whole networks of another program.
func Probabilities(members []*metric.Probabilities, labels []int,
	batches *metric.Batches) (metric.Scores, error) {
	a, err := metric.Combine(members, labels)
	if err != nil {
		return metric.Scores{}, err
	}
	return metric.ScoreAll(a, labels, batches)
}

package posterior

import (
	"context"
	"fmt"
	"slices"

	"fmp/pipeline/metric"
)

// Prefix is the scores of the first Samples heads of an ensemble.
type Prefix struct {
	Samples int     `json:"samples"`
	ACC     float64 `json:"acc"`
	ECE     float64 `json:"ece"`
	NLL     float64 `json:"nll"`
	// Joint is nil where no batches were given.
	Joint *metric.Joint `json:"joint_nll,omitempty"`
}

// prefixes are the ensemble sizes that scores against S are for.
var prefixes = []int{1, 2, 5, 10, 20, 40, 80, 100, 160, 320, 640}

// Test is labelled points that results are scored on: n x dx features, row-major, and one class a row.
type Test struct {
	Features []float32
	Labels   []int
	// Batches are what joint scores are of; nil for none.
	Batches *metric.Batches
}

// Score scores a result: its ensemble, or the mean of the scores of its ensembles. Of one ensemble of several heads
// it also scores the first 1, 2, 5, ... of them.
func (k *Test) Score(ctx context.Context, r *Result, threads int) (metric.Scores, []Prefix, error) {
	rows, err := r.Rows(ctx, k.Features)
	if err != nil {
		return metric.Scores{}, nil, err
	}
	all := make([]metric.Scores, len(r.Ensembles))
	var first []Prefix
	for i, e := range r.Ensembles {
		wanted := []int{len(e)}
		if len(r.Ensembles) == 1 && len(e) > 1 {
			wanted = append(slices.DeleteFunc(slices.Clone(prefixes), func(n int) bool { return n >= len(e) }), len(e))
		}
		var a *metric.Answers
		for _, n := range wanted {
			from := 0
			if a != nil {
				from = a.Heads
			}
			more, err := metric.Examine(ctx, e[from:n], rows, k.Labels, threads)
			if err != nil {
				return metric.Scores{}, nil, fmt.Errorf("ensemble %d: %w", i, err)
			}
			if a == nil {
				a = more
			} else {
				a.Add(more)
			}
			if len(wanted) == 1 {
				break
			}
			s, err := metric.Score(a.Mean, k.Labels)
			if err != nil {
				return metric.Scores{}, nil, err
			}
			p := Prefix{Samples: n, ACC: s.ACC, ECE: s.ECE, NLL: s.NLL}
			if k.Batches != nil {
				j := k.Batches.Score(a.LogLikelihood)
				p.Joint = &j
			}
			first = append(first, p)
		}
		if all[i], err = metric.ScoreAll(a, k.Labels, k.Batches); err != nil {
			return metric.Scores{}, nil, fmt.Errorf("ensemble %d: %w", i, err)
		}
	}
	mean, err := metric.Mean(all)
	return mean, first, err
}

// Evaluate scores a result on labelled features (n x dx, row-major), without joint scores.
func Evaluate(ctx context.Context, r *Result, features []float32, labels []int, threads int) (metric.Scores, error) {
	s, _, err := (&Test{Features: features, Labels: labels}).Score(ctx, r, threads)
	return s, err
}

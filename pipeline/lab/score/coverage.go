package score

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"fmp/pipeline/erm"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// Coverage is the share of nominal 90% intervals that contain the value in the limit of infinite data. A calibrated posterior
// covers 90%; scores, even joint ones, do not show this.
type Coverage struct {
	// Top is for the probability of the class most probable in the limit of infinite data, over test points; Uncertain the same
	// where that probability is below 0.9, nil if it never is. Classes is for the probabilities of all classes.
	Top       float64  `json:"top"`
	Uncertain *float64 `json:"uncertain,omitempty"`
	Classes   float64  `json:"classes"`
	// Weights is for head weights, less their mean over classes, on which no probability depends.
	Weights float64 `json:"weights"`
}

const (
	coveragePoints = 1000 // test points for which intervals are computed
	limitL2        = 1    // penalty of the fit to all rows, of which there are thousands
	limitTolerance = 1e-5
)

// LimitHead returns the limit of softmax regression as data grow: the fit to all available rows.
func LimitHead(ctx context.Context, all *point.Set) (*posterior.Theta, error) {
	p, err := erm.FromSets(limitL2, all)
	if err != nil {
		return nil, err
	}
	s, err := erm.Solve(ctx, p, erm.Options{Tolerance: limitTolerance, Double: true})
	if err != nil {
		return nil, fmt.Errorf("fit to all %d rows, for the limit of infinite data: %w", all.N, err)
	}
	return &s.Theta, nil
}

// coverage returns the mean coverage over a result's ensembles; nil for single heads, whose intervals are points, and where
// no limit is known. rows are the test features on the heads' coordinates.
func (k *Test) coverage(ctx context.Context, r *posterior.Result, rows []float32, threads int) (*Coverage, error) {
	limit := r.Limit
	if limit == nil && r.Coordinates == nil {
		limit = k.Limit
	}
	if limit == nil || len(r.Ensembles[0]) < 2 {
		return nil, nil
	}
	n := min(len(k.Labels), coveragePoints)
	rows = rows[:len(rows)/len(k.Labels)*n]
	of := limit // of probabilities
	if r.IntervalLimit != nil {
		of = r.IntervalLimit
	}
	p, err := metric.Predict(ctx, posterior.Ensemble{*of}, rows, threads)
	if err != nil {
		return nil, fmt.Errorf("limit of infinite data: %w", err)
	}
	top := make([]int, n)
	for i := range top {
		row := p.Row(i)
		top[i] = slices.Index(row, slices.Max(row))
	}
	out := &Coverage{}
	var uncertain float64
	hasUncertain := false
	for _, e := range r.Ensembles {
		var low, high []float64
		if r.Intervals != nil {
			features := k.Features[:len(k.Features)/len(k.Labels)*n]
			if low, high, err = r.Intervals.Of(ctx, features, posterior.IntervalLevel); err != nil {
				return nil, fmt.Errorf("intervals: %w", err)
			}
			if e, err = r.Intervals.Heads(ctx); err != nil {
				return nil, fmt.Errorf("intervals of head weights: %w", err)
			}
		} else if low, high, err = quantiles(ctx, e, rows, threads); err != nil {
			return nil, err
		}
		share := 1 / float64(len(r.Ensembles))
		held, err := metric.Coverage(low, high, p.P)
		if err != nil {
			return nil, err
		}
		out.Classes += share * held
		var lo, hi, of [2][]float64 // for the top classes: of all points, of uncertain ones
		for i, c := range top {
			at := i*p.C + c
			for j := range lo {
				if j == 0 || p.P[at] < 0.9 {
					lo[j], hi[j], of[j] = append(lo[j], low[at]), append(hi[j], high[at]), append(of[j], p.P[at])
				}
			}
		}
		if held, err = metric.Coverage(lo[0], hi[0], of[0]); err != nil {
			return nil, err
		}
		out.Top += share * held
		if len(of[1]) > 0 {
			hasUncertain = true
			if held, err = metric.Coverage(lo[1], hi[1], of[1]); err != nil {
				return nil, err
			}
			uncertain += share * held
		}
		if low, high, err = weightQuantiles(e); err != nil {
			return nil, err
		}
		if held, err = metric.Coverage(low, high, centred(*limit)); err != nil {
			return nil, fmt.Errorf("head weights: %w", err)
		}
		out.Weights += share * held
	}
	if hasUncertain {
		out.Uncertain = &uncertain
	}
	return out, nil
}

// ends returns the ends of the central posterior.IntervalLevel interval of values, which it sorts in place.
func ends(values []float64) (low, high float64) {
	slices.Sort(values)
	return stat.Quantile((1-posterior.IntervalLevel)/2, stat.LinInterp, values, nil), stat.Quantile((1+posterior.IntervalLevel)/2, stat.LinInterp, values, nil)
}

// quantiles returns the ends of intervals of class probabilities, n x C each, from the quantiles of the heads' probabilities.
func quantiles(ctx context.Context, e posterior.Ensemble, rows []float32, threads int) (low, high []float64, err error) {
	said := make([]*metric.Probabilities, len(e))
	for s := range e {
		if said[s], err = metric.Predict(ctx, e[s:s+1], rows, threads); err != nil {
			return nil, nil, err
		}
	}
	return columnEnds(len(said[0].P), len(e), func(s, i int) float64 { return said[s].P[i] })
}

// weightQuantiles returns the ends of intervals of head weights.
func weightQuantiles(e posterior.Ensemble) (low, high []float64, err error) {
	all := make([][]float64, len(e))
	for s := range e {
		all[s] = centred(e[s])
	}
	return columnEnds(len(all[0]), len(e), func(s, i int) float64 { return all[s][i] })
}

// columnEnds returns the ends of the intervals of n quantities, each with the given number of samples.
func columnEnds(n, samples int, at func(s, i int) float64) (low, high []float64, err error) {
	low, high = make([]float64, n), make([]float64, n)
	values := make([]float64, samples)
	for i := range n {
		for s := range values {
			if values[s] = at(s, i); math.IsNaN(values[s]) {
				return nil, nil, fmt.Errorf("intervals: head %d gives NaN", s)
			}
		}
		low[i], high[i] = ends(values)
	}
	return low, high, nil
}

// centred returns the weights of a head, less the mean over classes in each row.
func centred(t posterior.Theta) []float64 {
	out := slices.Clone(t.W)
	for j := range t.D {
		row := out[j*t.C : (j+1)*t.C]
		mean := stat.Mean(row, nil)
		for c := range row {
			row[c] -= mean
		}
	}
	return out
}

package posterior

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"fmp/pipeline/erm"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
)

// Coverage is how many intervals stated to hold 90% hold what infinite data would give. A posterior is right where they
// are 90%, and scores, even joint ones, do not tell.
type Coverage struct {
	// Top is of the probability of the class that infinite data would give most to, over test points; Uncertain the same
	// where that probability is below 0.9, nil where no point is so. Classes is of the probabilities of all classes.
	Top       float64  `json:"top"`
	Uncertain *float64 `json:"uncertain,omitempty"`
	Classes   float64  `json:"classes"`
	// Weights is of head weights, less their mean over classes, which no probability depends on.
	Weights float64 `json:"weights"`
}

// Intervals are a method's own intervals of class probabilities. A method without them has quantiles of what its heads
// say.
type Intervals interface {
	// Of returns the ends of intervals of the given level, n x C each, for feature rows (n x dx, row-major).
	Of(ctx context.Context, features []float32, level float64) (low, high []float64, err error)
}

const (
	coverageLevel  = 0.9
	coveragePoints = 1000 // test points that intervals are made for
	limitL2        = 1    // of the fit to all rows, of which there are thousands
	limitTolerance = 1e-5
)

// LimitHead is what softmax regressions end with as data grow: the fit to all rows there are.
func LimitHead(ctx context.Context, all *point.Set) (*Theta, error) {
	p, err := erm.FromSets(limitL2, all)
	if err != nil {
		return nil, err
	}
	s, err := erm.Solve(ctx, p, erm.Options{Tolerance: limitTolerance})
	if err != nil {
		return nil, fmt.Errorf("fit to all %d rows, for the limit of infinite data: %w", all.N, err)
	}
	return &s.Theta, nil
}

// coverage is that of a result's ensembles, mean over them; nil for single heads, whose intervals are points, and where
// no limit is known. features are those behind rows.
func (k *Test) coverage(ctx context.Context, r *Result, rows []float32, threads int) (*Coverage, error) {
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
	p, err := metric.Predict(ctx, Ensemble{*of}, rows, threads)
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
			if low, high, err = r.Intervals.Of(ctx, features, coverageLevel); err != nil {
				return nil, fmt.Errorf("intervals: %w", err)
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
		var lo, hi, of [2][]float64 // of the top classes: of all points, of uncertain ones
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

// ends are the ends of the central interval of coverageLevel of values, which are sorted in place.
func ends(values []float64) (low, high float64) {
	slices.Sort(values)
	return stat.Quantile((1-coverageLevel)/2, stat.LinInterp, values, nil), stat.Quantile((1+coverageLevel)/2, stat.LinInterp, values, nil)
}

// quantiles are intervals of class probabilities, n x C, by the heads' own.
func quantiles(ctx context.Context, e Ensemble, rows []float32, threads int) (low, high []float64, err error) {
	said := make([]*metric.Probabilities, len(e))
	for s := range e {
		if said[s], err = metric.Predict(ctx, e[s:s+1], rows, threads); err != nil {
			return nil, nil, err
		}
	}
	return columnEnds(len(said[0].P), len(e), func(s, i int) float64 { return said[s].P[i] })
}

// weightQuantiles are intervals of head weights.
func weightQuantiles(e Ensemble) (low, high []float64, err error) {
	all := make([][]float64, len(e))
	for s := range e {
		all[s] = centred(e[s])
	}
	return columnEnds(len(all[0]), len(e), func(s, i int) float64 { return all[s][i] })
}

// columnEnds are the intervals of n quantities that samples have.
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

// centred are the weights of a head less, in each row, their mean over classes.
func centred(t Theta) []float64 {
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

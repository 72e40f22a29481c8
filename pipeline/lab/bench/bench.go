// Package bench compares the speed of this program with that of others at the same work. Runs
// alternate, A B A B, so that a machine whose speed drifts, or that is shared, slows both; the
// reported figure is the ratio of neighbouring runs.
package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"fmp/pipeline/lab/internal/processor"
)

// MinRuns is the minimum number of runs per contender in Measure. The median of seven leaves three
// runs on each side: up to three that others disturbed do not move it far.
const MinRuns = 7

// Contender is one implementation of a work, to be run repeatedly. Calls of Once follow each other,
// and each does the whole work.
type Contender struct {
	Name string
	// Once does the work and returns its duration; contenders in other processes exclude the
	// communication. It is nil for a contender that is not at hand, whose result says so.
	Once func() (time.Duration, error)
	// Close ends the contender; nil if there is nothing to end.
	Close func() error
}

// Timed returns a contender of this process, measured in processor time. Processor time counts all
// threads of the process: nothing else may work in it meanwhile.
func Timed(name string, do func() error) Contender {
	return Contender{Name: name, Once: func() (time.Duration, error) {
		start := processor.Time()
		err := do()
		return processor.Time() - start, err
	}}
}

// Spread holds the median and the extremes of several measurements.
type Spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// newSpread returns the Spread of v, which must not be empty. The median of an even number is the
// mean of the two in the middle. v is not sorted in place.
func newSpread(v []float64) Spread {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return Spread{Median: (v[(n-1)/2] + v[n/2]) / 2, Least: v[0], Most: v[n-1]}
}

// Result is the result of one contender.
type Result struct {
	Name string `json:"name"`
	// Missing says that the contender was not at hand; there are no figures then.
	Missing bool   `json:"missing,omitzero"`
	Seconds Spread `json:"seconds,omitzero"`
	// Ratio is the contender's time over ours, run by run: above 1, ours is faster. It is 1 for
	// ours.
	Ratio Spread `json:"ratio,omitzero"`
}

// MaxBefore bounds the runs before a measured one.
const MaxBefore = 20

// CheckRuns refuses numbers of runs, and of runs before each, that [Measure] does not do.
func CheckRuns(runs, before int) error {
	if runs < MinRuns || runs > 1000 || before < 0 || before > MaxBefore {
		return fmt.Errorf("%d runs, %d before each; allowed are %d to 1000, and 0 to %d", runs,
			before, MinRuns, MaxBefore)
	}
	return nil
}

// Measure runs the contenders in turn, runs times each after one warm-up turn. The first contender
// is ours. Of each turn the first runs, as many as before says, are not measured: those of one
// contender in a row find its code and numbers in the caches. Ours must be at hand, as ratios are
// over it. The first error ends all, and no result is returned. It closes no contender. A turn
// takes before + 1 runs of each.
func Measure(ctx context.Context, runs, before int, all []Contender) ([]Result, error) {
	if err := CheckRuns(runs, before); err != nil {
		return nil, err
	}
	seconds := make([][]float64, len(all))
	for run := range runs + 1 {
		for i, c := range all {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if c.Once == nil {
				continue
			}
			var last time.Duration
			for range before + 1 {
				var err error
				if last, err = c.Once(); err != nil {
					return nil, fmt.Errorf("%s: %w", c.Name, err)
				}
			}
			if run > 0 {
				seconds[i] = append(seconds[i], last.Seconds())
			}
		}
	}
	out := make([]Result, len(all))
	for i, c := range all {
		if out[i] = (Result{Name: c.Name, Missing: c.Once == nil}); out[i].Missing {
			continue
		}
		ratios := make([]float64, runs)
		for k := range ratios {
			// Ratios of one turn share its speed of the machine; a ratio of medians would not.
			ratios[k] = seconds[i][k] / seconds[0][k]
		}
		out[i].Seconds, out[i].Ratio = newSpread(seconds[i]), newSpread(ratios)
	}
	return out, nil
}

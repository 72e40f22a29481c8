// Package bench measures work of this program beside the same work elsewhere: runs take turns, A B A B, so that a machine whose
// speed drifts or that others use as well slows both, and what is told is the ratio of neighbouring runs.
package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// LeastRuns of every contender that Measure makes do.
const LeastRuns = 7

// Contender does one work again and again.
type Contender struct {
	Name string
	// Once does the work and says how long that took: contenders in other processes leave out how they were told to.
	Once func() (time.Duration, error)
	// Close ends it; nil where there is nothing to.
	Close func() error
}

var started = time.Now()

// Timed is a contender of this process, by the processor time that it takes.
func Timed(name string, do func() error) Contender {
	return Contender{Name: name, Once: func() (time.Duration, error) {
		start := processorTime()
		err := do()
		return processorTime() - start, err
	}}
}

// Spread is the middle and the ends of several measurements.
type Spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// NewSpread is that of at least one number.
func NewSpread(v []float64) Spread {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return Spread{Median: (v[(n-1)/2] + v[n/2]) / 2, Least: v[0], Most: v[n-1]}
}

// Result is what came of one contender.
type Result struct {
	Name    string `json:"name"`
	Seconds Spread `json:"seconds"`
	// Ratio is the contender's time over ours, run by run: above 1, ours is faster. It is 1 for ours.
	Ratio Spread `json:"ratio"`
}

// Measure lets the contenders take turns, runs times after one turn that does not count. The first one is ours.
func Measure(ctx context.Context, runs int, all []Contender) ([]Result, error) {
	if runs < LeastRuns || runs > 1000 {
		return nil, fmt.Errorf("%d runs; allowed are %d to 1000", runs, LeastRuns)
	}
	seconds := make([][]float64, len(all))
	for run := range runs + 1 {
		for i, c := range all {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			d, err := c.Once()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.Name, err)
			}
			if run > 0 {
				seconds[i] = append(seconds[i], d.Seconds())
			}
		}
	}
	out := make([]Result, len(all))
	for i, c := range all {
		ratios := make([]float64, runs)
		for k := range ratios {
			ratios[k] = seconds[i][k] / seconds[0][k]
		}
		out[i] = Result{c.Name, NewSpread(seconds[i]), NewSpread(ratios)}
	}
	return out, nil
}

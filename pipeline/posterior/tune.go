package posterior

import (
	"context"
	"fmt"
	"math"
)

// Held is a task of the meta-training corpus with held-out points of the same corpus, for Tune.
type Held struct {
	Task     *Task
	Features []float32 // n x dx, row-major
	Labels   []int     // n class indices
}

// Choice is what Tune chose for a method, with the mean NLL on held-out points at every value tried.
type Choice struct {
	Method string    `json:"method"`
	Param  string    `json:"param"`
	Value  float64   `json:"value"`
	Grid   []float64 `json:"grid"`
	NLL    []float64 `json:"nll"`
}

// tuneWarmup is how long chains adapt while values are compared. They then keep as many draws as an ensemble needs;
// R-hat is for the run itself.
const tuneWarmup = 50

// Tune is the tuned protocol: the value of m's tunable setting, of its grid (or of the one given), with the least
// mean NLL over held; the least value at ties. The settings returned are base with it. A method that follows
// another (Info.Follows) gets that one's value. held must come from the meta-training corpus: points of the test set
// here would be a leak.
func Tune(ctx context.Context, m Method, held []Held, base Settings, grid []float64, threads int) (Choice, Settings, error) {
	info := m.Info()
	if len(grid) == 0 {
		grid = info.Grid
	}
	c := Choice{Method: info.Name, Param: info.Param, Grid: grid}
	if len(held) == 0 {
		return c, base, fmt.Errorf("tuning %s: no tasks; give at least one of the meta-training corpus", info.Name)
	}
	if info.Follows != "" {
		var err error
		if m, err = Lookup(info.Follows); err != nil {
			return c, base, fmt.Errorf("tuning %s: %w", info.Name, err)
		}
	}
	best, chosen := math.Inf(1), base
	for _, v := range grid {
		s, err := base.With(info.Param, v)
		if err != nil {
			return c, base, fmt.Errorf("tuning %s: %w", info.Name, err)
		}
		result := s
		s.Warmup, s.Draws = min(s.Warmup, tuneWarmup), min(s.Draws, minDraws)
		var nll float64
		for i, h := range held {
			r, err := m.Run(ctx, h.Task, s)
			if err != nil {
				return c, base, fmt.Errorf("tuning %s = %v on task %d: %w", info.Param, v, i, err)
			}
			score, err := Evaluate(ctx, r, h.Features, h.Labels, threads)
			if err != nil {
				return c, base, fmt.Errorf("tuning %s of %s = %v on task %d: %w", info.Param, info.Name, v, i, err)
			}
			nll += score.NLL / float64(len(held))
		}
		c.NLL = append(c.NLL, nll)
		if nll < best {
			best, chosen, c.Value = nll, result, v
		}
	}
	return c, chosen, nil
}

package posterior

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Held is a task of the meta-training corpus with held-out points of the same corpus, for Tune.
type Held struct {
	Task     *Task
	Features []float32 // n x dx, row-major
	Labels   []int     // n class indices
}

// Choice is what Tune chose for a method, with the mean NLL on held-out points at every value tried, in
// ascending order.
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

// extensions is how often a method's own grid goes on beyond an end at which its best value lies. Ten times the first
// step of gridL2 leads to 2e-7; much below, the regulariser's gradient is less than the solver's tolerance.
const extensions = 10

// refinements is how often a method's own grid is made finer beside its best value. Each time halves the steps on
// both sides of it: the half-decades of gridL2 become eighths of a decade there.
const refinements = 2

// Tune is the tuned protocol: the value of m's tunable setting with the least mean NLL over held; the least value at
// ties. The values are those of m's grid, a few more beyond its end while the best one lies there, and then, twice
// over, the geometric means of the best so far and its neighbours; where grid is given, those of grid and no others.
// Every method is tuned in the same way and in nothing but that one setting. The settings returned are base with
// the value. A method that follows another (Info.Follows) gets that one's value. held must come from the
// meta-training corpus: points of the test set here would be a leak.
func Tune(ctx context.Context, m Method, held []Held, base Settings, grid []float64, threads int) (Choice, Settings, error) {
	info := m.Info()
	c := Choice{Method: info.Name, Param: info.Param}
	beyond, rounds := 0, 0
	if len(grid) == 0 {
		grid, beyond, rounds = info.Grid, extensions, refinements
	}
	if len(held) == 0 {
		return c, base, fmt.Errorf("tuning %s: no tasks; give at least one of the meta-training corpus", info.Name)
	}
	if info.Follows != "" {
		var err error
		if m, err = Lookup(info.Follows); err != nil {
			return c, base, fmt.Errorf("tuning %s: %w", info.Name, err)
		}
	}
	try := func(v float64) error {
		at, tried := slices.BinarySearch(c.Grid, v)
		if tried {
			return nil
		}
		nll, err := heldNLL(ctx, m, held, base, info.Param, v, threads)
		if err != nil {
			return err
		}
		c.Grid, c.NLL = slices.Insert(c.Grid, at, v), slices.Insert(c.NLL, at, nll)
		return nil
	}
	for _, v := range grid {
		if err := try(v); err != nil {
			return c, base, err
		}
	}
	for range beyond {
		v, ok := next(c.Grid, least(c.NLL))
		if !ok {
			break
		}
		if _, err := base.With(info.Param, v); err != nil {
			break // not a value that the setting may have
		}
		if err := try(v); err != nil {
			return c, base, err
		}
	}
	for range rounds {
		k := least(c.NLL)
		var finer []float64
		for _, j := range []int{k - 1, k + 1} {
			if j >= 0 && j < len(c.Grid) {
				finer = append(finer, digits(math.Sqrt(c.Grid[k]*c.Grid[j])))
			}
		}
		for _, v := range finer {
			if err := try(v); err != nil {
				return c, base, err
			}
		}
	}
	c.Value = c.Grid[least(c.NLL)]
	chosen, err := base.With(info.Param, c.Value)
	if err != nil {
		return c, base, fmt.Errorf("tuning %s: %w", info.Name, err)
	}
	return c, chosen, nil
}

// heldNLL is the mean NLL of m over held at one value of its setting.
func heldNLL(ctx context.Context, m Method, held []Held, base Settings, param string, v float64, threads int) (float64, error) {
	name := m.Info().Name
	s, err := base.With(param, v)
	if err != nil {
		return 0, fmt.Errorf("tuning %s: %w", name, err)
	}
	s.Warmup, s.Draws = min(s.Warmup, tuneWarmup), min(s.Draws, minDraws)
	var nll float64
	for i, h := range held {
		r, err := m.Run(ctx, h.Task, s)
		if err != nil {
			return 0, fmt.Errorf("tuning %s = %v on task %d: %w", param, v, i, err)
		}
		score, err := Evaluate(ctx, r, h.Features, h.Labels, threads)
		if err != nil {
			return 0, fmt.Errorf("tuning %s of %s = %v on task %d: %w", param, name, v, i, err)
		}
		nll += score.NLL / float64(len(held))
	}
	return nll, nil
}

// least is the index of the least of xs, the first at ties. A NaN is never least, unless it is all there is.
func least(xs []float64) int {
	best := 0
	for i, x := range xs {
		if x < xs[best] || math.IsNaN(xs[best]) {
			best = i
		}
	}
	return best
}

// next continues ascending values beyond the end at which the k-th lies; false where it lies between others.
func next(xs []float64, k int) (float64, bool) {
	n := len(xs)
	switch {
	case n < 2:
	case k == 0:
		return digits(xs[0] * xs[0] / xs[1]), true
	case k == n-1:
		return digits(xs[k] * xs[k] / xs[k-1]), true
	}
	return 0, false
}

// digits rounds to three digits.
func digits(v float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', 2, 64), 64)
	if err != nil { // no number that is printed fails to be read
		return v
	}
	return short
}

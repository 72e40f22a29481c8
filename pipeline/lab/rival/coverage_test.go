package rival

import (
	"context"
	"math"
	"testing"

	"fmp/models/rng"
	"fmp/pipeline/erm"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/posterior"
)

// everything is an Intervals that holds any probability, or none.
type everything struct {
	held  bool
	heads posterior.Ensemble
}

func (e everything) Heads(context.Context) (posterior.Ensemble, error) { return e.heads, nil }

func (e everything) Of(_ context.Context, features []float32, _ float64) (low, high []float64, err error) {
	low, high = make([]float64, len(features)/5*3), make([]float64, len(features)/5*3)
	for i := range high {
		if high[i] = 1; !e.held {
			low[i], high[i] = 2, 3
		}
	}
	return low, high, nil
}

// TestCoverage: where the limit is one more draw of what the heads are drawn from, 90% intervals hold it nine times of
// ten; where heads are all alike, hardly ever. A method's own intervals come before its heads', and its own limit
// before that of a softmax regression.
func TestCoverage(t *testing.T) {
	const dx, c, heads, repeats = 5, 3, 400, 40
	w := newWorld(1, dx, c, 3)
	x, y := w.draw(rng.New(2, "test"), 60)
	draw := func(sd float64, seed, k int) posterior.Theta {
		out := erm.NewTheta(dx+1, c)
		centre, noise := normal(rng.New(uint64(seed), "centre"), len(out.W)), normal(rng.New(uint64(seed), "noise", k), len(out.W))
		for i := range out.W {
			out.W[i] = centre[i] + sd*noise[i]
		}
		return out
	}
	mean := func(sd float64) (m score.Coverage) {
		for rep := range repeats {
			var e posterior.Ensemble
			for k := range heads {
				e = append(e, draw(sd, rep, k))
			}
			limit := draw(0.5, rep, heads)
			s, err := (&score.Test{Features: x, Labels: y, Limit: &limit}).Score(context.Background(), nil, &posterior.Result{Ensembles: []posterior.Ensemble{e}}, 2)
			if err != nil {
				t.Fatal(err)
			}
			m.Top += s.Coverage.Top / repeats
			m.Classes += s.Coverage.Classes / repeats
			m.Weights += s.Coverage.Weights / repeats
		}
		return m
	}
	right := mean(0.5)
	for what, v := range map[string]float64{"top": right.Top, "classes": right.Classes, "weights": right.Weights} {
		if math.Abs(v-0.9) > 0.05 {
			t.Errorf("right heads cover %.3f (%s)", v, what)
		}
	}
	if narrow := mean(0.05); narrow.Top > 0.3 || narrow.Weights > 0.3 {
		t.Errorf("heads a tenth as wide cover %+v", narrow)
	}

	e := posterior.Ensemble{draw(1, 1, 1), draw(1, 1, 2)}
	limit := draw(0.5, 1, 3)
	for want, own := range map[float64]everything{1: {true, e}, 0: {false, e}} {
		s, err := (&score.Test{Features: x, Labels: y}).Score(context.Background(), nil, &posterior.Result{Ensembles: []posterior.Ensemble{e}, Limit: &limit, Intervals: own}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if s.Coverage.Top != want || s.Coverage.Classes != want {
			t.Errorf("own intervals: %+v, want %v", s.Coverage, want)
		}
	}
	s, err := (&score.Test{Features: x, Labels: y, Limit: &limit}).Score(context.Background(), nil, &posterior.Result{Ensembles: []posterior.Ensemble{e[:1]}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if s.Coverage != nil {
		t.Errorf("one head has intervals: %+v", s.Coverage)
	}
}

package rival

import (
	"context"
	"math"
	"slices"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/erm"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// within is an Intervals of the same ends everywhere.
type within struct {
	low, high float64
	heads     posterior.Ensemble
}

func (w within) Heads(context.Context) (posterior.Ensemble, error) { return w.heads, nil }

func (w within) Compute(_ context.Context, features []float32,
	_ float64) (low, high []float64, err error) {
	n := len(features) / 5 * 3 // rows of five features, three classes
	return slices.Repeat([]float64{w.low}, n), slices.Repeat([]float64{w.high}, n), nil
}

// scored is the coverage of a result's intervals.
func scored(t *testing.T, test *score.Test, r *posterior.Result) *score.Coverage {
	t.Helper()
	return must.Get(test.Score(t.Context(), nil, r, 2))(t).Coverage
}

// TestCoverage: where the limit is one more draw of what the heads are drawn from, 90% intervals
// hold it nine times of ten; where heads are all alike, hardly ever. A method's own intervals come
// before its heads', and its own limit before that of a softmax regression.
func TestCoverage(t *testing.T) {
	const dx, c, heads, repeats = 5, 3, 400, 40
	w := newWorld(1, dx, c, 3)
	x, y := w.draw(rng.New(2, "test"), 60)
	draw := func(sd float64, seed, k int) posterior.Theta {
		out := erm.NewTheta(dx+1, c)
		centre, noise := normal(rng.New(uint64(seed), "centre"), len(out.W)),
			normal(rng.New(uint64(seed), "noise", k), len(out.W))
		for i := range out.W {
			out.W[i] = centre[i] + sd*noise[i]
		}
		return out
	}
	mean := func(sd float64) (m score.Coverage, weights float64) {
		for rep := range repeats {
			var e posterior.Ensemble
			for k := range heads {
				e = append(e, draw(sd, rep, k))
			}
			limit := draw(0.5, rep, heads)
			// A method that names classes as the regression does, and holds any probability or
			// none.
			for want, own := range map[float64]within{1: {0, 1, e}, 0: {2, 3, e}} {
				v := scored(t, &score.Test{Features: x, Labels: y, Regression: &limit},
					&posterior.Result{Ensembles: []posterior.Ensemble{e}, Limit: &limit, Intervals: own})
				if v.Regression == nil || *v.Regression != want ||
					*v.RegressionNamed != want || *v.Named != want {
					t.Errorf("against a regression: %+v, want %v", v, want)
				}
			}
			v := scored(t, &score.Test{Features: x, Labels: y, Limit: &limit},
				&posterior.Result{Ensembles: []posterior.Ensemble{e}})
			m.Top += v.Top / repeats
			m.Classes += v.Classes / repeats
			weights += *v.Weights / repeats
		}
		return m, weights
	}
	right, weights := mean(0.5)
	for what, v := range map[string]float64{"top": right.Top, "classes": right.Classes, "weights": weights} {
		if math.Abs(v-0.9) > 0.05 {
			t.Errorf("right heads cover %.3f (%s)", v, what)
		}
	}
	if narrow, weights := mean(0.05); narrow.Top > 0.3 || weights > 0.3 {
		t.Errorf("heads a tenth as wide cover %+v", narrow)
	}

	e := posterior.Ensemble{draw(1, 1, 1), draw(1, 1, 2)}
	limit := draw(0.5, 1, 3)
	for want, own := range map[float64]within{1: {0, 1, e}, 0: {2, 3, e}} {
		v := scored(t, &score.Test{Features: x, Labels: y},
			&posterior.Result{Ensembles: []posterior.Ensemble{e}, Limit: &limit, Intervals: own})
		if v.Top != want || v.Classes != want || v.Weights != nil {
			t.Errorf("own intervals: %+v, want %v", v, want)
		}
	}
	for _, n := range []int{1, 2, 18, 19} { // 90% of one draw more is not within the range of 18
		var e posterior.Ensemble
		for k := range n {
			e = append(e, draw(1, 1, k))
		}
		got := scored(t, &score.Test{Features: x, Labels: y, Limit: &limit},
			&posterior.Result{Ensembles: []posterior.Ensemble{e}})
		if (got != nil) != (n == 19) || got != nil && got.Weights == nil {
			t.Errorf("%d heads have intervals: %+v", n, got)
		}
	}
}

// TestCoverageOfTwoLimits: each limit is held on the class that it finds most probable itself, and
// on the one that the method names.
func TestCoverageOfTwoLimits(t *testing.T) {
	x := make([]float32, 5)
	head := func(bias ...float64) posterior.Theta {
		h := erm.NewTheta(6, 3)
		copy(h.Row(5), bias)
		return h
	}
	sure, unsure, said := head(9, 0, 0), head(0, 0.1, 0), head(0, 0, 1)
	e := posterior.Ensemble{said, said}
	against := func(regression, limit posterior.Theta) *score.Coverage {
		t.Helper()
		return scored(t, &score.Test{Features: x, Labels: []int{0}, Regression: &regression},
			&posterior.Result{Ensembles: []posterior.Ensemble{e}, Limit: &limit,
				Intervals: within{0, 0.5, e}})
	}
	if v := against(unsure, sure); v.Top != 0 || *v.Named != 1 || *v.Regression != 1 || *v.RegressionNamed != 1 ||
		v.Uncertain != nil {
		t.Errorf("%+v", v)
	}
	if v := against(sure, unsure); v.Top != 1 || *v.Regression != 0 || *v.RegressionNamed != 1 ||
		*v.Uncertain != 1 {
		t.Errorf("%+v", v)
	}
	// A limit of .36, .505, .515 and nearly 1, where intervals end at .5.
	for _, k := range []struct{ bias, above, near float64 }{{0.1, 0, 1}, {0.7131, 1, 1},
		{0.7532, 1, 0}, {9, 1, 0}} {
		limit := head(k.bias, 0, 0)
		if v := against(limit, limit); *v.Above != k.above || *v.Near != k.near || *v.RegressionNear != k.near {
			t.Errorf("limit of bias %v: above %v, near %v and %v; want %v and %v", k.bias,
				*v.Above, *v.Near, *v.RegressionNear, k.above, k.near)
		}
	}
}

// TestRegressionHead: few points of classes that nothing tells apart get a large penalty, under
// which all probabilities are nearly alike, and many points of distinct ones a small one.
func TestRegressionHead(t *testing.T) {
	sharpest := func(spread float64, n int) float64 {
		w := newWorld(1, 5, 3, spread)
		x, y := w.draw(rng.New(3, "all"), n)
		set := must.Get(point.FromLabelled(x, 5, y, 3))(t)
		limit := must.Get(score.LimitHead(t.Context(), set))(t)
		head := must.Get(score.RegressionHead(t.Context(), set, limit))(t)
		p := must.Get(metric.Predict(t.Context(), posterior.Ensemble{*head}, x, 1))(t)
		return slices.Max(p.P)
	}
	if p := sharpest(0, 60); p > 0.5 {
		t.Errorf("classes that are one have a probability of %v", p)
	}
	if p := sharpest(4, 3000); p < 0.99 {
		t.Errorf("classes far apart have %v at most", p)
	}
}

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

// Coverage is the share of nominal 90% intervals that contain the value in the limit of infinite
// data. A calibrated posterior covers 90%; scores, even joint ones, do not show this. Every field
// is a share, 0 to 1, averaged over the result's ensembles. The standard error of one over n
// independent points is sqrt(p (1-p)/n), about .01 at 1,000 points. Points of one posterior are not
// independent: its error is common to them.
type Coverage struct {
	// Top is for the probability of the class most probable in the limit of infinite data, over
	// test points; Uncertain the same where that probability is below 0.9, nil if it never is.
	// Classes is for the probabilities of all classes.
	Top       float64  `json:"top"`
	Uncertain *float64 `json:"uncertain,omitempty"`
	Classes   float64  `json:"classes"`
	// Above is the share of test points at which the probability of Top lies above its interval.
	// Near is Top of intervals that are wider by 0.01 at both ends, RegressionNear is Regression of
	// them; nil in earlier records.
	Above          *float64 `json:"above,omitempty"`
	Near           *float64 `json:"near,omitempty"`
	RegressionNear *float64 `json:"regression_near,omitempty"`
	// Named is for the limit's probability of the class that the method itself takes for the most
	// probable; nil in earlier records.
	Named *float64 `json:"named,omitempty"`
	// Regression and RegressionNamed are Top and Named of a limit that is no method's own,
	// [RegressionHead]; nil where it is not known.
	Regression      *float64 `json:"regression,omitempty"`
	RegressionNamed *float64 `json:"regression_named,omitempty"`
	// Weights is for head weights, less their mean over classes, on which no probability depends;
	// nil where heads are fewer than [leastHeads], or the limit has other coordinates.
	Weights *float64 `json:"weights,omitempty"`
}

// near is the distance of a limit from an interval that matters to nobody: most misses are at
// images of which the limit is certain. It is a probability, and is added at both ends.
const near = 0.01

const (
	coveragePoints = 1000 // test points for which intervals are computed
	leastHeads     = 19   // the range of fewer holds one more draw less often than intervals of 90%
	limitL2        = 1    // penalty of the fit to all rows, of which there are thousands
	limitTolerance = 1e-5
)

// LimitHead returns the limit of softmax regression as data grow: the fit to all available rows. A
// penalty of 1 against thousands of rows keeps the fit finite where classes are separable. Rows
// keep their weights.
func LimitHead(ctx context.Context, all *point.Set) (*posterior.Theta, error) {
	return regression(ctx, all, limitL2, nil, true)
}

// regressionPenalties are the penalties among which cross-validation chooses, in the order in which
// they are tried until none is better. The first must be limitL2: a choice of it returns the limit
// itself, without another fit.
var regressionPenalties = []float64{1, 3, 10, 30, 100, 300, 1000}

// folds is the number of parts of a cross-validation. Fits dominate the cost, and each penalty that
// is tried takes one for each part.
const folds = 3

// RegressionHead returns the softmax regression on all available rows whose penalty
// cross-validation chose: the one of least mean NLL on the rows left out. Row i is in part i modulo
// folds, and each fit starts from that of the penalty before. limit is their [LimitHead]. The
// search stops at the first penalty that is no better, since the error is taken to have one minimum
// over penalties. A NaN ends it as well. The result may be limit itself, which a caller must not
// write.
func RegressionHead(ctx context.Context, all *point.Set,
	limit *posterior.Theta) (*posterior.Theta, error) {
	best, l2 := math.Inf(1), regressionPenalties[0]
	starts := [folds]*posterior.Theta{limit, limit, limit} // then the head of the penalty before
	for _, v := range regressionPenalties {
		nll := 0.0
		for f := range folds {
			some, rest := fold(all, f)
			head, err := regression(ctx, some, v, starts[f], false)
			if err != nil {
				return nil, err
			}
			starts[f] = head
			x, y := rest.Labelled()
			p, err := metric.Predict(ctx, posterior.Ensemble{*head}, x, 1)
			if err != nil {
				return nil, err
			}
			s, err := metric.Score(p, y)
			if err != nil {
				return nil, err
			}
			// Parts weigh alike, though their sizes may differ by one row.
			nll += s.NLL / folds
		}
		if !(nll < best) {
			break
		}
		best, l2 = nll, v
	}
	if l2 == limitL2 {
		return limit, nil
	}
	return regression(ctx, all, l2, nil, true)
}

// fold returns the rows outside and inside of one of the parts into which all are dealt in turn.
// Both are copies. Part f holds rows f, f + 3, f + 6 and so on, of which there are n.
func fold(all *point.Set, f int) (outside, inside *point.Set) {
	n := (all.N + folds - 1 - f) / folds
	outside, inside = point.New(all.N-n, all.Dx, all.C), point.New(n, all.Dx, all.C)
	at := map[*point.Set]int{}
	for i := range all.N {
		to := outside
		if i%folds == f {
			to = inside
		}
		copy(to.Row(at[to]), all.Row(i))
		to.W[at[to]] = all.W[i]
		at[to]++
	}
	return outside, inside
}

// regression returns a fit: exact is for heads whose probabilities are compared with ends of
// intervals, and not for those of which penalties are chosen. start is where the descent begins,
// and nil is the origin: it moves the time, not the minimum of this convex problem.
func regression(ctx context.Context, set *point.Set, l2 float64, start *posterior.Theta,
	exact bool) (*posterior.Theta, error) {
	p, err := erm.FromSets(l2, set)
	if err != nil {
		return nil, err
	}
	p.Start = start
	s, err := erm.Solve(ctx, p, erm.Options{Tolerance: limitTolerance, Double: exact})
	if err != nil {
		return nil, fmt.Errorf("fit to %d rows, for the limit of infinite data: %w", set.N, err)
	}
	return &s.Theta, nil
}

// goal holds the values that intervals should contain: the probabilities of a limit, and the class
// of largest probability of each point. p is [points, classes].
type goal struct {
	p   *metric.Probabilities
	top []int
}

// newGoal returns the mean probabilities that heads give rows as a goal. Of equal probabilities the
// lowest class is the top.
func newGoal(ctx context.Context, heads posterior.Ensemble, rows []float32,
	threads int) (*goal, error) {
	p, err := metric.Predict(ctx, heads, rows, threads)
	if err != nil {
		return nil, fmt.Errorf("limit of infinite data: %w", err)
	}
	g := &goal{p, make([]int, p.N)}
	for i := range g.top {
		row := p.Row(i)
		g.top[i] = slices.Index(row, slices.Max(row))
	}
	return g, nil
}

// near returns the share of points whose interval, wider by [near] at both ends, holds the goal.
// The ends are [points, classes], as those of all functions here.
func (g *goal) near(low, high []float64) *float64 {
	return g.share(g.top, func(v float64, at int) (counts, is bool) {
		return true, low[at]-near <= v && v <= high[at]+near
	})
}

// held returns the share of points whose interval for the given class holds the goal, among those
// where that is below most; nil where none is. Both ends belong to the interval. A most of infinity
// counts every point.
func (g *goal) held(low, high []float64, class []int, most float64) *float64 {
	return g.share(class, func(v float64, at int) (counts, is bool) {
		return v < most, low[at] <= v && v <= high[at]
	})
}

// share returns the share of points, among those that count, whose goal v at its class, at the
// place at, is as asked; nil where none counts.
func (g *goal) share(class []int, of func(v float64, at int) (counts, is bool)) *float64 {
	n, in := 0, 0
	for i, c := range class {
		at := i*g.p.C + c
		counts, is := of(g.p.P[at], at)
		if counts {
			n++
			if is {
				in++
			}
		}
	}
	if n == 0 {
		return nil
	}
	share := float64(in) / float64(n)
	return &share
}

// covered returns, of numbers of all test points, those of the first [coveragePoints], or of as
// many that are evenly spaced where the first lack a class: files may hold images by class. The
// choice depends on the labels alone, so that features and rows of coordinates are of the same
// points. The first case shares memory with its argument.
func (k *Test) covered(of []float32) []float32 {
	all, n := len(k.Labels), min(len(k.Labels), coveragePoints)
	width := len(of) / all
	classes := map[int]bool{}
	for _, y := range k.Labels[:n] {
		classes[y] = true
	}
	if !slices.ContainsFunc(k.Labels[n:], func(y int) bool { return !classes[y] }) {
		return of[:n*width]
	}
	var out []float32
	for i := range n {
		at := i * all / n * width
		out = append(out, of[at:at+width]...)
	}
	return out
}

// coverage returns the mean coverage over a result's ensembles; nil for single heads, whose
// intervals are points, for quantiles of fewer heads than [leastHeads], and where no limit is
// known. rows are the test features on the heads' coordinates. The limit is the method's own where
// it has one. A method on plain features without its own has that of softmax regression. Other
// coordinates have none. Intervals with a limit of their own are held to that one. A measure that
// one ensemble lacks leaves that share out. Weights are of features in a regression, where heads'
// are of coordinates. Intervals take n C S probabilities of memory, which is why points are
// bounded.
func (k *Test) coverage(ctx context.Context, r *posterior.Result, rows []float32,
	threads int) (*Coverage, error) {
	// by are the rows that limit reads: those of its method's coordinates, or the features.
	limit, by := r.Limit, rows
	if limit == nil && (r.Coordinates == nil || r.Regression) {
		limit, by = k.Limit, k.Features
		if r.Regression && k.Regression != nil { // it has no other limit
			limit = k.Regression
		}
	}
	if heads := len(r.Ensembles[0]); limit == nil || heads < 2 || r.Intervals == nil &&
		heads < leastHeads {
		return nil, nil
	}
	rows, features, by := k.covered(rows), k.covered(k.Features), k.covered(by)
	of := limit // of probabilities
	if r.IntervalLimit != nil {
		of = r.IntervalLimit
	}
	own, err := newGoal(ctx, posterior.Ensemble{*of}, by, threads)
	if err != nil {
		return nil, err
	}
	var other *goal
	if k.Regression != nil {
		if other, err = newGoal(ctx, posterior.Ensemble{*k.Regression}, features,
			threads); err != nil {
			return nil, err
		}
	}
	out := &Coverage{}
	share := 1 / float64(len(r.Ensembles))
	add := func(to **float64, v *float64) {
		if v == nil {
			return
		}
		if *to == nil {
			*to = new(float64)
		}
		**to += share * *v
	}
	for _, e := range r.Ensembles {
		said, err := newGoal(ctx, e, rows, threads)
		if err != nil {
			return nil, err
		}
		e, low, high, err := intervals(ctx, r, e, rows, features, threads)
		if err != nil {
			return nil, err
		}
		held, err := metric.Coverage(low, high, own.p.P)
		if err != nil {
			return nil, err
		}
		out.Classes += share * held
		out.Top += share * *own.held(low, high, own.top, math.Inf(1))
		add(&out.Uncertain, own.held(low, high, own.top, 0.9))
		add(&out.Above, own.share(own.top, func(v float64, at int) (counts, is bool) {
			return true, v > high[at]
		}))
		add(&out.Near, own.near(low, high))
		add(&out.Named, own.held(low, high, said.top, math.Inf(1)))
		if other != nil {
			add(&out.Regression, other.held(low, high, other.top, math.Inf(1)))
			add(&out.RegressionNear, other.near(low, high))
			add(&out.RegressionNamed, other.held(low, high, said.top, math.Inf(1)))
		}
		if r.Regression || len(e) < leastHeads {
			continue
		}
		if low, high, err = weightQuantiles(e); err != nil {
			return nil, err
		}
		if held, err = metric.Coverage(low, high, centred(*limit)); err != nil {
			return nil, fmt.Errorf("head weights: %w", err)
		}
		add(&out.Weights, &held)
	}
	return out, nil
}

// intervals returns the ends of intervals of class probabilities, and the heads that give the
// intervals of weights: the result's own, or the quantiles of an ensemble. rows are in the heads'
// coordinates, which quantiles need, and features are raw, which a method's own intervals read.
func intervals(ctx context.Context, r *posterior.Result, e posterior.Ensemble, rows,
	features []float32, threads int) (heads posterior.Ensemble, low, high []float64, err error) {
	if r.Intervals == nil {
		low, high, err = quantiles(ctx, e, rows, threads)
		return e, low, high, err
	}
	if low, high, err = r.Intervals.Compute(ctx, features, posterior.IntervalLevel); err != nil {
		return nil, nil, nil, fmt.Errorf("intervals: %w", err)
	}
	if heads, err = r.Intervals.Heads(ctx); err != nil {
		return nil, nil, nil, fmt.Errorf("intervals of head weights: %w", err)
	}
	return heads, low, high, nil
}

// ends returns the ends of the central posterior.IntervalLevel interval of values, which it sorts.
// At a level of .9 these are the quantiles .05 and .95.
func ends(values []float64) (low, high float64) {
	slices.Sort(values)
	return quantile(values, (1-posterior.IntervalLevel)/2),
		quantile(values, (1+posterior.IntervalLevel)/2)
}

// quantile returns the value of rank p(n+1) of n sorted ones, type 6 of Hyndman and Fan 1996: one
// more draw from the same distribution lies below it with probability p, however few they are. The
// value is interpolated between the ranks on both sides. From leastHeads values on the ranks of the
// interval's ends are among 1 to n; elsewhere they are cut to these. The range of n draws holds one
// more with probability (n-1)/(n+1), which is .9 at n = 19.
func quantile(sorted []float64, p float64) float64 {
	n := float64(len(sorted))
	at := min(max(p*(n+1), 1), n)
	i := max(int(math.Ceil(at))-1, 0)
	if i == 0 {
		return sorted[0]
	}
	// i is the rank above, less one: the weights are t below and 1 - t above.
	t := float64(i+1) - at
	return t*sorted[i-1] + (1-t)*sorted[i]
}

// quantiles returns the ends of intervals of class probabilities, n x C each, from the quantiles of
// the heads' probabilities. It holds n C S numbers of 8 bytes at a time.
func quantiles(ctx context.Context, e posterior.Ensemble, rows []float32,
	threads int) (low, high []float64, err error) {
	said, err := metric.Said(ctx, e, rows, threads)
	if err != nil {
		return nil, nil, err
	}
	return columnEnds(len(said)/len(e), len(e), func(s, i int) float64 { return said[i*len(e)+s] })
}

// weightQuantiles returns the ends of intervals of head weights. Softmax is unchanged where one
// number is added to all classes' logits. The weights are therefore compared less their mean over
// classes.
func weightQuantiles(e posterior.Ensemble) (low, high []float64, err error) {
	all := make([][]float64, len(e))
	for s := range e {
		all[s] = centred(e[s])
	}
	return columnEnds(len(all[0]), len(e), func(s, i int) float64 { return all[s][i] })
}

// columnEnds returns the ends of the intervals of n quantities, each with the given number of
// samples. at gives sample s of quantity i. A NaN is an error, since it has no rank. The cost is
// O(n S log S).
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

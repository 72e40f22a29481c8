package rival

import (
	"context"
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/pipeline/internal/moment"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// fedcgs is a linear discriminant from statistics that add up over clients: class counts, class
// sums and the second moment of the features.
//
// With n_c, mu_c and the pooled within-class covariance S (denominator n - C), shrunk to (1-g) S +
// g tr(S)/dx I, the head has columns S^-1 mu_c and biases -1/2 mu_c' S^-1 mu_c + log pi_c (Hastie,
// Tibshirani and Friedman 2009, section 4.3), with pi_c = (n_c + 1/2) / (n + C/2), so that a class
// without points stays possible. Its mean is that of all points.
//
// An upload has C counts, C x dx sums and the upper triangle of the second moment, in float32.
var fedcgs = method{
	Info{Name: "FedCGS", Family: Discriminants,
		Title: "linear discriminant from the clients' counts, means and covariance", Group: OneShot,
		Cite: citeFedCGS, Param: ParamShrinkage, Grid: gridShrinkage},
	func(_ context.Context, t *Task, s Settings) (*posterior.Result, error) {
		theta, err := t.statistics().discriminant(s.Shrinkage)
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{{theta}},
			UploadBytes: float32Bytes(t.c + t.c*t.dx + t.dx*(t.dx+1)/2)}, nil
	},
}

// fedcgsCorpus is fedcgs, and so GH-LDA, with the corpus's covariance as the prior's mean: with an
// inverse-Wishart prior of m degrees of freedom and n - C of the clients the posterior mean is
//
//	(1-g) S + g s W,   g = m / (m + n - C)
//
// (Gelman et al. 2013, section 3.6), where W is the corpus's covariance, spread over all directions
// by another share, and s W has the size of S.
var fedcgsCorpus = method{
	Info{Name: "FedCGS-corpus", Title: "FedCGS, its covariance shrunk to the corpus's",
		Group: OneShot, Cite: citeFedCGS,
		Param: ParamShrinkage, Grid: gridShrinkage, More: spreads, NeedsCorpus: true},
	func(_ context.Context, t *Task, s Settings) (*posterior.Result, error) {
		k, err := t.corpus()
		if err != nil {
			return nil, err
		}
		all := t.statistics()
		within, err := all.covariance()
		if err != nil {
			return nil, err
		}
		prior := moment.Shrunk(k.Within, s.Spread)
		size := mat.Trace(prior)
		if own := mat.Trace(within); own > 0 { // none where every class has one point
			size = own
		}
		prior.ScaleSym(s.Shrinkage*size/mat.Trace(prior), prior)
		within.ScaleSym(1-s.Shrinkage, within)
		within.AddSym(within, prior)
		theta, err := all.head(within)
		if err != nil {
			return nil, fmt.Errorf("at shrinkage %v: %w", s.Shrinkage, err)
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{{theta}},
			UploadBytes: float32Bytes(t.c + t.c*t.dx + t.dx*(t.dx+1)/2)}, nil
	},
}

// statistics are weighted sums over points: masses and features by class, and outer products of
// features.
type statistics struct {
	dx, c  int
	count  []float64     // C
	sum    *mat.Dense    // C x dx
	second *mat.SymDense // dx x dx
}

func newStatistics(dx, c int) *statistics {
	return &statistics{dx: dx, c: c, count: make([]float64, c), sum: mat.NewDense(c, dx, nil),
		second: mat.NewSymDense(dx, nil)}
}

// add adds a set of N points, in O(N dx^2). A point with several classes counts in each by its
// share, and once in the second moment.
func (a *statistics) add(set *point.Set) {
	x := mat.NewVecDense(a.dx, nil)
	for i := range set.N {
		row, w := set.Row(i), float64(set.W[i])
		for j, v := range row[:a.dx] {
			x.SetVec(j, float64(v))
		}
		for c, y := range row[a.dx:] {
			share := w * float64(y)
			a.count[c] += share
			floats.AddScaled(a.sum.RawRowView(c), share, x.RawVector().Data)
		}
		a.second.SymRankOne(a.second, w, x)
	}
}

// means returns the class means, C x dx; for a class without points, the mean of all points.
func (a *statistics) means() *mat.Dense {
	means := mat.NewDense(a.c, a.dx, nil)
	overall := make([]float64, a.dx)
	var n float64
	for c, v := range a.count {
		n += v
		floats.Add(overall, a.sum.RawRowView(c))
	}
	for c, v := range a.count {
		if v > 0 {
			floats.AddScaled(means.RawRowView(c), 1/v, a.sum.RawRowView(c))
		} else if n > 0 {
			floats.AddScaled(means.RawRowView(c), 1/n, overall)
		}
	}
	return means
}

// scatter returns the sum of outer products of the points less their class means,
//
//	sum_i w_i x_i x_i' - sum_c n_c mu_c mu_c'
//
// and 0 where this is within rounding of 0: the two terms cancel where points are near their means.
func (a *statistics) scatter() (*mat.SymDense, error) {
	if floats.Sum(a.count) == 0 {
		return nil, fmt.Errorf("the clients' points have no weight; give some weight above 0")
	}
	out := mat.NewSymDense(a.dx, nil)
	out.CopySym(a.second)
	means := a.means()
	for c, v := range a.count {
		if v > 0 {
			out.SymRankOne(out, -v, means.RowView(c))
		}
	}
	if mat.Trace(out) < 1e-12*mat.Trace(a.second) {
		out.Zero()
	}
	return out, nil
}

// within returns the pooled covariance within classes. Where it is 0 no shrinkage tells its size,
// which is an error.
func (a *statistics) within() (*mat.SymDense, error) {
	out, err := a.covariance()
	if err == nil && !(mat.Trace(out) > 0) {
		err = errors.New("covariance within classes: no class has two different images: give " +
			"clients more (federation.points), or leave the method out")
	}
	return out, err
}

// covariance returns the pooled covariance within classes, denominator n - C and 1 at least. It may
// be 0.
func (a *statistics) covariance() (*mat.SymDense, error) {
	out, err := a.scatter()
	if err != nil {
		return nil, err
	}
	out.ScaleSym(1/math.Max(floats.Sum(a.count)-float64(a.c), 1), out)
	return out, nil
}

// points returns the means of the classes held, with their masses.
func (a *statistics) points() *point.Set {
	var held []int
	for c, v := range a.count {
		if v > 0 {
			held = append(held, c)
		}
	}
	out := point.New(len(held), a.dx, a.c)
	means := a.means()
	for i, c := range held {
		for j, v := range means.RawRowView(c) {
			out.Row(i)[j] = float32(v)
		}
		out.Row(i)[a.dx+c], out.W[i] = 1, float32(a.count[c])
	}
	return out
}

// discriminant returns the head of the pooled covariance, shrunk by a share towards a multiple of
// the identity. Its errors name that share.
func (a *statistics) discriminant(shrinkage float64) (posterior.Theta, error) {
	within, err := a.within()
	if err != nil {
		return posterior.Theta{}, err
	}
	theta, err := a.head(moment.Shrunk(within, shrinkage))
	if err != nil {
		return theta, fmt.Errorf("at shrinkage %v: %w", shrinkage, err)
	}
	return theta, nil
}

// head returns the linear discriminant of the class means and a covariance within classes, in
// O(dx^3 + C dx^2). A covariance that is singular is an error, which says to shrink it more.
func (a *statistics) head(within mat.Symmetric) (posterior.Theta, error) {
	means := a.means()
	n := floats.Sum(a.count)
	var chol mat.Cholesky
	if !chol.Factorize(within) {
		return posterior.Theta{}, fmt.Errorf("within-class covariance of %v points with %d "+
			"features is singular; raise the shrinkage", n, a.dx)
	}
	var directions mat.Dense // dx x C
	if err := chol.SolveTo(&directions, means.T()); err != nil {
		return posterior.Theta{}, fmt.Errorf("within-class covariance: %w; raise the "+
			"shrinkage", err)
	}
	theta := posterior.Theta{D: a.dx + 1, C: a.c, W: make([]float64, (a.dx+1)*a.c)}
	for c := range a.c {
		// Column c of the solution is S^-1 mu_c, and quadratic mu_c' S^-1 mu_c.
		quadratic := 0.0
		for j := range a.dx {
			theta.Row(j)[c] = directions.At(j, c)
			quadratic += directions.At(j, c) * means.At(c, j)
		}
		theta.Row(a.dx)[c] = -quadratic/2 + math.Log((a.count[c]+0.5)/(n+float64(a.c)/2))
	}
	return theta, nil
}

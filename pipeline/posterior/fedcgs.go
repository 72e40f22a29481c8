package posterior

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"fmp/pipeline/point"
)

// fedcgs is a linear discriminant from statistics that add up over clients: class counts, class sums and
// the second moment of the features.
//
// With n_c, mu_c and the pooled within-class covariance S (denominator n - C), shrunk to
// (1-g) S + g tr(S)/dx I, the head has columns S^-1 mu_c and biases -1/2 mu_c' S^-1 mu_c + log pi_c
// (Hastie, Tibshirani and Friedman 2009, section 4.3), with pi_c = (n_c + 1/2) / (n + C/2), so that a class without
// points stays possible. Such a class has the mean of all points.
var fedcgs = method{
	Info{Name: "FedCGS", Title: "linear discriminant from the clients' counts, means and covariance", Group: OneShot, Cite: citeFedCGS,
		Param: ParamShrinkage, Grid: []float64{0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.97}},
	func(_ context.Context, t *Task, s Settings) (*Result, error) {
		total := newStatistics(t.dx, t.c)
		for _, set := range t.in.Clients {
			own := newStatistics(t.dx, t.c) // what the client uploads
			own.add(set)
			total.merge(own)
		}
		theta, err := total.discriminant(s.Shrinkage)
		if err != nil {
			return nil, err
		}
		return &Result{Ensembles: []Ensemble{{theta}}, UploadBytes: float32Bytes(t.c + t.c*t.dx + t.dx*(t.dx+1)/2)}, nil
	},
}

// statistics are sums over points: weights and features by class, and outer products of features.
type statistics struct {
	dx, c  int
	count  []float64     // C
	sum    *mat.Dense    // C x dx
	second *mat.SymDense // dx x dx
}

func newStatistics(dx, c int) *statistics {
	return &statistics{dx: dx, c: c, count: make([]float64, c), sum: mat.NewDense(c, dx, nil), second: mat.NewSymDense(dx, nil)}
}

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
			sum := a.sum.RawRowView(c)
			for j := range sum {
				sum[j] += share * x.AtVec(j)
			}
		}
		a.second.SymRankOne(a.second, w, x)
	}
}

func (a *statistics) merge(b *statistics) {
	for c, v := range b.count {
		a.count[c] += v
	}
	a.sum.Add(a.sum, b.sum)
	a.second.AddSym(a.second, b.second)
}

func (a *statistics) discriminant(shrinkage float64) (Theta, error) {
	var n float64
	overall := make([]float64, a.dx)
	for c, v := range a.count {
		n += v
		for j, x := range a.sum.RawRowView(c) {
			overall[j] += x
		}
	}
	if n == 0 {
		return Theta{}, fmt.Errorf("the clients' points have no weight; give some weight above 0")
	}
	within := mat.NewSymDense(a.dx, nil)
	within.CopySym(a.second)
	means := mat.NewDense(a.c, a.dx, nil)
	for c, v := range a.count {
		mu := means.RawRowView(c)
		if v == 0 {
			for j := range mu {
				mu[j] = overall[j] / n
			}
			continue
		}
		for j, x := range a.sum.RawRowView(c) {
			mu[j] = x / v
		}
		within.SymRankOne(within, -v, mat.NewVecDense(a.dx, mu))
	}
	within.ScaleSym(1/math.Max(n-float64(a.c), 1), within)
	mean := mat.Trace(within) / float64(a.dx)
	within.ScaleSym(1-shrinkage, within)
	for j := range a.dx {
		within.SetSym(j, j, within.At(j, j)+shrinkage*mean)
	}
	var chol mat.Cholesky
	if !chol.Factorize(within) {
		return Theta{}, fmt.Errorf("within-class covariance of %v points with %d features is singular at shrinkage %v; raise the shrinkage", n, a.dx, shrinkage)
	}
	var directions mat.Dense // dx x C
	if err := chol.SolveTo(&directions, means.T()); err != nil {
		return Theta{}, fmt.Errorf("within-class covariance at shrinkage %v: %w; raise the shrinkage", shrinkage, err)
	}
	theta := Theta{D: a.dx + 1, C: a.c, W: make([]float64, (a.dx+1)*a.c)}
	for c := range a.c {
		quadratic := 0.0
		for j := range a.dx {
			theta.Row(j)[c] = directions.At(j, c)
			quadratic += directions.At(j, c) * means.At(c, j)
		}
		theta.Row(a.dx)[c] = -quadratic/2 + math.Log((a.count[c]+0.5)/(n+float64(a.c)/2))
	}
	return theta, nil
}

package rival

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"

	"fmp/models/rng"
	"fmp/pipeline/erm"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/posterior"
	"fmp/pipeline/sample"
)

// fmpLaplace is the Laplace approximation around FMP-mean in open scope (MacKay 1992, section 3):
// with the fit's minimiser T and Hessian H there,
//
//	T_s ~ N(T, scale H^-1)
//
// from the same uploads. The scale and the temperature are tuned.
var fmpLaplace = method{
	Info{Name: "FMP-Laplace",
		Title: "Laplace approximation around FMP-mean's fit to the class means (open scope)",
		Group: OneShot, Conjugate: true,
		Cite: "MacKay 1992, A practical Bayesian framework for backpropagation networks, Neural " +
			"Computation 4(3)", Param: ParamScale, Grid: gridScale, Joint: true, Fitted: true},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		f, refit, err := t.refit()
		if err != nil {
			return nil, err
		}
		// The scale is not in the key: its values share one fit and Hessian.
		q, err := memo.Once(t.memo, "laplace",
			func() (*laplace, error) { return t.laplace(ctx, f, refit, s) })
		if err != nil {
			return nil, err
		}
		// Each value of the scale has the same random numbers, so that values differ by the scale
		// alone. A step is U^-1 z, of covariance H^-1 for H = U'U.
		e := make(posterior.Ensemble, t.in.Latents)
		r := rng.New(t.in.Seed, t.in.Stream, "laplace")
		step := make([]float64, q.dim())
		for i := range e {
			q.unwhiten(normal(r, q.dim()), step)
			a := append([]float64(nil), q.mode...)
			floats.AddScaled(a, math.Sqrt(s.Scale), step)
			if e[i], err = q.fit.Head(q.head(a, r)); err != nil {
				return nil, err
			}
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{e}, Coordinates: f.Conjugate,
			Means: f.Conjugate, UploadBytes: f.Bytes()}, nil
	},
}

// gridScale holds the values that the tuned protocol tries for the scale of a covariance. Their
// deviations are a quarter, a half and the whole.
var gridScale = []float64{0.0625, 0.25, 1}

// laplace is the Laplace approximation of a fit. The embedded target has one block, the whole
// Hessian. It is shared by tasks' threads and is not written.
type laplace struct {
	*target
	fit *sample.Fit
}

// refit returns FMP's form in open scope, whose heads are fitted to the uploads. Closed scope is an
// error, in which FMP-joint and FMP-Laplace have no meaning.
func (t *Task) refit() (*posterior.Form, *sample.Refit, error) {
	f, err := t.form()
	if err != nil {
		return nil, nil, err
	}
	refit, ok := f.Conjugate.(*sample.Refit)
	if !ok {
		return nil, nil, fmt.Errorf("heads of the closed form are not fitted to the uploads, so " +
			"that there is no curvature; leave the method out in closed scope")
	}
	return f, refit, nil
}

// laplace returns the Laplace approximation of FMP-mean's fit, in O((C D)^3). A head of more than
// maxDense numbers is an error. It holds (C D)^2 numbers, half a GiB at the bound.
func (t *Task) laplace(ctx context.Context, f *posterior.Form, refit *sample.Refit,
	s Settings) (*laplace, error) {
	seen, err := f.Pooled()
	if err != nil {
		return nil, err
	}
	fit, err := refit.MeanFit(ctx, seen)
	if err != nil {
		return nil, err
	}
	solution, err := erm.Solve(ctx, fit.Problem, t.ermOptions(s))
	if err != nil {
		return nil, err
	}
	d := fit.D()
	if d*fit.C > maxDense {
		return nil, fmt.Errorf("a Hessian of %d x %d numbers a head; allowed are %d in all", d,
			fit.C, maxDense)
	}
	q := &laplace{fit: fit, target: &target{problem: fit.Problem, d: d, c: fit.C, precision: fit.L2,
		mode: make([]float64, d*fit.C)}}
	// Theta has a class a column, the objective one a row.
	for j := range d {
		for y, v := range solution.Theta.Row(j) {
			q.mode[y*d+j] = v
		}
	}
	return q, q.addBlock(erm.NewObjective(fit.Problem).Hessian(q.mode))
}

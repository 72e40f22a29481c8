package rival

import (
	"context"

	"fmp/pipeline/posterior"
)

// lbnn is each client's Bayesian softmax regression with prior N(0, I / l2).
var lbnn = method{
	Info{Name: "LBNN", Family: GaussianPriors, Cost: 90, Title: "Gaussian-prior posterior of each client's points; mean over clients", Group: Local,
		Cite: "Neal 2011, MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte Carlo, ch. 5", Param: ParamL2, Grid: gridL2},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		e, d, err := t.localGaussianPosteriors(ctx, s.L2, t.in.Samples, s)
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: e, Diagnostics: d}, nil
	},
}

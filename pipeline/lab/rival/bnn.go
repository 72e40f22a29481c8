package rival

import (
	"context"

	"fmp/pipeline/posterior"
)

// bnn is the Bayesian softmax regression on all clients' points with prior N(0, I / l2).
var bnn = method{
	Info{Name: "BNN", Family: GaussianPriors, Cost: 45, Title: "Gaussian-prior posterior of all clients' points", Group: Centralised,
		Cite: "Neal 2011, MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte Carlo, ch. 5", Param: ParamL2, Grid: gridL2},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		e, d, err := t.pooledGaussianPosterior(ctx, s.L2, s)
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{e}, Diagnostics: d, UploadBytes: t.rawBytes()}, nil
	},
}

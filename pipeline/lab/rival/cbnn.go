package rival

import (
	"context"

	"fmp/pipeline/posterior"
)

// cbnn is consensus Monte Carlo: the posterior is the product of the clients' subposteriors, each with
// the prior raised to 1/M (precision l2 / M); the i-th samples of all clients are combined by precision.
var cbnn = method{
	Info{Name: "CBNN", Family: GaussianPriors, Cost: 80, Title: "consensus of the clients' Gaussian-prior posteriors", Group: OneShot, Cite: citeScott, Param: ParamL2, Grid: gridL2, More: weightings},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		locals, d, err := t.localGaussianPosteriors(ctx, s.L2/float64(len(t.in.Clients)), chainHeads(t.in.Samples), s)
		if err != nil {
			return nil, err
		}
		e, err := consensus(ctx, locals, s)
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{e}, Diagnostics: d, UploadBytes: t.headBytes(chainHeads(t.in.Samples))}, nil
	},
}

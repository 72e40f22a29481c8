package rival

import (
	"context"

	"fmp/pipeline/posterior"
)

// cfmp combines the clients' martingale posteriors as CBNN combines subposteriors, each from fits with l2 / M. Weighting by
// precision favours clients that know nothing: where a class is absent the drawn points agree, and so do the samples.
// The tuned protocol therefore tries equal weights too.
var cfmp = method{
	Info{Name: "CFMP", Family: Martingales, Keep: true, Cost: 20, Title: "consensus of the clients' martingale posteriors", Group: OneShot, Cite: citeFMP, Param: ParamL2, Grid: gridL2, More: weightings, Draws: true},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		locals, err := t.localMartingales(ctx, s.L2/float64(len(t.in.Clients)), s)
		if err != nil {
			return nil, err
		}
		e, err := consensus(ctx, locals, s)
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{e}, UploadBytes: t.headBytes(t.in.Samples)}, nil
	},
}

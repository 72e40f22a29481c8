package posterior

import "context"

// cfmp combines the clients' martingale posteriors as CBNN combines subposteriors.
var cfmp = method{
	Info{Name: "CFMP", Title: "consensus of the clients' martingale posteriors", Group: OneShot, Cite: citeFMP, Param: ParamL2, Grid: gridL2},
	func(ctx context.Context, t *Task, s Settings) (*Result, error) {
		locals, err := t.localMartingales(ctx, s)
		if err != nil {
			return nil, err
		}
		e, err := consensus(ctx, locals, s.Covariance)
		if err != nil {
			return nil, err
		}
		return &Result{Ensembles: []Ensemble{e}, UploadBytes: t.headBytes(t.in.Samples)}, nil
	},
}

package rival

import (
	"context"

	"fmp/pipeline/posterior"
)

// lann is each client's own fit: what a client has on its own.
var lann = method{
	Info{Name: "LANN", Family: Fits, Cost: 20, Title: "one fit to each client's points; mean over clients", Group: Local,
		Cite: citeFMP, Param: ParamL2, Grid: gridL2},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		e, err := t.localFits(ctx, s.L2, s)
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: singles(e)}, nil
	},
}

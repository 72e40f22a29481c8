package rival

import (
	"context"

	"fmp/pipeline/posterior"
)

// ann is a single fit to all clients' points.
var ann = method{
	Info{Name: "ANN", Family: Fits, Cost: 1, Title: "one fit to all clients' points", Group: Centralised, Cite: citeFMP, Param: ParamL2, Grid: gridL2},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		theta, err := t.pooledFit(ctx, s.L2, s)
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{{theta}}, UploadBytes: t.rawBytes()}, nil
	},
}

package rival

import (
	"context"

	"fmp/pipeline/posterior"
)

// mp is the martingale posterior of all clients' points: what FMP approximates.
var mp = method{
	Info{Name: "MP", Family: Martingales, Keep: true, Cost: 12, Title: "martingale posterior of all clients' points", Group: Centralised,
		Cite: "Fong, Holmes and Walker 2023, Martingale posterior distributions, JRSS B 85(5)", Param: ParamL2, Grid: gridL2, Draws: true},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		e, err := t.martingale(ctx, "pooled", t.pooled(), s, posterior.BaseNoise)
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{e}, UploadBytes: t.rawBytes()}, nil
	},
}

package rival

import (
	"context"

	"fmp/pipeline/posterior"
)

// fmpISAB is the paper's federated martingale posterior: the martingale posterior of the pooled
// uploads, whose unseen points a set transformer draws, each from its own noise.
var fmpISAB = method{
	Info{Name: "FMP-ISAB", Keep: true, Cost: 9,
		Title: "martingale posterior of the clients' compressed points, drawn by attention",
		Group: OneShot, Cite: citeFMP, Param: ParamL2, Grid: gridL2, Draws: true, Compresses: true},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		// It reads compressed points alone, and not the clients' own.
		if len(t.in.Uploads) == 0 {
			return nil, errNoUploads
		}
		return t.drawn.Uploads(ctx, t.in.Uploads, posterior.Fit{L2: s.L2, Tolerance: s.Tolerance},
			posterior.SampleRange{})
	},
}

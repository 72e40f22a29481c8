package posterior

import "context"

// fmpISAB is the letter's federated martingale posterior: the martingale posterior of the pooled uploads, whose unseen points
// a set transformer draws, each from its own noise.
var fmpISAB = method{
	Info{Name: "FMP-ISAB", Keep: true, Cost: 9, Title: "martingale posterior of the clients' compressed points, drawn by attention", Group: OneShot, Cite: citeFMP, Param: ParamL2, Grid: gridL2, Draws: true, Compresses: true},
	func(ctx context.Context, t *Task, s Settings) (*Result, error) {
		seen, err := t.pooledUploads()
		if err != nil {
			return nil, err
		}
		e, err := t.made(t.dx + 1)
		if err == nil && e == nil {
			e, err = t.martingale(ctx, "uploads", seen, s, baseNoise)
		}
		if err != nil {
			return nil, err
		}
		return &Result{Ensembles: []Ensemble{e}, UploadBytes: t.uploadBytes()}, nil
	},
}

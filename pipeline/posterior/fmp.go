package posterior

import "context"

// fmp is the federated martingale posterior: the martingale posterior of the pooled uploads.
var fmp = method{
	Info{Name: "FMP", Title: "martingale posterior of the clients' compressed points", Group: OneShot, Cite: citeFMP, Param: ParamL2, Grid: gridL2},
	func(ctx context.Context, t *Task, s Settings) (*Result, error) {
		seen, err := t.pooledUploads()
		if err != nil {
			return nil, err
		}
		e, err := t.martingale(ctx, "uploads", seen, s, baseNoise)
		if err != nil {
			return nil, err
		}
		return &Result{Ensembles: []Ensemble{e}, UploadBytes: t.uploadBytes()}, nil
	},
}

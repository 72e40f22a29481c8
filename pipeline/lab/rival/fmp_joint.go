package rival

import (
	"context"

	"fmp/pipeline/posterior"
)

// fmpJoint is FMP in open scope whose samples have both uncertainties ([sample.Refit.Posterior]):
// each draws the class means, fits its head to the uploads, and fits it again after the centre and
// the labels were perturbed as much as the fit leaves them unknown, times a scale.
var fmpJoint = method{
	Info{Name: "FMP-joint",
		Title: "FMP, with the uncertainty of each sample's fit as well (open scope)",
		Group: OneShot, Conjugate: true, Cost: 36,
		Cite: citeFMP + "; Bardsley, Solonen, Haario and Laine 2014, Randomize-then-optimize, " +
			"SIAM J. Scientific Computing 36(4)",
		Param: ParamScale, Grid: gridScale, Joint: true, Fitted: true},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		f, refit, err := t.refit()
		if err != nil {
			return nil, err
		}
		seen, err := f.Pooled()
		if err != nil {
			return nil, err
		}
		// Latents are those of FMP's own samples.
		e, err := refit.Posterior(ctx, seen, t.means.Latents(f.Conjugate), t.in.Latents, s.Scale)
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{e}, Coordinates: f.Conjugate,
			Means: f.Conjugate, UploadBytes: f.Bytes()}, nil
	},
}

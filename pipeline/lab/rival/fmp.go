package rival

import (
	"context"
	"fmt"

	"fmp/pipeline/discriminant"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// fmp is FMP of class means, in closed or open form (package posterior), with its limit of infinite
// data; without a predictor of some corpus, of moments.
var fmp = method{
	Info{Name: "FMP", Family: Federated, Keep: true, Cost: 18,
		Title: "martingale posterior of the clients' class means, in closed form",
		Group: OneShot, Cite: citeFMP, Conjugate: true},
	func(ctx context.Context, t *Task, _ Settings) (*posterior.Result, error) {
		// A round of moments has no class means that a predictor could read.
		if t.means == nil && t.in.Moments != nil {
			known, err := t.in.Corpus.moments(ctx, t.in.Embedded)
			if err != nil {
				return nil, err
			}
			return posterior.Moments(ctx, t.in.Moments, t.in.Embedded, posterior.MomentsOptions{
				Options: discriminant.Options{Kappa: t.in.Kappa, Samples: t.in.Latents,
					Seed: t.in.Seed, Stream: t.in.Stream, Corpus: known}, Threads: t.in.Threads})
		}
		f, err := t.form()
		if err != nil {
			return nil, err
		}
		r, err := t.means.Sample(ctx)
		if err != nil {
			return nil, err
		}
		r.Means = r.Coordinates
		all := t.in.Limits
		if f.Open {
			all = t.in.SoftLimits
		}
		// Without rows for a limit its coverage is not measured.
		if all == nil {
			return r, nil
		}
		// The open form's coordinates depend on the round, so that the limit must be in those of
		// this result.
		own, ok := r.Coordinates.(posterior.Conjugate) // of the penalty that the round chose
		if !ok {
			return nil, fmt.Errorf("limit of infinite data: coordinates %T", r.Coordinates)
		}
		of, err := own.IntervalLimit(ctx, all)
		if err != nil {
			return nil, fmt.Errorf("limit of infinite data: %w", err)
		}
		r.Limit, r.IntervalLimit = &of, &of
		if f.Open {
			return r, nil
		}
		// Head weights have the limit of FMP's own heads, at a latent of 0.
		limit, err := f.Heads(ctx, all, make([]float32, f.LatentSize()), 1)
		if err != nil {
			return nil, fmt.Errorf("limit of infinite data: %w", err)
		}
		r.Limit = &limit[0]
		return r, nil
	},
}

// fmpMean replaces FMP's samples by one head, that of the posterior means, with scalars learned for
// it.
var fmpMean = method{
	Info{Name: "FMP-mean", Keep: true,
		Title: "the head of FMP's posterior means, with scalars of its own",
		Group: OneShot, Cite: citeFMP, Conjugate: true},
	func(ctx context.Context, t *Task, _ Settings) (*posterior.Result, error) {
		f, seen, err := t.pooledMeans()
		if err != nil {
			return nil, err
		}
		theta, err := f.Mean(ctx, seen)
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{{theta}}, Coordinates: f.Conjugate,
				Means: f.Conjugate, UploadBytes: f.Bytes()},
			nil
	},
}

// closedForm reports whether FMP can run, that is, whether there is a conjugate or an open
// predictor. Either form computes heads without drawing points one by one.
func (t *Task) closedForm() bool { return t.in.Conjugate != nil || t.in.Open != nil }

// form returns the form in which FMP reads the class means. It is closed or open, as scope and
// uploads decide.
func (t *Task) form() (*posterior.Form, error) {
	if t.means == nil {
		return nil, fmt.Errorf("no class means; give each client's, and a conjugate or an open " +
			"predictor (conjugate.model, open.model)")
	}
	return t.means.Form()
}

// pooledMeans returns FMP's form and the class means of all clients as it reads them. The set is in
// the coordinates of uploads, with masses added up over clients. It may be shared and must not be
// written.
func (t *Task) pooledMeans() (*posterior.Form, *point.Set, error) {
	f, err := t.form()
	if err != nil {
		return nil, nil, err
	}
	seen, err := f.Pooled()
	return f, seen, err
}

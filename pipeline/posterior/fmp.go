package posterior

import (
	"context"
	"fmt"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/pipeline/point"
)

// fmp is the federated martingale posterior of the conjugate predictor (models.NewConjugate): sample s is the limit of the head
// fitted to infinitely many points drawn given the pooled class means, all from one latent. For classes that the corpus lacks it
// uses its open form (open.go), whose heads are fitted to the uploads.
var fmp = method{
	Info{Name: "FMP", Family: Federated, Keep: true, Cost: 18, Title: "martingale posterior of the clients' class means, in closed form", Group: OneShot, Cite: citeFMP, Conjugate: true},
	func(ctx context.Context, t *Task, _ Settings) (*Result, error) {
		f, err := t.form()
		if err != nil {
			return nil, err
		}
		var e Ensemble
		var seen *point.Set // the class means that intervals condition on
		var judged *Judgement
		if t.in.Honesty {
			f, e, judged, err = t.honestHeads(ctx, f)
		} else if seen, err = f.pool(nil, func(int) bool { return true }); err == nil {
			if e, err = t.made(f.LatentSize()/t.c + 1); err == nil && e == nil {
				from, to := t.part.of(t.in.Latents)
				size := f.LatentSize()
				e, err = f.Heads(ctx, seen, t.latents(f)[from*size:to*size], to-from)
			}
		}
		if err != nil {
			return nil, err
		}
		if judged != nil { // intervals condition on one set of clients: those more likely honest than not
			seen = judged.trusted
		}
		r := &Result{Ensembles: []Ensemble{e}, Judgement: judged, Coordinates: f.Conjugate, Means: f.Conjugate, UploadBytes: f.bytes(), Diagnostics: f.diagnostics}
		if t.in.Latents > 1 {
			r.Intervals = &conjugateIntervals{predictor: f.Conjugate, seen: seen, heads: e, latent: t.latents(f), uniform: t.strata()}
		}
		if f.all != nil {
			limit, err := f.Heads(ctx, f.all, make([]float32, f.LatentSize()), 1)
			if err != nil {
				return nil, fmt.Errorf("limit of infinite data: %w", err)
			}
			r.Limit = &limit[0]
			of, err := f.IntervalLimit(ctx, f.all)
			if err != nil {
				return nil, fmt.Errorf("limit of infinite data: %w", err)
			}
			r.IntervalLimit = &of
		}
		return r, nil
	},
}

// fmpMean replaces FMP's samples by one head, that of the posterior means, with scalars learned for it.
var fmpMean = method{
	Info{Name: "FMP-mean", Keep: true, Title: "the head of FMP's posterior means, with scalars of its own", Group: OneShot, Cite: citeFMP, Conjugate: true},
	func(ctx context.Context, t *Task, _ Settings) (*Result, error) {
		f, err := t.form()
		if err != nil {
			return nil, err
		}
		seen, err := f.pooled()
		if err != nil {
			return nil, err
		}
		theta, err := f.Mean(ctx, seen)
		if err != nil {
			return nil, err
		}
		return &Result{Ensembles: []Ensemble{{theta}}, Coordinates: f.Conjugate, Means: f.Conjugate, UploadBytes: f.bytes()}, nil
	},
}

// latents returns the task's latents, one per sample; with Input.NoLatent, a single latent of zeros.
func (t *Task) latents(k Conjugate) []float32 {
	out := make([]float32, t.in.Latents*k.LatentSize())
	if t.in.NoLatent {
		return out
	}
	rng.Normal(rng.New(t.in.Seed, t.in.Stream, "latent"), out)
	return out
}

// strata returns one number in (0, 1) per sample, stratified over as many equal parts, in random order.
func (t *Task) strata() []float32 {
	out := make([]float32, t.in.Latents)
	for i, j := range rng.New(t.in.Seed, t.in.Stream, "strata").Perm(len(out)) {
		out[i] = (float32(j) + 0.5) / float32(len(out))
	}
	return out
}

// conjugateIntervals are the conjugate predictor's intervals for one round.
type conjugateIntervals struct {
	predictor       Conjugate
	seen            *point.Set
	heads           []Theta
	latent, uniform []float32
}

func (k *conjugateIntervals) Of(ctx context.Context, features []float32, level float64) (low, high []float64, err error) {
	return k.predictor.Intervals(ctx, k.seen, k.heads, k.latent, k.uniform, features, level)
}

// Graph returns the graph of the heads' coordinates and of Of at coverageLevel: features [n, dx] to coordinates [n, k], low and high [n, C]. It
// is nil where the predictor has no graphs.
func (k *conjugateIntervals) Graph(ctx context.Context) (*onnx.Model, error) {
	p, ok := k.predictor.(interface {
		IntervalGraph(ctx context.Context, seen *point.Set, heads []Theta, latent, uniform []float32, level float64) (*onnx.Model, error)
	})
	if !ok {
		return nil, nil
	}
	return p.IntervalGraph(ctx, k.seen, k.heads, k.latent, k.uniform, coverageLevel)
}

// Heads returns the heads of whose weights intervals are to be taken.
func (k *conjugateIntervals) Heads(ctx context.Context) (Ensemble, error) {
	p, ok := k.predictor.(interface {
		Spread(ctx context.Context, seen *point.Set, latent []float32) ([]Theta, error)
	})
	if !ok {
		return k.heads, nil
	}
	return p.Spread(ctx, k.seen, k.latent)
}

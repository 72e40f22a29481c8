package posterior

import (
	"context"
	"fmt"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/pipeline/point"
)

// fmp is the federated martingale posterior of the conjugate predictor (models.NewConjugate): sample s is the head that infinitely
// many points drawn given the pooled class means, all from one latent, would be fitted to. Of classes that the corpus lacks it
// takes its open form (open.go).
var fmp = method{
	Info{Name: "FMP", Family: Federated, Keep: true, Cost: 18, Title: "martingale posterior of the clients' class means, in closed form", Group: OneShot, Cite: citeFMP, Conjugate: true},
	func(ctx context.Context, t *Task, _ Settings) (*Result, error) {
		if u, err := t.scope(); err != nil {
			return nil, err
		} else if u != nil {
			return t.openForm(u, false)
		}
		var e Ensemble
		var seen *point.Set // what intervals are given
		var judged *Judgement
		var err error
		if t.in.Honesty {
			e, judged, err = t.honestHeads(ctx)
		} else if seen, err = t.pooledMeans(); err == nil {
			if e = t.part.Heads; e == nil {
				from, to := t.part.of(t.in.Latents)
				size := t.in.Conjugate.LatentSize()
				e, err = t.in.Conjugate.Heads(ctx, seen, t.latents()[from*size:to*size], to-from)
			}
		}
		if err != nil {
			return nil, err
		}
		r := &Result{Ensembles: []Ensemble{e}, Judgement: judged, Coordinates: t.in.Conjugate, Means: t.in.Conjugate, UploadBytes: t.classMeanBytes(), Diagnostics: t.noveltyDiagnostics()}
		if t.in.Latents > 1 {
			if judged != nil { // intervals are given one set of clients: those that are likelier honest than not
				seen = judged.trusted
			}
			r.Intervals = &conjugateIntervals{t.in.Conjugate, seen, t.latents(), t.strata()}
		}
		if t.in.Limits != nil {
			limit, err := t.in.Conjugate.Heads(ctx, t.in.Limits, make([]float32, t.in.Conjugate.LatentSize()), 1)
			if err != nil {
				return nil, fmt.Errorf("limit of infinite data: %w", err)
			}
			r.Limit = &limit[0]
			of, err := t.in.Conjugate.IntervalLimit(ctx, t.in.Limits)
			if err != nil {
				return nil, fmt.Errorf("limit of infinite data: %w", err)
			}
			r.IntervalLimit = &of
		}
		return r, nil
	},
}

// fmpMean is one head in place of FMP's samples, that of the posterior means, with scalars learned for it.
var fmpMean = method{
	Info{Name: "FMP-mean", Keep: true, Title: "the head of FMP's posterior means, with scalars of its own", Group: OneShot, Cite: citeFMP, Conjugate: true},
	func(ctx context.Context, t *Task, _ Settings) (*Result, error) {
		if u, err := t.scope(); err != nil {
			return nil, err
		} else if u != nil {
			return t.openForm(u, true)
		}
		seen, err := t.pooledMeans()
		if err != nil {
			return nil, err
		}
		theta, err := t.in.Conjugate.Mean(ctx, seen)
		if err != nil {
			return nil, err
		}
		return &Result{Ensembles: []Ensemble{{theta}}, Coordinates: t.in.Conjugate, Means: t.in.Conjugate, UploadBytes: t.classMeanBytes()}, nil
	},
}

// pooledMeans is the union of the clients' class means.
func (t *Task) pooledMeans() (*point.Set, error) {
	if t.in.Conjugate == nil {
		return nil, fmt.Errorf("no conjugate predictor; fmp train conjugate makes one, and conjugate.model names it")
	}
	return point.Pool(t.in.ClassMeans...)
}

// latents is the task's stream of one latent a sample; without latents, one of 0.
func (t *Task) latents() []float32 {
	out := make([]float32, t.in.Latents*t.in.Conjugate.LatentSize())
	if t.in.NoLatent {
		return out
	}
	rng.Normal(rng.New(t.in.Seed, t.in.Stream, "latent"), out)
	return out
}

// strata are one number in (0, 1) a sample, one in each of as many equal parts, in random order.
func (t *Task) strata() []float32 {
	out := make([]float32, t.in.Latents)
	for i, j := range rng.New(t.in.Seed, t.in.Stream, "strata").Perm(len(out)) {
		out[i] = (float32(j) + 0.5) / float32(len(out))
	}
	return out
}

// conjugateIntervals are those of the conjugate predictor for one round.
type conjugateIntervals struct {
	predictor       Conjugate
	seen            *point.Set
	latent, uniform []float32
}

func (k *conjugateIntervals) Of(ctx context.Context, features []float32, level float64) (low, high []float64, err error) {
	return k.predictor.Intervals(ctx, k.seen, k.latent, k.uniform, features, level)
}

// Graph is that of the heads' coordinates and of Of, features [n, dx] to coordinates [n, k], low and high [n, C]; nil where the
// predictor has no graphs.
func (k *conjugateIntervals) Graph(level float64) (*onnx.Model, error) {
	p, ok := k.predictor.(interface {
		IntervalGraph(seen *point.Set, latent, uniform []float32, level float64) (*onnx.Model, error)
	})
	if !ok {
		return nil, nil
	}
	return p.IntervalGraph(k.seen, k.latent, k.uniform, level)
}

// classMeanBytes is the mean size of an upload of class means: of each class that a client holds the numbers, label and
// mass.
func (t *Task) classMeanBytes() float64 {
	var n int
	for _, u := range t.in.ClassMeans {
		n += u.N * (u.Dx + 2)
	}
	return float32Bytes(n) / float64(len(t.in.ClassMeans))
}

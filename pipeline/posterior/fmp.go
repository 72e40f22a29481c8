package posterior

import (
	"context"
	"fmt"
	"runtime"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/pipeline/erm"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/open"
	"fmp/pipeline/point"
	"fmp/pipeline/sample"
)

// Input is a round of class means.
type Input struct {
	// Conjugate reads ClassMeans, each client's class means with masses; nil without a conjugate
	// predictor.
	Conjugate  Conjugate
	ClassMeans []*point.Set
	// Named says that the corpus behind Conjugate has the round's classes, under the same indices.
	// Where Conjugate holds the corpus's images, they are then one more client's.
	Named bool
	// Open reads Soft, each client's class means of softened features (open.Predictor.Soften), on
	// classes that the corpus lacks; nil without an open predictor. Scope chooses between the two:
	// ScopeClosed (Conjugate), ScopeOpen (Open), or ScopeAuto (default), which decides by the
	// uploads.
	Open  *open.Predictor
	Soft  []*point.Set
	Scope string
	// Rest are class means of further clients together, which were judged elsewhere or are trusted;
	// nil where there are none. With them no client has an effect.
	Rest *point.Set
	// Known are class means, as the clients' are, that nobody doubts: they anchor who is honest
	// (honesty.Known), and count nowhere else; nil: none. Yields takes none where they contradict
	// too many clients (honesty.Uploads.Contradicted), as of other images than theirs.
	Known  *point.Set
	Yields bool
	// Samples is the number of samples, which require fits in open scope only; default 100.
	Samples int
	// NoLatent disables the latent: the posterior is then a single head, that of its means.
	NoLatent bool
	// For is the number, from 1, of the client whose images are to be predicted; 0 stands for a
	// client to come.
	For int
	// Alike takes all clients for alike: none has a shift.
	Alike bool
	// Honesty makes each sample draw which clients are honest, and use only their class means.
	Honesty bool
	// Calibration holds images by which a round in open scope chooses its temperature and the
	// penalty of its fits; nil: none.
	Calibration *Calibration
	Seed        uint64 // the run's seed, and
	Stream      string // the round's name in it: two rounds of one run need two names
	Threads     int    // goroutines at most; 0: one a processor. Samples do not depend on it.
}

// FMP is the federated martingale posterior of a round of class means: sample s is the limit of the
// head fitted to infinitely many points drawn given the pooled class means, all from one latent
// (models.NewConjugate; the table of docs/concepts.md, The conjugate predictor, has the equations).
// For classes that the corpus lacks it uses its open form, whose heads are
// fitted to the uploads. It is safe for concurrent use.
type FMP struct {
	in   Input
	c    int
	memo *memo.Memo
	part SampleRange
}

// New checks in. It is an error if a set is empty, or a number is not finite or a weight negative.
func New(in Input) (*FMP, error) {
	switch {
	case in.NoLatent:
		in.Samples = 1
	case in.Samples == 0:
		in.Samples = 100
	}
	if in.Threads <= 0 {
		in.Threads = runtime.GOMAXPROCS(0)
	}
	t := &FMP{in: in, memo: &memo.Memo{}}
	switch {
	case in.Samples < 1 || in.Samples > maxSamples:
		return nil, fmt.Errorf("posterior: %d samples of the closed form; allowed are 1 to %d",
			in.Samples, maxSamples)
	case in.Scope != "" && in.Scope != ScopeAuto && in.Scope != ScopeClosed &&
		in.Scope != ScopeOpen:
		return nil, fmt.Errorf("posterior: scope is %q; allowed are %q, %q and %q",
			in.Scope, ScopeAuto, ScopeClosed, ScopeOpen)
	case in.For < 0 || in.For > max(len(in.ClassMeans), len(in.Soft)):
		return nil, fmt.Errorf("posterior: predictions for client %d of %d", in.For,
			max(len(in.ClassMeans), len(in.Soft)))
	case len(in.ClassMeans)+len(in.Soft) == 0:
		return nil, fmt.Errorf("posterior: no class means; a round needs those of one client at " +
			"least")
	}
	if in.Rest != nil {
		if err := erm.CheckSet(in.Rest); err != nil {
			return nil, fmt.Errorf("posterior: class means of merged clients: %w", err)
		}
	}
	if in.Known != nil {
		if err := erm.CheckSet(in.Known); err != nil {
			return nil, fmt.Errorf("posterior: known class means: %w", err)
		}
	}
	for _, sets := range [][]*point.Set{in.ClassMeans, in.Soft} {
		for m, s := range sets {
			if s == nil || s.N == 0 {
				return nil, fmt.Errorf("posterior: the class means of client %d have no points; "+
					"give each at least one", m)
			}
			if err := erm.CheckSet(s); err != nil {
				return nil, fmt.Errorf("posterior: class means of client %d: %w", m, err)
			}
			t.c = s.C
		}
	}
	if in.Calibration != nil {
		return t, t.Calibrate(in.Calibration)
	}
	return t, nil
}

// Sample returns the posterior, of one ensemble.
func (t *FMP) Sample(ctx context.Context) (*Result, error) {
	f, err := t.Form()
	if err != nil {
		return nil, err
	}
	if c, err := t.corpus(f); c != nil || err != nil {
		if err != nil {
			return nil, err
		}
		return t.one(ctx, f, c)
	}
	var e Ensemble
	var seen *point.Set // the class means that intervals condition on
	var judged *Judgement
	var by *chosen
	if t.in.Honesty {
		by, e, judged, err = t.honestHeads(ctx, f)
	} else if seen, err = f.pool(nil, func(int) bool { return true }); err == nil {
		by, e, err = t.heads(ctx, f, seen)
	}
	if err != nil {
		return nil, err
	}
	// intervals condition on one set of clients: those more likely honest than not
	if judged != nil {
		seen = judged.trusted
	}
	temperature := 1.0
	if t.part.To == 0 { // all samples
		e, temperature = by.temper(e)
	}
	f = by.form
	r := &Result{Ensembles: []Ensemble{e}, Judgement: judged, Coordinates: f.Conjugate,
		UploadBytes: f.Bytes(), Diagnostics: by.diagnostics(temperature)}
	a, err := t.withoutEffects()
	if err != nil {
		return nil, err
	}
	r.Effects = a.effects
	if r.Shift, err = t.shiftParts(f, e, judged); err != nil {
		return nil, err
	}
	if t.in.Samples > 1 {
		r.Intervals = &conjugateIntervals{f.Conjugate,
			sample.Drawn{Seen: seen, Heads: e, Latent: t.Latents(f), Uniform: t.strata(),
				Temperature: temperature}}
	}
	return r, nil
}

// heads returns the samples of a round whose clients are not judged, and the form that they are of.
func (t *FMP) heads(ctx context.Context, f *Form, seen *point.Set) (*chosen, Ensemble, error) {
	by, err := t.calibrated(ctx, f, nil, seen)
	if err != nil {
		return nil, nil, err
	}
	f = by.form
	e, err := t.part.made(f.LatentSize()/t.c+1, t.c)
	if err == nil && e == nil {
		from, to := t.part.of(t.in.Samples)
		size := f.LatentSize()
		e, err = f.Heads(ctx, seen, t.Latents(f)[from*size:to*size], to-from)
	}
	return by, e, err
}

// Latents returns the latents of a predictor, one per sample; with Input.NoLatent, a single latent
// of zeros.
func (t *FMP) Latents(k Conjugate) []float32 {
	if !isWide(k, t.in.Samples) {
		return t.latents(k)
	}
	// they are many, and asked for by every part
	out, _ := memo.Once(t.memo, "latents", func() ([]float32, error) {
		out := t.latents(k)
		models.Steps(out)
		return out, nil
	})
	return out
}

func (t *FMP) latents(k Conjugate) []float32 {
	out := make([]float32, t.in.Samples*k.LatentSize())
	if t.in.NoLatent {
		return out
	}
	rng.Normal(rng.New(t.in.Seed, t.in.Stream, "latent"), out)
	return out
}

// strata returns one number in (0, 1) per sample, stratified over as many equal parts, in random
// order.
func (t *FMP) strata() []float32 {
	out := make([]float32, t.in.Samples)
	for i, j := range rng.New(t.in.Seed, t.in.Stream, "strata").Perm(len(out)) {
		out[i] = (float32(j) + 0.5) / float32(len(out))
	}
	return out
}

// conjugateIntervals are the conjugate predictor's intervals for one round.
type conjugateIntervals struct {
	predictor Conjugate
	drawn     sample.Drawn
}

func (k *conjugateIntervals) Compute(ctx context.Context, features []float32,
	level float64) (low, high []float64, err error) {
	return k.predictor.Intervals(ctx, k.drawn, features, level)
}

// Graph returns the graph of the heads' coordinates and of Compute at IntervalLevel: features [n,
// dx] to coordinates [n, k], low and high [n, C]. It is nil where the predictor has no graphs.
func (k *conjugateIntervals) Graph(ctx context.Context) (*onnx.Model, error) {
	p, ok := k.predictor.(interface {
		IntervalGraph(ctx context.Context, d sample.Drawn, level float64) (*onnx.Model, error)
	})
	if !ok {
		return nil, nil
	}
	return p.IntervalGraph(ctx, k.drawn, IntervalLevel)
}

// Heads returns the heads on which intervals of weights are computed.
func (k *conjugateIntervals) Heads(ctx context.Context) (Ensemble, error) {
	p, ok := k.predictor.(interface {
		Spread(ctx context.Context, seen *point.Set, latent []float32) ([]Theta, error)
	})
	if !ok {
		return k.drawn.Heads, nil
	}
	return p.Spread(ctx, k.drawn.Seen, k.drawn.Latent)
}

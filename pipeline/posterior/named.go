package posterior

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"fmp/pipeline/candidate"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/point"
)

// named is a conjugate predictor that holds the images of its corpus.
type named interface {
	// Corpus returns them, in the coordinates of Map; nil where there are none.
	Corpus() (*candidate.Corpus, error)
	// AtHeads returns class means in the coordinates of Map.
	AtHeads(means *point.Set) (*point.Set, error)
}

// Named reports whether the round is one of named classes: in closed form, by a predictor that
// holds images of them. Its posterior is one posterior (package candidate), which a single machine
// computes.
func (t *FMP) Named() (bool, error) {
	f, err := t.Form()
	if err != nil {
		return false, err
	}
	c, err := t.corpus(f)
	return c != nil, err
}

// corpus returns the images of the round's classes that the predictor holds; nil where it holds
// none, or the classes are others.
func (t *FMP) corpus(f *Form) (*candidate.Corpus, error) {
	n, ok := f.Conjugate.(named)
	if !ok || !t.in.Named || f.Open {
		return nil, nil
	}
	return n.Corpus()
}

// DiagnosticNamed is the share of the corpus's images that counts as one more client's.
const DiagnosticNamed = "named"

// one returns the posterior of a round of named classes: of the class means of clients that are
// more likely honest than not, with the masses that count, and of the corpus. The mixture is
// computed once for a round, and draws come from it. Intervals are widened by sqrt(1 + 1/S) for S
// heads.
func (t *FMP) one(ctx context.Context, f *Form, c *candidate.Corpus) (*Result, error) {
	var j *Judgement
	if t.in.Honesty {
		by, err := t.judged(ctx, f)
		if err != nil {
			return nil, err
		}
		f, j = by.form, by.judgement
	}
	r, err := t.namedRound(f, c, j)
	if err != nil {
		return nil, err
	}
	o := candidate.Options{Seed: t.in.Seed, Stream: t.in.Stream, Threads: t.in.Threads}
	m, err := memo.Once(t.memo, "one", func() (*candidate.Mixture, error) { return r.Posterior(o) })
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var e Ensemble
	if t.in.NoLatent {
		e = Ensemble{m.Components[0].Head}
	} else {
		e = m.Ensemble(min(t.in.Samples, discriminant.MaxSamples(r.K, r.C)), o)
	}
	a, err := t.withoutEffects()
	if err != nil {
		return nil, err
	}
	out := &Result{Ensembles: []Ensemble{e}, Judgement: j, Coordinates: f.Conjugate,
		UploadBytes: f.Bytes(), Regression: true, Effects: a.effects, Unlike: m.Unlike,
		Diagnostics: map[string]float64{DiagnosticNamed: m.Counted}}
	maps.Copy(out.Diagnostics, f.diagnostics)
	if out.Shift, err = t.shiftParts(f, e, j); err != nil {
		return nil, err
	}
	if len(e) > 1 {
		// the regression's draws are not tempered
		out.Intervals = &headIntervals{at: f.Conjugate, heads: e,
			widening: math.Sqrt(1 + 1/float64(len(e)))}
	}
	return out, nil
}

// namedRound returns the round that one posterior is computed from. Clients less likely honest than
// 1/2 are left out. A sum of clients joins all to one client.
func (t *FMP) namedRound(f *Form, c *candidate.Corpus, j *Judgement) (*candidate.Round, error) {
	r := &candidate.Round{C: t.c, Corpora: []candidate.Corpus{*c}}
	var sets []*point.Set
	for m, set := range f.means {
		if j == nil || m >= len(j.Honest) || j.Honest[m] >= 0.5 {
			sets = append(sets, set)
		}
	}
	if f.rest != nil { // clients of a sum are alike, and so are all
		sets = []*point.Set{whole(append(sets, f.rest))}
	}
	for m, set := range sets {
		means, err := f.Conjugate.(named).AtHeads(set)
		if err != nil {
			return nil, fmt.Errorf("client %d: %w", m, err)
		}
		r.K = means.Dx
		if means = atLeastOne(means); means.N > 0 {
			r.Clients = append(r.Clients, candidate.Client{Means: means})
		}
	}
	return r, nil
}

// atLeastOne returns the class means of a set that have mass, which counts for one image at least.
// Package candidate refuses counts below 1. The set is not changed.
func atLeastOne(set *point.Set) *point.Set {
	out := set.Held()
	counted := *out
	counted.W = slices.Clone(out.W)
	for i, v := range counted.W {
		counted.W[i] = max(v, 1)
	}
	return &counted
}

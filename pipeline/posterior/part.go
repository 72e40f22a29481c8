package posterior

import (
	"context"
	"fmt"

	"fmp/pipeline/honesty"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/point"
)

// SampleRange is a range of a posterior's samples: the share of a round that one of several
// machines computes. Random numbers are those of the whole, so that the concatenated parts equal
// the posterior.
type SampleRange struct {
	// From and To bound the samples, From inclusive and To exclusive; both 0: all samples.
	From, To int
	// States are the sampled honesty states of the clients, where they are already known; nil: they
	// are inferred.
	States *honesty.States
	// Heads are all samples, computed earlier in parts: nothing is drawn, and the result is
	// assembled around them.
	Heads Ensemble
}

// of returns the part's bounds among n samples.
// A To beyond n is cut to n, and From is taken as it is.
func (p *SampleRange) of(n int) (from, to int) {
	if p.To == 0 {
		return 0, n
	}
	return p.From, min(p.To, n)
}

// made returns the heads that were computed earlier in parts, each rows x classes; nil where there
// are none.
// They may come from other machines, so that their shapes are checked.
func (p *SampleRange) made(rows, classes int) (Ensemble, error) {
	for i, h := range p.Heads {
		if h.D != rows || h.C != classes || len(h.W) != rows*classes {
			return nil, fmt.Errorf("head %d is %d x %d; the task's are %d x %d", i, h.D,
				h.C, rows, classes)
		}
	}
	return p.Heads, nil
}

// Limit returns the posterior of which Sample computes only a part. It shares t's results.
func (t *FMP) Limit(p SampleRange) *FMP {
	part := *t
	part.part = p
	return &part
}

// claims are the clients' class means in the form that package honesty weighs.
type claims struct {
	uploads honesty.Uploads // bounded
	claimed []float64       // masses as claimed, [clients, classes]
	lambda  []float64
	yielded bool // known class means contradict too many clients, and are left out
}

// Claims returns the clients' class means as package honesty weighs them, with bounded masses, and
// the variances of class means between the corpus's classes.
func (t *FMP) Claims() (honesty.Uploads, []float64, error) {
	c, err := t.claims()
	return c.uploads, c.lambda, err
}

// claims computes them once for a round. Copies are found first, then known class means are set,
// and masses are bounded last.
func (t *FMP) claims() (claims, error) {
	return memo.Once(t.memo, "claims", func() (c claims, err error) {
		f, err := t.Form()
		if err != nil {
			return c, err
		}
		means := f.means
		if f.Open {
			a, err := t.withoutEffects()
			if err != nil {
				return c, err
			}
			means = a.judged
		}
		if c.uploads, c.lambda, err = t.claimsOf(f, means); err != nil {
			return c, err
		}
		c.claimed = c.uploads.Masses
		c.uploads.Copies()
		if c.yielded, err = t.anchor(f, &c.uploads, c.lambda); err != nil {
			return c, err
		}
		c.uploads = c.uploads.Bound()
		return c, nil
	})
}

// anchor sets the known class means of claims, in the form's coordinates, unless they yield.
// Without known class means nothing changes. They yield only where Input.Yields allows it.
func (t *FMP) anchor(f *Form, u *honesty.Uploads, lambda []float64) (yielded bool, err error) {
	if t.in.Known == nil {
		return false, nil
	}
	known, _, err := t.claimsOf(f, []*point.Set{t.in.Known})
	if err != nil {
		return false, fmt.Errorf("known class means: %w", err)
	}
	u.Known = &honesty.Known{}
	u.Known.Masses, u.Known.Means = known.Client(0)
	if !t.in.Yields {
		return false, nil
	}
	if yielded, err = u.Contradicted(lambda); yielded {
		u.Known = nil
	}
	return yielded, err
}

// claimsOf returns class means, as a form reads them, as package honesty weighs them, with masses
// as claimed.
// In open form they are projected and whitened first, by the predictor that judges clients.
func (t *FMP) claimsOf(f *Form,
	means []*point.Set) (u honesty.Uploads, lambda []float64, err error) {
	if !f.Open {
		return f.Claims(means)
	}
	a, err := t.withoutEffects()
	if err != nil {
		return u, nil, err
	}
	w, err := memo.Once(t.memo, "whitening", a.judge.Whitening)
	if err != nil {
		return u, nil, err
	}
	u, err = w.Claims(len(means),
		func(m int) (*point.Set, error) { return t.in.Open.Project(m, means[m]) }, openClaims)
	return u, w.Lambda[:u.K], err
}

// Against judges further clients by those of a round, one at a time.
type Against struct {
	t    *FMP
	form *Form
	by   *honesty.Against
}

// Against returns the judgement by the round's clients.
func (t *FMP) Against(ctx context.Context) (*Against, error) {
	f, err := t.Form()
	if err != nil {
		return nil, err
	}
	u, lambda, err := t.claimsOf(f, f.means)
	if err != nil {
		return nil, err
	}
	u.Copies()
	if _, err = t.anchor(f, &u, lambda); err != nil {
		return nil, err
	}
	by, err := honesty.NewAgainst(ctx, u, lambda, t.in.Seed, t.in.Threads)
	return &Against{t, f, by}, err
}

// Share returns the share of the images behind a client's class means that counts, 0 for a client
// that is less likely honest than not. It is safe for concurrent use.
func (a *Against) Share(means *point.Set) (float64, error) {
	u, _, err := a.t.claimsOf(a.form, []*point.Set{means})
	if err != nil {
		return 0, err
	}
	masses, numbers := u.Client(0)
	honest, err := a.by.Honest(masses, numbers, 0)
	if err != nil || !honest {
		return 0, err
	}
	return a.by.Share(u.Masses), nil
}

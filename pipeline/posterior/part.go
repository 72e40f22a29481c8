package posterior

import (
	"fmt"

	"fmp/pipeline/honesty"
	"fmp/pipeline/point"
)

// Part is some of a posterior's samples: what one of several machines makes of a task. Random numbers are those of the whole, so that
// parts laid side by side are the posterior.
type Part struct {
	// From and To bound the samples; 0 and 0: all.
	From, To int
	// States say who may be honest, where that is known already; nil: FMP infers them.
	States *honesty.States
	// Heads are all samples, made in parts before: nothing is drawn, and the result is put together around them.
	Heads Ensemble
}

// of is the part's bounds among n samples.
func (p *Part) of(n int) (from, to int) {
	if p.To == 0 {
		return 0, n
	}
	return p.From, min(p.To, n)
}

// Of is the task of which FMP and FMP-ISAB make a part alone. It shares what t remembers.
func (t *Task) Of(p Part) *Task {
	part := *t
	part.part = p
	return &part
}

// made are the heads that were made in parts before, of so many rows; nil where there are none.
func (t *Task) made(rows int) (Ensemble, error) {
	for i, h := range t.part.Heads {
		if h.D != rows || h.C != t.c || len(h.W) != rows*t.c {
			return nil, fmt.Errorf("head %d is %d x %d; the task's are %d x %d", i, h.D, h.C, rows, t.c)
		}
	}
	return t.part.Heads, nil
}

// claims are the clients' class means as honesty weighs them.
type claims struct {
	uploads honesty.Uploads
	lambda  []float64
}

// Claims are the clients' class means as package honesty weighs them, with the variances of class means between the corpus's classes.
func (t *Task) Claims() (honesty.Uploads, []float64, error) {
	c, err := once(t.memo, "claims", func() (c claims, err error) {
		f, err := t.form()
		if err != nil {
			return c, err
		}
		if !f.open {
			c.uploads, c.lambda, err = f.Claims(f.means)
			return c, err
		}
		w, err := t.in.Open.Whitening()
		if err != nil {
			return c, err
		}
		c.uploads, err = w.Claims(len(f.means), func(m int) (*point.Set, error) { return t.in.Open.Project(m, f.means[m]) }, openClaims)
		c.lambda = w.Lambda[:c.uploads.K]
		return c, err
	})
	return c.uploads, c.lambda, err
}

package posterior

import (
	"fmt"

	"fmp/pipeline/honesty"
	"fmp/pipeline/point"
)

// Part is a range of a posterior's samples: the share of a task that one of several machines computes. Random numbers are those of
// the whole, so that the concatenated parts equal the posterior.
type Part struct {
	// From and To bound the samples, From inclusive and To exclusive; both 0: all samples.
	From, To int
	// States are the sampled honesty states of the clients, where they are already known; nil: FMP infers them.
	States *honesty.States
	// Heads are all samples, computed earlier in parts: nothing is drawn, and the result is assembled around them.
	Heads Ensemble
}

// of returns the part's bounds among n samples.
func (p *Part) of(n int) (from, to int) {
	if p.To == 0 {
		return 0, n
	}
	return p.From, min(p.To, n)
}

// Of returns a task of which FMP and FMP-ISAB compute only a part. It shares the memo of t.
func (t *Task) Of(p Part) *Task {
	part := *t
	part.part = p
	return &part
}

// made returns the heads that were computed earlier in parts, each with the given number of rows; nil where there are none.
func (t *Task) made(rows int) (Ensemble, error) {
	for i, h := range t.part.Heads {
		if h.D != rows || h.C != t.c || len(h.W) != rows*t.c {
			return nil, fmt.Errorf("head %d is %d x %d; the task's are %d x %d", i, h.D, h.C, rows, t.c)
		}
	}
	return t.part.Heads, nil
}

// claims are the clients' class means in the form that package honesty weighs.
type claims struct {
	uploads honesty.Uploads
	lambda  []float64
}

// Claims returns the clients' class means as package honesty weighs them, and the variances of class means between the corpus's classes.
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

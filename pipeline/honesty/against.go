package honesty

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// Against judges clients of a round that take no part in the judgement of each other, one at a
// time, by the uploads of some that do: class means and the targets of bad clients are those given
// these, in their likeliest state.
// It is not changed once it is made.
type Against struct {
	// Limit is the number of images up to which a client's claim counts: these clients' [Cap].
	Limit float64

	st      *state
	weights [][]float64
}

// NewAgainst prepares the judgement by the given uploads, with masses as claimed. The judgement of
// a client takes time proportional to classes² x coordinates, in a large round too.
// The masses are bounded by the cap of these clients, as in the judgement of each other.
func NewAgainst(ctx context.Context, u Uploads, lambda []float64, seed uint64,
	threads int) (*Against, error) {
	limit := Cap(u.totals())
	u.Copies()
	u = u.Bound()
	states, err := Infer(ctx, u, lambda, seed, threads)
	if err != nil {
		return nil, err
	}
	h, err := newModel(u, lambda)
	if err != nil {
		return nil, fmt.Errorf("honesty: %w", err)
	}
	h.everywhere()
	z := make([]bool, u.Clients)
	for m, p := range states.Marginal() {
		z[m] = p >= 0.5
	}
	a := &Against{Limit: limit, st: h.start(z)}
	a.weights, _ = a.st.contamination(z, 2)
	return a, nil
}

// Honest reports whether a client is more likely honest than not, by its claims: masses [classes]
// and means [classes, k], and the log odds that something else tells (Uploads.Odds); 0 where
// nothing does. The log odds are those of a sweep (model.sweep) at the likelihood's own power, of a
// client that others do not see. It is safe for concurrent use: each call has a cache of its own.
// An even chance is honest. The client's claim is weighed by share n, and its mean as it is.
func (a *Against) Honest(masses, means []float64, told float64) (bool, error) {
	h := a.st.h
	one := &model{clients: 1, classes: h.classes, k: h.k, lambda: h.lambda,
		cells: make([][]cell, 1),
		e:     make([]float64, 1)}
	if len(masses) != h.classes || len(means) != h.classes*h.k {
		return false, fmt.Errorf("honesty: claims of %d masses and %d means; want %d and %d",
			len(masses), len(means), h.classes, h.classes*h.k)
	}
	share := a.Share(masses)
	for c, n := range masses {
		if n > 0 {
			one.hold(0, c, n*share, means[c*h.k:][:h.k])
		}
	}
	one.densities(0)
	one.everywhere()
	for i := range one.cells[0] {
		l := &one.cells[0][i]
		l.alone = few*h.claimed[l.class] <= l.n
	}
	st := *a.st // with a cache of its own
	st.iv, st.dets = math.NaN(), slices.Clone(a.st.dets)
	density := make([]float64, h.width())
	odds := math.Log(Prior/(1-Prior)) + tempered(told)
	for i := range one.cells[0] {
		good, bad := st.judge(&one.cells[0][i], a.weights, density)
		odds += power * (good - bad)
	}
	return odds >= 0, nil
}

// Share returns the share of a client's images that counts.
// It is 1 up to Limit images, and Limit/n beyond: no claim counts for more than Limit.
func (a *Against) Share(masses []float64) float64 {
	return a.Limit / max(sum(masses), a.Limit)
}

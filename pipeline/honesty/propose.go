package honesty

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"fmp/models/rng"
	"fmp/pipeline/internal/parallel"
)

// Proposals is the number of states that a chain proposes.
const Proposals = 2

// Propose runs the annealed Gibbs chains from to to-1 of [Chains] over the clients and returns, for
// each chain, its last state and the nearby mode. The proposals of a chain do not depend on which
// others run. Workers may each run some of the chains of a round.
// Each chain costs sweeps + greedy sweeps of O(cells x classes x k). threads bounds the
// goroutines.
func (u *Uploads) Propose(ctx context.Context, lambda []float64, seed uint64, from, to,
	threads int) ([][]bool, error) {
	if from == to {
		return nil, nil
	}
	if from < 0 || to > u.Chains() || from > to {
		return nil, fmt.Errorf("honesty: chains %d to %d; there are %d", from, to, u.Chains())
	}
	h, err := newModel(*u, lambda)
	if err != nil {
		return nil, fmt.Errorf("honesty: %w", err)
	}
	out := make([][]bool, Proposals*(to-from))
	step := u.counter(sweeps * (to - from))
	return out, parallel.Each(ctx, threads, to-from, func(ctx context.Context, at int) error {
		r := rng.New(seed, "honesty", "chain", from+at)
		z := make([]bool, h.clients)
		for m := range z {
			// Chain 0 begins with all honest, and others with 0.7 of the clients in the mean.
			z[m] = r.Float64() < 0.7 || from+at == 0
		}
		h.tie(z)
		for t := range sweeps {
			if err := ctx.Err(); err != nil {
				return err
			}
			// The power rises geometrically from 0.03 to 1 of its own in the first 0.6 of the
			// sweeps.
			h.sweep(z, power*min(1, 0.03*math.Pow(1/0.03, float64(t)/(0.6*sweeps))), r)
			step()
		}
		out[Proposals*at] = slices.Clone(z)
		// With many clients a draw contains some states that are individually improbable: the
		// nearby mode is proposed as well.
		for range greedy {
			h.sweep(z, power, nil)
		}
		out[Proposals*at+1] = z
		return nil
	})
}

// distinct returns the distinct proposed states in which fewer than half are bad, the ends of the
// chains before the modes; the state in which all are honest is always among them.
// Their order is that of the proposals, so that it does not depend on who ran the chains.
func (h *model) distinct(proposed [][]bool) ([][]bool, error) {
	var out [][]bool
	add := func(z []bool) {
		bad := 0
		for _, honest := range z {
			if !honest {
				bad++
			}
		}
		if bad <= h.most && !slices.ContainsFunc(out,
			func(o []bool) bool { return slices.Equal(o, z) }) {
			out = append(out, z)
		}
	}
	for kind := range Proposals {
		for i := kind; i < len(proposed); i += Proposals {
			if len(proposed[i]) != h.clients {
				return nil, fmt.Errorf("a chain proposed a state of %d clients, and there are %d",
					len(proposed[i]), h.clients)
			}
			add(proposed[i])
		}
	}
	add(slices.Repeat([]bool{true}, h.clients))
	return out, nil
}

// judge returns a cell's log densities as an honest client's and as a bad one's, given the weights
// of the latter's kinds; density is room for them.
// good is log N(x; m_c, v_c + 1/a) of the cell's own class.
func (st *state) judge(l *cell, weights [][]float64, density []float64) (good, bad float64) {
	st.components(l, density)
	good = density[l.own]
	for at, j := range l.at {
		density[at] += weights[l.class][j]
	}
	return good, logSum(density)
}

// sweep resamples each client given the others, with the likelihood to the power eta; if r is nil,
// it takes the likelier state. The log odds of honesty of client m are
//
//	eta sum_c (log N(x_mc; m_c, v_c + 1/a) - log sum_j exp(weight_j + log density_j)) + odds_m
//
// with moments of the other honest clients, and are within 50 nats. Moments of a class change with
// each client that changes its state, and the weights stay those at the begin of the sweep. It
// costs O(cells x classes x k).
// z is changed in place. The order of the clients is random for a chain, and ascending for a mode.
func (h *model) sweep(z []bool, eta float64, r *rand.Rand) {
	st := h.start(z)
	weights, _ := st.contamination(z, 1)
	density := make([]float64, h.width())
	order := make([]int, h.clients)
	for m := range order {
		order[m] = m
	}
	if r != nil {
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	for _, m := range order {
		if h.copy[m] != m {
			continue
		}
		if z[m] {
			st.add(m, -1)
			for _, l := range h.cells[m] {
				st.moments(l.class)
			}
		}
		var good, bad float64
		for i := range h.cells[m] {
			own, other := st.judge(&h.cells[m][i], weights, density)
			good, bad = good+own, bad+other
		}
		// Beyond 50 nats the probability is within 2e-22 of 0 or 1.
		x := min(max(eta*(good-bad)+h.odds[m], -50), 50)
		z[m] = x > 0
		if r != nil {
			z[m] = r.Float64() < 1/(1+math.Exp(-x))
		}
		if z[m] {
			st.add(m, 1)
			for _, l := range h.cells[m] {
				st.moments(l.class)
			}
		}
	}
	h.tie(z)
}

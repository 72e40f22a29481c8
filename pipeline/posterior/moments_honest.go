package posterior

import (
	"cmp"
	"context"
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/models/rng"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/honesty"
)

// momentsState is a set of honest clients, by number, with the samples that are given their uploads.
type momentsState struct {
	clients []int
	samples int
}

// leastShare is the share of the samples below which a state of a round of moments counts as the likeliest one: each state costs a
// factorization of its covariance.
const leastShare = 0.05

// judgeMoments returns the clients with the shares of their images that count, the states of who is honest that samples draw, the likeliest
// first, and the posterior's view of the clients (package honesty).
func judgeMoments(ctx context.Context, clients []discriminant.Client, o MomentsOptions) ([]discriminant.Client, []momentsState, *Judgement,
	error) {
	clients = slices.Clone(clients)
	totals := make([]float64, len(clients))
	for m, c := range clients {
		totals[m] = c.Means.Mass() + float64(len(c.Within.Labels))
	}
	limit := honesty.Cap(totals)
	for m, n := range totals {
		clients[m].Share = limit / max(n, limit)
	}
	left, err := discriminant.Improper(clients)
	if err != nil {
		return nil, nil, nil, err
	}
	u, lambda, err := discriminant.Claims(clients, left)
	if err != nil {
		return nil, nil, nil, err
	}
	c := claims{claimed: u.Masses, lambda: lambda}
	u.Copies()
	c.uploads = u.Bound()
	for m := range clients {
		if claimed := floats.Sum(c.claimed[m*u.Classes:][:u.Classes]); claimed > 0 {
			clients[m].Share = floats.Sum(c.uploads.Masses[m*u.Classes:][:u.Classes]) / claimed
		}
	}
	states, err := honesty.Infer(ctx, c.uploads, lambda, o.Seed, o.Threads)
	if err != nil {
		return nil, nil, nil, err
	}
	drawn := states.Draw(o.Samples, rng.New(o.Seed, o.Stream, "honesty"))
	return clients, count(drawn), c.judge(c.uploads, states, states.Marginal()), nil
}

// count returns the distinct states among those drawn, the most frequent first.
func count(drawn [][]bool) []momentsState {
	var out []momentsState
	for _, z := range drawn {
		var honest []int
		for m, is := range z {
			if is {
				honest = append(honest, m)
			}
		}
		at := slices.IndexFunc(out, func(s momentsState) bool { return slices.Equal(s.clients, honest) })
		if at < 0 {
			at, out = len(out), append(out, momentsState{clients: honest})
		}
		out[at].samples++
	}
	slices.SortStableFunc(out, func(a, b momentsState) int { return cmp.Compare(b.samples, a.samples) })
	for len(out) > 1 && float64(out[len(out)-1].samples) < leastShare*float64(len(drawn)) {
		out[0].samples += out[len(out)-1].samples
		out = out[:len(out)-1]
	}
	return out
}

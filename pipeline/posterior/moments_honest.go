package posterior

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/models/rng"
	"fmp/onnx/sorting"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/honesty"
	"fmp/pipeline/internal/effect"
)

// momentsState is a set of honest clients, by number, with the samples that are given their
// uploads.
type momentsState struct {
	clients []int
	samples int
}

// minShare is the share of the samples below which a state of a round of moments counts as the
// likeliest one: each state costs a factorization of its covariance, [k, k]. At most 20 states are
// computed so.
const minShare = 0.05

// judgeMoments returns the clients with the shares of their images that count, the states of who is
// honest that samples draw, the likeliest first, and the posterior's view of the clients (package
// honesty). Clients are capped first, then judged, and the confirmed ones count in full at last.
// Samples of states whose honest clients hold one class go to the likeliest state. The clients
// given are not changed.
func judgeMoments(ctx context.Context, clients []discriminant.Client, effects *effect.Effects,
	o MomentsOptions) ([]discriminant.Client, []momentsState, *Judgement, error) {
	clients = capped(clients)
	_, u, lambda, err := judges(clients, o.Known)
	if err != nil {
		return nil, nil, nil, err
	}
	o.report(readingMoments, 2, 2)
	if effects != nil && o.Known == nil {
		for m, near := range effects.Near {
			if near {
				u.Odds[m] = math.Inf(-1)
			}
		}
	}
	c := claims{claimed: u.Masses, lambda: lambda}
	u.Copies()
	c.uploads = u.Bound()
	c.uploads.Progress = o.Progress
	for m := range clients {
		if claimed := floats.Sum(c.claimed[m*u.Classes:][:u.Classes]); claimed > 0 {
			clients[m].Share = floats.Sum(c.uploads.Masses[m*u.Classes:][:u.Classes]) / claimed
		}
	}
	states, err := honesty.Infer(ctx, c.uploads, lambda, o.Seed, o.Threads)
	if err != nil {
		return nil, nil, nil, err
	}
	drawn := slices.DeleteFunc(states.Draw(o.Samples, rng.New(o.Seed, o.Stream, "honesty")),
		func(z []bool) bool { return !classify(u, z) })
	if len(drawn) == 0 {
		return nil, nil, nil, errors.New(
			"the clients that are likely honest hold images of one class: a classifier needs two")
	}
	out := count(drawn)
	out[0].samples += o.Samples - len(drawn)
	var own []int // copies of it share one claim, and others' claims are confirmed as without it
	for m, c := range clients {
		if o.Known != nil && same(c, *o.Known) {
			own = append(own, m)
		}
	}
	for _, m := range own {
		clients[m].Share = 1 / float64(len(own))
	}
	others := slices.DeleteFunc(slices.Clone(out[0].clients),
		func(m int) bool { return slices.Contains(own, m) })
	confirmed, err := confirm(ctx, clients, others, u.Copy, o)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, m := range append(confirmed, own...) {
		for i, y := range clients[m].Means.Indices() {
			c.uploads.Masses[m*u.Classes+int(y)] = clients[m].Share * float64(clients[m].Means.W[i])
		}
	}
	return clients, out, c.judge(c.uploads, states, states.Marginal()), nil
}

// same reports whether two uploads have the same moments: a client whose upload is the known
// moments is the server's own site, of which nobody doubts an image.
func same(a, b discriminant.Client) bool {
	return slices.Equal(a.Means.Z, b.Means.Z) && slices.Equal(a.Means.W, b.Means.W) &&
		slices.Equal(a.Means.Indices(), b.Means.Indices()) &&
		slices.Equal(a.Within.Data, b.Within.Data) &&
		slices.Equal(a.Within.Labels, b.Within.Labels) &&
		slices.Equal(a.Within.Calibration, b.Within.Calibration)
}

// judges returns the claims of clients that judge each other, or that known moments judge. These
// lie beside them then in the clients' coordinates, and calibration points are judged by the
// discriminant of the known moments alone. The known moments stand as one more client while
// coordinates are made, and are then taken off its claims.
// The known moments' claims are the last rows of masses and means. Log odds of the clients'
// calibration points are added to the odds that the rest of an upload gives.
func judges(clients []discriminant.Client, known *discriminant.Client) (a *MomentsAgainst,
	u honesty.Uploads, lambda []float64, err error) {
	a = &MomentsAgainst{}
	if known == nil {
		a.judges, u, lambda, err = discriminant.NewJudges(clients)
		return a, u, lambda, err
	}
	if a.points, _, _, err = discriminant.NewJudges([]discriminant.Client{*known}); err != nil {
		return nil, u, nil, fmt.Errorf("known moments: %w", err)
	}
	all := append(slices.Clone(clients), *known)
	for m, c := range all {
		all[m] = withoutCalibration(c)
	}
	if a.judges, u, lambda, err = discriminant.NewJudges(all); err != nil {
		return nil, u, nil, err
	}
	u.Clients--
	n := u.Clients * u.Classes
	u.Known = &honesty.Known{Masses: u.Masses[n:], Means: u.Means[n*u.K:]}
	u.Masses, u.Means, u.Odds = u.Masses[:n], u.Means[:n*u.K], u.Odds[:u.Clients]
	for m, c := range clients {
		odds, err := a.pointOdds(c)
		if err != nil {
			return nil, u, nil, err
		}
		u.Odds[m] += odds
	}
	return a, u, lambda, nil
}

// withoutCalibration returns a client without its calibration points.
// The client given is not changed.
func withoutCalibration(c discriminant.Client) discriminant.Client {
	w := *c.Within
	w.Calibration, w.Labels = nil, nil
	c.Within = &w
	return c
}

// pointOdds returns the log odds of honesty that a client's calibration points tell by known
// moments. The scatter is left out, as it is judged elsewhere, and would count twice.
func (a *MomentsAgainst) pointOdds(c discriminant.Client) (float64, error) {
	w := *c.Within
	w.Dof, w.Rank, w.Data = 0, 0, nil // the scatter is judged
	c.Within = &w
	u, err := a.points.Claims(c)
	if err != nil {
		return 0, err
	}
	return u.Odds[0], nil
}

// classify reports whether the honest clients of a state hold two classes, as a discriminant needs
// them. Masses are those that are claimed.
func classify(u honesty.Uploads, z []bool) bool {
	classes := map[int]bool{}
	for i, n := range u.Masses {
		if n > 0 && z[i/u.Classes] {
			classes[i%u.Classes] = true
		}
	}
	return len(classes) > 1
}

// unconfirmed returns the number of images up to which a client counts without confirmation, and
// those that each claims. The limit is the cap of package honesty.
// Totals are in images, in the order of clients.
func unconfirmed(clients []discriminant.Client) (limit float64, totals []float64) {
	for _, c := range clients {
		totals = append(totals, images(c))
	}
	return honesty.Cap(totals), totals
}

// capped returns the clients with the shares of their images that count without confirmation. A
// client of n images counts for min(1, limit/n) of them. The slice is new, and the moments are
// shared.
func capped(clients []discriminant.Client) []discriminant.Client {
	out := slices.Clone(clients)
	limit, totals := unconfirmed(clients)
	for m, n := range totals {
		out[m].Share = limit / max(n, limit)
	}
	return out
}

// images returns the number of images that a client claims.
// Calibration points are in no class mean, and are counted beside them.
func images(c discriminant.Client) float64 { return c.Means.Mass() + float64(len(c.Within.Labels)) }

// MomentsAgainst judges further clients by those of a round of moments, one at a time.
type MomentsAgainst struct {
	judges *discriminant.Judges
	points *discriminant.Judges // of calibration points: known moments; nil: the judges
	by     *honesty.Against
}

// NewMomentsAgainst returns the judgement by clients, beside known moments (MomentsOptions.Known);
// nil: none.
// Clients count up to the cap of honesty, without confirmation.
func NewMomentsAgainst(ctx context.Context, clients []discriminant.Client,
	known *discriminant.Client, seed uint64, threads int) (*MomentsAgainst, error) {
	a, u, lambda, err := judges(capped(clients), known)
	if err != nil {
		return nil, err
	}
	a.by, err = honesty.NewAgainst(ctx, u, lambda, seed, threads)
	return a, err
}

// Share returns the share of a client's images that counts, 0 for a client that is less likely
// honest than not. It is safe for concurrent use.
// Log odds of -Inf, which rule a client out, are not weighed further.
func (a *MomentsAgainst) Share(c discriminant.Client) (float64, error) {
	c.Share = a.by.Share([]float64{images(c)})
	judged, odds := c, 0.0
	if a.points != nil {
		var err error
		if odds, err = a.pointOdds(c); err != nil {
			return 0, err
		}
		judged = withoutCalibration(c)
	}
	u, err := a.judges.Claims(judged)
	if err != nil || math.IsInf(u.Odds[0], -1) {
		return 0, err
	}
	honest, err := a.by.Honest(u.Masses, u.Means, u.Odds[0]+odds)
	if err != nil || !honest {
		return 0, err
	}
	return c.Share, nil
}

// count returns the distinct states among those drawn, the most frequent first. Those of less than
// minShare of the samples give these to the first. It costs O(samples x states x clients).
// At ties the order is that of first draws.
func count(drawn [][]bool) []momentsState {
	var out []momentsState
	for _, z := range drawn {
		var honest []int
		for m, is := range z {
			if is {
				honest = append(honest, m)
			}
		}
		at := slices.IndexFunc(out,
			func(s momentsState) bool { return slices.Equal(s.clients, honest) })
		if at < 0 {
			at, out = len(out), append(out, momentsState{clients: honest})
		}
		out[at].samples++
	}
	sorting.Stably(out, func(a, b momentsState) int { return cmp.Compare(b.samples, a.samples) })
	for len(out) > 1 && float64(out[len(out)-1].samples) < minShare*float64(len(drawn)) {
		out[0].samples += out[len(out)-1].samples
		out = out[:len(out)-1]
	}
	return out
}

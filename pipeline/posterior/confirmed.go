package posterior

import (
	"cmp"
	"context"
	"math"
	"slices"

	"fmp/pipeline/candidate"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/honesty"
)

// confirmedAlone bounds the clients that are tried one by one, the largest first: each costs as
// much as the evidence of a posterior.
const confirmedAlone = 4

// largeClaim is a client whose images count up to a number, where they are of classes that others
// hold.
type largeClaim struct {
	at    int // among the honest
	count float64
}

// confirmation asks the honest clients that count in full about those that claim more images than
// count unconfirmed (honesty.Cap).
type confirmation struct {
	clients []discriminant.Client // the honest ones
	totals  []float64             // images that each claims
	others  []int                 // who are asked
	held    []bool                // by them, [classes]
	o       MomentsOptions
}

// confirm raises the shares of honest clients that claim more images than count unconfirmed, where
// the other honest clients bear it out. Their own images are asked about heads without them: by how
// much are these likelier where the large claims count in full, up to the geometric mean of claim
// and cap, or each claim alone? A claim is confirmed where
//
//	l(claims) - l(no claims) >= log(honesty.Prior/(1 - honesty.Prior)) = log 19 nats
//
// with l the log-likelihood of candidate.Round.LogLikelihood: the odds of a client's honesty that
// the prior has. At even odds small networks' rounds under attack rose by up to .037 nats, at 19 by
// .006 (docs/notes/moments.md). Of a class that no other holds nobody can tell, and no more counts
// than before. Copies are the clients' in honesty.Uploads. It returns the numbers of the clients
// concerned.
func confirm(ctx context.Context, clients []discriminant.Client, honest, copies []int,
	o MomentsOptions) (confirmed []int, err error) {
	limit, totals := unconfirmed(clients)
	c := confirmation{held: make([]bool, clients[0].Means.C), o: o}
	var large []int
	for i, m := range honest {
		c.clients, c.totals = append(c.clients, clients[m]), append(c.totals, totals[m])
		if totals[m] > limit && !copied(copies, m) {
			large = append(large, i)
			continue
		}
		c.others = append(c.others, i)
		for at, y := range clients[m].Means.Indices() {
			c.held[y] = c.held[y] || clients[m].Means.W[at] > 0
		}
	}
	large = slices.DeleteFunc(large, func(i int) bool { return !c.shares(i) })
	if len(large) == 0 || len(c.others) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(large,
		func(a, b int) int { return cmp.Compare(c.totals[b], c.totals[a]) })
	top := c.totals[large[0]]
	found, err := c.best(ctx, large, []float64{top, math.Sqrt(limit * top)})
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		m := honest[f.at]
		clients[m], confirmed = c.counting(f), append(confirmed, m)
	}
	return confirmed, nil
}

// copied reports whether a client's upload is another's too: copies share one claim.
func copied(copies []int, m int) bool {
	for other, first := range copies {
		if other != m && first == copies[m] {
			return true
		}
	}
	return false
}

// shares reports whether others hold a class of a client's.
func (c *confirmation) shares(i int) bool {
	of := c.clients[i].Means
	return slices.ContainsFunc(of.Indices(), func(y int32) bool { return c.held[y] })
}

// best returns the claims that are confirmed: all up to one of the counts, else those that are
// alone.
func (c *confirmation) best(ctx context.Context, large []int,
	counts []float64) ([]largeClaim, error) {
	var tries [][]largeClaim
	for _, count := range counts {
		var all []largeClaim
		for _, i := range large {
			all = append(all, largeClaim{i, count})
		}
		tries = append(tries, all)
	}
	for _, i := range large[:min(len(large), confirmedAlone)] {
		if len(large) > 1 {
			tries = append(tries, []largeClaim{{i, c.totals[i]}})
		}
	}
	defer c.o.report(confirmingClaims, len(tries)+1, len(tries)+1)
	c.o.report(confirmingClaims, 0, len(tries)+1)
	before, err := c.likelihood(ctx, nil)
	var found []largeClaim
	for step, try := range tries {
		if err != nil {
			return nil, err
		}
		c.o.report(confirmingClaims, step+1, len(tries)+1)
		var now float64
		now, err = c.likelihood(ctx, try)
		if err == nil && now-before >= math.Log(honesty.Prior/(1-honesty.Prior)) {
			if found = append(found, try...); step < len(counts) {
				break
			}
		}
	}
	return found, err
}

// likelihood returns how likely the others' images are where some claims count.
func (c *confirmation) likelihood(ctx context.Context, claims []largeClaim) (float64, error) {
	r := candidate.Round{K: c.clients[0].Within.K, C: c.clients[0].Means.C}
	for _, u := range c.clients {
		r.Clients = append(r.Clients, statisticsOf(u))
	}
	for _, one := range claims {
		r.Clients[one.at] = statisticsOf(c.counting(one))
	}
	of := candidate.Options{Seed: c.o.Seed, Stream: c.o.Stream + "/claims", Threads: c.o.Threads,
		Stop: ctx.Err}
	return r.LogLikelihood(c.others, of)
}

// counting returns a client of which a claim counts: its images of classes that no other holds
// count as they did.
func (c *confirmation) counting(f largeClaim) discriminant.Client {
	u := c.clients[f.at]
	was, share := cmp.Or(u.Share, 1), min(f.count/c.totals[f.at], 1)
	means := *u.Means
	means.W = slices.Clone(means.W)
	for i, y := range means.Indices() {
		if !c.held[y] && means.W[i] > 0 {
			means.W[i] = max(1, means.W[i]*float32(was/share))
		}
	}
	u.Means, u.Share = &means, share
	return u
}

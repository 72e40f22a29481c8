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

// confirm raises the shares of honest clients that claim more images than count unconfirmed
// (honesty.Cap), where the other honest clients bear it out. Their own images are asked about heads
// without them: by how much are these likelier where the large claims count in full, or up to the
// geometric mean of claim and cap? The odds must be those of a client's honesty before anything is
// known of it. A false claim makes a head that serves the others worse; a true one serves them better.
// It returns the numbers of the clients concerned.
func confirm(ctx context.Context, clients []discriminant.Client, honest []int,
	o MomentsOptions) (confirmed []int, err error) {
	limit, totals := unconfirmed(clients)
	var large, others []int // positions in honest
	most := limit
	for i, m := range honest {
		switch counted := totals[m] * cmp.Or(clients[m].Share, 1); {
		case totals[m] <= limit || counted < .99*limit: // copies share one claim
			others = append(others, i)
		default:
			large, most = append(large, i), max(most, totals[m])
		}
	}
	if len(large) == 0 || len(others) == 0 {
		return nil, nil
	}
	counts := []float64{limit, most, math.Sqrt(limit * most)}
	var alone float64
	for step, count := range counts {
		o.report(confirmingClaims, step, len(counts))
		r := candidate.Round{K: clients[0].Within.K, C: clients[0].Means.C}
		for i, m := range honest {
			c := clients[m]
			if slices.Contains(large, i) {
				c.Share = min(count/totals[m], 1)
			}
			r.Clients = append(r.Clients, statisticsOf(c))
		}
		of := candidate.Options{Seed: o.Seed, Stream: o.Stream + "/claims", Threads: o.Threads}
		likelihood, err := r.LogLikelihood(others, of)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if step == 0 {
			alone = likelihood
			continue
		}
		if likelihood-alone >= math.Log(honesty.Prior/(1-honesty.Prior)) {
			for _, i := range large {
				m := honest[i]
				clients[m].Share, confirmed = min(count/totals[m], 1), append(confirmed, m)
			}
			break
		}
	}
	o.report(confirmingClaims, len(counts), len(counts))
	return confirmed, nil
}

package candidate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/pipeline/internal/moment"
	"fmp/pipeline/moments"
)

// scores returns the log-likelihood of each shift, with the prior's odds. How far class means lie
// apart tells whether there is a shift. How much the corpus is worth then, the clients judge, as a
// shift matters only where it is taken for another class: their images are asked of the
// discriminants of the corpus and the other clients. A single client cannot be left out.
// The first score, of no shift, stays. The clients' evidence divides the weight of the others,
// whose sum stays too.
func (of *named) scores(r *Round, s *sums, o *Options) ([]float64, error) {
	scores := slices.Clone(of.away)
	shifted := floats.LogSumExp(scores[1:])
	if len(r.Clients) < 2 || shifted-scores[0] < math.Log(minWeight) {
		return scores, nil
	}
	told, err := of.byClients(r, s, o)
	if err != nil {
		return nil, err
	}
	floats.Scale(power, told)
	floats.AddConst(shifted-floats.LogSumExp(told[1:]), told[1:])
	return append(scores[:1], told[1:]...), nil
}

// byClients returns the log-likelihood of the clients' images for each shift by leaving a group of
// clients out at a time: draws of W about its class means, under the discriminant of the corpus and
// the others.
// Groups go on side by side, each with copies of the counts and means that it changes.
func (of *named) byClients(r *Round, s *sums, o *Options) ([]float64, error) {
	drawn := of.withCorpusScatter(r)
	per := make([][]moments.Curve, len(s.folds))
	err := each(len(s.folds), o.Threads, func(g int) error {
		per[g] = make([]moments.Curve, len(shifts))
		p := s.without(g)
		others := *of
		others.n, others.mean = slices.Clone(p.n), of.white(of.of(slices.Clone(p.mean), of.c))
		others.apart = others.shareVariance(r, &p.pool)
		floats.Add(p.n, of.count)
		questions := of.basis.asked(drawn.ask(s.folds[g], &p.pool, o.residuals(drawn)))
		for i := range shifts {
			centre, _ := others.predictive(i)
			head := of.byMeans(centre)
			for _, a := range questions {
				a.add(&per[g][i], head, s.images)
			}
		}
		return nil
	})
	out := make([]float64, len(shifts))
	for i := range out {
		out[i] = slices.Max(sumOf(columnOf(per, i))[:])
	}
	return out, err
}

// withCorpusScatter returns the round with the corpus's W as every client's scatter.
// The round given is not changed. All clients share one scatter, of one degree of freedom.
func (of *named) withCorpusScatter(r *Round) *Round {
	w := &moments.Within{K: r.K, Dof: 1, Data: moment.Triangle(of.Within, r.K)}
	out := *r
	out.Clients = slices.Clone(r.Clients)
	for i := range out.Clients {
		out.Clients[i].Within = w
	}
	return &out
}

package candidate

import (
	"cmp"
	"math"
	"runtime"
	"slices"

	"fmp/pipeline/moments"
)

const (
	power       = 0.5  // of the evidence: images of one client are alike
	most        = 4    // candidates of a mixture
	leastWeight = 0.03 // of a candidate, beside that of the best
)

// Options of a posterior.
type Options struct {
	Seed    uint64 // the run's seed, and
	Stream  string // the round's name in it
	Threads int    // goroutines at most; 0: one a processor. Figures do not depend on it.
}

// Posterior computes the posterior of a round.
func (r *Round) Posterior(o Options) (*Mixture, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	cands, err := r.candidates()
	if err != nil {
		return nil, err
	}
	s, err := r.sum(o.Threads)
	if err != nil {
		return nil, err
	}
	draw := func(group []int, limit int) []residuals { return o.residuals(r, group, limit) }
	per, err := r.evidence(s, cands, draw, &o)
	if err != nil {
		return nil, err
	}
	return r.mixture(s, cands, per, &o)
}

// mixture fits the candidates of most evidence.
func (r *Round) mixture(s *sums, cands []candidate, per [][]moments.Curve, o *Options) (*Mixture, error) {
	m := &Mixture{}
	kappa := r.logKappa()
	m.LogKappa, m.LogKappaError = kappa.mean, kappa.deviation
	best := math.Inf(-1)
	for j := range cands {
		of := make([]moments.Curve, len(per))
		for g := range per {
			of[g] = per[g][j]
		}
		t := temperature(of)
		e := Evidence{Name: cands[j].name, LogLikelihood: slices.Max(sumOf(of)[:]), LogTemperature: t.mean, LogTemperatureError: t.deviation}
		m.Evidence = append(m.Evidence, e)
		best = max(best, e.LogLikelihood+cands[j].odds)
	}
	order := make([]int, len(cands))
	for j := range cands {
		order[j] = j
		m.Evidence[j].Weight = math.Exp(power * (m.Evidence[j].LogLikelihood + cands[j].odds - best))
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(m.Evidence[b].Weight, m.Evidence[a].Weight) })
	order = slices.DeleteFunc(order[:min(most, len(order))], func(j int) bool { return !(m.Evidence[j].Weight > leastWeight) })
	var total float64
	for _, j := range order {
		total += m.Evidence[j].Weight
	}
	for j := range m.Evidence {
		if !slices.Contains(order, j) {
			m.Evidence[j].Weight = 0
		}
		m.Evidence[j].Weight /= total
	}
	m.Components = make([]Component, len(order))
	return m, each(len(order), o.Threads, func(i int) error {
		c, e := &cands[order[i]], m.Evidence[order[i]]
		h := s.in(c.target).at(c.strength, c.prior)
		var l linear
		var err error
		deviation := 0.0
		if c.corpus != nil {
			l, err = r.named(h, c.corpus, s.all, o)
		} else { // as Gaussian draws have it; kappa comes last
			l, err = r.refit(h, math.Exp(e.LogTemperature), o)
			l = *l.over(math.Exp(kappa.mean))
			deviation = math.Hypot(e.LogTemperatureError, kappa.deviation)
		}
		if err != nil {
			return err
		}
		m.Components[i] = Component{Name: c.name, Weight: e.Weight, Head: h.head(l), Deviation: deviation}
		return nil
	})
}

package candidate

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/pipeline/moments"
)

const (
	// power is that of the evidence: images of one client are alike. At 1 a nat would count
	// whole, at 0 all candidates would weigh alike.
	power = 0.5
	// maxComponents is the number of candidates of a mixture, and minWeight the least weight of one
	// beside that of the best: 7 nats of evidence less.
	maxComponents, minWeight = 4, 0.03
)

// Options of a posterior.
type Options struct {
	Seed    uint64 // the run's seed, and
	Stream  string // the round's name in it
	Threads int    // goroutines at most; 0: one a processor. Figures do not depend on it.
	// Stop is asked before a group of clients is left out, and ends the work by its error; nil:
	// nobody.
	Stop func() error
}

// Posterior computes the posterior of a round. Of more than spaceWidth features it is computed
// once more in the space of a corpus without names ([Round.space]), and both are mixed.
// Kappa is measured in all features alone, and serves the space too. The round given is not
// changed.
func (r *Round) Posterior(o Options) (*Mixture, error) {
	r, err := r.prepared(&o)
	if err != nil {
		return nil, err
	}
	whole, err := r.weighed(&o, nil)
	s := r.space()
	if err != nil || s == nil {
		return whole, err
	}
	in, err := s.round(r).weighed(&o, &normal{whole.LogKappa, whole.LogKappaError})
	if err != nil {
		return nil, fmt.Errorf("in %d coordinates: %w", spaceWidth, err)
	}
	return whole.beside(in, s, &o), nil
}

// prepared returns the round, checked and with its class means in order, and sets the defaults of
// options. The round given is not changed.
func (r *Round) prepared(o *Options) (*Round, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	return r.ordered(), nil
}

// weighed returns the posterior of the candidates in the round's own features. Kappa is nil where
// it is not known yet. Evidence of all candidates comes first, kappa second, and fits of the best
// ones last.
func (r *Round) weighed(o *Options, kappa *normal) (*Mixture, error) {
	s, err := r.sum(o.Threads)
	if err != nil {
		return nil, err
	}
	if at := slices.IndexFunc(r.Corpora, func(c Corpus) bool { return c.Named() }); at >= 0 {
		return r.named(at, s, o)
	}
	cands, err := r.candidates()
	if err != nil {
		return nil, err
	}
	per, err := r.evidence(s, len(s.folds), cands, o.residuals(r), o)
	if err != nil {
		return nil, err
	}
	if kappa == nil {
		measured, err := r.logKappa(s.all, o)
		if err != nil {
			return nil, err
		}
		kappa = &measured
	}
	return r.mixture(s, cands, per, *kappa, o)
}

// weigh returns the weights of candidates of some scores, in nats, beside the best's:
// exp(power (score - best)).
func weigh(scores []float64) []float64 {
	best := slices.Max(scores)
	out := make([]float64, len(scores))
	for j, v := range scores {
		out[j] = math.Exp(power * (v - best))
	}
	return out
}

// heaviest returns the candidates of most weight, at most n of at least a weight, and their weights
// over the sum of these.
// At ties the order is that of the candidates. The weights given are not changed.
func heaviest(weight []float64, n int, least float64) (order []int, share []float64) {
	for j := range weight {
		order = append(order, j)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weight[b], weight[a]) })
	order = slices.DeleteFunc(order[:min(n, len(order))],
		func(j int) bool { return !(weight[j] > least) })
	var total float64
	for _, j := range order {
		total += weight[j]
	}
	for _, j := range order {
		share = append(share, weight[j]/total)
	}
	return order, share
}

// mixture fits the candidates of most evidence, and has the judge, where there is one, weigh them
// again and tell their temperatures. A candidate's head is refitted at its own temperature T, and
// its logits are divided then by a factor whose logarithm is
//
//	N(log kappa + sharper - more, e_T^2 + e_kappa^2)
//
// without a judge. sharper is by how much the refit sharpens it (sharpen), and more by how much
// images that were left out do (toAllImages). e are the errors of log T and log kappa.
// Components are in order of weight, the heaviest first.
func (r *Round) mixture(s *sums, cands []candidate, per [][]moments.Curve,
	kappa normal, o *Options) (*Mixture, error) {
	m := &Mixture{LogKappa: kappa.mean, LogKappaError: kappa.deviation}
	rates, peaks := m.rate(cands, per)
	weight := weights(rates, o)
	g := r.judge()
	asked, _ := heaviest(weight, maxComponents, minWeight)
	if g != nil {
		asked, _ = heaviest(weight, maxJudged, math.Exp(-power*minJudged))
	}
	halves, err := r.halves(o)
	if err != nil {
		return nil, err
	}
	some, startT := make([]*candidate, len(asked)), make([]float64, len(asked))
	for i, j := range asked { // as draws have it; kappa comes last
		some[i], startT[i] = &cands[j], math.Exp(m.Evidence[j].LogTemperature)
	}
	sharper, err := sharpen(some, startT, halves, o)
	if err != nil {
		return nil, err
	}
	found := make([]judged, len(asked))
	heads := make([]*discriminant, len(asked))
	err = each(len(asked), o.Threads, func(i int) error {
		c, e := &cands[asked[i]], m.Evidence[asked[i]]
		h := s.in(c.target).at(c.strength, c.prior)
		heads[i] = h
		l, err := r.refit(h, startT[i], o)
		if err != nil {
			return err
		}
		more := s.toAllImages(peaks[asked[i]], sharper[i].halved+e.LogTemperature, halves)
		found[i] = g.judge(h, l, normal{kappa.mean + sharper[i].log - more,
			math.Hypot(e.LogTemperatureError, kappa.deviation)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	order := m.keep(cands, asked, found, rates, o)
	all, sums := r.counted(), s
	if all != r { // the points were asked: now they count
		if sums, err = all.sum(o.Threads); err != nil {
			return nil, err
		}
	}
	return m, each(len(order), o.Threads, func(i int) (err error) {
		at := order[i]
		c, e, h, l := &cands[asked[at]], m.Evidence[asked[at]], heads[at], found[at].head
		if all != r {
			h = sums.in(c.target).at(c.strength, c.prior)
			if l, err = all.refit(h, startT[at], o); err != nil {
				return err
			}
			l = *l.over(math.Exp(found[at].log.mean))
		}
		// class means are drawn about the discriminant's, which the refit did not sharpen
		t := math.Exp(found[at].log.mean + e.LogTemperature - sharper[at].log)
		to := &m.Components[i]
		to.Head, to.resample = h.head(l), &resample{c, h.pool, t}
		if v := h.spread(t); v != nil {
			to.spread = v
		}
		return nil
	})
}

// rate adds the evidence of candidates to the mixture. It returns their ratings, and the log
// temperature at which each has most evidence.
// The log-likelihoods of groups left out are those at the temperature where their sum is greatest.
func (m *Mixture) rate(cands []candidate, per [][]moments.Curve) ([]rated, []float64) {
	rates, peaks := make([]rated, len(cands)), make([]float64, len(cands))
	for j := range cands {
		of := columnOf(per, j)
		t, all := temperature(of), sumOf(of)
		peaks[j] = peak(all)
		best := floats.MaxIdx(all[:])
		e := Evidence{Name: cands[j].name, LogLikelihood: all[best],
			LogTemperature: t.mean, LogTemperatureError: t.deviation,
			corpus: cands[j].target.inverse != nil}
		for g := range of {
			e.left = append(e.left, of[g][best])
		}
		m.Evidence = append(m.Evidence, e)
		rates[j] = rated{e.LogLikelihood, e.left, e.corpus}
	}
	return rates, peaks
}

// keep chooses the components among the candidates asked about, and returns their places there.
// The judge's scores are added to those of the evidence, and groups of both are weighed together.
func (m *Mixture) keep(cands []candidate, asked []int, found []judged, rates []rated,
	o *Options) []int {
	again := make([]rated, len(asked))
	for i, j := range asked {
		again[i] = rated{rates[j].score + found[i].score,
			slices.Concat(rates[j].left, found[i].left), rates[j].corpus}
	}
	order, weight := heaviest(weights(again, o), maxComponents, minWeight)
	for at, i := range order {
		j := asked[i]
		m.Evidence[j].Weight = weight[at]
		m.Components = append(m.Components,
			Component{Name: cands[j].name, Weight: m.Evidence[j].Weight,
				Deviation: found[i].log.deviation})
	}
	return order
}

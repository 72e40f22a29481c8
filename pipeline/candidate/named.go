package candidate

import (
	"fmt"
	"math"
	"slices"

	"fmp/onnx/dense"

	"gonum.org/v1/gonum/floats"
)

// named is a round whose classes a corpus has, in coordinates where W is I. Class means of the
// corpus, of n_k images, and of the clients together, of n, lie apart by
//
//	d_y ~ N(0, V_y (1/n + 1/n_k) + shift + apart_y)
//
// so that each image of the corpus counts 1 / (1 + n_k shift), and each of the clients
// 1 / (1 + n apart). Each likely shift is a component: a regression on the images of both, or two.
// Where clients are alike, all of it depends on their sum alone.
type named struct {
	*discriminant
	*known
	mean, n []float64 // of all clients' classes, [C, K] and [C]
	// clientVariance is the variance of clients' class means about the pooled ones, in units of W:
	// camera, place, hand.
	clientVariance float64
	apart          []float64 // the variance of a pooled class mean (shareVariance), [C]
	away           distances // of clients' class means and the corpus's
	theirs         *images   // that stand for the clients'
}

// named returns the posterior of a round whose classes corpus number at has. Only the clients'
// class means and calibration points are read.
func (r *Round) named(at int, s *sums, o *Options) (*Mixture, error) {
	of, err := r.corpusNames(at, s.all, o)
	if err != nil {
		return nil, err
	}
	scores, err := of.scores(r, s, o)
	if err != nil {
		return nil, err
	}
	m := &Mixture{}
	order := m.likely(at, scores)
	g, parts := r.judge(), make([][]Component, len(order))
	err = each(len(order), o.Threads, func(i int) (err error) {
		parts[i], err = of.components(&m.Components[i], &m.Evidence[order[i]], order[i], g, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, j := range order {
		m.Counted += m.Components[i].Weight * of.share(j)
		if w := m.Components[i].Weight; j == 0 && w > 0.5 {
			for y, mass := range of.alike {
				if mass < 0.5 {
					m.Unlike = append(m.Unlike, y)
				}
			}
		}
	}
	m.Components = slices.Concat(parts...)
	return m, nil
}

// components returns the parts of a shift's component, one for each way in which the regression is
// tied.
func (of *named) components(whole *Component, e *Evidence, shift int, g *judge,
	o *Options) ([]Component, error) {
	ks, err := of.at(of.discriminant, shift, o)
	if err != nil {
		return nil, err
	}
	out := make([]Component, len(ks))
	for i, k := range ks {
		k.addVariance(of.clientVariance)
		if shift > 0 { // kappa of images of another kind varies as its prior has it
			k.kappa.deviation = math.Hypot(k.kappa.deviation, priorKappa.deviation)
		}
		with := *of
		with.known = k
		out[i] = Component{Name: whole.Name, Weight: whole.Weight * k.weight}
		told, err := with.fit(&out[i], shift, g, o)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			e.LogTemperature, e.LogTemperatureError = told.mean, told.deviation
		}
	}
	return out, nil
}

// corpusNames returns the round of a corpus and the sum of all clients. W is the corpus's.
func (r *Round) corpusNames(at int, all *pool, o *Options) (*named, error) {
	t, err := newTarget(fmt.Sprint("corpus ", at), r.Corpora[at].Within, r.Corpora[at].Dof, r.K)
	if err != nil {
		return nil, fmt.Errorf("candidate: corpus %d: %w", at, err)
	}
	means := *all
	means.scatter, means.dof = make([]float64, r.K*r.K), 1
	h := means.in(t).at(strengths[len(strengths)-1], nil)
	k, err := h.knows(&r.Corpora[at])
	if err != nil {
		return nil, err
	}
	of := &named{discriminant: h, known: k, n: all.n, theirs: h.pooledStandIns(&means, o),
		mean: h.white(h.of(slices.Clone(all.mean), h.c))}
	of.clientVariance = of.varianceOfClients(r)
	of.apart = of.shareVariance(r, all)
	of.away, of.alike = of.byDistance()
	for i, y := range of.theirs.label {
		of.theirs.mass[i] *= of.effectiveImages(y) / of.n[y]
	}
	return of, nil
}

// effectiveImages returns the images that the clients' mean of a class is worth, n/(1 + n apart):
// its variance is 1/n + apart in units of W.
func (of *named) effectiveImages(y int) float64 { return of.n[y] / (1 + of.n[y]*of.apart[y]) }

// varianceOfClients returns the variance v of clients' class means about the pooled ones, in units
// of W, one for all classes and coordinates. It is by moments (DerSimonian and Laird 1986), times
// the probability that there is any. A client's mean of n of all N images of a class lies away from
// the pooled one by
//
//	d ~ N(0, (1 - n/N) (V/n + v)),   in 1 - n/N of the coordinates in which it varies
//
// so that, with |d|^2 and size = tr V per coordinate, the estimate is
//
//	v = sum n (|d|^2 - (1 - n/N) size/n) / sum n (1 - n/N), 0 at least
func (of *named) varianceOfClients(r *Round) float64 {
	var away, free float64
	apart := newDistances()
	for i := range r.Clients {
		for _, c := range r.Clients[i].cells() {
			rest, in := 1-c.n/of.n[c.class], &of.within[c.class]
			if !(rest > 0) {
				continue
			}
			d := floats.Distance(of.coordinates(c), of.mean[c.class*of.k:][:of.k], 2)
			d *= d / float64(of.k)
			away += c.n * (d - rest*in.size/c.n)
			free += c.n * rest
			apart.add(newDistance(d/rest, in.size/c.n, rest*in.freedom(c.n, math.Inf(1))))
		}
	}
	same := apart[0] - floats.LogSumExp(apart)
	return -math.Expm1(same) * max(away, 0) / max(free, 1)
}

// coordinates returns a class mean where W is I.
func (of *named) coordinates(v cell) []float64 {
	return of.white(of.of(dense.As[float64](v.mean), 1))
}

// shareVariance returns for each class the variance of the mean of a pool about that of clients
// with equal shares of the class. Of shares s_i of M clients it is
//
//	v sum_i (s_i - 1/M)^2
func (of *named) shareVariance(r *Round, p *pool) []float64 {
	out := make([]float64, of.c)
	for _, i := range p.clients {
		for _, v := range r.Clients[i].cells() {
			out[v.class] += v.n * v.n / (p.n[v.class] * p.n[v.class])
		}
	}
	for y, v := range out {
		out[y] = max(v-1/float64(len(p.clients)), 0) * of.clientVariance
	}
	return out
}

// byDistance returns the log-likelihood of each shift by how far class means of clients and corpus
// lie apart, and the mass of an image of each of the corpus's classes without a shift.
func (of *named) byDistance() (away distances, alike []float64) {
	k := of.k
	away, alike = newDistances(), make([]float64, of.c)
	for y, n := range of.n {
		m := of.count[y]
		alike[y] = 1
		if n == 0 || m == 0 {
			continue
		}
		d := floats.Distance(of.mean[y*k:][:k], of.centre[y*k:][:k], 2)
		in, n := &of.within[y], max(n, 1)
		own := newDistance(d*d/float64(k), in.size*(1/n+1/m)+of.apart[y], in.freedom(n, m))
		away.add(own)
		alike[y] = own.mass(m)
	}
	return away, alike
}

// likely names the shifts of most evidence as components, and returns their places in shifts.
func (m *Mixture) likely(corpus int, scores []float64) []int {
	best, weight := slices.Max(scores), make([]float64, len(scores))
	for i, v := range scores {
		weight[i] = math.Exp(v - best)
		m.Evidence = append(m.Evidence, Evidence{LogLikelihood: v,
			Name: fmt.Sprintf("named %d shift %g", corpus, shifts[i])})
	}
	order, share := heaviest(weight, maxComponents, minWeight)
	for at, i := range order {
		e := &m.Evidence[i]
		e.Weight = share[at]
		m.Components = append(m.Components, Component{Name: e.Name, Weight: e.Weight})
	}
	return order
}

// images returns those of the corpus, with the masses that a shift leaves, and those that stand for
// the clients'.
func (of *named) images(shift int) *images {
	on := of.known.images(shift)
	on.rows, on.label = slices.Concat(on.rows, of.theirs.rows), slices.Concat(on.label,
		of.theirs.label)
	on.mass = append(on.mass, of.theirs.mass...)
	return on
}

// fit computes a component of a shift, and returns the log temperature of draws under its
// regression.
func (of *named) fit(to *Component, shift int, g *judge, o *Options) (normal, error) {
	on := of.images(shift)
	centre, size := of.predictive(shift)
	l, err := of.regression(on, centre, of.known)
	if err != nil {
		return normal{}, err
	}
	told := of.twin(l, of.known, centre, size, o)
	log := normal{0, priorT.deviation}.given(told.mean+of.kappa.mean,
		math.Hypot(told.deviation, of.kappa.deviation))
	found := g.judge(of.discriminant, l, log)
	t := math.Exp(found.log.mean)
	to.Deviation, to.Head, to.spread = found.log.deviation, of.head(found.head),
		of.curvature(on, l, t)
	return told, nil
}

// predictive returns the means, [C, K], and deviations, [C], of the images of each class given the
// class means of both and a shift; 0 of a class that nobody has. Where W is I, with n and a the
// images that the clients' mean x and the corpus's mean z are worth (effectiveImages, mass),
//
//	N((n x + a z)/(n + a), (1 + 1/(n + a)) I)
func (of *named) predictive(shift int) (centre, size []float64) {
	k := of.k
	centre, size = make([]float64, of.c*k), make([]float64, of.c)
	for y := range of.c {
		n, a := of.effectiveImages(y), of.count[y]*of.mass(y, shift)
		if n+a > 0 {
			axpy(n/(n+a), of.mean[y*k:][:k], centre[y*k:][:k])
			axpy(a/(n+a), of.centre[y*k:][:k], centre[y*k:][:k])
			size[y] = math.Sqrt(1 + 1/(n+a))
		}
	}
	return centre, size
}

package candidate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"fmp/models/rng"
	"fmp/onnx/dense"
	"fmp/pipeline/erm"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// spaceWidth is the number of coordinates of a space, that of the open predictor's
// (open.MaxCoordinates).
const spaceWidth = 128

// space holds the coordinates Q'x in which a corpus's images vary most. Columns of q, [K,
// spaceWidth], are the leading eigenvectors of W + B, its covariances within and between classes.
// Few images of a client tell little of the other features, where the corpus hardly varies, and
// their noise counts there as much as elsewhere; many images tell more by all. Clients' evidence
// says which, as they are asked about the same images.
type space struct {
	k int
	q []float64
}

// space returns that of the round's first corpus with class means; nil where there is none,
// features are few, or a corpus has the round's names. It costs one eigendecomposition of [K, K].
func (r *Round) space() *space {
	at := slices.IndexFunc(r.Corpora, func(c Corpus) bool { return len(c.Means) > r.K })
	if r.K <= spaceWidth || at < 0 ||
		slices.ContainsFunc(r.Corpora, func(c Corpus) bool { return c.Named() }) {
		return nil
	}
	of, k := &r.Corpora[at], r.K
	total := slices.Clone(of.Within) // and the covariance between classes
	for a := centred(of.Means, k); len(a) > 0; a = a[k:] {
		for i, v := range a[:k] {
			axpy(v, a[:k], total[i*k:(i+1)*k])
		}
	}
	_, v := eigen(total, k) // ascending
	s := &space{k: k, q: make([]float64, k*spaceWidth)}
	for i := range k {
		for j := range spaceWidth {
			s.q[i*spaceWidth+j] = v[i*k+k-1-j]
		}
	}
	// its classes may lie apart where its images do not vary
	if trace(s.inner(of.Within), spaceWidth) <= singular*trace(of.Within, k) {
		return nil
	}
	return s
}

// project returns rows, [N, K], in the space.
// It costs N K spaceWidth multiplications. The rows are not changed.
func (s *space) project(rows []float32) []float32 {
	return dense.As[float32](times(dense.As[float64](rows), s.q, len(rows)/s.k, s.k, spaceWidth))
}

// round returns a round in the space. Curves stay those of all features: kappa is a ratio of
// temperatures, and nearly the same in both.
// Labels, weights and curves are shared with the round given.
func (s *space) round(r *Round) *Round {
	out := &Round{K: spaceWidth, C: r.C, Points: r.Points}
	out.Points.Rows = s.project(r.Points.Rows)
	for i := range r.Clients {
		c := r.Clients[i]
		means := &point.Set{N: c.Means.N, Dx: spaceWidth, C: c.Means.C, W: c.Means.W,
			Y: c.Means.Indices()}
		for j := range c.Means.N {
			means.Z = append(means.Z, s.project(c.Means.Features(j))...)
		}
		out.Clients = append(out.Clients,
			Client{Means: means, Within: s.within(c.Within), Curve: c.Curve})
	}
	for _, c := range r.Corpora {
		out.Corpora = append(out.Corpora,
			Corpus{Within: s.inner(c.Within), Dof: c.Dof, Means: s.project(c.Means)})
	}
	return out
}

// down returns Q'X, [spaceWidth, n], of rows X, [K, n]. It costs K n spaceWidth multiplications.
func (s *space) down(x []float64, n int) []float64 {
	out := make([]float64, spaceWidth*n)
	for i := range s.k {
		for j, v := range s.q[i*spaceWidth : (i+1)*spaceWidth] {
			axpy(v, x[i*n:(i+1)*n], out[j*n:(j+1)*n])
		}
	}
	return out
}

// inner returns Q'AQ, [spaceWidth, spaceWidth], of a symmetric matrix, [K, K]. It costs K^2
// spaceWidth multiplications, and gives a covariance of rows that of their coordinates.
func (s *space) inner(a []float64) []float64 {
	return s.down(times(a, s.q, s.k, s.k, spaceWidth), spaceWidth)
}

// within returns a scatter in the space. A factor of no more rows than coordinates stays one.
func (s *space) within(w *moments.Within) *moments.Within {
	switch {
	case w == nil:
		return nil
	case w.Dof == 0:
		return &moments.Within{K: spaceWidth}
	case w.Rank > 0 && w.Rank <= spaceWidth:
		return &moments.Within{K: spaceWidth, Dof: w.Dof, Rank: w.Rank, Data: s.project(w.Data)}
	}
	return &moments.Within{K: spaceWidth, Dof: w.Dof,
		Data: moment.Triangle(s.inner(w.Whole()), spaceWidth)}
}

// lift returns a head of the space as one of all features, and lower the reverse. Columns of Q are
// orthonormal, so that lower undoes lift. The part of a head outside the space is lost by lower.
// Weights w of the space become Q w, as x'(Q w) = (Q'x)'w, and intercepts stay.
func (s *space) lift(t erm.Theta) erm.Theta {
	out := erm.NewTheta(s.k+1, t.C)
	copy(out.W, times(s.q, t.W[:spaceWidth*t.C], s.k, spaceWidth, t.C))
	copy(out.W[s.k*t.C:], t.W[spaceWidth*t.C:])
	return out
}

func (s *space) lower(t erm.Theta) erm.Theta {
	out := erm.NewTheta(spaceWidth+1, t.C)
	copy(out.W, s.down(t.W[:s.k*t.C], t.C))
	copy(out.W[spaceWidth*t.C:], t.W[s.k*t.C:])
	return out
}

// lifted draws heads of a space: it varies the part in the space, and knows of no other.
type lifted struct {
	space *space
	of    spreader
}

func (l *lifted) draw(t erm.Theta, r *rand.Rand) erm.Theta {
	return l.space.lift(l.of.draw(l.space.lower(t), r))
}

// beside returns the mixture of a round and of the same round in a space, by shares between the
// best component of each. A share below minWeight is none, so that its components cost nothing.
func (m *Mixture) beside(in *Mixture, s *space, o *Options) *Mixture {
	out := *m
	out.Components, out.Evidence = nil, nil
	sure := shares([][]float64{m.best(), in.best()},
		rng.New(o.Seed, "candidate", o.Stream, "space"))
	for i, of := range []*Mixture{m, in} {
		share := sure[i]
		if share < minWeight {
			share = 0
		} else if share > 1-minWeight {
			share = 1
		}
		for _, e := range of.Evidence {
			e.Weight *= share
			if i == 1 {
				e.corpus = true
				e.Name = fmt.Sprintf("%s, %d coordinates", e.Name, spaceWidth)
			}
			out.Evidence = append(out.Evidence, e)
		}
		if share > 0.5 {
			out.LogKappa, out.LogKappaError = of.LogKappa, of.LogKappaError
		}
		for _, c := range of.Components {
			if c.Weight *= share; c.Weight == 0 {
				continue
			}
			if i == 1 {
				c.Name = fmt.Sprintf("%s, %d coordinates", c.Name, spaceWidth)
				c.Head, c.resample = s.lift(c.Head), nil
				if c.spread != nil {
					c.spread = &lifted{s, c.spread}
				}
			}
			out.Components = append(out.Components, c)
		}
	}
	return &out
}

// best returns the log-likelihoods of the groups left out, of the component of most evidence.
func (m *Mixture) best() (left []float64) {
	best := math.Inf(-1)
	for _, e := range m.Evidence {
		if e.Weight > 0 && e.LogLikelihood > best {
			best, left = e.LogLikelihood, e.left
		}
	}
	return left
}

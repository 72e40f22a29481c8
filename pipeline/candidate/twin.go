package candidate

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/models/rng"
	"fmp/onnx/dense"
	"fmp/pipeline/moments"
)

const (
	// maxTwins is the number of clients whose twins are drawn: of more some are taken, at even
	// steps. It bounds the draws of one client too.
	maxTwins = 16
	// twinImages is about the number of images that are drawn in all: the error of a peak falls
	// with its root.
	twinImages = 4096
)

// likeness is the distribution of images in the place of the clients': class means drawn towards
// the grand mean, as far as noise spreads them, and the pooled covariance within classes, with
// tails.
type likeness struct {
	k    int
	mean []float64 // [C, K]
	root []float64 // [K, K], with root'root the covariance
}

// likeness returns that of a pool. With d_c = m_c - m0 and the variance of an image tr S/dof, its
// class means are m0 + share d_c, so that they lie as far apart as the true ones do on average:
//
//	share^2 = (sum_c |d_c|^2 - sum_c tr S/(dof n_c)) / sum_c |d_c|^2
//
// Numerator and denominator are at least minSpread tr S/dof for each class that is held.
func (p *pool) likeness() likeness {
	k := p.k
	g := likeness{k: k, mean: make([]float64, p.c*k), root: rootOf(p.scatter, k, p.dof)}
	var size, total, noise, held float64
	for i := range k {
		size += p.scatter[i*k+i] / p.dof
	}
	for y, n := range p.n {
		if n == 0 {
			continue
		}
		m := g.mean[y*k:][:k]
		axpy(1, p.mean[y*k:][:k], m)
		axpy(-1, p.m0, m)
		total, noise, held = total+dot(m, m), noise+size/n, held+1
	}
	share := math.Sqrt(max(total-noise, minSpread*size*held) / max(total, minSpread*size*held))
	for y := range p.c {
		m := g.mean[y*k:][:k]
		scale(share, m)
		axpy(1, p.m0, m)
	}
	return g
}

// rows returns a draw of images of labels.
func (g *likeness) rows(labels []int, at *rand.Rand) []float32 {
	n := len(labels)
	z := make([]float64, n*g.k)
	for i := range n {
		residual(z[i*g.k:][:g.k], at)
	}
	x := times(z, g.root, n, g.k, g.k)
	for i, y := range labels {
		axpy(1, g.mean[y*g.k:][:g.k], x[i*g.k:][:g.k])
	}
	return dense.As[float32](x)
}

// labels returns the classes of a client's images. Of a merged sum they are those of one of its
// clients, drawn as the counts and their squares tell: each class is held by some of them, with as
// many images each, whatever other classes these hold.
func (c *Client) labels(at *rand.Rand) (out []int) {
	of, sum := c.Means.Indices(), c.Curve
	for i, w := range c.Means.W {
		n := float64(w)
		if sum.Clients > 1 {
			if at.Float64()*float64(sum.Clients) >= sum.Holders[i] {
				continue
			}
			n /= sum.Holders[i]
		}
		n = min(math.Round(n), moments.MaxCurveImages) // of more, no more are measured
		out = append(out, slices.Repeat([]int{int(of[i])}, int(n))...)
	}
	return out
}

// curves returns the curves (moments.Curve, in nats) that clients measured of their images, and
// those of twins: as many images of each class, drawn from the pooled statistic, each left out of
// the discriminant of the client's others. Class means and scatter of a client alone would not do:
// a few images span few directions, and the noise of their class means lies in them.
//
// Both curves hold a share of images of a random class, as the evidence does: where few images err,
// these set the temperature, and the tails of images add little. A curve of images that the counts
// do not have is left out.
func (r *Round) curves(all *pool, o *Options) (own, twin []moments.Curve, err error) {
	var of []int
	for i := range r.Clients {
		if r.Clients[i].Curve != nil {
			of = append(of, i)
		}
	}
	step := max((len(of)+maxTwins-1)/maxTwins, 1)
	var drawn []int
	for at := 0; at < len(of); at += step {
		drawn = append(drawn, of[at])
	}
	if len(drawn) < fewCurves {
		return nil, nil, nil
	}
	found := make([]*twins, len(drawn))
	g, images := all.likeness(), floats.Sum(all.n)
	err = each(len(drawn), o.Threads, func(i int) error {
		found[i] = r.twin(drawn[i], &g, twinImages/len(drawn), o)
		return nil
	})
	for i, t := range found {
		c := r.Clients[drawn[i]].Curve
		as := 1.0
		// as many images: at the highest temperature all have one loss
		if t != nil && c.Clients > 1 {
			const last = moments.Temperatures - 1
			as = c.Curve[last] / t.own[last]
		}
		if t == nil || as == 0 {
			continue
		}
		own, twin = append(own, c.Curve), append(twin, moments.Curve{})
		at := len(own) - 1
		axpy(as*surprises/images, t.random[:], own[at][:])
		axpy(as, t.own[:], twin[at][:])
		axpy(as*surprises/images, t.random[:], twin[at][:])
	}
	return own, twin, err
}

// twins are the curves of a client's twins, and those of the same images of random classes.
type twins struct{ own, random moments.Curve }

// twin returns the mean curves of images drawn in the place of those of client i; nil where no draw
// has a curve. Images is about the number that is drawn.
func (r *Round) twin(i int, g *likeness, images int, o *Options) *twins {
	c := &r.Clients[i]
	clients := float64(max(c.Curve.Clients, 1))
	var held float64
	for _, v := range c.cells() {
		held += min(math.Round(v.n/clients), moments.MaxCurveImages)
	}
	var out *twins
	draws := int(min(max(float64(images)/max(held, 1), 1), maxTwins))
	for t := range draws {
		at := rng.New(o.Seed, "candidate", o.Stream, "twin", i, t)
		labels := c.labels(at)
		var kept []int
		for _, j := range moments.Measured(labels, r.C, at) {
			kept = append(kept, labels[j])
		}
		if len(kept) == 0 {
			continue
		}
		own, random := moments.LeftOut(g.rows(kept, at), r.K, kept)
		if own == nil {
			continue
		}
		if out == nil {
			out = &twins{}
		}
		axpy(1/float64(draws), own[:], out.own[:])
		axpy(1/float64(draws), random[:], out.random[:])
	}
	return out
}

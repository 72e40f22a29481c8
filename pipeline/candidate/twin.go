package candidate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/models/rng"
	"fmp/pipeline/moments"
)

const (
	// maxTwins is the number of clients whose twins are drawn: of more some are taken, at even steps.
	// It bounds the draws of one client too.
	maxTwins = 16
	// twinImages is about the number of images that are drawn in all.
	twinImages = 4096
)

// gaussian is the distribution of Gaussian images in the place of the clients': class means drawn
// towards the grand mean, as far as noise spreads them, and the pooled covariance within classes.
type gaussian struct {
	k    int
	mean []float64 // [C, K]
	root []float64 // [K, K], with root'root the covariance
}

// gaussian returns that of a pool.
func (p *pool) gaussian() gaussian {
	k := p.k
	g := gaussian{k: k, mean: make([]float64, p.c*k), root: rootOf(p.scatter, k, p.dof)}
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
func (g *gaussian) rows(labels []int, normal func() float64) []float32 {
	n := len(labels)
	z := make([]float64, n*g.k)
	for i := range z {
		z[i] = normal()
	}
	x := times(z, g.root, n, g.k, g.k)
	for i, y := range labels {
		axpy(1, g.mean[y*g.k:][:g.k], x[i*g.k:][:g.k])
	}
	return narrowed(x)
}

// curves returns the curves that clients measured of their images, and those of Gaussian twins: as
// many images of each class, drawn from the pooled statistic, each left out of the discriminant of
// the client's others. Class means and scatter of a client alone would not do: a few images span few
// directions, and the noise of their class means lies in them. A merged sum does not tell the counts
// of single clients: its twins are those that clients measured.
//
// Both curves of a single client hold a share of images of a random class, as the evidence does:
// where few images err, these set the temperature, and the tails of images add little.
func (r *Round) curves(all *pool, o *Options) (own, twin []moments.Curve, err error) {
	var of, drawn []int
	for i := range r.Clients {
		if r.Clients[i].Curves != nil {
			of = append(of, i)
		}
	}
	step := max((len(of)+maxTwins-1)/maxTwins, 1)
	for at := 0; at < len(of); at += step {
		u := r.Clients[of[at]].Curves
		own, twin, drawn = append(own, u.Own), append(twin, u.Twin), append(drawn, of[at])
	}
	if len(own) < fewCurves || o.reference {
		return own, twin, nil
	}
	g, images := all.gaussian(), floats.Sum(all.n)
	return own, twin, each(len(own), o.Threads, func(i int) error {
		if r.Clients[drawn[i]].Curves.Clients > 1 {
			return nil
		}
		var labels []int
		for _, v := range r.Clients[drawn[i]].cells() {
			n := min(math.Round(v.n), moments.MaxCurveImages) // of more, no more are measured
			labels = append(labels, slices.Repeat([]int{v.class}, int(n))...)
		}
		draws := min(max(twinImages/(len(own)*len(labels)), 1), maxTwins)
		var sum, surprise moments.Curve
		for t := range draws {
			at := rng.New(o.Seed, "candidate", o.Stream, "twin", drawn[i], t)
			var kept []int
			for _, j := range moments.Measured(labels, r.C, at) {
				kept = append(kept, labels[j])
			}
			if len(kept) == 0 { // curves of images that the counts do not have
				return nil
			}
			c, random := moments.LeftOut(g.rows(kept, at.NormFloat64), r.K, kept)
			if c == nil {
				return nil
			}
			axpy(1/float64(draws), c[:], sum[:])
			axpy(surprises/images/float64(draws), random[:], surprise[:])
		}
		twin[i] = sum
		axpy(1, surprise[:], twin[i][:])
		axpy(1, surprise[:], own[i][:])
		return nil
	})
}

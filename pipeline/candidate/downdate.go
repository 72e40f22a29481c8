package candidate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
)

// minLeft is the least share of a scatter's trace that is left where rows are taken away: below,
// rounding is too much of it.
const minLeft = 1e-6

// downdate is a pool without some of its clients in the whole pool's basis, where its scatter is
// diag(lambda) - R'R for few rows R: no basis of its own is needed. Means are about its own grand
// mean, which lies at origin.
type downdate struct {
	*rest
	whole  *basis
	lambda []float64
	lost   []float64 // R, [rank, K]
	left   float64   // the trace of the scatter
	origin []float64
	means  []float64
}

// downdate returns the rest in the basis of the whole; nil where too many rows are lost, or too
// little is left.
// R is turned into the basis, R V. Means of classes that the rest lacks are zeros. It costs rank
// K^2 multiplications for R, and C K^2 for the means.
func (b *basis) downdate(p *rest) *downdate {
	if p.lost == nil {
		return nil
	}
	k := p.k
	d := &downdate{rest: p, whole: b, lambda: b.lambda,
		lost:   times(p.lost, b.v, len(p.lost)/k, k, k),
		origin: b.of(p.m0, 1), means: b.of(p.mean, p.c)}
	var all float64
	for _, v := range b.lambda {
		all += v
	}
	if d.left = all - dot(d.lost, d.lost); !(d.left > minLeft*all) {
		return nil
	}
	for y := range p.c {
		if m := d.means[y*k:][:k]; p.held(y) {
			axpy(-1, d.origin, m)
		} else {
			clear(m)
		}
	}
	return d
}

// at returns the head of a strength in the whole pool's basis. With D = nu0 size + lambda the
// inverse of the covariance is
//
//	(nu0 + dof) (D - R'R)^-1 = (nu0 + dof) (D^-1 + Y'Y),   Y = L^-1 R D^-1,   LL' = I - R D^-1 R'
//
// by Woodbury's identity, and the mean variance of an image in units of W (pool.pseudo) is
//
//	noise = tr(W^-1 S)/(K dof) = (nu0 + dof)(K - nu0 size tr (D - R'R)^-1)/(K dof)
//
// as S = D - R'R - nu0 size I. It reports false where LL' is not positive definite, which only
// rounding makes it.
// Without a prior it costs O(rank^2 K + C rank K), where a basis of its own costs O(K^3).
func (d *downdate) at(strength float64, prior *between) (linear, bool) {
	k, c, r := d.k, d.c, len(d.lost)/d.k
	nu0, size := strength*float64(k), d.left/float64(k)/d.dof
	inverse := make([]float64, k)
	var trace float64
	for j, v := range d.lambda {
		inverse[j] = 1 / (nu0*size + v)
		trace += inverse[j]
	}
	y, ok := d.root(inverse)
	if !ok {
		return linear{}, false
	}
	trace += dot(y, y)
	f := nu0 + d.dof
	noise := (float64(k) - nu0*size*trace) * f / float64(k) / d.dof
	through := timesT(d.means, y, c, k, r) // means Y'
	norms := make([]float64, c)
	for class := range norms {
		m, z := d.means[class*k:][:k], through[class*r:][:r]
		for j, v := range m {
			norms[class] += v * v * inverse[j]
		}
		norms[class] = f * (norms[class] + dot(z, z))
	}
	n0 := d.pseudo(norms, noise)
	solve := func(rows []float64) []float64 { // rows times the inverse
		out := times(timesT(rows, y, len(rows)/k, k, r), y, len(rows)/k, r, k)
		for i, v := range rows {
			out[i] = f * (out[i] + v*inverse[i%k])
		}
		return out
	}
	if prior != nil {
		m := d.shrunk(prior, n0, d.means, d.whole.turned(prior.rows), solve)
		out := linear{solve(m), make([]float64, c)}
		for class := range c {
			w := out.w[class*k:][:k]
			out.bias[class] = -dot(w, m[class*k:][:k])/2 - dot(w, d.origin)
		}
		return out, true
	}
	out := linear{solve(d.means), make([]float64, c)}
	for class := range c {
		w, share := out.w[class*k:][:k], d.share(class, n0)
		scale(share, w)
		out.bias[class] = -share*share*norms[class]/2 - dot(w, d.origin)
	}
	return out, true
}

// fold is the pool of all clients but a group, in a basis for one target.
type fold struct {
	*basis
	down *downdate // nil where the basis is the fold's own
}

// fold returns the rest in the whole's basis where that serves, else in one of its own.
// It tries the least strength, where the diagonal D is smallest and I - R D^-1 R' least positive.
func (s *sums) fold(p *rest, t *target) *fold {
	f := &fold{basis: s.in(t)}
	if f.down = f.downdate(p); f.down != nil {
		if _, ok := f.down.at(strengths[0], nil); ok { // the least diagonal of all
			return f
		}
	}
	return &fold{basis: p.whole().in(*t)}
}

// at returns the head of a strength and a prior of class means in the basis.
// The downdate's report is not read, since fold has tried the least strength.
func (f *fold) at(strength float64, prior *between) linear {
	if f.down != nil {
		l, _ := f.down.at(strength, prior)
		return l
	}
	return f.basis.at(strength, prior).linear()
}

// root returns Y, [rank, K].
// L is the lower Cholesky factor, inverted in place (LAPACK's dpotrf and dtrtri).
func (d *downdate) root(inverse []float64) ([]float64, bool) {
	k, r := d.k, len(d.lost)/d.k
	p := make([]float64, len(d.lost))
	for i, v := range d.lost {
		p[i] = v * inverse[i%k]
	}
	if r == 0 {
		return p, true
	}
	g := timesT(p, d.lost, r, k, r)
	scale(-1, g)
	for i := range r {
		g[i*r+i]++
	}
	t, ok := lapack64.Potrf(blas64.Symmetric{N: r, Stride: r, Data: g, Uplo: blas.Lower})
	if !ok || !lapack64.Trtri(t) {
		return nil, false
	}
	for i := range r {
		clear(t.Data[i*r+i+1 : (i+1)*r])
	}
	y := times(t.Data, p, r, r, k)
	return y, !slices.ContainsFunc(y, math.IsNaN)
}

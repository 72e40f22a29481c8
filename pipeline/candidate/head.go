package candidate

import (
	"math"

	"fmp/pipeline/erm"
)

// Constants of discriminants.
const (
	// caution is a factor on n0: class means err more along the head's directions than on average.
	// It lowers NLL by .002 to .010 on four tasks of CIFAR-100 (docs/notes/moments.md). With more,
	// classes of few images lie nearer to the grand mean.
	caution = 1.5
	// minSpread is the least spread of class means beyond noise, in units of the variance within
	// classes. It bounds n0 where class means differ by their noise alone.
	minSpread = 1e-3
)

// discriminant is the linear discriminant of a pool whose covariance within classes is
//
//	W = (nu0 size W0 + S)/(nu0 + dof),   nu0 = strength K,   size = tr(W0^-1 S)/(K dof)
//
// which is the mean of S/dof and of the target W0 at the scatter's size, weighed by their degrees
// of freedom. In the basis W0 = I and S = diag(lambda), so that W^-1 = diag(precision):
//
//	precision_j = (nu0 + dof)/(nu0 size + lambda_j)
//	logit_c     = sum_j precision_j m_cj u_j + bias_c,   bias_c = -sum_j precision_j m_cj^2 / 2
//
// A strength of 0 is the scatter alone, a large one the target alone.
type discriminant struct {
	*basis
	precision []float64 // [K]
	m         []float64 // class means drawn towards the grand mean by n / (n + n0), [C, K]
	bias      []float64 // [C]
	n0        float64   // images whose noise is as much as the spread of class means
}

// at returns the discriminant of a strength, and of a prior of class means, which is nil for that
// of the shape of W.
func (b *basis) at(strength float64, prior *between) *discriminant {
	k, d := b.k, float64(b.k)
	h := &discriminant{basis: b, precision: make([]float64, k), m: make([]float64, b.c*k),
		bias: make([]float64, b.c)}
	nu0, size, noise := strength*d, b.size(), 0.0
	for j, v := range b.lambda {
		h.precision[j] = (nu0 + b.dof) / (nu0*size + v)
		noise += h.precision[j] * v / d / b.dof
	}
	if !(noise > 0) { // no image is told from its class mean: W itself
		noise = 1
	}
	norms := make([]float64, b.c)
	for y := range norms {
		norms[y] = h.norm(b.means[y*k:][:k])
	}
	h.n0 = b.pseudo(norms, noise)
	if prior == nil {
		for y := range b.c {
			share := b.share(y, h.n0)
			axpy(share, b.means[y*k:][:k], h.m[y*k:][:k])
			h.bias[y] = -share * share * norms[y] / 2
		}
	} else {
		h.m = b.shrunk(prior, h.n0, b.means, b.turned(prior.rows), h.solve)
		for y := range b.c {
			h.bias[y] = -h.norm(h.m[y*k:][:k]) / 2
		}
	}
	return h
}

// solve returns rows in the basis times the inverse of the covariance.
func (h *discriminant) solve(rows []float64) []float64 {
	out := make([]float64, len(rows))
	for i, v := range rows {
		out[i] = v * h.precision[i%h.k]
	}
	return out
}

// pseudo returns n0, in images, by moments: the images whose noise is as much as the spread of
// class means beyond theirs. With d_c = m_c - m0 and means over the classes that are held
//
//	noise = tr(W^-1 S)/(K dof),   spread = mean_c (d_c'W^-1 d_c / K - noise/n_c)
//	n0    = caution noise / max(spread, minSpread)
//
// norms are d_c'W^-1 d_c, [C].
func (p *pool) pseudo(norms []float64, noise float64) float64 {
	var spread, classes float64
	for y, n := range p.n {
		if n > 0 {
			spread += norms[y]/float64(p.k) - noise/n
			classes++
		}
	}
	return caution * noise / max(spread/classes, minSpread)
}

// share returns the part of a class mean that a prior of the shape of W keeps, n / (n + n0); of a
// class that nobody holds, none.
func (p *pool) share(class int, n0 float64) float64 {
	n := p.n[class]
	if n == 0 {
		return 0
	}
	return n / (n + n0)
}

// size is the mean variance within classes in units of the target. Where nothing spreads within
// classes it is 1 of a corpus's covariance, and of the identity that of class means.
func (b *basis) size() float64 {
	var sum float64
	for _, v := range b.lambda {
		sum += v
	}
	if sum > 0 {
		return sum / float64(b.k) / b.dof
	}
	if between := dot(b.means, b.means); between > 0 && !b.measured {
		return between / float64(b.k*b.c)
	}
	return 1
}

// norm returns sum_j precision_j u_j^2.
func (h *discriminant) norm(u []float64) (sum float64) {
	for j, v := range u {
		sum += h.precision[j] * v * v
	}
	return sum
}

// linear is a head in a basis: logits of rows u there are u w' + bias.
type linear struct {
	w    []float64 // [C, K]
	bias []float64 // [C]
}

// linear returns the head of the discriminant.
func (h *discriminant) linear() linear { return linear{h.solve(h.m), h.bias} }

// roots returns the square roots of the precision: u * roots has covariance I within classes.
func (h *discriminant) roots() []float64 {
	out := make([]float64, h.k)
	for j, v := range h.precision {
		out[j] = math.Sqrt(v)
	}
	return out
}

// head returns a head in the basis as one on features.
func (b *basis) head(l linear) erm.Theta {
	k, c := b.k, b.c
	t := erm.NewTheta(k+1, c)
	copy(t.W, timesT(b.v, l.w, k, k, c))
	last := t.Row(k)
	copy(last, l.bias)
	for j, v := range b.m0 {
		axpy(-v, t.Row(j), last)
	}
	return t
}

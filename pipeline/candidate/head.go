package candidate

import (
	"math"

	"fmp/pipeline/erm"
)

// Constants of discriminants.
const (
	caution     = 1.5  // class means err more along the head's directions than on average
	leastSpread = 1e-3 // of class means beyond noise, in units of the variance within classes
)

// discriminant is the linear discriminant of a pool whose covariance within classes is (nu size T + S) / (nu + dof): nu = strength K, and
// size gives the target the scatter's trace. In the basis logit_c = sum_j precision_j u_j m_cj + b_c.
type discriminant struct {
	*basis
	precision []float64 // [K]
	m         []float64 // class means drawn towards the grand mean by n / (n + n0), [C, K]
	bias      []float64 // [C]
}

// at returns the discriminant of a strength.
func (b *basis) at(strength float64) *discriminant {
	k, d := b.k, float64(b.k)
	h := &discriminant{basis: b, precision: make([]float64, k), m: make([]float64, b.c*k), bias: make([]float64, b.c)}
	nu, size, noise := strength*d, b.size(), 0.0
	for j, v := range b.lambda {
		h.precision[j] = (nu + b.dof) / (nu*size + v)
		noise += h.precision[j] * v / d / b.dof
	}
	var spread, classes float64
	for y, n := range b.n {
		if n > 0 {
			spread += h.norm(b.means[y*k:][:k])/d - noise/n
			classes++
		}
	}
	n0 := caution * noise / max(spread/classes, leastSpread)
	for y, n := range b.n {
		if n == 0 {
			continue // at the grand mean
		}
		m := h.m[y*k:][:k]
		axpy(n/(n+n0), b.means[y*k:][:k], m)
		h.bias[y] = -h.norm(m) / 2
	}
	return h
}

// size is the mean variance within classes in units of the target; where nothing spreads within classes, that of class means.
func (b *basis) size() float64 {
	var sum float64
	for _, v := range b.lambda {
		sum += v
	}
	if sum > 0 {
		return sum / float64(b.k) / b.dof
	}
	if between := dot(b.means, b.means); between > 0 {
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

// weights returns precision m', which logits of rows in the basis take, as [C, K].
func (h *discriminant) weights() []float64 {
	out := make([]float64, len(h.m))
	for i, v := range h.m {
		out[i] = v * h.precision[i%h.k]
	}
	return out
}

// roots returns the square roots of the precision: u * roots has covariance I within classes.
func (h *discriminant) roots() []float64 {
	out := make([]float64, h.k)
	for j, v := range h.precision {
		out[j] = math.Sqrt(v)
	}
	return out
}

// head returns the head on features whose logits are u w' + bias of rows u in the basis, for w of [C, K].
func (b *basis) head(w, bias []float64) erm.Theta {
	k, c := b.k, b.c
	t := erm.NewTheta(k+1, c)
	copy(t.W, timesT(b.v, w, k, k, c))
	last := t.Row(k)
	copy(last, bias)
	for j, v := range b.m0 {
		axpy(-v, t.Row(j), last)
	}
	return t
}

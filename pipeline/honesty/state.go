package honesty

import (
	"math"
	"slices"
)

// state holds sums over the honest clients of a state, and the moments of class means given them.
// It serves one goroutine, as components writes its cache. It takes classes x k numbers three
// times.
type state struct {
	h    *model
	n    []float64 // [classes] precisions
	s    []float64 // [classes, k] precision times mean
	e    float64
	mean []float64 // [classes, k]
	v    []float64 // [classes, k]
	// dets are the log determinants of v + iv for each class, cached for the last cell's iv: most
	// cells of a client have the same mass, and log determinants take most of the time. They are
	// valid until the moments change.
	iv   float64
	dets []logDet
}

// add adds (sign 1) or removes (-1) a client's cells. The caller updates the moments.
func (st *state) add(m int, sign float64) {
	k := st.h.k
	for _, l := range st.h.cells[m] {
		st.n[l.class] += sign * l.a
		s := st.s[l.class*k:][:k]
		for j, x := range l.x {
			s[j] += sign * l.a * x
		}
	}
	st.e += sign * st.h.e[m]
}

// moments updates the moments of a class: v = λ/(1 + nλ), mean = v s.
func (st *state) moments(c int) {
	st.iv = math.NaN()
	k := st.h.k
	n := max(st.n[c], 0) // rounding, if all clients were removed
	for j, l := range st.h.lambda {
		v := l / (1 + n*l)
		st.v[c*k+j], st.mean[c*k+j] = v, v*st.s[c*k+j]
	}
}

// honest returns log p(honest uploads | state), class means integrated out: with n_c the sum of the
// precisions a of the honest cells of a class and s_c = sum a x
//
//	e + sum_cj (λ_j s_cj²/(1 + n_c λ_j) - log(1 + n_c λ_j))/2
//
// where e holds the terms of each cell, k (log a - log 2π)/2 - a |x|²/2.
func (st *state) honest() float64 {
	k, out := st.h.k, st.e
	for c := range st.h.classes {
		for j, l := range st.h.lambda {
			g, s := 1+st.n[c]*l, st.s[c*k+j]
			out += -0.5*math.Log(g) + 0.5*l*s*s/g
		}
	}
	return out
}

// components writes a cell's log densities under each class that it may be of, a fresh class, and
// garbage. With d_j = x_j - m_j it is of class c
//
//	-(sum_j d_j^2/(v_j + 1/a) + sum_j log(v_j + 1/a) + k log 2π)/2
//
// It costs O(classes k) for each cell, but in a large round (wide.go).
func (st *state) components(l *cell, out []float64) {
	k := st.h.k
	if st.h.large {
		st.few(l, out)
		st.related(l, out)
		return
	}
	if l.iv != st.iv {
		st.iv = l.iv
		for c := range st.dets {
			logs, product := 0.0, 1.0
			for _, v := range st.v[c*k:][:k] {
				// One logarithm of many factors, taken before their product leaves the range.
				if product *= v + l.iv; product < 1e-200 || product > 1e200 {
					logs += math.Log(product)
					product = 1
				}
			}
			st.dets[c] = logDet{logs, math.Log(product)}
		}
	}
	x := l.x[:k]
	for c, det := range st.dets {
		mean, v := st.mean[c*k:][:k], st.v[c*k:][:k]
		q := 0.0
		for j, x := range x {
			d := x - mean[j]
			q += d * d / (v[j] + l.iv)
		}
		out[c] = -0.5 * (q + det.parts + det.rest + float64(k)*log2pi)
	}
	out[st.h.classes], out[st.h.classes+1] = l.fresh, l.broad
	st.related(l, out)
}

// kin are the shares of the variance between classes by which two classes that are alike may lie
// apart.
var kin = [3]float64{1, 1. / 2, 1. / 4}

// related lowers the densities of other classes for a cell that alone holds its class, by all
// claims and by those who count as honest: its class may be like another without being it.
// Colluders who share a class do not hold it alone, also in the state that has them all bad. With
// q_t(x) = N(x; m_j, v_j + 1/a + tλ) and f the density of a fresh class, that of class j becomes
//
//	f N(x; m_j, v_j + 1/a) / max(f, mean_t q_t(x))
//
// so that a mean of the very images of another class still tells, and one that is merely near does
// not.
func (st *state) related(l *cell, out []float64) {
	if !l.alone || st.n[l.class] > strayed {
		return
	}
	k := st.h.k
	for at, c := range l.near[:len(l.near)-2] {
		if c == l.class || out[at] <= l.fresh {
			continue
		}
		mean, v := st.mean[c*k:][:k], st.v[c*k:][:k]
		var near [len(kin)]float64
		for i, t := range kin {
			q, logs, product := 0.0, 0.0, 1.0
			for j, x := range l.x[:k] {
				d, s := x-mean[j], v[j]+l.iv+t*st.h.lambda[j]
				q += d * d / s
				if product *= s; product < 1e-200 || product > 1e200 {
					logs += math.Log(product)
					product = 1
				}
			}
			near[i] = -0.5*(q+logs+math.Log(product)+float64(k)*log2pi) -
				math.Log(float64(len(kin)))
		}
		out[at] += l.fresh - max(l.fresh, logSum(near[:]))
	}
}

// contamination returns the log weights of the mixture of bad cells, for each class those of
// model.among, and a lower bound on log p(bad uploads | honest ones), after the given number of
// rounds of coordinate ascent. With d_ij the log density of bad cell i under kind j, and w_j the
// log of the kind's part of mix, a round sets
//
//	p_ij ∝ exp(d_ij + weight_ij),   target_cj = concentration/(C - 1) + sum_(i of c) p_ij
//	weight_ij = w_j, and of another class log(target_cj / sum_j target_cj) more
//	bound = sum_ij p_ij (d_ij + w_j - log p_ij) + sum_c (ln B(target_c) - ln B(prior))
//
// with B the normaliser of a Dirichlet, and c the class that a cell names. Two rounds serve a
// posterior and one a sweep. It costs O(bad cells x classes x k).
func (st *state) contamination(z []bool, rounds int) (weights [][]float64, bound float64) {
	h := st.h
	C := h.classes
	weights = h.tables()
	among := math.Log(float64(C - 1))
	for c, own := range weights {
		for at, j := range h.among[c] {
			if own[at] = h.kind(c, j); j != c && j < C {
				own[at] -= among
			}
		}
	}
	var bad []*cell
	for m, honest := range z {
		if honest {
			continue
		}
		for i := range h.cells[m] {
			bad = append(bad, &h.cells[m][i])
		}
	}
	if len(bad) == 0 {
		return weights, 0
	}
	width := h.width()
	density := make([]float64, len(bad)*width)
	for i, b := range bad {
		st.components(b, density[i*width:][:width])
	}
	alpha := concentration / float64(C-1)
	target := h.tables() // parameters of the Dirichlet of T_c
	for range rounds {
		bound = h.expected(bad, density, weights, target)
		for c, own := range target {
			sum, _ := h.total(c, own, false)
			// of a class that no cell looks like
			none := h.kind(c, (c+1)%C) + math.Log(max(alpha, 1e-300)/sum)
			for at, j := range h.among[c] {
				if j != c && j < C {
					if weights[c][at] = none; own[at] != alpha {
						weights[c][at] = h.kind(c, j) + math.Log(max(own[at], 1e-300)/sum)
					}
				}
			}
		}
	}
	prior := h.logBeta(0, nil)
	for c, own := range target {
		bound += h.logBeta(c, own) - prior
	}
	return weights, bound
}

// logSum returns log sum_i exp(x_i). It subtracts the largest first, so that no exponential
// overflows.
func logSum(x []float64) float64 {
	top := slices.Max(x)
	var sum float64
	for _, v := range x {
		if v -= top; v > -50 { // smaller terms are lost in rounding
			sum += math.Exp(v)
		}
	}
	return top + math.Log(sum)
}

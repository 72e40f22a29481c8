package dense

import (
	"fmt"
	"math"
)

// Columns is a matrix of one class a row and one point a column: element (c, i) is
// Data[c*Stride+i]. N is a multiple of Width ([Padded]); values beyond the last point are computed
// with and mean nothing.
type Columns struct {
	C, N, Stride int
	Data         []float64
}

// Rows returns the rows of n classes from c on. It shares memory with m. Unlike check, it does not
// look whether m has these rows.
func (m Columns) Rows(c, n int) Columns {
	return Columns{C: n, N: m.N, Stride: m.Stride, Data: m.Data[c*m.Stride:]}
}

// check panics unless m has c classes and n points, a multiple of Width, and memory for them.
func (m Columns) check(c, n int) {
	if n%Width != 0 || m.C != c || m.N != n || c < 1 || n < 0 || n > m.Stride || n > 0 &&
		len(m.Data) < (c-1)*m.Stride+n {
		panic(
			fmt.Sprintf(
				"dense: columns %d x %d with stride %d and %d numbers; want %d x %d, a multiple of %d", m.C,
				m.N, m.Stride, len(m.Data), c, n, Width))
	}
}

// Softmax writes the softmax of every column of logits to p: p may be logits. top and sum, N
// numbers each, become every column's largest logit and the sum of exp(logit - top), so that the
// log of the sum of exponentials is top + log(sum). A logit that is more than 708 below the largest
// counts as 708 below it: exp(-708) is about the smallest normal number.
//
// A column with NaN or +Inf becomes NaN. It panics where shapes differ, N is no multiple of Width,
// or a slice is too short.
func Softmax(logits, p Columns, top, sum []float64) {
	logits.check(logits.C, logits.N)
	p.check(logits.C, logits.N)
	softmax(logits.C, logits.N, logits.Data, logits.Stride, p.Data, p.Stride, p.Data, p.Stride,
		false, top[:logits.N], sum[:logits.N])
}

// AddSoftmax adds the softmax of every column of logits to p and overwrites logits, see Softmax.
func AddSoftmax(logits, p Columns, top, sum []float64) {
	logits.check(logits.C, logits.N)
	p.check(logits.C, logits.N)
	softmax(logits.C, logits.N, logits.Data, logits.Stride, logits.Data, logits.Stride, p.Data,
		p.Stride, true, top[:logits.N], sum[:logits.N])
}

// Blend adds p to sum, and to inner, N numbers, the sum over classes of p times logits, column by
// column: the mean of softmaxes and the mean of their entropies need both. inner_i grows by sum_c
// p_ci logit_ci: the entropy of a softmax is log sum exp(logits) less that.
func Blend(logits, p, sum Columns, inner []float64) {
	logits.check(logits.C, logits.N)
	p.check(logits.C, logits.N)
	sum.check(logits.C, logits.N)
	blend(logits.C, logits.N, logits.Data, logits.Stride, p.Data, p.Stride, sum.Data, sum.Stride,
		inner[:logits.N])
}

// ExpSum sets sum to the sum over c rows of exp(by l), column by column: l has rows of n numbers, a
// multiple of Width, and by l is not above 0. Values below -708 count as that, see Softmax.
func ExpSum(c, n int, l []float32, by float64, sum []float64) {
	if n%Width != 0 || c < 1 || len(l) != c*n || len(sum) < n {
		panic(fmt.Sprintf("dense: exponentials of %d x %d of %d numbers into %d; want a multiple of %d",
			c, n, len(l), len(sum), Width))
	}
	expSum(c, n, l, n, by, sum[:n])
}

// Curve replaces a by w p (a - sum over classes of p a), column by column: the Hessian of a
// weighted softmax loss in its logits, at probabilities p, times a.
func Curve(a, p Columns, w []float64) {
	a.check(a.C, a.N)
	p.check(a.C, a.N)
	curve(a.C, a.N, a.Data, a.Stride, p.Data, p.Stride, w[:a.N])
}

// minExponent is the least exponent that counts; see [Softmax].
const minExponent = -708

// softmaxGo is Softmax without vectors. e holds the exponentials, and may be p; with add the
// softmax is added to p. ls, es and ps are the distances of rows.
func softmaxGo(c, n int, l []float64, ls int, e []float64, es int, p []float64, ps int, add bool,
	top, sum []float64) {
	copy(top, l[:n])
	for k := 1; k < c; k++ {
		for i, v := range l[k*ls : k*ls+n] {
			top[i] = max(top[i], v)
		}
	}
	clear(sum)
	for k := range c {
		from, to := l[k*ls:k*ls+n], e[k*es:k*es+n]
		for i, v := range from {
			x := math.Exp(max(v-top[i], minExponent))
			to[i] = x
			sum[i] += x
		}
	}
	for k := range c {
		from, to := e[k*es:k*es+n], p[k*ps:k*ps+n]
		for i, v := range from {
			v /= sum[i]
			if add {
				v += to[i]
			}
			to[i] = v
		}
	}
}

// blendGo is Blend without vectors.
func blendGo(c, n int, l []float64, ls int, p []float64, ps int, s []float64, ss int,
	inner []float64) {
	for k := range c {
		to, logit := s[k*ss:k*ss+n], l[k*ls:k*ls+n]
		for i, v := range p[k*ps : k*ps+n] {
			to[i] += v
			inner[i] += v * logit[i]
		}
	}
}

// expSumGo is ExpSum without vectors.
func expSumGo(c, n int, l []float32, ls int, by float64, sum []float64) {
	clear(sum)
	for k := range c {
		for i, v := range l[k*ls : k*ls+n] {
			sum[i] += math.Exp(max(by*float64(v), minExponent))
		}
	}
}

// curveGo is Curve without vectors: a_c becomes w p_c (a_c - sum over k of p_k a_k).
func curveGo[T float32 | float64](c, n int, a []T, as int, p []T, ps int, w []T) {
	for i := range n {
		var mean T
		for k := range c {
			mean += p[k*ps+i] * a[k*as+i]
		}
		for k := range c {
			a[k*as+i] = w[i] * p[k*ps+i] * (a[k*as+i] - mean)
		}
	}
}

// minExponentSingle is minExponent for float32. exp(-87) is about 1.6e-38, above the smallest
// normal float32 of 1.2e-38.
const minExponentSingle = -87

// residualGo is Residual without vectors. Exponentials are taken in float64 and rounded, sums in
// float32.
func residualGo(c, n int, a []float32, as int, y []float32, ys int, w []float32) {
	for i := range n {
		top := a[i]
		for k := 1; k < c; k++ {
			top = max(top, a[k*as+i])
		}
		var sum float32
		for k := range c {
			v := &a[k*as+i]
			*v = float32(math.Exp(float64(max(*v-top, minExponentSingle))))
			sum += *v
		}
		share := w[i] / sum
		for k := range c {
			a[k*as+i] = a[k*as+i]*share - y[k*ys+i]
		}
	}
}

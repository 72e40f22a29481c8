package candidate

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"

	"fmp/models/rng"
	"fmp/onnx/dense"
	"fmp/pipeline/erm"
)

// curvature is the uncertainty of a regression's weights: the inverse of its Hessian, in the form
// of a product (Martens and Grosse 2015, K-FAC). Rows x of mass m whose probabilities are p have
// the Hessian
//
//	sum_i m_i (diag p_i - p_i p_i') x x_i x_i' + tie I  ~  A x B / g + tie I
//	g = sum_i m_i (1 - |p_i|²)
//	A = sum_i m_i (1 - |p_i|²) x_i x_i',  B = sum_i m_i (diag p_i - p_i p_i')
//
// which has the trace of the sum in A and in B alike. Labels y are drawn from q_i, the
// probabilities at the head's temperature: below 1 they vary less than p_i says. Gradients have the
// trace
//
//	sum_i m_i E|y - p_i|² = sum_i m_i (1 - 2 p_i q_i + |p_i|²) = r g
//
// and the covariance of the weights is r times the inverse (White 1982, in its trace). With a_j and
// b_y the eigenvalues of A and B, the deviation along a pair of eigenvectors is
//
//	sqrt(r / (a_j b_y / g + tie))
type curvature struct {
	*discriminant
	rows, classes []float64 // eigenvectors of A, [K+1, K+1], and of B, [C, C], a vector a column
	deviation     []float64 // of a weight along them, [K+1, C]
	sharper       float64   // of samples, beside the head
	size          float64   // of the drawn logits: at the head's temperature, and as much sharper
}

// curvature returns that of a regression on images, whose head is divided by a temperature.
func (h *discriminant) curvature(on *images, l linear, temperature float64) *curvature {
	n, c, d := len(on.label), h.c, h.k+1
	x := on.withOnes(h.k)
	logits := timesT(x, h.withBias(l), n, d, c)
	out := &curvature{discriminant: h, deviation: make([]float64, d*c)}
	out.match(x, logits, func() { out.curve(x, logits, on.mass, temperature) }, temperature)
	return out
}

// curve computes the eigenvectors and deviations for a head's temperature. It overwrites the rows
// x, [N, K+1], and their logits, [N, C].
func (u *curvature) curve(x, logits, mass []float64, temperature float64) {
	n, c, d := len(mass), u.c, u.k+1
	b := make([]float64, c*c)
	q := make([]float64, c)
	var g, varied float64
	for i, m := range mass {
		p := logits[i*c : (i+1)*c]
		copy(q, p)
		scale(1/temperature, q)
		softmax(p)
		softmax(q)
		even := dot(p, p)
		for y, v := range p {
			b[y*c+y] += m * v
		}
		unsure := max(m*(1-even), 0)
		g, varied = g+unsure, varied+max(m*(1-2*dot(p, q)+even), 0)
		scale(math.Sqrt(unsure), x[i*d:(i+1)*d])
		scale(math.Sqrt(m), p)
	}
	axpy(-1, gram(logits, n, c), b)
	var alongRows, alongClasses []float64
	alongRows, u.rows = eigen(gram(x, n, d), d)
	alongClasses, u.classes = eigen(b, c)
	r := math.Sqrt((varied + minCount) / (g + minCount))
	for j, a := range alongRows {
		for y, v := range alongClasses {
			u.deviation[j*c+y] = r / math.Sqrt(max(a, 0)*max(v, 0)/max(g, minCount)+tie)
		}
	}
}

// softmax turns logits into probabilities.
func softmax(row []float64) {
	lse := floats.LogSumExp(row)
	for y, v := range row {
		row[y] = math.Exp(v - lse)
	}
}

const (
	// matchDraws is the number of samples whose mean is told, at matchRows rows at least and
	// matchNumbers probabilities: few rows are unsure where classes are far apart.
	matchRows, matchNumbers, matchDraws = 200, 40_000, 10
	// sharpest is the largest factor on the logits of samples that is tried, and sharperStep the
	// ratio of one to the next.
	sharpest, sharperStep = 2, 1.03
)

// match sets sharper so that the mean prediction of samples is the head's: it has the largest mean
// log-likelihood of classes drawn from the head's prediction, at some of the rows x [N, K+1] with
// their logits. It calls curve when it has kept those.
func (u *curvature) match(x, logits []float64, curve func(), temperature float64) {
	c, d := u.c, u.k+1
	all := len(logits) / c
	n := min(all, max(matchRows, matchNumbers/c))
	some, head := make([]float64, 0, n*d), make([]float64, 0, n*c)
	for i := range n {
		at := i * all / n
		some, head = append(some, x[at*d:(at+1)*d]...), append(head, logits[at*c:(at+1)*c]...)
	}
	curve()
	r, wide := rng.New(0, "candidate", "curvature"), dense.Padded(n)
	columns := func() dense.Columns { // a class a row, for softmaxes of many rows at a time
		return dense.Columns{C: c, N: wide, Stride: wide, Data: make([]float64, c*wide)}
	}
	own, work, mean := columns(), columns(), columns()
	draws := make([]dense.Columns, matchDraws)
	for s := range draws {
		draws[s] = columns()
		away := times(some, u.away(r), n, d, c)
		for i := range n {
			for y := range c {
				draws[s].Data[y*wide+i] = head[i*c+y] + away[i*c+y]
			}
		}
	}
	for i := range n {
		for y := range c {
			own.Data[y*wide+i] = head[i*c+y] / temperature
		}
	}
	top, total := make([]float64, wide), make([]float64, wide)
	dense.Softmax(own, own, top, total)
	best := math.Inf(-1)
	for f := 1.; f <= sharpest; f *= sharperStep {
		clear(mean.Data)
		for _, v := range draws {
			floats.ScaleTo(work.Data, f/temperature, v.Data)
			dense.AddSoftmax(work, mean, top, total)
		}
		var sum float64
		for y := range c {
			to := mean.Data[y*wide:]
			for i, p := range own.Data[y*wide : y*wide+n] {
				sum += p * math.Log(max(to[i]/matchDraws, minProbability))
			}
		}
		if sum > best {
			best, u.sharper, u.size = sum, f, f/temperature
		}
	}
}

// away draws the difference of weights from the regression's own, [K+1, C], in coordinates in which
// the covariance within classes is I.
func (u *curvature) away(r *rand.Rand) []float64 {
	c, d := u.c, u.k+1
	z := make([]float64, d*c)
	for i, v := range u.deviation {
		z[i] = v * r.NormFloat64()
	}
	return timesT(times(u.rows, z, d, d, c), u.classes, d, c, c)
}

// draw returns the head with weights drawn about its own.
func (u *curvature) draw(t erm.Theta, r *rand.Rand) erm.Theta {
	k, c := u.k, u.c
	away := u.away(r)
	scale(u.size, away)
	of := linear{make([]float64, c*k), away[k*c:]}
	for j, v := range u.roots() {
		for y := range c {
			of.w[y*k+j] = away[j*c+y] * v
		}
	}
	out := u.head(of)
	axpy(u.sharper, t.W, out.W)
	return out
}

// withBias returns a head's weights and bias, [C, K+1], in coordinates in which the covariance
// within classes is I.
func (h *discriminant) withBias(l linear) []float64 {
	out := make([]float64, 0, h.c*(h.k+1))
	root := h.roots()
	for y, b := range l.bias {
		for j, v := range root {
			out = append(out, l.w[y*h.k+j]/v)
		}
		out = append(out, b)
	}
	return out
}

// withOnes returns the rows with a one at the end of each, [N, K+1].
func (m *images) withOnes(k int) []float64 {
	out := make([]float64, 0, len(m.rows)+len(m.label))
	for i := range m.label {
		out = append(append(out, m.rows[i*k:(i+1)*k]...), 1)
	}
	return out
}

// gram returns x'x of n rows.
func gram(x []float64, n, k int) []float64 {
	out := make([]float64, k*k)
	dense.Gemm(blas.Trans, blas.NoTrans, 1, dense.General(n, k, x), dense.General(n, k, x), 0,
		dense.General(k, k, out))
	mirror(out, k)
	return out
}

// eigen returns the eigenvalues of a symmetric matrix and its eigenvectors, one a column.
func eigen(a []float64, k int) (values, vectors []float64) {
	values, q := dense.Eigen(dense.General(k, k, a))
	vectors = make([]float64, k*k)
	for i := range k {
		copy(vectors[i*k:(i+1)*k], q.Data[i*q.Stride:i*q.Stride+k])
	}
	return values, vectors
}

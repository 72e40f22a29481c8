package candidate

import (
	"math"

	"gonum.org/v1/gonum/blas"

	"fmp/onnx/dense"
)

// maxBetween bounds the number of directions along which a corpus's classes lie apart that a
// prior of class means keeps; the rest is spread evenly.
const maxBetween = 64

// maxClasses bounds the class means of a corpus that the covariance between classes is computed of,
// but for a factor of 2.
const maxClasses = 512

// between is a prior of class means: N(m0, B), B = A'A + b W, where A'A is the covariance between a
// corpus's classes. Its size follows from the round's own class means, as that of a prior of the
// shape of W does.
type between struct {
	rows []float64 // A, [rank, K]
	even float64   // share of B that has the shape of W
}

// centred returns class means, [N, K], less their mean and over the root of N - 1, at most twice
// maxClasses of them: rows A of which A'A is their covariance. None for less than two.
func centred(means []float32, k int) []float64 {
	n := len(means) / k
	if step := n / maxClasses; step > 1 {
		var some []float32
		for i := 0; i < n; i += step {
			some = append(some, means[i*k:(i+1)*k]...)
		}
		means, n = some, len(some)/k
	}
	if n < 2 {
		return nil
	}
	a, centre := dense.As[float64](means[:n*k]), make([]float64, k)
	for i := range n {
		axpy(1/float64(n), a[i*k:(i+1)*k], centre)
	}
	for i := range n {
		axpy(-1, centre, a[i*k:(i+1)*k])
	}
	scale(1/math.Sqrt(float64(n-1)), a)
	return a
}

// newBetween returns rows A, [rank, K], on features, and the share of the trace that they leave
// out. A'A is the covariance between classes of a corpus with class means, [N, K], along its widest
// directions. These and the share are of coordinates in which the target is the identity. It
// returns nil for less than two classes.
func newBetween(means []float32, t *target) (rows []float64, left float64) {
	k := t.k
	a := centred(means, k)
	n := len(a) / k
	if n < 2 {
		return nil, 0
	}
	white := a
	if t.inverse != nil {
		white = timesT(a, t.inverse, n, k, k)
	}
	values, q := eigen(timesT(white, white, n, k, n), n) // ascending
	var all, kept float64
	for _, v := range values {
		all += max(v, 0)
	}
	for i := n - 1; i >= max(0, n-min(maxBetween, n-1, k)) && values[i] > 0; i-- {
		kept += values[i]
		row := make([]float64, k)
		for j := range n {
			axpy(q[j*n+i], a[j*k:(j+1)*k], row)
		}
		rows = append(rows, row...)
	}
	if !(kept > 0) {
		return nil, 0
	}
	return rows, 1 - kept/all
}

// shrunk returns class means, [C, K], about the grand mean as a prior draws them, with n0 images of
// the strength that a prior of the shape of W would have. solve applies the inverse of W to rows in
// the basis; a are the rows of A there. A is scaled so that tr(W^-1 B)/K = 1/n0, of which
// b = even/n0 has the shape of W. With s = b + 1/n the posterior mean of a class mean m of n images
// is, by Woodbury's identity,
//
//	B (B + W/n)^-1 m = m (1 - 1/(n s)) + A'(I + A W^-1 A'/s)^-1 A W^-1 m / (n s^2)
func (p *pool) shrunk(prior *between, n0 float64, means, a []float64,
	solve func(rows []float64) []float64) []float64 {
	k, c := p.k, p.c
	r := len(a) / k
	through := solve(a) // A W^-1
	g := timesT(through, a, r, k, r)
	// of A'A: the mean of B in units of W is 1/n0
	size := (1 - prior.even) / n0 * float64(k) / trace(g, r)
	values, q := eigen(g, r)
	along := times(timesT(means, through, c, k, r), q, c, r, r) // on the eigenvectors
	out := make([]float64, c*k)
	for y, n := range p.n {
		if n == 0 {
			continue
		}
		s := prior.even/n0 + 1/n
		axpy(1-1/(n*s), means[y*k:][:k], out[y*k:][:k])
		for i, v := range values {
			along[y*r+i] *= size / (n * s * s) / (1 + size*max(v, 0)/s)
		}
	}
	back := dense.General(c, r, timesT(along, q, c, r, r))
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, back, dense.General(r, k, a), 1,
		dense.General(c, k, out))
	return out
}

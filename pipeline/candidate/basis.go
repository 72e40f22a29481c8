package candidate

import (
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"

	"fmp/onnx/dense"
	"fmp/pipeline/internal/moment"
)

// target is a matrix T that covariances are drawn towards, as the inverse of its Cholesky factor;
// nil for the identity.
type target struct {
	name    string // of its own
	k       int
	inverse []float64 // L^-1 with T = LL', [K, K]
}

// singular is the least variance of a target, given the others, as a share of the mean variance. A
// corpus of too few rows lies below: regular of the mean variance is added.
const (
	singular = 1e-7
	regular  = 1e-3
)

// newTarget returns the target of a covariance w, [K, K], whose rounding may have made directions negative:
// these are left out.
func newTarget(name string, w []float64, k int) (target, error) {
	var mean float64
	for i := range k {
		mean += w[i*k+i] / float64(k)
	}
	for try := range 3 {
		add := min(float64(try), 1) * regular * mean
		if try == 2 {
			w = moment.WithoutNegative(mat.NewSymDense(k, slices.Clone(w))).RawSymmetric().Data
			mirror(w, k)
		}
		l := blas64.Symmetric{N: k, Stride: k, Data: slices.Clone(w), Uplo: blas.Lower}
		for i := range k {
			l.Data[i*k+i] += add
		}
		t, ok := lapack64.Potrf(l)
		least := math.Inf(1)
		for i := range k {
			least = min(least, t.Data[i*k+i]*t.Data[i*k+i])
		}
		if !ok || !(least > singular*mean) || !lapack64.Trtri(t) {
			continue
		}
		for i := range k {
			clear(t.Data[i*k+i+1 : (i+1)*k])
		}
		return target{name, k, t.Data}, nil
	}
	return target{}, errors.New("the covariance within classes is not positive definite")
}

// basis is the coordinates u = V'(x - m0) in which the target is the identity and a pool's scatter
// diag(lambda): all strengths of the target are diagonal there.
type basis struct {
	*pool
	v      []float64 // [K, K], a coordinate a column
	lambda []float64
	means  []float64 // class means of the pool, [C, K]; zeros where nobody holds a class
	// measured says that the target is a covariance within classes, and not the identity.
	measured bool
}

// in returns the basis of a pool for a target.
func (p *pool) in(t target) *basis {
	k := p.k
	a := slices.Clone(p.scatter)
	mirror(a, k)
	if t.inverse != nil {
		a = timesT(times(t.inverse, a, k, k, k), t.inverse, k, k, k)
		mirror(a, k) // which rounding parted
	}
	b := &basis{pool: p, measured: t.inverse != nil}
	var q blas64.General
	b.lambda, q = dense.Eigen(general(k, k, a))
	for i, v := range b.lambda {
		b.lambda[i] = max(v, 0)
	}
	b.v = make([]float64, k*k)
	if t.inverse == nil {
		for i := range k {
			copy(b.v[i*k:(i+1)*k], q.Data[i*q.Stride:])
		}
	} else {
		dense.Gemm(blas.Trans, blas.NoTrans, 1, general(k, k, t.inverse), q, 0, general(k, k, b.v))
	}
	b.means = b.of(p.mean, p.c)
	for y := range p.c {
		if !p.held(y) {
			clear(b.means[y*k:][:k])
		}
	}
	return b
}

// of returns n rows in the basis.
func (b *basis) of(rows []float64, n int) []float64 {
	away := append([]float64(nil), rows...)
	for i := range n {
		axpy(-1, b.m0, away[i*b.k:(i+1)*b.k])
	}
	return b.turned(away)
}

// turned returns differences of rows in the basis.
func (b *basis) turned(rows []float64) []float64 {
	return times(rows, b.v, len(rows)/b.k, b.k, b.k)
}

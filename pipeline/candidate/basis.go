package candidate

import (
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"

	"fmp/onnx/dense"
)

// target is a matrix W0 that covariances are drawn towards, as rows R with W0 = (R'R)^-1; nil for
// the identity.
type target struct {
	name    string // of its own
	k       int
	inverse []float64 // R, [K, K]
}

const (
	// singular is the least variance of a target as a share of the mean variance.
	singular = 1e-7
	// leastStrength and mostStrength bound that of a prior of a corpus.
	leastStrength, mostStrength = 1.0 / 4096, 64.0
)

// newTarget returns the target of a covariance w, [K, K], of dof degrees of freedom: the posterior
// mean of a covariance whose prior is inverse Wishart about a multiple of the identity. w alone
// would be noise in most directions where images are few. With s of ownStrength and t the mean of
// the eigenvalues v, one becomes
//
//	(dof v + s K t)/(dof + s K), singular t at least
//
// Variances below 0, which rounding makes, count as 0.
func newTarget(name string, w []float64, dof float64, k int) (target, error) {
	values, q := eigen(slices.Clone(w), k)
	var mean float64
	for i, v := range values {
		values[i] = max(v, 0)
		mean += values[i] / float64(k)
	}
	if !(mean > 0) {
		return target{}, errors.New("the covariance within classes has no variance")
	}
	own := 0.0
	if dof > 0 {
		own = ownStrength(values, mean, dof) * float64(k)
	} else {
		dof = 1
	}
	inverse := make([]float64, k*k)
	for i, v := range values {
		v = max((dof*v+own*mean)/(dof+own), singular*mean)
		for j := range k {
			inverse[i*k+j] = q[j*k+i] / math.Sqrt(v)
		}
	}
	return target{name, k, inverse}, nil
}

// ownStrength returns the strength, in units of K, of the prior of most evidence, of eigenvalues of
// a covariance of dof degrees of freedom whose mean is given: W is inverse Wishart of mean t I and
// m = sK + K + 1 degrees of freedom. With G the gamma function of K dimensions (Gelman et al.,
// Bayesian Data Analysis, section 3.6), and terms left out that s does not move,
//
//	ln p = m/2 K ln(sKt) - (m + dof)/2 sum_j ln(sKt + dof v_j) + ln G((m + dof)/2) - ln G(m/2)
//
// Beside the strength of least divergence from the covariance of 6,000 images it loses 47 nats at
// 50 images and 18 at 150 (docs/notes/moments.md).
func ownStrength(values []float64, mean, dof float64) float64 {
	best, at, k := math.Inf(-1), 0.0, float64(len(values))
	for s := leastStrength; s <= mostStrength; s *= math.Sqrt2 {
		m, prior := s*k+k+1, s*k*mean
		e := m / 2 * k * math.Log(prior)
		for j, v := range values {
			above, _ := math.Lgamma((m + dof - float64(j)) / 2)
			below, _ := math.Lgamma((m - float64(j)) / 2)
			e += above - below - (m+dof)/2*math.Log(prior+dof*v)
		}
		if e > best {
			best, at = e, s
		}
	}
	return at
}

// basis is the coordinates u = V'(x - m0) in which the target is the identity and a pool's scatter
// diag(lambda): all strengths of the target are diagonal there. With R of the target and
// R S R' = Q diag(lambda) Q' it is V = R'Q.
type basis struct {
	*pool
	v      []float64 // [K, K], a coordinate a column
	lambda []float64
	means  []float64 // class means of the pool, [C, K]; zeros where nobody holds a class
	// measured says that the target is a covariance within classes, and not the identity.
	measured bool
}

// in returns the basis of a pool for a target. It costs O(K^3), once for all strengths of a target.
func (p *pool) in(t target) *basis {
	k := p.k
	a := slices.Clone(p.scatter)
	mirror(a, k)
	if t.inverse != nil {
		a = timesT(times(t.inverse, a, k, k, k), t.inverse, k, k, k)
		mirror(a, k) // which rounding parted
	}
	b := &basis{pool: p, measured: t.inverse != nil}
	b.lambda, b.v = eigen(a, k)
	for i, v := range b.lambda {
		b.lambda[i] = max(v, 0)
	}
	if t.inverse != nil {
		q := dense.General(k, k, b.v)
		b.v = make([]float64, k*k)
		dense.Gemm(blas.Trans, blas.NoTrans, 1, dense.General(k, k, t.inverse), q, 0,
			dense.General(k, k, b.v))
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

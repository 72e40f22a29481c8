package open

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models"
	"fmp/onnx/dense"
	"fmp/pipeline/internal/moment"
)

// geometry is the part of a task's posterior that the metric's scalars determine: the coordinates u
// in which W is I and the prior is diagonal.
// All matrices are [k, k], and lambda is [k]. A geometry is not changed once it is made.
type geometry struct {
	within *mat.SymDense // W
	metric *mat.SymDense // G
	basis  *mat.Dense    // E: phi - mt = E u
	inner  *mat.Dense    // A = E'GE: the metric in u
	heads  *mat.Dense    // H = GE: maps class means u to heads on phi
	inv    *mat.Dense    // E^-1
	turn   *mat.Dense    // Q, see draw
	lambda []float64     // prior variances at b = 1
	tB, tW float64       // tr(G B0), tr(G W)
	scale  float64       // s
}

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// geometry computes the geometry of a task. Most of its cost is an eigendecomposition in k
// dimensions. It costs O(k^3). Scalars besides LogNu0, LogKappa, LogitDelta and LogitGamma are not
// read.
// With S and nu the scatter and its degrees of freedom, s = (kappa + tr S/tr W0)/(kappa + nu).
// Then W = (nu0 s W0 + S)/(nu0 + nu), and G^-1 is W shrunk by delta.
func (m *Moments) geometry(t *Scalars, s *Stats) (*geometry, error) {
	k := len(m.M0)
	g := &geometry{within: mat.NewSymDense(k, nil), metric: mat.NewSymDense(k, nil)}
	nu0, kappa := math.Exp(t[LogNu0]), math.Exp(t[LogKappa])
	g.scale = (kappa + mat.Trace(s.Scatter)/mat.Trace(m.W)) / (kappa + s.DF)
	g.within.ScaleSym(nu0*g.scale, m.W)
	g.within.AddSym(g.within, s.Scatter)
	g.within.ScaleSym(1/(nu0+s.DF), g.within)

	inverse := moment.Shrunk(g.within, logistic(t[LogitDelta])) // G^-1
	chol, ok := factor(inverse)
	if !ok {
		return nil, fmt.Errorf("the within-class covariance of corpus and uploads is singular; " +
			"use more images for the corpus (dataset.splits.corpus)")
	}
	if err := chol.InverseTo(g.metric); err != nil {
		return nil, fmt.Errorf("metric of the heads: %w", err)
	}
	g.tB, g.tW = inner(g.metric, m.B), inner(g.metric, g.within)
	gamma := logistic(t[LogitGamma])
	prior := mat.NewSymDense(k, nil)
	for i := range k {
		for j := i; j < k; j++ {
			// The prior is a mix of the corpus's B and of G^-1, both of trace 1 under G.
			prior.SetSym(i, j, (1-gamma)*m.B.At(i, j)/g.tB+gamma*inverse.At(i, j)/float64(k))
		}
	}
	// W = LL', L^-1 B L^-T = Q diag(lambda) Q', E = LQ.
	if chol, ok = factor(g.within); !ok {
		return nil, fmt.Errorf("the within-class covariance of corpus and uploads is singular; " +
			"use more images for the corpus (dataset.splits.corpus)")
	}
	l, lambda, turn, err := white(chol, prior, "prior")
	if err != nil {
		return nil, err
	}
	g.lambda, g.turn, g.heads, g.inner = lambda, turn, new(mat.Dense), new(mat.Dense)
	for j, v := range g.lambda {
		// Rounding may leave an eigenvalue of a singular prior below 0.
		g.lambda[j] = math.Max(v, 0)
	}
	if g.basis, g.inv, err = turned(l, turn); err != nil {
		return nil, err
	}
	g.heads.Mul(g.metric, g.basis)
	g.inner.Mul(g.basis.T(), g.heads)
	return g, nil
}

// white returns L of the covariance within classes W = LL', and the eigenvalues, ascending, and the
// eigenvectors of L^-1 B L^-T for the covariance B of something.
// W is only read. Triangular solves stand for L^-1, which is never formed.
func white(within *mat.Cholesky, b *mat.SymDense, of string) (l *mat.TriDense, values []float64,
	q *mat.Dense, err error) {
	l = new(mat.TriDense)
	within.LTo(l)
	var half, whole mat.Dense
	if err = half.Solve(l, b); err == nil {
		err = whole.Solve(l, half.T())
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s in the coordinates of the covariance within "+
			"classes: %w", of, err)
	}
	values, q, ok := moment.Eigen(moment.Symmetric(&whole))
	if !ok {
		return nil, nil, nil, fmt.Errorf(
			"eigenvalues of the covariance of the %s did not converge; check the model's moments",
			of)
	}
	return l, values, q, nil
}

// turned returns E = LQ and its inverse, Q'L^-1 = (L^-T Q)'.
// Q is orthogonal, so that E^-1 costs one triangular solve.
func turned(l *mat.TriDense, q *mat.Dense) (basis, inv *mat.Dense, err error) {
	basis, inv = new(mat.Dense), new(mat.Dense)
	basis.Mul(l, q)
	var half mat.Dense
	if err := half.Solve(l.T(), q); err != nil {
		return nil, nil, fmt.Errorf("inverse of the coordinates: %w", err)
	}
	inv.CloneFrom(half.T())
	return basis, inv, nil
}

// inner returns tr(ab) = sum_i a_ii b_ii + 2 sum_(i<j) a_ij b_ij of symmetric matrices. It costs
// O(k^2).
func inner(a, b *mat.SymDense) float64 {
	sum := 0.0
	k := a.SymmetricDim()
	for i := range k {
		sum += a.At(i, i) * b.At(i, i)
		for j := i + 1; j < k; j++ {
			sum += 2 * a.At(i, j) * b.At(i, j)
		}
	}
	return sum
}

// Posterior is the Gaussian posterior of a task's class means, in the coordinates u.
// A Posterior is only read, and may be shared.
type Posterior struct {
	g *geometry
	// Centre is mt [k].
	Centre []float64
	// Mean and Variance [C, k] are the posterior mean and variance of u_c, without the factor tau:
	// with l_j = b lambda_j, n_c l_j/(n_c l_j + 1) times u of f_c, and l_j/(n_c l_j + 1).
	Mean, Variance *mat.Dense
	// Spread is tr(G V_c) [C].
	Spread []float64
	// Separation is Q, Rho the inverse temperature, Tau the factor of the variance, B the size of
	// the prior.
	Separation, Rho, Tau, B float64
	// Penalty, Doubt and Scale are those of the fit of the heads to the uploads (sample.Refit).
	Penalty, Doubt, Scale float64
	// Ends are how far intervals reach.
	Ends   models.Ends
	offset []float64 // of the logits, [C]
}

// Means returns the posterior means of the classes in the predictor's coordinates [C, k]: mt + E
// u_c with u_c the row of Mean.
func (q *Posterior) Means() *mat.Dense {
	out := new(mat.Dense)
	out.Mul(q.Mean, q.g.basis.T())
	c, _ := out.Dims()
	for y := range c {
		floats.Add(out.RawRowView(y), q.Centre)
	}
	return out
}

// penalty is the precision of a head's weights about the Gaussian form's, beside images that count
// 1, where W is I. Heads of classes that scatter more widely than the corpus's, with s above 1, are
// less like it. Their weights have the variance s/penalty about it, and s^2/penalty for intervals.
const penalty = 60

// Posterior returns the posterior of the class means given the pooled statistics of the uploads.
func (p *Predictor) Posterior(s *Stats) (*Posterior, error) {
	if _, k := s.Mean.Dims(); k != len(p.M0) {
		return nil, fmt.Errorf("uploads of %d coordinates, and the open predictor has %d; use "+
			"models that were made for each other", k, len(p.M0))
	}
	g, err := p.geometry(&p.Scalars, s)
	if err != nil {
		return nil, err
	}
	q := p.posterior(&p.Scalars, g, s)
	classes, images := s.present()
	q.Scale, q.Ends = p.Scale, p.Ends.At(images/max(classes, 1))
	return q, nil
}

// posterior returns the posterior of class means in a geometry. Its equations are those of the
// package's doc. It costs O(C k^2), as the metric in u is not diagonal.
// Centre is (eta m0 + sum_c w_c f_c)/(eta + sum_c w_c), with w_c = n_c/(n_c + 2). mt in the text
// is this centre.
func (m *Moments) posterior(t *Scalars, g *geometry, s *Stats) *Posterior {
	c, k := s.Mean.Dims()
	classes, total := s.present()
	q := &Posterior{g: g, Centre: make([]float64, k), Mean: mat.NewDense(c, k, nil),
		Variance: mat.NewDense(c, k, nil),
		Spread:   make([]float64, c), offset: make([]float64, c), Tau: math.Exp(t[LogTau]),
		Penalty: penalty / g.scale, Doubt: g.scale}
	eta := math.Exp(t[LogEta])
	weights := eta
	floats.ScaleTo(q.Centre, eta, m.M0)
	for y, n := range s.Mass {
		w := n / (n + 2)
		weights += w
		floats.AddScaled(q.Centre, w, s.Mean.RawRowView(y))
	}
	for j := range q.Centre {
		q.Centre[j] /= weights
	}

	away := mat.NewDense(c, k, nil) // f_c - mt, for the classes present
	noise := 0.0                    // mean of 1/n_c over them
	for y, n := range s.Mass {
		if n == 0 {
			continue
		}
		noise += 1 / n / classes
		floats.SubTo(away.RawRowView(y), s.Mean.RawRowView(y), q.Centre)
	}
	var u mat.Dense
	u.Mul(away, g.inv.T())
	spread := g.quadratic(&u)
	size := -g.tW * noise
	for _, v := range spread {
		size += v / math.Max(classes-1, 1)
	}
	k0 := math.Exp(t[LogK0])
	// The floor of 2% keeps the prior from 0 where class means scatter no more than their noise.
	q.B = math.Exp(t[LogB]) * (k0*g.tB + (classes-1)*math.Max(size, 0.02*g.tB)) / (k0 + classes - 1)

	for y, n := range s.Mass {
		mean, variance := q.Mean.RawRowView(y), q.Variance.RawRowView(y)
		for j, v := range u.RawRowView(y) {
			prior := q.B * g.lambda[j]
			mean[j] = n * prior / (n*prior + 1) * v
			variance[j] = prior / (n*prior + 1)
			q.Spread[y] += variance[j] * g.inner.At(j, j)
		}
	}
	share := logistic(t[LogitS])
	for y, v := range g.quadratic(q.Mean) {
		q.Separation += (v + share*q.Spread[y]) / float64(c)
	}
	perClass := total / float64(c)
	q.Rho = math.Exp(t[R0] + t[R1]*math.Log(q.Separation+1e-3) + t[R2]*math.Log(float64(c)/10) +
		t[R3]*math.Log(perClass/20) + t[R4]*math.Log(g.scale))
	for y, v := range q.Spread {
		q.offset[y] = q.Rho * t[O1] * q.Tau * v / 2
		for _, v := range q.Variance.RawRowView(y) {
			q.offset[y] += t[O2] * math.Log(1+v) / float64(k)
		}
	}
	return q
}

// quadratic returns u'Au for every row of u. It costs O(n k^2).
// A is symmetric. One product for all rows is faster than one for each.
func (g *geometry) quadratic(u *mat.Dense) []float64 {
	n, k := u.Dims()
	au := mat.NewDense(n, k, nil)
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, u.RawMatrix(), g.inner.RawMatrix(), 0, au.RawMatrix())
	out := make([]float64, n)
	for i := range out {
		out[i] = floats.Dot(u.RawRowView(i), au.RawRowView(i))
	}
	return out
}

// turned applies Q' to every row of noise. The square root of the posterior covariance is then L Q
// diag(sqrt v) Q', which is smooth in the scalars, while that of the eigenvectors alone changes
// with their signs, and rotates when two eigenvalues are nearly equal. N(0, I) stays N(0, I) under
// it, so that the distribution of samples is the same.
func (g *geometry) turned(noise []float64) []float64 {
	k, _ := g.turn.Dims()
	rows := dense.General(len(noise)/k, k, noise)
	out := dense.General(rows.Rows, k, make([]float64, len(noise)))
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, rows, g.turn.RawMatrix(), 0, out)
	return out.Data
}

// draw returns class means drawn from the posterior, one per row [samples C, k], given noise e that
// is already turned: u_cj = Mean_cj + sqrt(Tau Variance_cj) e_cj.
// Row s C + c is class c of sample s.
func (q *Posterior) draw(noise []float64) *mat.Dense {
	c, k := q.Mean.Dims()
	u := mat.NewDense(len(noise)/k, k, nil)
	std := make([]float64, c*k)
	for i, v := range q.Variance.RawMatrix().Data {
		std[i] = math.Sqrt(q.Tau * v)
	}
	mean, out := q.Mean.RawMatrix().Data, u.RawMatrix().Data
	for i, e := range noise {
		out[i] = mean[i%(c*k)] + std[i%(c*k)]*e
	}
	return u
}

// rows returns the heads for class means u, one class per row [samples C, k], and their biases:
// with mu - mt = E u the weights are rho G E u, and the bias is
//
//	offset_c - rho u'Au/2 - mt'rho G E u
//
// The rows' order is that of u. Weights are [samples C, k], with a bias for each row.
func (q *Posterior) rows(u *mat.Dense) (*mat.Dense, []float64) {
	c, k := q.Mean.Dims()
	n, _ := u.Dims()
	theta := mat.NewDense(n, k, nil)
	dense.Gemm(blas.NoTrans, blas.Trans, q.Rho, u.RawMatrix(), q.g.heads.RawMatrix(), 0,
		theta.RawMatrix())
	bias := q.g.quadratic(u)
	for i := range bias {
		bias[i] = q.offset[i%c] - q.Rho*bias[i]/2 - floats.Dot(q.Centre, theta.RawRowView(i))
	}
	return theta, bias
}

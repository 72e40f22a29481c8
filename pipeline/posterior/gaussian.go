package posterior

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/pipeline/erm"
	"fmp/pipeline/point"
)

// localGaussianPosteriors are the clients' posteriors with prior N(0, I / precision), one ensemble a client, and the
// worst of their diagnostics.
func (t *Task) localGaussianPosteriors(ctx context.Context, precision float64, s Settings) ([]Ensemble, map[string]float64, error) {
	fits, err := t.localFits(ctx, precision, s)
	if err != nil {
		return nil, nil, err
	}
	out := make([]Ensemble, len(fits))
	diagnostics := make([]*diagnostics, len(fits))
	err = parallel(ctx, len(fits), t.in.Threads, func(ctx context.Context, m int) error {
		var err error
		out[m], diagnostics[m], err = t.gaussianPosterior(ctx, fmt.Sprint("client/", m), t.in.Clients[m], fits[m], precision, s, 1)
		if err != nil {
			return fmt.Errorf("client %d: %w", m, err)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return out, summary(diagnostics), nil
}

// pooledGaussianPosterior is the posterior of all clients' points with prior N(0, I / precision).
func (t *Task) pooledGaussianPosterior(ctx context.Context, precision float64, s Settings) (Ensemble, map[string]float64, error) {
	fit, err := t.pooledFit(ctx, precision, s)
	if err != nil {
		return nil, nil, err
	}
	e, d, err := t.gaussianPosterior(ctx, "pooled", t.pooled, fit, precision, s, t.in.Threads)
	if err != nil {
		return nil, nil, err
	}
	return e, summary([]*diagnostics{d}), nil
}

type gaussianResult struct {
	ensemble    Ensemble
	diagnostics *diagnostics
}

// gaussianPosterior draws S heads from p(T) proportional to exp(-J(T)) with J of package erm: the likelihood of set
// (points counted by weight) times the prior N(0, I / precision). mode is J's minimiser.
func (t *Task) gaussianPosterior(ctx context.Context, key string, set *point.Set, mode Theta, precision float64, s Settings, threads int) (Ensemble, *diagnostics, error) {
	memoKey := fmt.Sprint("gaussian/", key, "/", precision, s.Tolerance, s.Sampler)
	if s.Sampler == HMC {
		memoKey += fmt.Sprint(" ", s.Chains, s.Warmup, s.Draws)
	}
	r, err := once(&t.memo, memoKey, func() (gaussianResult, error) {
		target, err := newTarget(set, mode, precision)
		if err != nil {
			return gaussianResult{}, err
		}
		stream := func(part ...any) *rand.Rand {
			return rng.New(t.in.Seed, append([]any{t.in.Stream, "gaussian", key}, part...)...)
		}
		var z [][]float64
		var d *diagnostics
		if s.Sampler == Laplace {
			r := stream("laplace")
			z = make([][]float64, t.in.Samples)
			for i := range z {
				z[i] = normal(r, target.dim())
			}
		} else if z, d, err = hmc(ctx, target, t.in.Samples, s, threads, func(chain int) *rand.Rand { return stream("chain", chain) }); err != nil {
			return gaussianResult{}, err
		}
		rest := stream("complement")
		out := make(Ensemble, len(z))
		for i := range z {
			out[i] = target.head(z[i], rest)
		}
		return gaussianResult{out, d}, nil
	})
	return r.ensemble, r.diagnostics, err
}

// target is the posterior in coordinates where its Laplace approximation is N(0, I): T = mode + U^-1 z, with
// U'U the Hessian of J at the mode.
//
// Where there are fewer points than rows of the head, the likelihood depends only on the part of a head that lies in
// the span of the points. There T = Q A + (rest), with orthonormal Q from X' = QR, and the prior, which no
// rotation changes, makes the rest N(0, I / precision) on the complement of Q, independent of A. So only A,
// min(N, D) x C, is sampled by Markov chain, and the rest exactly.
type target struct {
	problem   *erm.Problem // points in coordinates of the span
	basis     *mat.Dense   // Q, D x r; nil where the points span everything
	d, c      int
	precision float64
	mode      []float64 // C x r
	inverse   []float64 // U^-1, upper triangular, (C r) x (C r)
}

func newTarget(set *point.Set, mode Theta, precision float64) (*target, error) {
	p, err := erm.FromSets(precision, set)
	if err != nil {
		return nil, err
	}
	d := p.D()
	t := &target{problem: p, d: d, c: p.C, precision: precision}
	r := d
	if p.N < d {
		r = p.N
		x := mat.NewDense(p.N, d, p.X)
		var qr mat.QR
		qr.Factorize(x.T())
		var q, reduced mat.Dense
		qr.QTo(&q)
		t.basis = mat.DenseCopyOf(q.Slice(0, d, 0, r))
		reduced.Mul(x, t.basis)
		t.problem = &erm.Problem{N: p.N, Dx: r - 1, C: p.C, X: reduced.RawMatrix().Data, Y: p.Y, W: p.W, L2: p.L2}
	}
	if dim := r * p.C; dim > maxDense {
		return nil, fmt.Errorf("posterior of %d x %d numbers a head; allowed are %d in all: use fewer classes or features", r, p.C, maxDense)
	}
	t.mode = make([]float64, r*p.C)
	modes := mat.NewDense(p.C, r, t.mode)
	if m := mat.NewDense(d, p.C, mode.W); t.basis == nil {
		modes.Copy(m.T())
	} else {
		modes.Mul(m.T(), t.basis)
	}
	h := erm.NewObjective(t.problem).Hessian(t.mode).RawSymmetric()
	u, ok := lapack64.Potrf(h)
	if !ok {
		return nil, fmt.Errorf("the Hessian at the mode is not positive definite with prior precision %v; raise erm.l2", precision)
	}
	if !lapack64.Trtri(u) {
		return nil, fmt.Errorf("the Hessian at the mode is singular with prior precision %v; raise erm.l2", precision)
	}
	t.inverse = u.Data
	return t, nil
}

func (t *target) dim() int { return len(t.mode) }

// unwhiten sets out = mode + U^-1 z.
func (t *target) unwhiten(z, out []float64) {
	n := len(z)
	for i := range n {
		out[i] = t.mode[i] + floats.Dot(t.inverse[i*n+i:(i+1)*n], z[i:])
	}
}

// whitenGradient sets out = U^-T g: the gradient with respect to z given the one with respect to the head.
func (t *target) whitenGradient(g, out []float64) {
	n := len(g)
	for i := range out {
		out[i] = 0
	}
	for i := range n {
		floats.AddScaled(out[i:], g[i], t.inverse[i*n+i:(i+1)*n])
	}
}

// head is the D x C head at z, its part outside the span of the points drawn from r.
func (t *target) head(z []float64, r *rand.Rand) Theta {
	a := make([]float64, len(z))
	t.unwhiten(z, a)
	part := mat.NewDense(t.c, len(a)/t.c, a) // C x r
	out := erm.NewTheta(t.d, t.c)
	full := mat.NewDense(t.d, t.c, out.W)
	if t.basis == nil {
		full.Copy(part.T())
		return out
	}
	g := mat.NewDense(t.d, t.c, normal(r, t.d*t.c))
	g.Scale(1/math.Sqrt(t.precision), g)
	var inside mat.Dense // r x C
	inside.Mul(t.basis.T(), g)
	inside.Sub(part.T(), &inside)
	full.Mul(t.basis, &inside)
	full.Add(full, g)
	return out
}

func normal(r *rand.Rand, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = r.NormFloat64()
	}
	return out
}

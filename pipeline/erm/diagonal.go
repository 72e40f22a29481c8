package erm

import (
	"context"
	"errors"
	"math"
)

// A preconditioner of D x D takes more work to make than many a fit takes by its diagonal alone,
// which needs more products instead. How many shows in the first step of Newton's method. The
// numbers are from simulated points: Gaussian, of 65 to 2,049 features, with and without 32
// directions of decreasing variance, with penalties from 0.1 to 100.
const (
	productsOfInverse = 45 // of a whole fit, preconditioned by the inverse
	productsOfFirst   = 12 // of a whole fit by the diagonal, for each of its first step
	minPatience       = 2  // products of a first step, below which the diagonal is not tried
	leastApproach     = 25 // products below which L-BFGS is not tried
	passOfTwo         = 3  // classes whose products take the time of reading the points once
)

// patience returns the products that the first step of a fit to p by the diagonal may take, if the
// whole is to cost no more multiplications than by the inverse, or by the inverse in the span of
// the points. With n points, d rows of the head and c classes the inverse costs, in products of
// float32 at half of one in float64,
//
//	n d^2 + d^3 + productsOfInverse (2 n d c + 2 d^2 c)
//
// and each product of the first step by the diagonal stands for productsOfFirst of 2 n d c each.
func patience(p *Problem) int {
	n, d, c := float64(p.N), float64(p.D()), float64(p.C)
	if p.two {
		c = passOfTwo
	}
	product := 2 * n * d * c // a multiplication in float32 is half of one in float64
	inverse := n*d*d + d*d*d // half of X'X, and its inverse
	if p.N < p.D() && p.Centre == nil {
		inverse = n*n*d + 3*n*n*n // half of XX', its factor, and the same again in the span
		d = n
	}
	whole := inverse + productsOfInverse*(2*n*d*c+2*d*d*c)
	return int(min(whole/(productsOfFirst*product), 1e6))
}

// errSlow says that a fit by the diagonal takes more products than it is worth.
var errSlow = errors.New("erm: more products than the preconditioner is worth")

// fit fits one problem by the cheaper preconditioner. L-BFGS comes first, then Newton's method by
// the diagonal, and then by the inverse. Each begins where the one before ended. Products of all of
// them count against MaxProducts, and stand in the solution.
func (w *workspace) fit(ctx context.Context, p *Problem, opt Options) (*Solution, error) {
	if p.C == 2 {
		return w.fitTwo(ctx, p, opt)
	}
	spent, well := 0, true
	if !opt.Double && opt.Tolerance >= leastSingle && productsOfFirst*patience(p) >= leastApproach {
		a := approaches.Get().(*approach)
		defer approaches.Put(a)
		var s *Solution
		var err error
		if s, p, well, err = a.fit(ctx, p, opt); err != nil || s != nil {
			return s, err
		}
		spent = a.evaluations
	}
	left := func() Options { // what is left of the bound
		o := opt
		if opt.MaxProducts > 0 {
			o.MaxProducts = max(opt.MaxProducts-spent, 1)
		}
		return o
	}
	most := patience(p)
	if well && most >= minPatience && !opt.Double {
		w.prepare(p, nil)
		w.diagonal, w.patience = make([]float64, w.d), most
		s, err := w.solve(ctx, p.Start, left(), nil)
		if !errors.Is(err, errSlow) {
			if s != nil {
				s.Products += spent
			}
			return s, err
		}
		near := *p
		start := NewTheta(w.d, w.c)
		transpose(w.theta, start.W, w.c, w.d)
		near.Start = &start
		p, spent = &near, spent+w.products
	}
	s, err := w.byInverse(ctx, p, left())
	if s != nil {
		s.Products += spent
	}
	return s, err
}

// byInverse fits one problem, in the span of its points where these are fewer than the rows of the
// head.
func (w *workspace) byInverse(ctx context.Context, p *Problem, opt Options) (*Solution, error) {
	if p.N < p.D() && p.Centre == nil {
		return w.solveInSpan(ctx, p, opt)
	}
	w.prepare(p, nil)
	return w.solve(ctx, p.Start, opt, nil)
}

// newtonByDiagonal is newton for a preconditioner that is a diagonal: errSlow where the products
// come to be more than twice as many as the inverse would be worth.
func (w *workspace) newtonByDiagonal(step int, forcing float64, opt Options) error {
	most := 2*productsOfFirst*w.patience - w.products
	if step == 0 {
		most = w.patience
	}
	bound := opt.left(w.products, most)
	w.single()
	least := math.Max(forcing, minSingle)
	if !(w.conjugateGradient(w.hessianSingle, w.grad, w.step, bound, least) <= least) &&
		!opt.spent(w.products) {
		return errSlow
	}
	return nil
}

// setDiagonal sets diagonal to that of X' diag(v) X + l2 I. It costs n D multiplications, where the
// inverse costs n D^2.
func (w *workspace) setDiagonal(v []float64) {
	for j := range w.diagonal {
		w.diagonal[j] = w.l2
	}
	w.each(func(r *rows, at int) {
		for i, f := range v[at : at+r.n] {
			for j, x := range r.x[i*w.d : (i+1)*w.d] {
				w.diagonal[j] += f * x * x
			}
		}
	})
}

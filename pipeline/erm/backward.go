package erm

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"

	"fmp/onnx/dense"
)

// Gradient is the derivative of a loss with respect to the inputs of a fit.
type Gradient struct {
	Points  []float64 // N x Dx, row-major: features (the bias column is constant and has none)
	Labels  []float64 // N x C, row-major
	Weights []float64 // N
}

// backwardTolerance is the default residual of Backward's linear solve, relative to the norm of the
// cotangent.
const backwardTolerance = 1e-9

// Fits are fits to points that they share, which are stored once, and to points of their own, kept
// for the derivatives of their minimisers. Once the first is solved, others may be solved and
// differentiated at once.
type Fits struct {
	shared *Problem // nil: none
	common *rows
	fits   []fit
	first  *Theta // the first fit's minimiser
}

// fit is one of the fits. space stays with the fit from Solve to Close, as Backward reads its
// probabilities.
type fit struct {
	own   *Problem
	space *workspace
	theta *Theta // the minimiser, unless it is in the workspace
	cold  bool   // the preconditioner is not of where the minimiser is
}

// NewFits prepares fits to the points of each problem of own, together with those of shared unless
// it is nil. They must have the same dx, C and L2, and no centre. Call Close at the end.
func NewFits(shared *Problem, own []*Problem) (*Fits, error) {
	f := &Fits{shared: shared}
	if shared != nil {
		if err := shared.Check(); err != nil {
			return nil, fmt.Errorf("shared points: %w", err)
		}
		f.common = new(rows)
		f.common.prepare(shared)
	}
	return f, f.add(own)
}

// With prepares fits to other points together with the shared ones of f.
func (f *Fits) With(own []*Problem) (*Fits, error) {
	g := &Fits{shared: f.shared, common: f.common}
	return g, g.add(own)
}

// add checks problems and adds their fits. It takes a workspace of the pool for each problem, which
// Close gives back.
func (f *Fits) add(own []*Problem) error {
	like := f.shared
	for i, p := range own {
		if err := p.Check(); err != nil {
			return fmt.Errorf("problem %d of %d: %w", i, len(own), err)
		}
		if like == nil {
			like = p
		}
		if p.Centre != nil || p.C != like.C || p.Dx != like.Dx || p.L2 != like.L2 {
			return fmt.Errorf("erm: problem %d of %d has dx %d, C %d and l2 %v, others %d, %d "+
				"and %v; want one of each, and no centre", i, len(own), p.Dx, p.C, p.L2, like.Dx,
				like.C, like.L2)
		}
	}
	for _, p := range own {
		f.fits = append(f.fits, fit{own: p, space: workspaces.Get().(*workspace)})
	}
	return nil
}

// Close hands the memory of the fits back. The fits must not be used after it.
func (f *Fits) Close() {
	for _, t := range f.fits {
		workspaces.Put(t.space)
	}
	f.fits = nil
}

// Solve solves fit i from its problem's start, or from the first fit's minimiser if there is none.
// The first must be solved before the others.
func (f *Fits) Solve(ctx context.Context, i int, opt Options) (*Solution, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &f.fits[i]
	w, p := t.space, t.own
	n := p.N
	if f.shared != nil {
		n += f.shared.N
	}
	if n < p.D() {
		all := p
		if f.shared != nil {
			all = join(1, f.shared, p)
		}
		s, err := w.solveInSpan(ctx, all, opt)
		if err != nil {
			return nil, err
		}
		t.theta = &s.Theta
		return s, nil
	}
	w.prepare(p, f.common)
	start := p.Start
	if start == nil && i > 0 {
		start = f.first
	}
	s, err := w.solve(ctx, start, opt, nil)
	if err != nil {
		return nil, err
	}
	if i == 0 {
		f.first = &s.Theta
	}
	t.theta, t.cold = nil, start == nil
	return s, nil
}

// Backward propagates dL/dT, the derivative of a scalar loss with respect to the minimiser T of fit
// i, back to the points, labels and weights of its own problem.
//
// At the minimum grad_T J(T, X, Y, w) = 0, so by the implicit function theorem dT = -H^-1 d(grad_T
// J). With H u = dL/dT, a_i = x_i u, r_i = p_i - y_i, and <u, grad_T J> = sum_i w_i <a_i, r_i> + l2
// <u, T>, whose last term holds no data,
//
//	dL/dw_i = -<a_i, r_i>
//	dL/dy_i =  w_i a_i
//	dL/dx_i = -w_i (u r_i + T (p_i * (a_i - <p_i, a_i>))).
//
// Labels are differentiated as free vectors: a parametrisation that keeps them on the simplex
// projects the result.
func (f *Fits) Backward(i int, cotangent Theta, opt Options) (*Gradient, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &f.fits[i]
	w, p := t.space, t.own
	if err := cotangent.checkFinite("cotangent", p); err != nil {
		return nil, err
	}
	if t.theta != nil {
		w.prepare(p, f.common)
		transposeInto(w.theta, t.theta, w.d, w.c)
		w.forward(w.theta, w.logits)
		dense.Softmax(w.columns(w.logits), w.columns(w.prob), w.top, w.sum)
		w.lead = nil
	}
	if t.theta != nil || t.cold {
		if err := w.precondition(); err != nil {
			return nil, err
		}
		t.theta, t.cold = nil, false
	}
	transposeInto(w.grad, &cotangent, w.d, w.c)
	left := w.invert(w.grad, w.step, opt.Residual)
	if !finite(left) || left > math.Sqrt(opt.Residual) {
		return nil, fmt.Errorf("erm: implicit gradient not converged: residual %.3g of the "+
			"cotangent, wanted %.3g; raise l2 (now %g) or scale the features",
			left, opt.Residual, p.L2)
	}
	w.forward(w.step, w.a)
	w.residuals(w.logits)
	return w.derivatives(p, &w.own, 0), nil
}

// Shared returns the derivatives with respect to the shared points, after Backward of fit i.
// Backward leaves u and its logits in the workspace, and Shared reads them: it comes once, and
// right after it.
func (f *Fits) Shared(i int) *Gradient {
	w := f.fits[i].space
	return w.derivatives(f.shared, f.common, w.own.padded)
}

// derivatives returns the derivatives with respect to the points of p, which are r's and whose
// first is at at, from u in step, its logits in a (overwritten at these points) and w (p - y) in
// logits.
func (w *workspace) derivatives(p *Problem, r *rows, at int) *Gradient {
	g := &Gradient{Points: make([]float64, p.N*p.Dx), Labels: make([]float64, p.N*p.C),
		Weights: make([]float64, p.N)}
	a, prob, residuals := w.a[at:], w.prob[at:], w.logits[at:]
	for c := range w.c {
		for i, weight := range p.W {
			a := a[c*w.n+i]
			g.Weights[i] -= a * (prob[c*w.n+i] - p.Y[i*w.c+c])
			g.Labels[i*w.c+c] = weight * a
		}
	}
	part := func(data []float64) dense.Columns {
		return dense.Columns{C: w.c, N: r.padded, Stride: w.n, Data: data}
	}
	dense.Curve(part(a), part(prob), w.w[at:at+r.padded])
	points := dense.General(p.N, p.Dx, g.Points)
	for _, k := range []struct{ left, head []float64 }{{residuals, w.step}, {a, w.theta}} {
		dense.Gemm(blas.Trans, blas.NoTrans, -1,
			blas64.General{Rows: w.c, Cols: p.N, Stride: w.n, Data: k.left},
			blas64.General{Rows: w.c, Cols: p.Dx, Stride: w.d, Data: k.head}, 1, points)
	}
	return g
}

// invert solves H x = b to a residual of tol |b| and returns that residual as a share of |b|: in
// float32, refined by residuals in float64.
func (w *workspace) invert(b, x []float64, tol float64) float64 {
	w.single()
	clear(x)
	copy(w.rest, b)
	left := 1.0
	for range maxRefinements {
		inner := math.Max(tol/left, minSingle)
		got := w.conjugateGradient(w.hessianSingle, w.rest, w.part, 20*w.d, inner)
		if !(got <= inner) {
			break
		}
		floats.Add(x, w.part)
		if tol >= minSingle {
			return got
		}
		w.hessian(x, w.hdir)
		floats.SubTo(w.rest, b, w.hdir)
		if left = math.Sqrt(dot(w.rest, w.rest) / dot(b, b)); left <= tol {
			return left
		}
	}
	return w.conjugateGradient(w.hessian, b, x, 20*w.d, tol)
}

// maxRefinements bounds the refinements of a solution in float32. Each gains three to four digits.
const maxRefinements = 6

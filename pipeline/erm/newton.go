package erm

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/onnx/dense"
	"fmp/pipeline/internal/moment"
)

// conjugateGradient solves H x = b to a residual of tol |b| and returns that residual as a share of
// |b|. hessian multiplies by H. One step is, with M the preconditioner and beta the ratio of r'z to
// the last one's
//
//	alpha = r'z / d'Hd,   x += alpha d,   r -= alpha H d,   z = M^-1 r,   d = z + beta d
//
// (Nocedal and Wright 2006, algorithm 5.3). It makes most products with H at most.
func (w *workspace) conjugateGradient(hessian func(v, out []float64), b, x []float64, most int,
	tol float64) float64 {
	clear(x)
	copy(w.r, b)
	b0 := math.Sqrt(dot(b, b))
	if b0 == 0 {
		return 0
	}
	w.apply(w.r, w.z)
	copy(w.dir, w.z)
	rz := dot(w.r, w.z)
	left := 1.0
	for range most {
		hessian(w.dir, w.hdir)
		curve := dot(w.dir, w.hdir)
		if !(curve > 0) { // only through rounding: H is positive definite
			return left
		}
		alpha := rz / curve
		floats.AddScaled(x, alpha, w.dir)
		floats.AddScaled(w.r, -alpha, w.hdir)
		left = math.Sqrt(dot(w.r, w.r)) / b0
		if left < tol {
			return left
		}
		w.apply(w.r, w.z)
		was := rz
		rz = dot(w.r, w.z)
		floats.Scale(rz/was, w.dir)
		floats.Add(w.dir, w.z)
	}
	return left
}

// solveInSpan is solve in coordinates of the span of the points, where these are fewer than the
// rows of the head (wide extractors). The minimiser lies there, T = -X'(W(P - Y)) / l2; with
// orthonormal Q it is Q A, |QA| = |A|, and A minimises the problem with X Q in place of X. XX' =
// U'U gives Q = X'U^-1 and XQ = U' without forming Q; if the points are nearly collinear, Q comes
// from the QR decomposition of X' instead.
func (w *workspace) solveInSpan(ctx context.Context, p *Problem, opt Options) (*Solution, error) {
	x, d := dense.General(p.N, p.D(), p.X), p.D()
	u := dense.General(p.N, p.N, make([]float64, p.N*p.N))
	dense.AddOuter(x, u)
	f, ok := dense.Cholesky(u, nil)
	least, most := math.Inf(1), 0.0
	for i := range p.N {
		least, most = min(least, u.Data[i*p.N+i]), max(most, u.Data[i*p.N+i])
	}
	inner := &Problem{N: p.N, Dx: p.N - 1, C: p.C, X: make([]float64, p.N*p.N), Y: p.Y,
		W: p.W, L2: p.L2, two: p.two}
	reduced := dense.General(p.N, p.N, inner.X)
	// out maps a head, N x C, from the span's coordinates to the original ones, and in maps it
	// back.
	var out, in func(a, t blas64.General)
	if ok && least > minPivot*most {
		for i := range p.N {
			for j := range i + 1 {
				inner.X[i*p.N+j] = u.Data[j*p.N+i]
			}
		}
		out = func(a, t blas64.General) {
			f.SolveHalf(blas.NoTrans, a)
			dense.Gemm(blas.Trans, blas.NoTrans, 1, x, a, 0, t)
		}
		in = func(t, a blas64.General) {
			dense.Gemm(blas.NoTrans, blas.NoTrans, 1, x, t, 0, a)
			f.SolveHalf(blas.Trans, a)
		}
	} else {
		q := moment.Orthonormal(mat.DenseCopyOf(mat.NewDense(p.N, d, p.X).T())).RawMatrix()
		dense.Gemm(blas.NoTrans, blas.NoTrans, 1, x, q, 0, reduced)
		out = func(a, t blas64.General) { dense.Gemm(blas.NoTrans, blas.NoTrans, 1, q, a, 0, t) }
		in = func(t, a blas64.General) { dense.Gemm(blas.Trans, blas.NoTrans, 1, q, t, 0, a) }
	}
	if p.Start != nil {
		start := NewTheta(p.N, p.C)
		in(dense.General(d, p.C, p.Start.W), dense.General(p.N, p.C, start.W))
		inner.Start = &start
	}
	w.prepare(inner, nil)
	s, err := w.solve(ctx, inner.Start, opt, nil)
	if err != nil {
		return nil, err
	}
	theta := NewTheta(d, p.C)
	out(dense.General(p.N, p.C, s.Theta.W), dense.General(d, p.C, theta.W))
	s.Theta = theta
	return s, nil
}

// minPivot is the smallest diagonal element of a Cholesky factor, relative to the largest, that
// solveInSpan accepts: the square of its inverse is the loss of float64 precision.
const minPivot = 1e-4

// solve runs Newton's method on the prepared points, from start; lead, if not nil, is a fit to
// similar points. Each step costs some products of newton and one of search. It ends where the norm
// of the gradient is Tolerance times the larger of sum_i w_i |x_i| and l2.
func (w *workspace) solve(ctx context.Context, start *Theta, opt Options,
	lead *guide) (*Solution, error) {
	var scale float64
	for _, r := range w.parts {
		scale += r.scale
	}
	// Without any mass the minimiser is zero, reached in one step from anywhere; the floor lets
	// that step pass.
	limit := opt.Tolerance * math.Max(scale, w.l2)
	if w.two {
		limit /= math.Sqrt2 // the gradient's length in both heads is this times as large
	}
	f, err := w.begin(start, lead)
	if err != nil {
		return nil, err
	}
	first, stopped := 0.0, false
	for step := 0; ; step++ {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("erm: stopped: %w", err)
		}
		w.gradient()
		norm := math.Sqrt(dot(w.grad, w.grad))
		if !finite(norm) || !finite(f) {
			return nil, fmt.Errorf("erm: gradient norm %v and objective %v after %d steps; scale "+
				"the features (largest now %v) or raise l2 (now %v)",
				norm, f, step, w.largest(), w.l2)
		}
		stopped = stopped || opt.spent(w.products) || opt.MaxProducts > 0 && step == opt.MaxSteps
		if norm <= limit || stopped {
			s := &Solution{Theta: NewTheta(w.d, w.c), Objective: f, GradientNorm: norm, Steps: step,
				Products: w.products, Stopped: norm > limit}
			transpose(w.theta, s.Theta.W, w.c, w.d)
			return s, nil
		}
		if step == 0 {
			first = norm
		}
		if step == opt.MaxSteps {
			return nil, fmt.Errorf("erm: not converged after %d Newton steps: gradient norm "+
				"%.3g, wanted %.3g (at the start %.3g); raise the tolerance (now %g), l2 (now "+
				"%g) or the steps",
				step, norm, limit, first, opt.Tolerance, w.l2)
		}
		// Inexact Newton: the residual need not be smaller than the step can use (Dembo, Eisenstat
		// and Steihaug 1982), nor smaller than the tolerance requires.
		forcing := norm / first
		if !opt.Double { // a sixth fewer products; float64 keeps its bits
			forcing *= 10
		}
		forcing = math.Max(math.Min(0.1, forcing), 0.3*limit/norm)
		if w.diagonal != nil {
			err = w.newtonByDiagonal(step, forcing, opt)
		} else {
			err = w.newton(forcing, &opt)
		}
		if err != nil {
			return nil, err
		}
		var ok bool
		if f, ok = w.search(f); !ok && opt.MaxProducts > 0 {
			stopped = true
		} else if !ok {
			return nil, fmt.Errorf("erm: no decrease along the Newton step %d: gradient norm "+
				"%.3g, wanted %.3g; raise the tolerance (now %g) or l2 (now %g)", step, norm, limit,
				opt.Tolerance, w.l2)
		}
	}
}

// begin sets the head to the start, the lead's or the centre, prepares the preconditioner, and
// returns the objective there.
func (w *workspace) begin(start *Theta, lead *guide) (f float64, err error) {
	switch {
	case start != nil:
		transpose(start.W, w.theta, w.d, w.c)
	case lead != nil:
		copy(w.theta, lead.theta)
	default:
		copy(w.theta, w.centre)
	}
	w.forward(w.theta, w.logits)
	floats.SubTo(w.away, w.theta, w.centre)
	f = w.loss(w.logits, w.prob) + w.l2/2*dot(w.away, w.away)
	if w.lead = lead; lead == nil || lead.blocks == nil {
		w.lead = nil
		err = w.precondition()
	}
	return f, err
}

// newton computes the step of Newton's method to the relative residual of forcing, in float32
// unless opt.Double is set, which it does where float32 does not get there. A residual that
// opt.MaxProducts leaves larger is a step that goes down too (Steihaug 1983).
func (w *workspace) newton(forcing float64, opt *Options) error {
	if !opt.Double {
		w.single()
		least := math.Max(forcing, minSingle)
		most := opt.left(w.products, 10*w.d)
		left := w.conjugateGradient(w.hessianSingle, w.grad, w.step, most, least)
		if left <= least || opt.spent(w.products) {
			return nil
		}
		// Beyond float32's range or precision, float64 takes over.
		opt.Double, w.lead = true, nil
		if err := w.precondition(); err != nil {
			return err
		}
	}
	w.conjugateGradient(w.hessian, w.grad, w.step, opt.left(w.products, 10*w.d), forcing)
	return nil
}

// search goes back along the step S by halves t until the objective has decreased enough (Armijo),
// goes there, and returns the objective. It reports false if 40 halves do not suffice. With f the
// objective without the step, g its gradient and D its data part
//
//	D(T - t S) + l2/2 |T - T0 - t S|^2 <= f - 1e-4 t <g, S>
//
// Logits move along a line, so that a trial costs no product: dlogits are made once.
func (w *workspace) search(f float64) (float64, bool) {
	slope := dot(w.grad, w.step)
	w.forward(w.step, w.dlogits)
	tt, ts, ss := dot(w.away, w.away), dot(w.away, w.step), dot(w.step, w.step)
	t, best := 1.0, 0.0
	// Near the minimum the true decrease is smaller than the rounding of f, whose terms are logits:
	// those of a fit that hardly errs are much larger than f.
	slack := 1e-12*math.Abs(f) + 0x1p-50*floats.Sum(w.w)*maxAbs(w.logits)
	for try := 0; ; try++ {
		best = w.lineLoss(t) + w.l2/2*(tt-2*t*ts+t*t*ss)
		if best <= f-1e-4*t*slope+slack {
			break
		}
		if try == 40 {
			return f, false
		}
		t /= 2
	}
	floats.AddScaled(w.theta, -t, w.step)
	floats.AddScaled(w.logits, -t, w.dlogits)
	copy(w.prob, w.a) // probabilities of the accepted step, from lineLoss
	return best, true
}

// largest returns the largest absolute feature, for messages. It helps to tell features of a wrong
// scale from a penalty that is too weak.
func (w *workspace) largest() float64 {
	var m float64
	for _, r := range w.parts {
		m = max(m, maxAbs(r.x))
	}
	return m
}

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
	// Residual is |H u - dL/dT| / |dL/dT| of the linear solve.
	Residual float64
}

// BackwardTolerance is the default residual of Backward's linear solve, relative to the norm of the cotangent.
const BackwardTolerance = 1e-9

// Backward propagates dL/dT, the derivative of a scalar loss with respect to the minimiser T of p, back to the points,
// labels and weights of p.
//
// At the minimum grad_T J(T, X, Y, w) = 0, so by the implicit function theorem dT = -H^-1 d(grad_T J). With
// H u = dL/dT, a_i = x_i u, r_i = p_i - y_i, and <u, grad_T J> = sum_i w_i <a_i, r_i> + l2 <u, T>, whose last
// term holds no data,
//
//	dL/dw_i = -<a_i, r_i>
//	dL/dy_i =  w_i a_i
//	dL/dx_i = -w_i (u r_i + T (p_i * (a_i - <p_i, a_i>))).
//
// theta is Solve's minimiser of p. Labels are differentiated as free vectors: a parametrisation that keeps
// them on the simplex projects the result.
func Backward(ctx context.Context, p *Problem, theta, cotangent Theta) (*Gradient, error) {
	g, err := BackwardAll(ctx, []*Problem{p}, []Theta{theta}, []Theta{cotangent}, Options{})
	if err != nil {
		return nil, err
	}
	return g[0], nil
}

// BackwardAll is Backward for a batch, opt.Threads problems at a time. The error of a problem that fails names it.
func BackwardAll(ctx context.Context, ps []*Problem, thetas, cotangents []Theta, opt Options) ([]*Gradient, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	if len(thetas) != len(ps) || len(cotangents) != len(ps) {
		return nil, fmt.Errorf("erm: %d problems, %d minimisers, %d cotangents; want one of each a problem", len(ps), len(thetas), len(cotangents))
	}
	out := make([]*Gradient, len(ps))
	err = each(ctx, len(ps), opt.Threads, func(_ context.Context, i int) error {
		if err := ps[i].Check(); err != nil {
			return err
		}
		if err := thetas[i].checkFinite("minimiser", ps[i]); err != nil {
			return err
		}
		if err := cotangents[i].checkFinite("cotangent", ps[i]); err != nil {
			return err
		}
		w := workspaces.Get().(*workspace)
		defer workspaces.Put(w)
		g, err := w.backward(ps[i], thetas[i], cotangents[i], opt.Residual)
		out[i] = g
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (w *workspace) backward(p *Problem, theta, cotangent Theta, residual float64) (*Gradient, error) {
	w.prepare(p, nil)
	transposeInto(w.theta, &theta, w.d, w.c)
	w.forward(w.theta, w.logits)
	dense.Softmax(w.columns(w.logits), w.columns(w.prob), w.top, w.sum)
	w.lead = nil
	if err := w.precondition(); err != nil {
		return nil, err
	}
	transposeInto(w.grad, &cotangent, w.d, w.c)
	g := &Gradient{Points: make([]float64, p.N*p.Dx), Labels: make([]float64, p.N*p.C), Weights: make([]float64, p.N)}
	u := w.step
	g.Residual = w.invert(w.grad, u, residual)
	if !finite(g.Residual) || g.Residual > math.Sqrt(residual) {
		return nil, fmt.Errorf("erm: implicit gradient not converged: residual %.3g of the cotangent, wanted %.3g; raise l2 (now %g) or scale the features", g.Residual, residual, p.L2)
	}
	w.forward(u, w.a)
	r := w.logits // w (p - y)
	w.residuals(r)
	for i, weight := range p.W {
		for c := range w.c {
			a := w.a[c*w.n+i]
			g.Weights[i] -= a * (w.prob[c*w.n+i] - p.Y[i*w.c+c])
			g.Labels[i*w.c+c] = weight * a
		}
	}
	dense.Curve(w.columns(w.a), w.columns(w.prob), w.w)
	points := blas64.General{Rows: p.N, Cols: p.Dx, Stride: p.Dx, Data: g.Points}
	for _, k := range []struct{ left, head []float64 }{{r, u}, {w.a, w.theta}} {
		dense.Gemm(blas.Trans, blas.NoTrans, -1,
			blas64.General{Rows: w.c, Cols: p.N, Stride: w.n, Data: k.left},
			blas64.General{Rows: w.c, Cols: p.Dx, Stride: w.d, Data: k.head}, 1, points)
	}
	return g, nil
}

// invert solves H x = b to a residual of tol |b| and returns that residual as a share of |b|: in float32, refined by residuals in float64.
func (w *workspace) invert(b, x []float64, tol float64) float64 {
	w.single()
	clear(x)
	copy(w.rest, b)
	left := 1.0
	for range maxRefinements {
		inner := math.Max(tol/left, leastSingle)
		got := w.conjugateGradient(w.hessianSingle, w.rest, w.part, 20*w.d, inner)
		if !(got <= inner) {
			break
		}
		floats.Add(x, w.part)
		if tol >= leastSingle {
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

package erm

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"

	"fmp/onnx/dense"
)

// Defaults of Options.
const (
	DefaultTolerance = 1e-9
	DefaultMaxSteps  = 50
)

// Options of a fit. The zero value asks for the defaults.
type Options struct {
	// Tolerance on the norm of the gradient, as a share of sum_i w_i |x_i| (which bounds that norm, less
	// the regulariser, up to a factor of 1.5). Default 1e-9; allowed are 1e-14 to 0.1.
	Tolerance float64
	// MaxSteps of Newton's method. Default 50.
	MaxSteps int
	// Residual is what Backward's linear solve stops at, as a share of the cotangent. Default
	// BackwardTolerance; allowed are 1e-14 to 0.1. Stochastic training does well with 1e-4.
	Residual float64
	// Threads is how many problems of a batch are solved at a time; 0: one a processor. Results do not
	// depend on it.
	Threads int
}

func (o Options) withDefaults() (Options, error) {
	if o.Tolerance == 0 {
		o.Tolerance = DefaultTolerance
	}
	if o.Residual == 0 {
		o.Residual = BackwardTolerance
	}
	if o.MaxSteps == 0 {
		o.MaxSteps = DefaultMaxSteps
	}
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	if !(o.Tolerance >= 1e-14 && o.Tolerance <= 0.1) {
		return o, fmt.Errorf("erm: tolerance is %v; allowed are 1e-14 to 0.1", o.Tolerance)
	}
	if !(o.Residual >= 1e-14 && o.Residual <= 0.1) {
		return o, fmt.Errorf("erm: residual is %v; allowed are 1e-14 to 0.1", o.Residual)
	}
	if o.MaxSteps < 1 {
		return o, fmt.Errorf("erm: max steps is %d; allowed are numbers from 1", o.MaxSteps)
	}
	return o, nil
}

// Solution is a minimiser and how it was reached.
type Solution struct {
	Theta        Theta
	Objective    float64 // J at Theta
	GradientNorm float64 // |grad J| there
	Steps        int     // Newton steps taken
	Products     int     // Hessian products spent on them
}

// Solve fits one problem. That the gradient does not fall below the tolerance is an error that gives its norm.
func Solve(ctx context.Context, p *Problem, opt Options) (*Solution, error) {
	s, err := SolveAll(ctx, []*Problem{p}, opt)
	if err != nil {
		return nil, err
	}
	return s[0], nil
}

// SolveAll fits a batch, opt.Threads problems at a time. The first problem that fails, in order of start, ends the
// batch; its error names it.
func SolveAll(ctx context.Context, ps []*Problem, opt Options) ([]*Solution, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	out := make([]*Solution, len(ps))
	err = each(ctx, len(ps), opt.Threads, func(ctx context.Context, i int) error {
		if err := ps[i].Check(); err != nil {
			return err
		}
		w := workspaces.Get().(*workspace)
		defer workspaces.Put(w)
		s, err := w.solveInSpan(ctx, ps[i], opt)
		out[i] = s
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// each calls do for 0 to n-1, at most threads at a time, and names the item in an error if there are several.
func each(ctx context.Context, n, threads int, do func(context.Context, int) error) error {
	g, work := errgroup.WithContext(ctx)
	g.SetLimit(threads)
	for i := range n {
		g.Go(func() error {
			if err := work.Err(); err != nil {
				return err
			}
			err := do(work, i)
			if err != nil && n > 1 {
				return fmt.Errorf("problem %d of %d: %w", i, n, err)
			}
			return err
		})
	}
	return g.Wait()
}

// workspace holds the buffers of one fit. Heads inside it are transposed, C x D, one class a row, and so is what there is one
// of a point and class: C x n, with the parts' points side by side.
type workspace struct {
	n, d, c int // n: padded points of all parts
	l2      float64
	parts   []*rows
	own     rows

	theta, trial, grad, step []float64 // C x D
	r, z, dir, hdir          []float64 // C x D, conjugate gradient
	prob, a                  []float64 // C x n
	logits, dlogits          []float64 // C x n: X theta and X step, so that a line search costs no product
	w                        []float64 // n
	top, sum                 []float64 // n, of softmaxes
	scaled, gramian          []float64 // points and D x D, for the preconditioner
	inverse                  dense.Packed
	products                 int
}

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// resize is a slice of n numbers, in place if there is room. Its content is arbitrary.
func resize(b *[]float64, n int) {
	if cap(*b) < n {
		*b = make([]float64, n)
	}
	*b = (*b)[:n]
}

// prepare is for a fit to p's points and, where it is not nil, to those of shared.
func (w *workspace) prepare(p *Problem, shared *rows) {
	w.own.prepare(p)
	w.parts = append(w.parts[:0], &w.own)
	if shared != nil {
		w.parts = append(w.parts, shared)
	}
	w.n, w.d, w.c, w.l2, w.products = 0, p.D(), p.C, p.L2, 0
	for _, r := range w.parts {
		w.n += r.padded
	}
	for _, b := range []*[]float64{&w.theta, &w.trial, &w.grad, &w.step, &w.r, &w.z, &w.dir, &w.hdir} {
		resize(b, w.c*w.d)
	}
	for _, b := range []*[]float64{&w.prob, &w.a, &w.logits, &w.dlogits} {
		resize(b, w.c*w.n)
	}
	for _, b := range []*[]float64{&w.w, &w.top, &w.sum} {
		resize(b, w.n)
	}
	at := 0
	for _, r := range w.parts {
		at += copy(w.w[at:], r.w)
	}
}

// columns is a matrix of C x n.
func (w *workspace) columns(data []float64) dense.Columns {
	return dense.Columns{C: w.c, N: w.n, Stride: w.n, Data: data}
}

// each calls do for every part and the place of its first point.
func (w *workspace) each(do func(r *rows, at int)) {
	at := 0
	for _, r := range w.parts {
		do(r, at)
		at += r.padded
	}
}

// forward sets out = t X', C x n, for a transposed head t.
func (w *workspace) forward(t, out []float64) {
	clear(out)
	w.each(func(r *rows, at int) {
		r.across.Mul(blas.NoTrans, general(w.c, w.d, t), blas64.General{Rows: w.c, Cols: r.padded, Stride: w.n, Data: out[at:]})
	})
}

// adjoint sets out = a X + l2 t, C x D, for a of C x n.
func (w *workspace) adjoint(a, t, out []float64) {
	for i, v := range t {
		out[i] = w.l2 * v
	}
	w.each(func(r *rows, at int) {
		r.along.Mul(blas.NoTrans, blas64.General{Rows: w.c, Cols: r.n, Stride: w.n, Data: a[at:]}, general(w.c, w.d, out))
	})
}

// loss sets p to the softmax of logits (which may be p) and returns the data part of the objective.
func (w *workspace) loss(logits, p []float64) float64 {
	var sum float64
	w.each(func(r *rows, at int) {
		for c := range w.c {
			sum -= dot(r.wy[c*r.padded:c*r.padded+r.n], logits[c*w.n+at:c*w.n+at+r.n])
		}
	})
	dense.Softmax(w.columns(logits), w.columns(p), w.top, w.sum)
	for i, v := range w.w {
		if v != 0 {
			sum += v * (w.top[i] + math.Log(w.sum[i]))
		}
	}
	return sum
}

// lineLoss is the data part of the objective with logits moved by -t dlogits; it leaves the softmaxes there in a.
func (w *workspace) lineLoss(t float64) float64 {
	floats.AddScaledTo(w.a, w.logits, -t, w.dlogits)
	return w.loss(w.a, w.a)
}

// gradient sets grad at the current probabilities.
func (w *workspace) gradient() {
	w.residuals(w.a)
	w.adjoint(w.a, w.theta, w.grad)
}

// residuals sets out, C x n, to w (p - y).
func (w *workspace) residuals(out []float64) {
	w.each(func(r *rows, at int) {
		for c := range w.c {
			wy := r.wy[c*r.padded : (c+1)*r.padded]
			p, to := w.prob[c*w.n+at:][:len(wy)], out[c*w.n+at:][:len(wy)]
			for i, v := range wy {
				to[i] = r.w[i]*p[i] - v
			}
		}
	})
}

// hessian sets out = H v at the current probabilities.
func (w *workspace) hessian(v, out []float64) {
	w.products++
	w.forward(v, w.a)
	dense.Curve(w.columns(w.a), w.columns(w.prob), w.w)
	w.adjoint(w.a, v, out)
}

// precondition makes the inverse of 1/4 (1 - 1/C) X'WX + l2 I.
func (w *workspace) precondition() error {
	resize(&w.gramian, w.d*w.d)
	g := w.gramian
	clear(g)
	bound := 0.25 * (1 - 1/float64(w.c))
	w.each(func(r *rows, at int) {
		v := w.top[at : at+r.n]
		for i := range v {
			v[i] = bound * r.w[i]
		}
		r.gram(v, g, &w.scaled)
	})
	for i := range w.d {
		g[i*w.d+i] += w.l2
	}
	t, ok := lapack64.Potrf(blas64.Symmetric{N: w.d, Stride: w.d, Data: g, Uplo: blas.Upper})
	if !ok {
		return fmt.Errorf("erm: X'WX + l2 I is not positive definite with l2 %v; raise l2 or scale the features", w.l2)
	}
	lapack64.Potri(t)
	for i := range w.d {
		for j := range i {
			g[i*w.d+j] = g[j*w.d+i]
		}
	}
	w.inverse = dense.Pack(blas.NoTrans, general(w.d, w.d, g), w.inverse.Buffer())
	return nil
}

// apply sets out = M^-1 v.
func (w *workspace) apply(v, out []float64) {
	clear(out)
	w.inverse.Mul(blas.NoTrans, general(w.c, w.d, v), general(w.c, w.d, out))
}

// conjugateGradient solves H x = b to a residual of tol |b| and returns that residual as a share of |b|.
func (w *workspace) conjugateGradient(b, x []float64, most int, tol float64) float64 {
	for i := range x {
		x[i] = 0
	}
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
		w.hessian(w.dir, w.hdir)
		curve := dot(w.dir, w.hdir)
		if !(curve > 0) { // only rounding gets here: H is positive definite
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

// solveInSpan is solve in coordinates of the span of the points where these are fewer than the rows of the head (wide
// extractors). The minimiser lies there, T = -X'(W(P - Y)) / l2; with orthonormal Q from X' = QR it is Q A, |QA| = |A|,
// and A minimises the problem with X Q in place of X.
func (w *workspace) solveInSpan(ctx context.Context, p *Problem, opt Options) (*Solution, error) {
	if p.N >= p.D() {
		return w.solve(ctx, p, opt)
	}
	x := mat.NewDense(p.N, p.D(), p.X)
	var qr mat.QR
	qr.Factorize(x.T())
	var full, reduced mat.Dense
	qr.QTo(&full)
	q := full.Slice(0, p.D(), 0, p.N)
	reduced.Mul(x, q)
	inner := &Problem{N: p.N, Dx: p.N - 1, C: p.C, X: reduced.RawMatrix().Data, Y: p.Y, W: p.W, L2: p.L2}
	if p.Start != nil {
		var start mat.Dense
		start.Mul(q.T(), mat.NewDense(p.D(), p.C, p.Start.W))
		inner.Start = &Theta{D: p.N, C: p.C, W: start.RawMatrix().Data}
	}
	s, err := w.solve(ctx, inner, opt)
	if err != nil {
		return nil, err
	}
	theta := NewTheta(p.D(), p.C)
	mat.NewDense(p.D(), p.C, theta.W).Mul(q, mat.NewDense(p.N, p.C, s.Theta.W))
	s.Theta = theta
	return s, nil
}

// solve is Newton's method.
func (w *workspace) solve(ctx context.Context, p *Problem, opt Options) (*Solution, error) {
	w.prepare(p, nil)
	if err := w.precondition(); err != nil {
		return nil, err
	}
	var scale float64
	for i := range p.N {
		x := p.X[i*w.d : (i+1)*w.d]
		scale += p.W[i] * math.Sqrt(dot(x, x))
	}
	// With no mass at all the minimiser is zero, reached in one step from anywhere; the floor lets it be found.
	limit := opt.Tolerance * math.Max(scale, p.L2)
	transposeInto(w.theta, p.Start, w.d, w.c)
	w.forward(w.theta, w.logits)
	f := w.loss(w.logits, w.prob) + p.L2/2*dot(w.theta, w.theta)
	first := 0.0
	for step := 0; ; step++ {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("erm: stopped: %w", err)
		}
		w.gradient()
		norm := math.Sqrt(dot(w.grad, w.grad))
		if !finite(norm) || !finite(f) {
			return nil, fmt.Errorf("erm: gradient norm %v and objective %v after %d steps; scale the features (largest now %v) or raise l2 (now %v)", norm, f, step, maxAbs(p.X), p.L2)
		}
		if norm <= limit {
			s := &Solution{Theta: NewTheta(w.d, w.c), Objective: f, GradientNorm: norm, Steps: step, Products: w.products}
			transpose(w.theta, s.Theta.W, w.c, w.d)
			return s, nil
		}
		if step == 0 {
			first = norm
		}
		if step == opt.MaxSteps {
			return nil, fmt.Errorf("erm: not converged after %d Newton steps: gradient norm %.3g, wanted %.3g (at the start %.3g); raise the tolerance (now %g), l2 (now %g) or the steps", step, norm, limit, first, opt.Tolerance, p.L2)
		}
		// Inexact Newton: the residual need not be smaller than what the step can use (Dembo, Eisenstat and
		// Steihaug 1982), and never smaller than the tolerance asks.
		forcing := math.Min(0.1, norm/first)
		forcing = math.Max(forcing, 0.3*limit/norm)
		w.conjugateGradient(w.grad, w.step, 10*w.d, forcing)
		slope := dot(w.grad, w.step)
		w.forward(w.step, w.dlogits)
		tt, ts, ss := dot(w.theta, w.theta), dot(w.theta, w.step), dot(w.step, w.step)
		t, best := 1.0, 0.0
		for try := 0; ; try++ {
			best = w.lineLoss(t) + p.L2/2*(tt-2*t*ts+t*t*ss)
			// The slack is the rounding of f: near the minimum the true decrease is below it.
			if best <= f-1e-4*t*slope+1e-12*math.Abs(f) {
				break
			}
			if try == 40 {
				return nil, fmt.Errorf("erm: no decrease along the Newton step %d: gradient norm %.3g, wanted %.3g; raise the tolerance (now %g) or l2 (now %g)", step, norm, limit, opt.Tolerance, p.L2)
			}
			t /= 2
		}
		floats.AddScaled(w.theta, -t, w.step)
		floats.AddScaled(w.logits, -t, w.dlogits)
		copy(w.prob, w.a) // lineLoss left the probabilities of the accepted step there
		f = best
	}
}

func dot(a, b []float64) float64 { return floats.Dot(a, b) }

func maxAbs(x []float64) float64 {
	var m float64
	for _, v := range x {
		m = max(m, math.Abs(v))
	}
	return m
}

// transpose writes the transpose of src (rows x cols) to dst.
func transpose(src, dst []float64, rows, cols int) {
	for i := range rows {
		for j := range cols {
			dst[j*rows+i] = src[i*cols+j]
		}
	}
}

// transposeInto writes t, or zeros where it is nil, to dst as C x D.
func transposeInto(dst []float64, t *Theta, d, c int) {
	if t == nil {
		for i := range dst {
			dst[i] = 0
		}
		return
	}
	transpose(t.W, dst, d, c)
}

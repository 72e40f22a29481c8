package erm

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/onnx/dense"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/internal/parallel"
)

// Defaults of Options.
const (
	DefaultTolerance = 1e-9
	DefaultMaxSteps  = 50
)

// Options are the settings of a fit. The zero value selects the defaults.
type Options struct {
	// Tolerance on the norm of the gradient, relative to sum_i w_i |x_i| (which bounds that norm,
	// without the regulariser, up to a factor of 1.5). Default 1e-9; allowed are 1e-14 to 0.1.
	Tolerance float64
	// MaxSteps bounds the steps of Newton's method. Default 50.
	MaxSteps int
	// MaxProducts bounds the products with the Hessian that Newton's method takes in [Solve] and
	// [SolveAll]. A fit that wants more, or more than MaxSteps, ends there: Solution.Stopped. At 0,
	// the default, there is no bound, and to want more than MaxSteps is an error.
	MaxProducts int
	// Residual is the relative residual at which Fits.Backward's linear solve stops. Default 1e-9;
	// allowed are 1e-14 to 0.1. For stochastic training 1e-4 is enough.
	Residual float64
	// Double does Newton's inner iterations in float64. In float32, the default, they take half the
	// time, and minimisers are as good by Tolerance: callers that depend on their last bits need
	// it, such as Markov chains that start there.
	Double bool
	// Threads is how many problems of a batch are solved at a time; 0: one per processor. Results
	// do not depend on it.
	Threads int
}

// spent reports whether MaxProducts are.
func (o Options) spent(products int) bool { return o.MaxProducts > 0 && products >= o.MaxProducts }

// left returns the products that remain of MaxProducts, at most most.
func (o Options) left(spent, most int) int {
	if o.MaxProducts > 0 {
		return min(most, o.MaxProducts-spent)
	}
	return most
}

// withDefaults returns the options with defaults in place of zeros, or an error that names the
// first one out of bounds.
func (o Options) withDefaults() (Options, error) {
	o.Tolerance = cmp.Or(o.Tolerance, DefaultTolerance)
	o.Residual = cmp.Or(o.Residual, backwardTolerance)
	o.MaxSteps = cmp.Or(o.MaxSteps, DefaultMaxSteps)
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
	if o.MaxProducts < 0 {
		return o, fmt.Errorf("erm: max products is %d; allowed are numbers from 0", o.MaxProducts)
	}
	return o, nil
}

// Solution is a minimiser with statistics of the solve.
type Solution struct {
	Theta        Theta
	Objective    float64 // J at Theta
	GradientNorm float64 // |grad J| there
	Steps        int     // Newton steps taken
	Products     int     // Hessian products spent on them
	// Stopped says that MaxProducts, MaxSteps or a step without a decrease ended the fit. The
	// objective is at most that where Newton's method began, the gradient above the tolerance.
	Stopped bool
}

// Solve fits one problem. It is an error, which reports the norm, if the gradient does not fall
// below the tolerance.
func Solve(ctx context.Context, p *Problem, opt Options) (*Solution, error) {
	s, err := SolveAll(ctx, []*Problem{p}, opt)
	if err != nil {
		return nil, err
	}
	return s[0], nil
}

// SolveAll fits a batch, opt.Threads problems at a time. The first problem that fails stops the
// batch; the error names it.
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
		var err error
		out[i], err = w.fit(ctx, ps[i], opt)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// SolveShared fits a batch of similar problems: each has its own points and those of shared, which
// are stored once. It first fits, roughly, the shared points with the first problems' own points at
// reduced weight. The problems start there, preconditioned by the inverse of the Hessian's diagonal
// blocks there, one per class, or each by one block of its own if the first problems show that to
// take fewer products. All problems must have the same C, Dx and L2.
func SolveShared(ctx context.Context, shared *Problem, own []*Problem,
	opt Options) ([]*Solution, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := shared.Check(); err != nil {
		return nil, fmt.Errorf("shared points: %w", err)
	}
	for i, p := range own {
		if p.C != shared.C || p.Dx != shared.Dx || p.L2 != shared.L2 {
			return nil, fmt.Errorf("erm: problem %d has dx %d, C %d and l2 %v, the shared points "+
				"%d, %d and %v; want one of each",
				i, p.Dx, p.C, p.L2, shared.Dx, shared.C, shared.L2)
		}
		if p.Centre != nil {
			return nil, fmt.Errorf("erm: problem %d of %d has a centre; fit it with SolveAll", i,
				len(own))
		}
		if err := p.Check(); err != nil {
			return nil, fmt.Errorf("problem %d of %d: %w", i, len(own), err)
		}
	}
	var common rows
	common.prepare(shared)
	lead, err := leader(ctx, shared, own, opt)
	if err != nil {
		return nil, err
	}
	out := make([]*Solution, len(own))
	fit := func(ctx context.Context, i int, lead *guide) error {
		w := workspaces.Get().(*workspace)
		defer workspaces.Put(w)
		var err error
		if shared.N+own[i].N < shared.D() {
			out[i], err = w.fit(ctx, join(1, shared, own[i]), opt)
			return err
		}
		w.prepare(own[i], &common)
		out[i], err = w.solve(ctx, own[i].Start, opt, lead)
		return err
	}
	// If the problems turn out to differ, the common fit's blocks are worse than a preconditioner
	// of their own: the first ones decide.
	tried := 0
	if lead != nil {
		start := &guide{theta: lead.theta}
		tried = leaders
		if err := each(ctx, tried, opt.Threads, func(ctx context.Context, i int) error {
			return fit(ctx, i, []*guide{lead, start}[i%2])
		}); err != nil {
			return nil, err
		}
		if out[0].Products+out[2].Products > out[1].Products+out[3].Products {
			lead = start
		}
	}
	err = each(ctx, len(own), opt.Threads, func(ctx context.Context, i int) error {
		if i < tried {
			return nil
		}
		return fit(ctx, i, lead)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

const (
	leaders       = 4    // problems whose own points the common fit includes
	leadTolerance = 1e-3 // its tolerance
)

// leader returns the common fit from which the problems start: nil where they are few, or their
// points fewer than features.
func leader(ctx context.Context, shared *Problem, own []*Problem, opt Options) (*guide, error) {
	if len(own) < 2*leaders || shared.N+own[0].N < shared.D() {
		return nil, nil
	}
	w := workspaces.Get().(*workspace)
	defer workspaces.Put(w)
	w.prepare(join(1./leaders, shared, own[:leaders]...), nil)
	opt.Tolerance = max(opt.Tolerance, leadTolerance)
	if _, err := w.solve(ctx, nil, opt, nil); err != nil {
		return nil, fmt.Errorf("fit to the first %d problems: %w", leaders, err)
	}
	return w.guide()
}

// join returns the problem of all the points, with the weights of own scaled by share. X, Y and W
// are copied, so that the result shares no memory with its parts. Of one problem alone the warm
// start is kept.
func join(share float64, shared *Problem, own ...*Problem) *Problem {
	p := &Problem{N: shared.N, Dx: shared.Dx, C: shared.C, X: slices.Clone(shared.X),
		Y: slices.Clone(shared.Y), W: slices.Clone(shared.W), L2: shared.L2}
	for _, q := range own {
		p.N += q.N
		p.X, p.Y = append(p.X, q.X...), append(p.Y, q.Y...)
		for _, w := range q.W {
			p.W = append(p.W, share*w)
		}
	}
	if len(own) == 1 {
		p.Start = own[0].Start
	}
	return p
}

// each calls do for 0 to n-1, on at most threads goroutines at a time, and names the item in an
// error if there are several. The first error ends the context of the others.
func each(ctx context.Context, n, threads int, do func(context.Context, int) error) error {
	return parallel.Each(ctx, threads, n, func(ctx context.Context, i int) error {
		err := do(ctx, i)
		if err != nil && n > 1 {
			return fmt.Errorf("problem %d of %d: %w", i, n, err)
		}
		return err
	})
}

// workspace holds the buffers of one fit. Heads inside it are transposed, C x D, one class per row;
// matrices with an entry per point and class are C x n, with the points of the parts side by side.
// Buffers hold arbitrary numbers of earlier fits: each method writes its own before it reads. A
// workspace serves one goroutine at a time. It comes from a pool, as a fit of thousands of features
// holds megabytes.
type workspace struct {
	n, d, c int // n: padded points of all parts
	l2      float64
	two     bool // of two classes, as one head
	parts   []*rows
	own     rows

	theta, away, grad, step []float64 // C x D; away is theta less centre
	centre                  []float64 // C x D
	r, z, dir, hdir         []float64 // C x D, conjugate gradient
	rest, part              []float64 // C x D, refinement
	prob, a                 []float64 // C x n
	// C x n: X theta and X step, so that a line search costs no product
	logits, dlogits []float64
	w               []float64 // n
	top, sum        []float64 // n, of softmaxes
	scaled, gramian []float64 // points and D x D, for the preconditioner
	blocks          []float64 // of its factor
	inverse         dense.Packed
	// where not nil, the diagonal of the matrix takes the place of its inverse
	diagonal []float64
	patience int       // products of the first step by the diagonal
	lead     *guide    // where not nil, its blocks take the place of inverse
	common   []float64 // 2 D, for apply
	products int

	// Of fits to two classes: logits and probabilities of both, 2 x n, and the sum of rows of a
	// part
	pair  []float64
	partS []float32

	// Of hessianSingle: the direction, logits and Hessian product with classes and features rounded
	// up, probabilities and weights.
	dirS, aS, hdirS, probS, wS []float32
	ownS                       []float32 // D, for apply
}

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// resize returns a slice of n numbers with arbitrary content, reusing *b if it is large enough.
func resize[T any](b *[]T, n int) {
	if cap(*b) < n {
		*b = make([]T, n)
	}
	*b = (*b)[:n]
}

// prepare sets up a fit to p's points and, if shared is not nil, those of shared.
func (w *workspace) prepare(p *Problem, shared *rows) {
	w.own.prepare(p)
	w.parts = append(w.parts[:0], &w.own)
	if shared != nil {
		w.parts = append(w.parts, shared)
	}
	w.n, w.d, w.c, w.l2, w.products, w.diagonal = 0, p.D(), p.C, p.L2, 0, nil
	w.two = p.two
	for _, r := range w.parts {
		w.n += r.padded
	}
	for _, b := range []*[]float64{&w.theta, &w.away, &w.grad, &w.step, &w.centre, &w.r, &w.z,
		&w.dir, &w.hdir, &w.rest, &w.part} {
		resize(b, w.c*w.d)
	}
	for _, b := range []*[]float64{&w.prob, &w.a, &w.logits, &w.dlogits} {
		resize(b, w.c*w.n)
	}
	for _, b := range []*[]float64{&w.w, &w.top, &w.sum} {
		resize(b, w.n)
	}
	transposeInto(w.centre, p.Centre, w.d, w.c)
	at := 0
	for _, r := range w.parts {
		at += copy(w.w[at:], r.w)
	}
}

// columns returns data as a C x n matrix.
func (w *workspace) columns(data []float64) dense.Columns {
	return dense.Columns{C: w.c, N: w.n, Stride: w.n, Data: data}
}

// each calls do for every part with the index of its first point.
func (w *workspace) each(do func(r *rows, at int)) {
	at := 0
	for _, r := range w.parts {
		do(r, at)
		at += r.padded
	}
}

// forward sets out = t X', C x n, for a transposed head t. It costs 2 n D C operations, as does
// adjoint.
func (w *workspace) forward(t, out []float64) {
	clear(out)
	if w.two {
		dense.Dots(w.own.x, t, out[:w.own.n])
		return
	}
	w.each(func(r *rows, at int) {
		r.across.Mul(blas.NoTrans, dense.General(w.c, w.d, t),
			blas64.General{Rows: w.c, Cols: dense.Padded(r.n), Stride: w.n, Data: out[at:]})
	})
}

// adjoint sets out = a X + l2 t, C x D, for a of C x n. Without the second term it is the transpose
// of forward.
func (w *workspace) adjoint(a, t, out []float64) {
	floats.ScaleTo(out, w.l2, t)
	if w.two {
		dense.AddRows(w.own.x, a[:w.own.n], out)
		return
	}
	w.each(func(r *rows, at int) {
		r.along.Mul(blas.NoTrans, blas64.General{Rows: w.c, Cols: r.n, Stride: w.n, Data: a[at:]},
			dense.General(w.c, w.d, out))
	})
}

// loss sets p to the softmax of logits (which may be p) and returns the data part of the objective.
// With wy = w y and l the logits it is
//
//	sum_i (w_i log sum_c exp(l_ci) - sum_c wy_ci l_ci)
//
// top and sum hold the largest logit of each point, and the sum of exponentials less it. Points of
// weight 0, padding among them, are left out.
func (w *workspace) loss(logits, p []float64) float64 {
	var sum float64
	w.each(func(r *rows, at int) {
		for c := range w.c {
			sum -= dot(r.wy[c*r.padded:c*r.padded+r.n], logits[c*w.n+at:c*w.n+at+r.n])
		}
	})
	if w.two {
		w.sigmoid(logits, p)
	} else {
		dense.Softmax(w.columns(logits), w.columns(p), w.top, w.sum)
	}
	for i, v := range w.w {
		if v != 0 {
			sum += v * (w.top[i] + math.Log(w.sum[i]))
		}
	}
	return sum
}

// lineLoss returns the data part of the objective with logits moved by -t dlogits; it leaves the
// softmaxes there in a.
func (w *workspace) lineLoss(t float64) float64 {
	floats.AddScaledTo(w.a, w.logits, -t, w.dlogits)
	return w.loss(w.a, w.a)
}

// gradient writes the gradient at the current probabilities to grad.
func (w *workspace) gradient() {
	w.residuals(w.a)
	floats.SubTo(w.away, w.theta, w.centre)
	w.adjoint(w.a, w.away, w.grad)
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

// hessian sets out = H v at the current probabilities: with a = v X', [C, n], column i of it
// becomes w_i (p_i * a_i - <p_i, a_i> p_i), and out = a X + l2 v.
func (w *workspace) hessian(v, out []float64) {
	w.products++
	w.forward(v, w.a)
	if w.two {
		for i, p := range w.prob {
			w.a[i] *= w.w[i] * p * (1 - p)
		}
	} else {
		dense.Curve(w.columns(w.a), w.columns(w.prob), w.w)
	}
	w.adjoint(w.a, v, out)
}

// single readies hessianSingle for the current probabilities. Buffers are rounded up to the tiles
// of the kernels.
func (w *workspace) single() {
	if w.two {
		w.singleTwo()
		return
	}
	c := roundUp(w.c, dense.SingleRows)
	resize(&w.dirS, c*w.d)
	clear(w.dirS)
	resize(&w.aS, c*w.n)
	resize(&w.probS, w.c*w.n)
	resize(&w.wS, w.n)
	dense.Narrow(w.probS, w.prob)
	dense.Narrow(w.wS, w.w)
}

// hessianSingle is hessian in float32. Float32 has seven digits, so that [minSingle] bounds the
// residual that such products solve to.
func (w *workspace) hessianSingle(v, out []float64) {
	w.products++
	if w.two {
		w.hessianTwo(v, out)
		return
	}
	c := len(w.dirS) / w.d
	cols := w.own.alongS.Cols()
	dense.Narrow(w.dirS, v)
	clear(w.aS)
	w.each(func(r *rows, at int) {
		r.acrossS.Mul(generalSingle(c, w.d, w.d, w.dirS),
			generalSingle(c, r.padded, w.n, w.aS[at:]))
	})
	dense.CurveSingle(w.c, w.n, w.n, w.aS, w.probS, w.wS)
	resize(&w.hdirS, c*cols)
	clear(w.hdirS)
	w.each(func(r *rows, at int) {
		r.alongS.Mul(generalSingle(c, r.n, w.n, w.aS[at:]), generalSingle(c, cols, cols, w.hdirS))
	})
	// The data's part of a product has sum zero over the classes. Rounding would give it another
	// one, which only the penalty holds.
	dense.Widen(w.c, w.d, w.hdirS, cols, v, out, w.l2)
}

func generalSingle(rows, cols, stride int, data []float32) blas32.General {
	return blas32.General{Rows: rows, Cols: cols, Stride: stride, Data: data}
}

// precondition computes the inverse of X' diag(w v) X + l2 I with v_i = (1 - |p_i|^2) / (C - 1):
// one block for all classes. v_i is the mean eigenvalue of diag p_i - p_i p_i' on vectors that sum
// to 0. At zero it is 1/C, and the block is the Hessian itself on such heads.
func (w *workspace) precondition() error {
	v := w.top
	for i := range v {
		v[i] = w.w[i]
	}
	for c := range w.c {
		for i, p := range w.prob[c*w.n : (c+1)*w.n] {
			v[i] -= w.w[i] * p * p
		}
	}
	for i := range v {
		v[i] = math.Max(0, v[i]) / math.Max(1, float64(w.c-1))
	}
	if w.two {
		for i, p := range w.prob {
			v[i] = w.w[i] * p * (1 - p)
		}
	}
	if w.diagonal != nil {
		w.setDiagonal(v)
		return nil
	}
	var err error
	w.inverse, err = w.inverted(v, w.inverse.Buffer())
	return err
}

// inverted returns the inverse of X' diag(v) X + l2 I. It costs n D^2 + D^3 multiplications. But
// for rounding the matrix is positive definite.
func (w *workspace) inverted(v, buffer []float64) (dense.Packed, error) {
	resize(&w.gramian, w.d*w.d)
	g := w.gramian
	clear(g)
	w.each(func(r *rows, at int) { r.gram(v[at:at+r.n], g, &w.scaled, true) })
	for i := range w.d {
		g[i*w.d+i] += w.l2
	}
	resize(&w.blocks, dense.FactorWork(w.d))
	f, ok := dense.Cholesky(dense.General(w.d, w.d, g), w.blocks)
	if !ok {
		return dense.Packed{}, fmt.Errorf(
			"erm: X'WX + l2 I is not positive definite with l2 %v; raise l2 or scale the features",
			w.l2)
	}
	return dense.Pack(blas.NoTrans, f.Inverse(), buffer), nil
}

// guide holds the results of the common fit that similar fits begin with. It is read by many fits
// at once, and never written after it is made.
type guide struct {
	theta []float64 // C x D, its minimiser
	// inverses of approximately its Hessian's diagonal blocks there, one per class; nil: fits have
	// a preconditioner of their own
	blocks []dense.Single
}

// blend is the share of the curvature at zero in a guide's blocks: with few points and a weak
// penalty, a fit is certain about its own points, and their curvature says nothing about another
// fit's.
const blend = 0.05

// guide returns the guide at the current solution. The block of class c is the inverse of
//
//	sum_i w_i ((1 - blend) p_ic (1 - p_ic) + blend (1 - 1/C)/C) x_i'x_i + l2 I
//
// It holds C D^2 numbers in float32.
func (w *workspace) guide() (*guide, error) {
	g := &guide{theta: slices.Clone(w.theta), blocks: make([]dense.Single, w.c)}
	v := w.top
	for c := range g.blocks {
		for i, p := range w.prob[c*w.n : (c+1)*w.n] {
			v[i] = w.w[i] * ((1-blend)*p*(1-p) + blend*(1-1/float64(w.c))/float64(w.c))
		}
		block, err := w.inverted(v, w.inverse.Buffer())
		if err != nil {
			return nil, err
		}
		g.blocks[c] = block.Single(nil)
	}
	return g, nil
}

// apply sets out = M^-1 v, blocks in float32. The Hessian maps the part common to all classes, m =
// 1/C sum_c v_c, exactly to l2 m, and vectors without a common part to such vectors; the blocks are
// for the latter.
func (w *workspace) apply(v, out []float64) {
	if w.lead == nil && w.diagonal != nil {
		for c := range w.c {
			floats.DivTo(out[c*w.d:(c+1)*w.d], v[c*w.d:(c+1)*w.d], w.diagonal)
		}
		return
	}
	clear(out)
	if w.two {
		w.inverse.MulRow(v, out)
		return
	}
	if w.lead == nil {
		w.inverse.Mul(blas.NoTrans, dense.General(w.c, w.d, v), dense.General(w.c, w.d, out))
		return
	}
	cols := w.lead.blocks[0].Cols()
	resize(&w.common, 2*w.d)
	resize(&w.hdirS, w.c*cols)
	resize(&w.ownS, w.d)
	common, own := w.common[:w.d], w.common[w.d:]
	clear(common)
	clear(w.hdirS)
	for c := range w.c {
		floats.AddScaled(common, 1/float64(w.c), v[c*w.d:(c+1)*w.d])
	}
	for c, b := range w.lead.blocks {
		floats.SubTo(own, v[c*w.d:(c+1)*w.d], common)
		dense.Narrow(w.ownS, own)
		b.MulRow(w.ownS, w.hdirS[c*cols:(c+1)*cols])
		copy(out[c*w.d:(c+1)*w.d], common)
	}
	dense.Widen(w.c, w.d, w.hdirS, cols, out, out, 1/w.l2)
}

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

// minSingle is the smallest residual, relative to the right side, to which products in float32
// solve a system.
const minSingle = 1e-4

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

func dot(a, b []float64) float64 { return floats.Dot(a, b) }

// largest returns the largest absolute feature, for messages. It helps to tell features of a wrong
// scale from a penalty that is too weak.
func (w *workspace) largest() float64 {
	var m float64
	for _, r := range w.parts {
		m = max(m, maxAbs(r.x))
	}
	return m
}

func maxAbs(x []float64) float64 { return floats.Norm(x, math.Inf(1)) }

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
		clear(dst)
		return
	}
	transpose(t.W, dst, d, c)
}

package erm

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"

	"fmp/onnx/dense"
	"fmp/pipeline/internal/parallel"
)

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

// minSingle is the smallest residual, relative to the right side, to which products in float32
// solve a system.
const minSingle = 1e-4

func dot(a, b []float64) float64 { return floats.Dot(a, b) }

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

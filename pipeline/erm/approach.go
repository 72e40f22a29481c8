package erm

import (
	"context"
	"math"
	"strings"
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"

	"fmp/onnx/dense"
)

// A fit to a tolerance within reach of float32 is tried by L-BFGS, preconditioned by a diagonal.
// One of its steps takes the work of one Hessian product, where a step of Newton's method takes
// several and two products in float64 besides. Gradients are within 1e-9 of sum w |x|.
const (
	remembered  = 6    // pairs of steps and differences of gradients
	approachTo  = 0.8  // of the tolerance, so that a check in float64 finds it met
	leastSingle = 5e-7 // the least tolerance that it is tried for
	mostTrials  = 12   // of one line search
	firstStep   = 30   // times a point's mean length: the curvature it meets is that of the start
	settled     = 6    // steps before the rate of convergence foretells their number
	// overshoot is the slope that a step may end with beyond the minimum, as a share of that
	// before.
	overshoot    = 0.5
	short        = 0.7 // the same before the minimum
	diagonalRows = 512 // points that the diagonal is taken from, if there are more
	// renewed is the steps before the diagonal is taken anew, where points are fewer than features.
	renewed = 12
)

// approach is the state of such a fit. Heads are transposed, C x D.
// One is taken from a pool for each fit, so that buffers are reused. It is for one goroutine.
type approach struct {
	p               *Problem
	n, d, c, padded int
	byRows          bool
	wide            int       // D rounded up, of x
	x               []float32 // N x wide, where byRows
	total           []float64 // C x D, where byRows
	across, along   dense.Single
	w, wy           []float32 // padded; C x padded, weight times label
	theta, centre   []float64
	grad, next      []float64
	dir, trial      []float64
	inverse         []float64 // C x D, of the preconditioner's diagonal
	scale           float64   // sum of w |x|
	evaluations     int

	// of the products: head and gradient with classes and features rounded up, logits of a block
	headS, gradS, z []float32

	logits, top []float64 // of check

	held  [2][remembered][]float64 // memory of s and y
	s, y  [][]float64              // steps and differences of gradients, the latest last
	rho   []float64                // 1 / <s, y>
	alpha [remembered]float64
}

var approaches = sync.Pool{New: func() any { return new(approach) }}

// prepare lays p's points out in float32. Features lie in float32 from here on, which halves the
// memory that a product reads.
// The problem is read until the fit ends, and not changed.
func (a *approach) prepare(p *Problem) {
	a.p, a.n, a.d, a.c, a.padded = p, p.N, p.D(), p.C, roundUp(p.N, dense.SingleWidth)
	a.evaluations, a.scale, a.s, a.y, a.rho = 0, 0, a.held[0][:0], a.held[1][:0], a.rho[:0]
	for _, b := range []*[]float64{&a.theta, &a.centre, &a.grad, &a.next, &a.dir, &a.trial} {
		resize(b, a.c*a.d)
	}
	resize(&a.w, a.padded)
	resize(&a.wy, a.c*a.padded)
	for i, w := range p.W {
		a.w[i] = float32(w)
		x := p.X[i*a.d : (i+1)*a.d]
		a.scale += w * math.Sqrt(dot(x, x))
	}
	clear(a.w[a.n:])
	a.labels()
	a.lay()
	transposeInto(a.centre, p.Centre, a.d, a.c)
	copy(a.theta, a.centre)
	if p.Start != nil {
		transposeInto(a.theta, p.Start, a.d, a.c)
	}
}

// labels sets wy. Points go in groups, whose numbers of one class lie together.
// The group of 16 keeps reads of Y in few cache lines, which stride over classes.
func (a *approach) labels() {
	const group = 16
	for from := 0; from < a.n; from += group {
		to := min(from+group, a.n)
		for c := range a.c {
			row := a.wy[c*a.padded : (c+1)*a.padded]
			for i := from; i < to; i++ {
				row[i] = float32(a.p.W[i] * a.p.Y[i*a.c+c])
			}
			if to == a.n {
				clear(row[to:])
			}
		}
	}
}

// rowsFast is whether rows are multiplied by vector instructions, as tiles are everywhere.
var rowsFast = strings.HasPrefix(dense.Instructions(), "AVX")

// lay lays the points out for products. By rows, X is read once for logits and gradient; else it is
// packed twice, for products across points and along them.
// It costs O(n D) and, packed, two copies of X in float32.
func (a *approach) lay() {
	a.byRows = a.p.two || rowsFast && a.c <= fewClasses && a.d >= manyFeatures
	if a.byRows {
		a.wide = roundUp(a.d, dense.SingleWidth)
		resize(&a.x, a.n*a.wide)
		for i := range a.n {
			row := a.x[i*a.wide : (i+1)*a.wide]
			dense.Narrow(row, a.p.X[i*a.d:(i+1)*a.d])
			clear(row[a.d:])
		}
		resize(&a.headS, a.c*a.wide)
		resize(&a.gradS, a.c*a.wide)
		resize(&a.z, max(a.c, 2)*rowsPoints)
		resize(&a.total, a.c*a.d)
		return
	}
	a.across, a.along = dense.PackSingle(dense.General(a.n, a.d, a.p.X), a.across.Buffer(),
		a.along.Buffer())
	c := roundUp(a.c, dense.SingleRows)
	resize(&a.headS, c*a.d)
	clear(a.headS)
	resize(&a.gradS, c*a.along.Cols())
	resize(&a.z, c*blockPoints)
}

// Few classes and many features make products that wait for memory: points are read as they lie
// then, once for both products.
const (
	fewClasses   = 10
	manyFeatures = 256
	rowsPoints   = dense.SingleWidth // in work at a time, in the second-level cache
	// rowsPart is summed in float32, a multiple of rowsPoints; in float64 from there.
	rowsPart    = 256
	blockPoints = 128 // in work at a time where classes are many
	rowsAtOnce  = 4   // in the first-level cache
)

// gradient sets out to the gradient at t, in float32. The data's part has sum zero over the
// classes, whatever the labels' sums are. With R = W(P - Y) of a block of points it sums, block by
// block,
//
//	out = R'X + l2 (t - centre)
//
// so that no matrix of points times classes is held.
// It costs two products of n D C multiplications in float32.
func (a *approach) gradient(t, out []float64) {
	a.evaluations++
	floats.SubTo(out, t, a.centre)
	if a.byRows {
		a.gradientByRows(t, out)
		return
	}
	c, cols := roundUp(a.c, dense.SingleRows), a.along.Cols()
	dense.Narrow(a.headS, t)
	clear(a.gradS)
	for from := 0; from < a.n; from += blockPoints {
		h := min(blockPoints, a.padded-from)
		z := generalSingle(c, h, h, a.z[:c*h])
		clear(z.Data)
		a.across.MulColumns(from, h, generalSingle(c, a.d, a.d, a.headS), z)
		dense.Residual(a.c, h, z.Data, a.wy[from:], a.padded, a.w[from:])
		z.Cols = min(h, a.n-from)
		a.along.MulRows(from, z, generalSingle(c, cols, cols, a.gradS))
	}
	dense.Widen(a.c, a.d, a.gradS, cols, out, out, a.p.L2)
}

// gradientByRows is gradient from the rows of X; out holds the head less the centre. Sums of
// rowsPart points are in float32 and those of parts in float64, which bounds rounding however many
// points there are.
// The mean over classes is taken off, so that the data's part sums to zero.
func (a *approach) gradientByRows(t, out []float64) {
	for c := range a.c {
		row := a.headS[c*a.wide : (c+1)*a.wide]
		dense.Narrow(row, t[c*a.d:(c+1)*a.d])
		clear(row[a.d:])
	}
	clear(a.total)
	for from := 0; from < a.n; from += rowsPart {
		clear(a.gradS)
		to := min(from+rowsPart, a.n)
		for i := from; i < to; i += rowsPoints {
			a.addRows(i, min(rowsPoints, to-i))
		}
		for c := range a.c {
			to := a.total[c*a.d : (c+1)*a.d]
			for j, v := range a.gradS[c*a.wide : c*a.wide+a.d] {
				to[j] += float64(v)
			}
		}
	}
	floats.Scale(a.p.L2, out)
	floats.Add(out, a.total)
	if a.p.two {
		return
	}
	mean := a.total[:a.d]
	for c := 1; c < a.c; c++ {
		floats.Add(mean, a.total[c*a.d:(c+1)*a.d])
	}
	for c := range a.c {
		floats.AddScaled(out[c*a.d:(c+1)*a.d], -1/float64(a.c), mean)
	}
}

// addRows adds the gradient of h points, from from on, to gradS. z is [classes, rowsPoints]: logits
// first, and residuals w (p - y) after dense.Residual.
// Rows are taken rowsAtOnce at a time, which then stay in the cache for all classes.
func (a *approach) addRows(from, h int) {
	rows, z := a.c, a.z
	clear(z)
	// Of two classes the logits lie beside zeros. The labels of the first row are the second's, and
	// not used.
	if a.p.two {
		rows, z = 2, a.z[rowsPoints:]
	}
	each := func(do func(x []float32, c, at int)) {
		for i := 0; i < h; i += rowsAtOnce {
			x := a.x[(from+i)*a.wide : (from+min(i+rowsAtOnce, h))*a.wide]
			for c := range a.c {
				do(x, c, c*rowsPoints+i)
			}
		}
	}
	each(func(x []float32, c, at int) {
		dense.Dots(x, a.headS[c*a.wide:(c+1)*a.wide], z[at:at+len(x)/a.wide])
	})
	apart := a.padded
	if a.p.two {
		apart = 0
	}
	dense.Residual(rows, rowsPoints, a.z, a.wy[from:], apart, a.w[from:])
	each(func(x []float32, c, at int) {
		dense.AddRows(x, z[at:at+len(x)/a.wide], a.gradS[c*a.wide:(c+1)*a.wide])
	})
}

// precondition sets the diagonal to that of the matrix of [workspace.precondition] at zero, from
// some of the points.
// At zero each p is 1/C, which stands for the curvature p (1 - p). Two classes as one head have
// 1/2 (1 - 1/2) = 0.25. It costs O(512 D).
func (a *approach) precondition() {
	resize(&a.inverse, a.c*a.d)
	first := a.inverse[:a.d]
	clear(first)
	step := (a.n + diagonalRows - 1) / diagonalRows
	share := 1 / float64(a.c)
	if a.p.two {
		share = 0.25
	}
	sq := a.dir[:a.d]
	for i := 0; i < a.n; i += step {
		x := a.p.X[i*a.d : (i+1)*a.d]
		floats.MulTo(sq, x, x)
		floats.AddScaled(first, share*float64(step)*a.p.W[i], sq)
	}
	for j, v := range first {
		first[j] = 1 / (v + a.p.L2)
	}
	for c := 1; c < a.c; c++ {
		copy(a.inverse[c*a.d:], first)
	}
}

// renew sets the diagonal to the Hessian's own at theta, sum_i w_i p_ic (1 - p_ic) x_ij^2 + l2 for
// class c and feature j. Heads that can fit every point leave little of the curvature that there
// was at zero, and not alike in all classes. Networks' 1,280 features need a third fewer products,
// and simulated ones of up to 31 times the length .81 to 1.08 of them; few points need more.
// It costs one product of n D C in float64, beside the logits.
func (a *approach) renew() {
	curve := a.inverse
	clear(curve)
	squares := make([]float64, checkPoints*a.d)
	a.blocks(a.theta, func(x, own blas64.General, z dense.Columns, from int) {
		top, sum := a.top[:z.N], a.top[checkPoints:checkPoints+z.N]
		dense.Softmax(z, z, top, sum)
		for c := range a.c {
			row := own.Data[c*own.Stride:]
			for i, w := range a.p.W[from : from+x.Rows] {
				row[i] *= w * (1 - row[i])
			}
		}
		sq := dense.General(x.Rows, a.d, squares[:x.Rows*a.d])
		floats.MulTo(sq.Data, x.Data, x.Data)
		dense.Gemm(blas.NoTrans, blas.NoTrans, 1, own, sq, 1, dense.General(a.c, a.d, curve))
	})
	for j, v := range curve {
		curve[j] = 1 / (v + a.p.L2)
	}
}

// direct sets dir to minus the L-BFGS matrix times the gradient (Nocedal and Wright 2006, algorithm
// 7.4), where the diagonal's inverse is the matrix without a memory. With D the inverse of the
// diagonal, and s and y the latest pair, its first matrix is D <s, y>/<y, D y>: so long is the last
// step.
// rho_i = 1/<s_i, y_i>. It costs O(remembered C D).
func (a *approach) direct() {
	q := a.dir
	copy(q, a.grad)
	k := len(a.s)
	for i := k - 1; i >= 0; i-- {
		a.alpha[i] = a.rho[i] * dot(a.s[i], q)
		floats.AddScaled(q, -a.alpha[i], a.y[i])
	}
	by := 1.
	if k > 0 {
		var yy float64
		for j, v := range a.y[k-1] {
			yy += v * v * a.inverse[j]
		}
		by = 1 / (a.rho[k-1] * yy)
	}
	for j, v := range a.inverse {
		q[j] *= by * v
	}
	for i := range k {
		floats.AddScaled(q, a.alpha[i]-a.rho[i]*dot(a.y[i], q), a.s[i])
	}
	floats.Scale(-1, q)
}

// remember keeps the step from theta to trial and the difference of the gradients, in place of the
// oldest once there are many. Slices of the oldest pair are reused, so that no step allocates once
// the memory is full.
// A pair whose <s, y> is not above 0 is dropped, as the matrix would not be positive definite.
func (a *approach) remember() {
	k := len(a.s)
	if k == remembered {
		k--
		s, y := a.s[0], a.y[0]
		copy(a.s, a.s[1:])
		copy(a.y, a.y[1:])
		copy(a.rho, a.rho[1:])
		a.s[k], a.y[k], a.rho = s, y, a.rho[:k]
	} else if a.s, a.y = a.s[:k+1], a.y[:k+1]; true {
		resize(&a.s[k], len(a.theta))
		resize(&a.y[k], len(a.theta))
	}
	floats.SubTo(a.s[k], a.trial, a.theta)
	floats.SubTo(a.y[k], a.next, a.grad)
	sy := dot(a.s[k], a.y[k])
	if !(sy > 0) { // only through rounding
		a.s, a.y = a.s[:k], a.y[:k]
		return
	}
	a.rho = append(a.rho, 1/sy)
}

// search goes along dir, from a step of t, until the slope is a part of that before: nearer the
// minimum, or not far beyond. It reports false if it finds no such place. The slope at step t is
// <gradient at theta + t dir, dir>. It accepts a slope between short and -overshoot times the first
// (Nocedal and Wright 2006, section 3.1). It needs no value of the objective. Each trial costs one
// evaluation.
// trial and next hold the place and its gradient then. The objective is convex, so that the slope
// rises along dir.
func (a *approach) search(t float64) bool {
	begin := dot(a.grad, a.dir)
	if !(begin < 0) {
		return false
	}
	low, high, atLow, atHigh := 0., math.Inf(1), begin, 0.
	for range mostTrials {
		floats.AddScaledTo(a.trial, a.theta, t, a.dir)
		a.gradient(a.trial, a.next)
		end := dot(a.next, a.dir)
		switch {
		case !(end <= -overshoot*begin): // NaN as well
			high, atHigh = t, end
		case end < short*begin:
			low, atLow = t, end
		default:
			return true
		}
		if math.IsInf(high, 1) {
			// The secant through the slopes at 0 and t would be 0 there, if the slope is linear.
			t *= min(10, max(1.5, 1/(1-atLow/begin)))
			continue
		}
		share := atLow / (atLow - atHigh) // where a line through both slopes is 0
		if !finite(share) {
			share = 0
		}
		// The share stays 0.1 off both ends, so that the bracket shrinks by a tenth at least.
		t = low + (high-low)*min(max(share, 0.1), 0.9)
	}
	return false
}

// run goes to a gradient of limit, in at most most evaluations. It reports whether it got there. It
// gives up on numbers that are not finite, and where the rate so far foretells more than twice
// most.
// The rate is that of a gradient that falls by the same factor each step.
func (a *approach) run(ctx context.Context, limit float64, most int) (bool, error) {
	a.precondition()
	a.gradient(a.theta, a.grad)
	first := math.Sqrt(dot(a.grad, a.grad))
	for norm, step := first, 0; norm > limit; step++ {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if !finite(norm) || a.evaluations >= most {
			return false, nil
		}
		if step >= settled {
			whole := float64(step) * math.Log(first/limit) / math.Log(first/norm) // at this rate
			if !(norm < first) || whole > 2*float64(most) {
				return false, nil
			}
		}
		if step == renewed && checkPoints < a.n && a.n < a.d && !a.p.two {
			a.renew()
		}
		a.direct()
		t := 1.
		if step == 0 {
			t = firstStep / (a.scale / floats.Sum(a.p.W) * math.Sqrt(dot(a.dir, a.dir)))
		}
		if !a.search(t) {
			return false, nil
		}
		a.remember()
		a.theta, a.trial = a.trial, a.theta
		a.grad, a.next = a.next, a.grad
		norm = math.Sqrt(dot(a.grad, a.grad))
	}
	return true, nil
}

// fit returns the minimiser where the tolerance is within reach of float32. Where it is not, it
// returns p with a start that is nearer, and reports whether the diagonal did well. A result is
// checked in float64, by other code than made it, before it is returned.
// The error is the context's alone. Without success the work is not lost: its head is the start of
// Newton's method.
func (a *approach) fit(ctx context.Context, p *Problem, opt Options) (*Solution, *Problem, bool,
	error) {
	a.prepare(p)
	limit := opt.Tolerance * max(a.scale, p.L2)
	if p.two {
		limit /= math.Sqrt2 // the gradient's length in both heads is this times as large
	}
	most := productsOfFirst * patience(p)
	if opt.MaxProducts > 0 {
		most = min(most, opt.MaxProducts)
	}
	well, err := a.run(ctx, approachTo*limit, most)
	if err != nil {
		return nil, nil, false, err
	}
	theta := NewTheta(a.d, a.c)
	transpose(a.theta, theta.W, a.c, a.d)
	if well {
		f := a.check(a.theta, a.next)
		if norm := math.Sqrt(dot(a.next, a.next)); norm <= limit {
			return &Solution{Theta: theta, Objective: f, GradientNorm: norm,
					Products: a.evaluations}, nil,
				true, nil
		}
	}
	from := *p
	from.Start = &theta
	return nil, &from, well, nil
}

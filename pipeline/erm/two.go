package erm

import (
	"context"
	"math"

	"gonum.org/v1/gonum/floats"

	"fmp/onnx/dense"
)

// fitTwo fits two classes by one head t, the second class's less the first's: with m their mean,
// T = (m - t/2, m + t/2), and
//
//	J(T) = sum_i w_i (log(1 + exp x_i t) - q_i x_i t) + l2/4 |t - t0|^2
//	     + sum_i w_i (1 - s_i) x_i m + l2 |m - m0|^2
//
// where s_i is the sum of a label, 1 but for rounding, and q_i = (1 + y_i2 - y_i1)/2. The mean is
// m0 - X' w (1 - s) / (2 l2). A product with one head is bound by memory: points are read as they
// lie, and once for both of a Hessian's products. Its penalty is half of l2, as t is spread over
// two heads. The gradient's norm in both heads is sqrt(2) times that of t.
func (w *workspace) fitTwo(ctx context.Context, p *Problem, opt Options) (*Solution, error) {
	d := p.D()
	inner := &Problem{N: p.N, Dx: p.Dx, C: 1, X: p.X, Y: make([]float64, p.N), W: p.W, L2: p.L2 / 2,
		Centre: difference(p.Centre), Start: difference(p.Start), two: true}
	rest, whole := make([]float64, p.N), true
	for i, v := range p.W {
		first, second := p.Y[2*i], p.Y[2*i+1]
		inner.Y[i] = (1 + second - first) / 2
		rest[i] = v * (1 - first - second)
		whole = whole && rest[i] == 0
	}
	s, err := w.fit(ctx, inner, opt)
	if err != nil {
		return nil, err
	}
	s.GradientNorm *= math.Sqrt2
	mean := make([]float64, d)
	if p.Centre != nil {
		for j := range mean {
			mean[j] = (p.Centre.W[2*j] + p.Centre.W[2*j+1]) / 2
		}
	}
	if !whole {
		move := make([]float64, d)
		dense.AddRows(p.X, rest, move)
		s.Objective += dot(mean, move) - dot(move, move)/(4*p.L2)
		floats.AddScaled(mean, -0.5/p.L2, move)
	}
	theta := NewTheta(d, 2)
	for j, v := range s.Theta.W {
		theta.W[2*j], theta.W[2*j+1] = mean[j]-v/2, mean[j]+v/2
	}
	s.Theta = theta
	return s, nil
}

// difference returns a head's second column less its first; nil for nil.
func difference(t *Theta) *Theta {
	if t == nil {
		return nil
	}
	out := NewTheta(t.D, 1)
	for j := range out.W {
		out.W[j] = t.W[2*j+1] - t.W[2*j]
	}
	return &out
}

// sigmoid sets p to the second class's probability, and top and sum as the softmax of two does.
func (w *workspace) sigmoid(logits, p []float64) {
	resize(&w.pair, 2*w.n)
	clear(w.pair[:w.n])
	copy(w.pair[w.n:], logits)
	both := dense.Columns{C: 2, N: w.n, Stride: w.n, Data: w.pair}
	dense.Softmax(both, both, w.top, w.sum)
	copy(p, w.pair[w.n:])
}

// singleTwo readies hessianTwo: curvatures of the points at the current probabilities.
func (w *workspace) singleTwo() {
	resize(&w.dirS, w.d)
	resize(&w.partS, w.d)
	resize(&w.aS, w.n)
	resize(&w.wS, w.n)
	for i, p := range w.prob {
		w.wS[i] = float32(w.w[i] * p * (1 - p))
	}
}

// partRows is the points whose share of a Hessian product is summed in float32, and in float64 from
// there. Rows of a block are read a second time from the first-level cache.
const (
	partRows  = 256
	blockRows = 4
)

// hessianTwo is hessianSingle for two classes. Four points at a time meet the direction, and are
// added up by the result, while they are in the first-level cache. It is sum_i c_i <x_i, v> x_i +
// l2 v with c_i = w_i p_i (1 - p_i).
func (w *workspace) hessianTwo(v, out []float64) {
	dense.Narrow(w.dirS, v)
	floats.ScaleTo(out, w.l2, v)
	r := &w.own
	for from := 0; from < r.n; from += partRows {
		clear(w.partS)
		to := min(from+partRows, r.n)
		for i := from; i < to; i += blockRows {
			h := min(blockRows, to-i)
			x, a := r.xS[i*w.d:(i+h)*w.d], w.aS[i:i+h]
			dense.Dots(x, w.dirS, a)
			for k, c := range w.wS[i : i+h] {
				a[k] *= c
			}
			dense.AddRows(x, a, w.partS)
		}
		for j, x := range w.partS {
			out[j] += float64(x)
		}
	}
}

package erm

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// Objective evaluates J of a problem, its gradient and its Hessian, for samplers. Its vectors are heads with one
// class a row: element c*D + j is the weight of feature j for class c.
//
// The problem is not checked, and its X may be any N x D matrix (say, points in a basis of their span). An Objective
// serves one goroutine.
type Objective struct{ w workspace }

// NewObjective prepares p for evaluation.
func NewObjective(p *Problem) *Objective {
	o := new(Objective)
	o.w.prepare(p)
	return o
}

// Dim is C D.
func (o *Objective) Dim() int { return o.w.c * o.w.d }

// Gradient writes grad J at t to grad and returns J. Numbers beyond float64's range come out as they are: NaN or
// infinite.
func (o *Objective) Gradient(t, grad []float64) float64 {
	w := &o.w
	copy(w.theta, t)
	w.forward(w.theta, w.logits)
	f := w.probabilities() + w.p.L2/2*dot(t, t)
	w.gradient()
	copy(grad, w.grad)
	return f
}

// Probabilities are the softmaxes of the points at t, N x C. They are overwritten by the next call.
func (o *Objective) Probabilities(t []float64) []float64 {
	w := &o.w
	copy(w.theta, t)
	w.forward(w.theta, w.logits)
	w.probabilities()
	return w.prob
}

// Gram is X' diag(v) X, D x D, for v of N non-negative numbers.
func (o *Objective) Gram(v []float64) *mat.SymDense {
	w := &o.w
	for i, f := range v {
		f = math.Sqrt(f)
		row, from := w.wx[i*w.d:(i+1)*w.d], w.p.X[i*w.d:(i+1)*w.d]
		for j, x := range from {
			row[j] = f * x
		}
	}
	g := mat.NewSymDense(w.d, nil)
	blas64.Syrk(blas.Trans, 1, blas64.General{Rows: w.n, Cols: w.d, Stride: w.d, Data: w.wx}, 0, g.RawSymmetric())
	return g
}

// Hessian is the Hessian of J at t, C D x C D.
func (o *Objective) Hessian(t []float64) *mat.SymDense {
	w := &o.w
	o.Probabilities(t)
	dim := o.Dim()
	h := mat.NewSymDense(dim, nil)
	raw := h.RawSymmetric()
	x := blas64.General{Rows: w.n, Cols: w.d, Stride: w.d, Data: w.p.X}
	scaled := blas64.General{Rows: w.n, Cols: w.d, Stride: w.d, Data: w.wx}
	// Block (c, k), for k from c on, is X' diag(w p_c (1[c=k] - p_k)) X.
	for c := range w.c {
		for k := c; k < w.c; k++ {
			for i := range w.n {
				p := w.prob[i*w.c : (i+1)*w.c]
				f := -w.p.W[i] * p[c] * p[k]
				if c == k {
					f += w.p.W[i] * p[c]
				}
				row, from := w.wx[i*w.d:(i+1)*w.d], w.p.X[i*w.d:(i+1)*w.d]
				for j, v := range from {
					row[j] = f * v
				}
			}
			block := blas64.General{Rows: w.d, Cols: w.d, Stride: raw.Stride, Data: raw.Data[c*w.d*raw.Stride+k*w.d:]}
			blas64.Gemm(blas.Trans, blas.NoTrans, 1, scaled, x, 0, block)
		}
	}
	for i := range dim {
		raw.Data[i*raw.Stride+i] += w.p.L2
	}
	return h
}

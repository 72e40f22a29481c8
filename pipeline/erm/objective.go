package erm

import (
	"gonum.org/v1/gonum/mat"

	"fmp/onnx/dense"
)

// Objective evaluates J of a problem, its gradient and its Hessian, for samplers. Its vectors are
// heads stored with one class per row: element c*D + j is the weight of feature j for class c.
//
// The problem is not checked, and its X may be any N x D matrix (for example, points in a basis of
// their span). An Objective is not safe for concurrent use.
type Objective struct{ w workspace }

// NewObjective prepares p for evaluation.
func NewObjective(p *Problem) *Objective {
	o := new(Objective)
	o.w.prepare(p, nil)
	return o
}

// Dim returns the number of weights, C D.
func (o *Objective) Dim() int { return o.w.c * o.w.d }

// Gradient writes grad J at t to grad and returns J. Values beyond float64's range are returned as
// they are: NaN or infinite.
func (o *Objective) Gradient(t, grad []float64) float64 {
	w := &o.w
	w.forward(t, w.logits)
	f := w.loss(w.logits, w.prob) + w.l2/2*dot(t, t)
	w.residuals(w.a)
	w.adjoint(w.a, t, grad)
	return f
}

// Slope is Gradient without J, which costs one logarithm per point.
func (o *Objective) Slope(t, grad []float64) {
	w := &o.w
	o.Probabilities(t)
	w.residuals(w.a)
	w.adjoint(w.a, t, grad)
}

// Probabilities returns the softmaxes of the points at t, one class per row. The next call
// overwrites them.
func (o *Objective) Probabilities(t []float64) dense.Columns {
	w := &o.w
	w.forward(t, w.logits)
	p := w.columns(w.prob)
	dense.Softmax(w.columns(w.logits), p, w.top, w.sum)
	return p
}

// Gram returns X' diag(v) X, D x D, for v of N numbers.
func (o *Objective) Gram(v []float64) *mat.SymDense {
	w := &o.w
	g := make([]float64, w.d*w.d)
	w.own.gram(v, g, &w.scaled, false)
	return mat.NewSymDense(w.d, g)
}

// Hessian returns the Hessian of J at t, C D x C D. It costs C^2/2 Gram matrices of n D^2
// multiplications, and holds (C D)^2 numbers: it is for small problems.
func (o *Objective) Hessian(t []float64) *mat.SymDense {
	w := &o.w
	p := o.Probabilities(t)
	dim := o.Dim()
	h := mat.NewSymDense(dim, nil)
	raw := h.RawSymmetric()
	v, block := make([]float64, w.own.n), make([]float64, w.d*w.d)
	// Block (c, k), for k from c on, is X' diag(w p_c (1[c=k] - p_k)) X.
	for c := range w.c {
		for k := c; k < w.c; k++ {
			for i := range v {
				pc, pk := p.Data[c*p.Stride+i], p.Data[k*p.Stride+i]
				v[i] = -w.w[i] * pc * pk
				if c == k {
					v[i] += w.w[i] * pc
				}
			}
			clear(block)
			w.own.gram(v, block, &w.scaled, false)
			for i := range w.d {
				copy(raw.Data[(c*w.d+i)*raw.Stride+k*w.d:], block[i*w.d:(i+1)*w.d])
			}
		}
	}
	for i := range dim {
		raw.Data[i*raw.Stride+i] += w.l2
	}
	return h
}

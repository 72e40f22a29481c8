package erm

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"

	"fmp/onnx/dense"
)

// checkPoints is the points whose logits are in work at a time, a multiple of [dense.Width].
// The logits of a block, C x 256 in float64, are 2 KiB a class.
const checkPoints = 256

// blocks calls do for [checkPoints] points at a time, from from on: their rows, and logits at the
// transposed head theta in float64. Own are those of its rows: of two classes as one head, the
// second alone. So nothing is held of points times classes.
// A head of two classes stands for the logits (0, theta'x): the first row stays 0. do may
// overwrite z, and own shares its memory. The space is the approach's, so that calls follow one
// another.
func (a *approach) blocks(theta []float64,
	do func(x, own blas64.General, z dense.Columns, from int)) {
	p := a.p
	rows := a.c
	if p.two {
		rows = 2
	}
	resize(&a.logits, rows*checkPoints)
	resize(&a.top, 2*checkPoints)
	for from := 0; from < p.N; from += checkPoints {
		h := min(checkPoints, p.N-from)
		wide := dense.Padded(h)
		z := dense.Columns{C: rows, N: wide, Stride: wide, Data: a.logits[:rows*wide]}
		clear(z.Data)
		own := blas64.General{Rows: a.c, Cols: h, Stride: wide, Data: z.Data[(rows-a.c)*wide:]}
		x := dense.General(h, a.d, p.X[from*a.d:(from+h)*a.d])
		if a.byRows {
			a.rowsOf(x, func(x []float64, c, at, n int) {
				dense.Dots(x, theta[c*a.d:(c+1)*a.d], own.Data[c*wide+at:][:n])
			})
		} else {
			dense.Gemm(blas.NoTrans, blas.Trans, 1, dense.General(a.c, a.d, theta), x, 0, own)
		}
		do(x, own, z, from)
	}
}

// check sets grad to the gradient at the transposed head theta, in float64, and returns the
// objective there. It costs two products of n D C operations in float64, as much as one Hessian
// product.
// With c the centre the objective is L2/2 |theta - c|² + sum_i loss_i. Its gradient is L2 (theta -
// c) + sum_i w_i (p_i - y_i) x_i'.
func (a *approach) check(theta, grad []float64) float64 {
	floats.SubTo(grad, theta, a.centre)
	f := a.p.L2 / 2 * dot(grad, grad)
	floats.Scale(a.p.L2, grad)
	a.blocks(theta, func(x, own blas64.General, z dense.Columns, from int) {
		f += a.losses(z, from, x.Rows)
		if a.byRows {
			a.rowsOf(x, func(x []float64, c, at, n int) {
				dense.AddRows(x, own.Data[c*own.Stride+at:][:n], grad[c*a.d:(c+1)*a.d])
			})
		} else {
			dense.Gemm(blas.NoTrans, blas.NoTrans, 1, own, x, 1, dense.General(a.c, a.d, grad))
		}
	})
	return f
}

// rowsOf calls do for a few rows of x at a time, n from at on, and every class.
// A few rows of x stay in the first-level cache while every class reads them.
func (a *approach) rowsOf(x blas64.General, do func(x []float64, c, at, n int)) {
	for at := 0; at < x.Rows; at += rowsAtOnce {
		n := min(rowsAtOnce, x.Rows-at)
		for c := range a.c {
			do(x.Data[at*a.d:(at+n)*a.d], c, at, n)
		}
	}
}

// losses replaces logits of h points, from from on, by w (p - y), and returns the sum of their
// losses. Of two classes as one head, the second row is the head's. With l the logits it returns
// sum_i w_i (log sum_c exp(l_ci) - sum_c y_ic l_ci).
// log sum_c exp(l_c) = m + log sum_c exp(l_c - m) with m the largest logit, so that no exponential
// overflows.
func (a *approach) losses(z dense.Columns, from, h int) float64 {
	var f float64
	first := z.C - a.c
	y := a.p.Y[from*a.c:]
	for c := range a.c {
		row := z.Data[(first+c)*z.Stride:]
		for i := range h {
			f -= a.p.W[from+i] * y[i*a.c+c] * row[i]
		}
	}
	top, sum := a.top[:z.N], a.top[checkPoints:checkPoints+z.N]
	dense.Softmax(z, z, top, sum)
	for i, w := range a.p.W[from : from+h] {
		if w != 0 {
			f += w * (top[i] + math.Log(sum[i]))
		}
	}
	for c := range a.c {
		row := z.Data[(first+c)*z.Stride:]
		for i, w := range a.p.W[from : from+h] {
			row[i] = w * (row[i] - y[i*a.c+c])
		}
	}
	return f
}

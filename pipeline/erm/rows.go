package erm

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"

	"fmp/onnx/dense"
)

// rows are points laid out for the products of a fit, possibly reordered: logits, probabilities and
// similar matrices are C x padded, one class per row, so that a vector instruction processes
// several points.
// The buffers stay for the next fit, and grow only. A rows is for one fit at a time.
type rows struct {
	n, padded, d, c int
	x               []float64    // N x D, as in the problem
	bare            bool         // of a fit to two classes, which packs nothing
	xS              []float32    // x in float32, where bare
	across          dense.Packed // X', D x N
	along           dense.Packed // X, N x D
	acrossS, alongS dense.Single // the same in float32
	w               []float64    // padded; zeros beyond N
	wy              []float64    // C x padded: weight times label
	scale           float64      // sum of w |x|
}

// prepare lays p's points out. x stays the problem's own memory, which must not change during the
// fit. All else is copied.
// Padding has the weight 0, so that it adds nothing to a loss or a gradient. It costs O(n D + n
// C).
func (r *rows) prepare(p *Problem) {
	r.n, r.padded, r.d, r.c, r.x = p.N, roundUp(p.N, dense.SingleWidth), p.D(), p.C, p.X
	if r.bare = p.two; r.bare {
		resize(&r.xS, len(p.X))
		dense.Narrow(r.xS, p.X)
	} else {
		x := dense.General(p.N, r.d, p.X)
		r.across = dense.Pack(blas.Trans, x, r.across.Buffer())
		r.along = dense.Pack(blas.NoTrans, x, r.along.Buffer())
		r.acrossS = r.across.Single(r.acrossS.Buffer())
		r.alongS = r.along.Single(r.alongS.Buffer())
	}
	resize(&r.w, r.padded)
	clear(r.w[copy(r.w, p.W):])
	r.scale = 0
	for i, w := range p.W {
		r.scale += w * math.Sqrt(dot(p.X[i*r.d:(i+1)*r.d], p.X[i*r.d:(i+1)*r.d]))
	}
	resize(&r.wy, r.c*r.padded)
	for c := range r.c {
		row := r.wy[c*r.padded : (c+1)*r.padded]
		for i := range r.n {
			row[i] = p.W[i] * p.Y[i*r.c+c]
		}
		clear(row[r.n:])
	}
}

// roundUp returns the least multiple of by that is not below n.
func roundUp(n, by int) int { return (n + by - 1) / by * by }

// gramRows is the number of points per product in gram.
// A block of 256 rows of 1,000 features takes 2 MB in float64.
const gramRows = 256

// gram adds X' diag(v) X to g, D x D, or to its upper triangle alone, for v of N numbers. buffer
// grows to hold gramRows points. It costs n D^2 multiplications, or half of them for a triangle.
// The rows are scaled in a copy, since x is the problem's own memory.
func (r *rows) gram(v, g []float64, buffer *[]float64, upper bool) {
	d := r.d
	if r.bare {
		r.along = dense.Pack(blas.NoTrans, dense.General(r.n, d, r.x), r.along.Buffer())
	}
	resize(buffer, gramRows*d)
	for from := 0; from < r.n; from += gramRows {
		n := min(gramRows, r.n-from)
		scaled := (*buffer)[:n*d]
		for i, f := range v[from : from+n] {
			floats.ScaleTo(scaled[i*d:(i+1)*d], f, r.x[(from+i)*d:(from+i+1)*d])
		}
		r.along.MulRows(from, dense.General(n, d, scaled), dense.General(d, d, g), upper)
	}
}

package dense

import (
	"fmt"

	"gonum.org/v1/gonum/blas/blas32"
)

// The sizes of products of float32: panels have SingleWidth columns, and left operands a multiple
// of SingleRows rows.
const (
	SingleWidth = 2 * Width
	SingleRows  = tileRows
)

// Single is a matrix laid out in float32 to be the right operand of products, which run about twice
// as fast as those of [Packed]. It is for the inner iterations of a result that float64 corrects.
type Single struct {
	rows, cols int
	// [cols rounded up to panels, rows, SingleWidth], zeros where there is no column
	panels []float32
}

// Single returns p in float32, in buf where that has room.
func (p Packed) Single(buf []float32) Single {
	panels := (p.cols + SingleWidth - 1) / SingleWidth
	s := Single{rows: p.rows, cols: panels * SingleWidth, panels: buf}
	if n := panels * p.rows * SingleWidth; cap(buf) >= n {
		s.panels = buf[:n]
	} else {
		s.panels = make([]float32, n)
	}
	for j := range 2 * panels {
		to := s.panels[j/2*p.rows*SingleWidth+j%2*Width:]
		if j*Width >= p.cols {
			for l := range p.rows {
				clear(to[l*SingleWidth:][:Width])
			}
			continue
		}
		narrow(p.rows, p.panels[j*Width*p.rows:], to, SingleWidth)
	}
	return s
}

// Cols returns the number of columns of products: those of the matrix, rounded up to a multiple of
// SingleWidth.
func (p Single) Cols() int { return p.cols }

// Buffer returns the memory behind p, for the next Single.
func (p Single) Buffer() []float32 { return p.panels }

// Mul adds a p to c. a has a multiple of SingleRows rows, c has p.Cols() columns.
func (p Single) Mul(a, c blas32.General) {
	if a.Cols != p.rows || c.Rows != a.Rows || c.Cols != p.cols || a.Rows%tileRows != 0 {
		panic(fmt.Sprintf("dense: product of %d x %d and %d x %d into %d x %d", a.Rows, a.Cols, p.rows,
			p.cols, c.Rows, c.Cols))
	}
	for l := 0; l < p.rows; l += depth {
		d := min(depth, p.rows-l)
		for j := 0; j < p.cols; {
			w := SingleWidth
			if twoPanels && p.cols-j > SingleWidth {
				w = 2 * SingleWidth
			}
			for i := 0; i < a.Rows; i += tileRows {
				tileSingle(d, a.Data[i*a.Stride+l:], a.Stride, p.panels[j*p.rows+l*SingleWidth:],
					p.rows*SingleWidth, c.Data[i*c.Stride+j:], c.Stride, w)
			}
			j += w
		}
	}
}

// MulRow adds x p to y, for a row x. y has p.Cols() columns.
func (p Single) MulRow(x, y []float32) {
	if len(x) != p.rows || len(y) != p.cols {
		panic(fmt.Sprintf("dense: product of a row of %d and %d x %d into a row of %d", len(x), p.rows,
			p.cols, len(y)))
	}
	for j := 0; j < p.cols && p.rows > 0; j += SingleWidth {
		rowSingle(p.rows, x, p.panels[j*p.rows:], y[j:])
	}
}

// Widen sets out to l2 v + h less the mean of h over its rows: v and out are c x n, the rows of h
// are hs apart and have n numbers or more.
func Widen(c, n int, h []float32, hs int, v, out []float64, l2 float64) {
	if len(v) != c*n || len(out) != c*n || hs < n || c > 0 && len(h) < (c-1)*hs+n {
		panic(fmt.Sprintf("dense: %d x %d of %d numbers that are %d apart, %d and %d", c, n, len(h), hs,
			len(v), len(out)))
	}
	share := 1 / float64(c)
	for j := widen(c, n, h, hs, v, out, l2); j < n; j++ {
		var mean float64
		for k := range c {
			mean += float64(h[k*hs+j])
		}
		mean *= share
		for k := range c {
			out[k*n+j] = float64(h[k*hs+j]) - mean + l2*v[k*n+j]
		}
	}
}

// CurveSingle is [Curve] for float32: a and p have c rows of n numbers, a multiple of SingleWidth,
// that are stride apart.
func CurveSingle(c, n, stride int, a, p, w []float32) {
	if n%SingleWidth != 0 || n > stride || len(w) < n || c > 0 &&
		(len(a) < (c-1)*stride+n || len(p) < (c-1)*stride+n) {
		panic(
			fmt.Sprintf(
				"dense: %d rows of %d numbers that are %d apart, of %d and %d; want a multiple of %d", c, n,
				stride, len(a), len(p), SingleWidth))
	}
	curveSingle(c, n, a, stride, p, stride, w)
}

// Narrow writes src in float32 to the beginning of dst.
func Narrow(dst []float32, src []float64) {
	whole := len(src) / Width
	narrow(whole, src, dst, Width)
	for i := whole * Width; i < len(src); i++ {
		dst[i] = float32(src[i])
	}
}

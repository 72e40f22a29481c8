package dense

import (
	"fmt"

	"gonum.org/v1/gonum/blas/blas32"
)

// What products of float32 are made of: panels have SingleWidth columns, and left operands a multiple of SingleRows rows.
const (
	SingleWidth = 2 * Width
	SingleRows  = tileRows
)

// Single is a matrix laid out in float32 to be the right operand of products, which run about twice as fast as those of [Packed]. It is for
// the inner iterations of what float64 corrects.
type Single struct {
	rows, cols int
	panels     []float32 // [cols rounded up to panels, rows, SingleWidth], zeros where there is no column
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

// Cols returns the number of columns of products: those of the matrix, rounded up to a multiple of SingleWidth.
func (p Single) Cols() int { return p.cols }

// Buffer returns the memory behind p, for the next Single.
func (p Single) Buffer() []float32 { return p.panels }

// Mul adds a p to c. a has a multiple of SingleRows rows, c has p.Cols() columns.
func (p Single) Mul(a, c blas32.General) {
	if a.Cols != p.rows || c.Rows != a.Rows || c.Cols != p.cols || a.Rows%tileRows != 0 {
		panic(fmt.Sprintf("dense: product of %d x %d and %d x %d into %d x %d", a.Rows, a.Cols, p.rows, p.cols, c.Rows, c.Cols))
	}
	for l := 0; l < p.rows; l += depth {
		d := min(depth, p.rows-l)
		for j := 0; j < p.cols; {
			w := SingleWidth
			if twoPanels && p.cols-j > SingleWidth {
				w = 2 * SingleWidth
			}
			for i := 0; i < a.Rows; i += tileRows {
				tileSingle(d, a.Data[i*a.Stride+l:], a.Stride, p.panels[j*p.rows+l*SingleWidth:], p.rows*SingleWidth, c.Data[i*c.Stride+j:], c.Stride, w)
			}
			j += w
		}
	}
}

// CurveSingle is [Curve] for float32: a and p have c rows of n numbers, a multiple of SingleWidth, that are stride apart.
func CurveSingle(c, n, stride int, a, p, w []float32) {
	if n%SingleWidth != 0 || n > stride || len(w) < n || c > 0 && (len(a) < (c-1)*stride+n || len(p) < (c-1)*stride+n) {
		panic(fmt.Sprintf("dense: %d rows of %d numbers that are %d apart, of %d and %d; want a multiple of %d", c, n, stride, len(a), len(p), SingleWidth))
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

package dense

import (
	"fmt"

	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
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

// single has room for a matrix, in buf where that has it.
func single(rows, cols int, buf []float32) Single {
	s := Single{rows: rows, cols: (cols + SingleWidth - 1) / SingleWidth * SingleWidth}
	s.panels = room(buf, s.cols*rows)
	return s
}

// Single returns p in float32, in buf where that has room. Two panels of p make one of the result;
// p stays as it is.
func (p Packed) Single(buf []float32) Single {
	panels := (p.cols + SingleWidth - 1) / SingleWidth
	s := single(p.rows, p.cols, buf)
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

// PackSingle lays out x' and x in float32, in across and along where these have room. The first, of
// x', has x.Cols rows; the second, of x, has x.Rows. x is read twice and copied.
func PackSingle(x blas64.General, across, along []float32) (Single, Single) {
	a, b := single(x.Cols, x.Rows, across), single(x.Rows, x.Cols, along)
	row := make([]float32, b.cols)
	for i := range x.Rows {
		Narrow(row, row64(x, i))
		for j := 0; j < b.cols; j += SingleWidth {
			to := b.panels[j*x.Rows+i*SingleWidth:]
			*(*[SingleWidth]float32)(to) = *(*[SingleWidth]float32)(row[j:])
		}
	}
	for i := 0; i < a.cols; i += SingleWidth {
		panel, h := a.panels[i*x.Cols:(i+SingleWidth)*x.Cols], min(SingleWidth, x.Rows-i)
		if h < SingleWidth {
			clear(panel)
		}
		// Sixteen features at a time: a panel's rows stay in the first-level cache.
		for from := 0; from < x.Cols; from += SingleWidth {
			w := min(SingleWidth, x.Cols-from)
			for r := range h {
				at := from*SingleWidth + r
				for _, v := range row64(x, i+r)[from : from+w] {
					panel[at] = float32(v)
					at += SingleWidth
				}
			}
		}
	}
	return a, b
}

// Cols returns the number of columns of products: those of the matrix, rounded up to a multiple of
// SingleWidth.
func (p Single) Cols() int { return p.cols }

// Buffer returns the memory behind p, for the next Single. p must not be used after that.
func (p Single) Buffer() []float32 { return p.panels }

// Mul adds a p to c. a has a multiple of SingleRows rows, c has p.Cols() columns. It panics where
// shapes do not fit. Several goroutines may multiply by one p, into c of their own.
func (p Single) Mul(a, c blas32.General) {
	if a.Cols != p.rows || c.Rows != a.Rows || c.Cols != p.cols || a.Rows%tileRows != 0 {
		panic(fmt.Sprintf("dense: product of %d x %d and %d x %d into %d x %d", a.Rows, a.Cols,
			p.rows, p.cols, c.Rows, c.Cols))
	}
	p.mul(0, a, c)
}

// mul adds a times the rows of p from from on to c.
func (p Single) mul(from int, a, c blas32.General) {
	for l := 0; l < a.Cols; l += depth {
		d := min(depth, a.Cols-l)
		for j := 0; j < p.cols; {
			w := SingleWidth
			if twoPanels && p.cols-j > SingleWidth {
				w = 2 * SingleWidth
			}
			for i := 0; i < a.Rows; i += tileRows {
				tileSingle(d, a.Data[i*a.Stride+l:], a.Stride,
					p.panels[j*p.rows+(from+l)*SingleWidth:],
					p.rows*SingleWidth, c.Data[i*c.Stride+j:], c.Stride, w)
			}
			j += w
		}
	}
}

// MulRow adds x p to y, for a row x. y has p.Cols() columns.
func (p Single) MulRow(x, y []float32) {
	if len(x) != p.rows || len(y) != p.cols {
		panic(fmt.Sprintf("dense: product of a row of %d and %d x %d into a row of %d", len(x),
			p.rows, p.cols, len(y)))
	}
	for j := 0; j < p.cols && p.rows > 0; j += SingleWidth {
		rowSingle(p.rows, x, p.panels[j*p.rows:], y[j:])
	}
}

// Widen sets out to l2 v + h less the mean of h over its rows: v and out are c x n, the rows of h
// are hs apart and have n numbers or more. The mean is over the c classes, a column at a time: v
// and out have n points a class.
func Widen(c, n int, h []float32, hs int, v, out []float64, l2 float64) {
	if len(v) != c*n || len(out) != c*n || hs < n || c > 0 && len(h) < (c-1)*hs+n {
		panic(fmt.Sprintf("dense: %d x %d of %d numbers that are %d apart, %d and %d", c, n, len(h),
			hs, len(v), len(out)))
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
// that are stride apart. It panics where the slices are too short.
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

// Residual replaces the logits a by w softmax(a) - y, column by column: a has c rows of n numbers,
// a multiple of SingleWidth, and y as many that are apart from each other. A logit that is more
// than 87 below the largest counts as 87 below it. exp(-87) is about the smallest normal float32.
// That is the gradient of a weighted softmax loss in its logits, for labels y times their weights.
func Residual(c, n int, a, y []float32, apart int, w []float32) {
	if n%SingleWidth != 0 || len(w) < n || c < 1 || len(a) < c*n || len(y) < (c-1)*apart+n {
		panic(fmt.Sprintf("dense: %d rows of %d logits of %d; labels %d apart, of %d, and %d weights",
			c, n, len(a), apart, len(y), len(w)))
	}
	residual(c, n, a, n, y, apart, w)
}

// MulColumns adds a times w columns of p from from on to c: both are multiples of SingleWidth.
func (p Single) MulColumns(from, w int, a, c blas32.General) {
	if from%SingleWidth != 0 || w%SingleWidth != 0 || from < 0 || from+w > p.cols {
		panic(fmt.Sprintf("dense: columns %d to %d of %d", from, from+w, p.cols))
	}
	Single{rows: p.rows, cols: w, panels: p.panels[from*p.rows : (from+w)*p.rows]}.Mul(a, c)
}

// MulRows adds a times the rows of p from from on, as many as a has columns, to c.
func (p Single) MulRows(from int, a, c blas32.General) {
	if from < 0 || from+a.Cols > p.rows || c.Rows != a.Rows || c.Cols != p.cols ||
		a.Rows%tileRows != 0 {
		panic(fmt.Sprintf("dense: product of %d x %d and rows from %d of %d x %d into %d x %d",
			a.Rows, a.Cols, from, p.rows, p.cols, c.Rows, c.Cols))
	}
	p.mul(from, a, c)
}

// Narrow writes src in float32 to the beginning of dst. dst has room for src; numbers beyond
// float32's range become infinite.
func Narrow(dst []float32, src []float64) {
	whole := len(src) / Width
	narrow(whole, src, dst, Width)
	for i := whole * Width; i < len(src); i++ {
		dst[i] = float32(src[i])
	}
}

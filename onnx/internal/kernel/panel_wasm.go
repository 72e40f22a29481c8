package kernel

// Kernels are loops in the vector instructions of WebAssembly, which Go's compiler does not write:
// package fmp/onnx/simd makes them, in a module of their own that works on Go's memory. Each takes
// the address of its arguments, and computes the bits of its counterpart in Go.
type Kernels struct {
	Panels       func(*PanelArgs)
	Taps         func(*TapArgs)
	Finish       func(*FinishArgs)
	Pairs        func(*PairArgs)
	Deinterleave func(*DeinterleaveArgs)
}

// lent are nil where there are none: Go computes.
var lent *Kernels

// Lend sets the kernels of all that is computed from now on; nil takes them back. It is not for use
// while something is computed: the one thread has to be idle.
func Lend(k *Kernels) { lent = k }

const (
	panelRows, panelCols = 4, 8
	havePanels           = true
	// columns at the right; rows at the bottom are fewer
	edgeRoom = panelHeight * panelCols
)

// PanelArgs are a product of packed operands: C, rows of Panels x 8 numbers that lie Stride apart,
// becomes From, a number for each row, or C where From is nil, plus A, [Rows / 4, K, 4], times B,
// [Panels, K, 8].
type PanelArgs struct {
	A, B, C, From           *float32
	K, Rows, Panels, Stride int // above 0; Rows is a multiple of four
}

// Arguments lie in variables of their own: there is one thread, and a kernel calls nothing.
var panelArgs PanelArgs

// panelPart returns how many of n columns the next kernel computes, from column j on: whole blocks.
func panelPart(j, n int) int { return min(panelWidth-j%panelWidth, n-j) }

// panel adds the product of left, over d elements of the inner axis, and the panels of b to c, or
// sets c to it plus from. Columns and rows that fill no tile are computed beside it. It is done in
// three parts: whole tiles, the columns at the right, and the rows below.
func (p *packs) panel(left, b []float32, _, d int, c matrix[float32], from []float32) {
	rows, cols := c.rows/panelRows*panelRows, c.cols/panelCols*panelCols
	part := func(i, j, h, w int) {
		if h == 0 || w == 0 {
			return
		}
		dst := c.part(i, j, h, w)
		high, wide := padRows(h), padColumns(w)
		var start []float32
		if from != nil {
			start = from[i : i+high]
		}
		if high == h && wide == w {
			multiplyTiles(left[i*d:(i+high)*d], b[j*d:(j+wide)*d], d, dst, start)
			return
		}
		edge := dense(p.c[:high*wide], high, wide)
		for r := 0; r < h && start == nil; r++ {
			copy(edge.data[r*wide:], dst.data[r*dst.stride:][:w])
		}
		multiplyTiles(left[i*d:(i+high)*d], b[j*d:(j+wide)*d], d, edge, start)
		for r := range h {
			copy(dst.data[r*dst.stride:][:w], edge.data[r*wide:])
		}
	}
	part(0, 0, rows, cols)
	part(0, cols, c.rows, c.cols-cols)
	part(rows, 0, c.rows-rows, cols)
}

// multiplyTiles is panel of whole tiles.
func multiplyTiles(a, b []float32, k int, c matrix[float32], from []float32) {
	if lent != nil {
		_, _, _ = a[k*c.rows-1], b[k*c.cols-1], c.data[(c.rows-1)*c.stride+c.cols-1]
		panelArgs = PanelArgs{A: &a[0], B: &b[0], C: &c.data[0], K: k, Rows: c.rows,
			Panels: c.cols / panelCols, Stride: c.stride}
		if from != nil {
			_ = from[c.rows-1]
			panelArgs.From = &from[0]
		}
		lent.Panels(&panelArgs)
		return
	}
	for j := 0; j < c.cols; j += panelCols {
		for i := 0; i < c.rows; i += panelRows {
			to := c.data[i*c.stride+j:]
			if from != nil {
				begin(to, c.stride, from[i:])
			}
			for half := 0; half < panelCols; half += 4 {
				panelGo(k, a[i*k:], b[j*k+half:], panelCols, to[half:], c.stride)
			}
		}
	}
}

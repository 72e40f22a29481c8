package moment

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"

	"fmp/onnx/dense"
	"fmp/pipeline/moments"
)

// Factor adds sign F'F to the upper triangle of a matrix, for rows F that are given one by one;
// without a matrix it keeps the rows. Products are of many rows at a time. Numbers below the
// diagonal change too, and stand for nothing.
type Factor struct {
	K    int
	To   []float64 // [K, K]; nil: rows are kept
	Sign float64   // 0: 1
	Rows []float64 // those that are not added yet
	pack dense.Packed
}

// FactorRows is how many rows are multiplied at a time.
const FactorRows = 1024

// Row returns the next row, zeros to be written before the next call.
// After the next call it is not valid: rows may have moved, or have been added to the matrix.
func (f *Factor) Row() []float64 {
	if f.To != nil && len(f.Rows) == FactorRows*f.K {
		f.Flush()
	}
	at := len(f.Rows)
	f.Rows = slices.Grow(f.Rows, f.K)[:at+f.K]
	clear(f.Rows[at:])
	return f.Rows[at : at+f.K : at+f.K]
}

// AddScatter adds a share of a client's scatter: the rows of a factor F, as sqrt(share) F, or a
// whole matrix. A whole matrix wants To.
func (f *Factor) AddScatter(w *moments.Within, share float64) {
	if w.Rank > 0 {
		root := math.Sqrt(share)
		for at := 0; at < len(w.Data); at += w.K {
			for j, row := 0, f.Row(); j < w.K; j++ {
				row[j] = root * float64(w.Data[at+j])
			}
		}
		return
	}
	if share == 1 {
		w.AddTo(f.To)
		return
	}
	own := make([]float64, len(f.To))
	w.AddTo(own)
	floats.AddScaled(f.To, share, own)
}

// Flush adds the rows that are not added yet. Row calls it when FactorRows are there, so that
// memory is K FactorRows numbers. The caller flushes the last ones.
func (f *Factor) Flush() {
	if len(f.Rows) == 0 {
		return
	}
	n := len(f.Rows) / f.K
	rows := dense.General(n, f.K, f.Rows)
	f.pack = dense.Pack(blas.NoTrans, rows, f.pack.Buffer())
	// One of the two copies of F has the sign, as the rows are packed by then: (F)'(sign F).
	if f.Sign != 0 {
		for i := range f.Rows {
			f.Rows[i] *= f.Sign
		}
	}
	f.pack.MulRows(0, rows, dense.General(f.K, f.K, f.To), true)
	f.Rows = f.Rows[:0]
}

package sample

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/onnx/dense"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
)

// TestShifted: class means moved by b, read by a predictor shifted by b, have the coordinates that
// they had; a linear map that tells a part of features takes that part away.
func TestShifted(t *testing.T) {
	k, clients, _ := conjugateWorld(t)
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	set := clients[0]
	dx := set.Dx
	b, c := make([]float64, dx), make([]float64, dx)
	a := mat.NewDense(dx, dx, nil)
	for j := range dx {
		b[j], c[j] = math.Sin(float64(j)), math.Cos(float64(2*j))
		for i := range dx {
			a.Set(i, j, math.Sin(float64(i*3+j))/10)
		}
	}
	read := func(by *Conjugate, move func(row []float64) []float64) []float32 {
		moved := *set
		moved.Z = append([]float32(nil), set.Z...)
		for i := range set.N {
			row := moved.Row(i)
			for j, v := range move(dense.As[float64](row[:dx])) {
				row[j] = float32(v)
			}
		}
		return by.project(&moved).Z
	}
	shifted := must.Get(k.Shifted(eng, a, c, b))(t)
	got := read(shifted, func(row []float64) []float64 { return row })
	want := read(k, func(row []float64) []float64 { // phi - b - ((phi - b) A - c)
		var told mat.VecDense
		floats.Sub(row, b)
		told.MulVec(a.T(), mat.NewVecDense(dx, row))
		floats.Sub(row, told.RawVector().Data)
		floats.Add(row, c)
		return row
	})
	near(t, "the coordinates", got, want, 1e-4)
	plain := must.Get(k.Shifted(eng, nil, nil, b))(t)
	got = read(plain, func(row []float64) []float64 {
		floats.Add(row, b)
		return row
	})
	want = read(k, func(row []float64) []float64 { return row })
	near(t, "moved class means", got, want, 1e-4)
}

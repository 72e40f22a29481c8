package moment

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/pipeline/moments"
)

// TestFactor: rows given one by one, more than are multiplied at a time, add up to their product,
// and are taken away again; without a matrix they are kept.
func TestFactor(t *testing.T) {
	const n, k = 2*FactorRows + 5, 7
	r := rng.New(1, "factor")
	x := mat.NewDense(n, k, nil)
	for i := range x.RawMatrix().Data {
		x.RawMatrix().Data[i] = r.NormFloat64()
	}
	want, got := Gram(1, x), make([]float64, k*k)
	add := func(f *Factor) *Factor {
		for i := range n {
			copy(f.Row(), x.RawRowView(i))
		}
		return f
	}
	add(&Factor{K: k, To: got}).Flush()
	for i := range k {
		for j := i; j < k; j++ {
			if v := want.At(i, j); math.Abs(got[i*k+j]-v) > 1e-9*n {
				t.Fatalf("element %d, %d is %v; want %v", i, j, got[i*k+j], v)
			}
		}
	}
	add(&Factor{K: k, To: got, Sign: -1}).Flush()
	for i, v := range got {
		if math.Abs(v) > 1e-9*n {
			t.Fatalf("number %d is %v after the rows were taken away", i, v)
		}
	}
	if f := add(&Factor{K: k}); len(f.Rows) != n*k || f.Rows[n*k-1] != x.At(n-1, k-1) {
		t.Errorf("%d numbers are kept; want %d", len(f.Rows), n*k)
	}
}

// TestAddScatter: a share of a scatter is the same of a factor and of a whole matrix.
func TestAddScatter(t *testing.T) {
	w := &moments.Within{K: 2, Rank: 2, Dof: 3, Data: []float32{1, 2, 0, 3}}
	whole := &moments.Within{K: 2, Dof: 3, Data: []float32{1, 2, 13}}
	for _, share := range []float64{1, 0.25} {
		for _, of := range []*moments.Within{w, whole} {
			f := Factor{K: 2, To: make([]float64, 4)}
			f.AddScatter(of, share)
			f.Flush()
			for i, want := range []float64{1, 2, 0, 13} {
				if got := f.To[i]; i != 2 && math.Abs(got-share*want) > 1e-12 {
					t.Errorf("rank %d, share %v: number %d is %v; want %v", of.Rank, share, i, got, share*want)
				}
			}
		}
	}
}

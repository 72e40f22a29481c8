package moment

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
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

package moment

import (
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx/must"
)

func TestDiagonalise(t *testing.T) {
	t.Parallel()
	for _, d := range []int{1, 7, Small + 10} {
		r := rng.New(uint64(d), "diagonalise")
		x, y := mat.NewDense(2*d+3, d, nil), mat.NewDense(d/2+1, d, nil)
		for _, m := range []*mat.Dense{x, y} {
			m.Apply(func(_, j int, _ float64) float64 { return r.NormFloat64() * (1 + float64(j%5)) }, m)
		}
		within, between := Gram(1/float64(2*d), x), Gram(1, y)
		v, values := must.Get2(Diagonalise(within, between))(t)
		if !slices.IsSortedFunc(values, func(a, b float64) int {
			if a > b {
				return -1
			}
			return 1
		}) {
			t.Errorf("%d directions: values are not descending: %v", d, values)
		}
		for what, of := range map[string]*mat.SymDense{"within": within, "between": between} {
			var half, got mat.Dense
			half.Mul(of, v)
			got.Mul(v.T(), &half)
			for i := range d {
				for j := range d {
					want := 0.0
					if i == j {
						want = 1
						if what == "between" {
							want = values[i]
						}
					}
					if math.Abs(got.At(i, j)-want) > 1e-8*(1+values[0]) {
						t.Fatalf("%d directions, %s: element %d, %d is %v, want %v", d, what, i, j,
							got.At(i, j), want)
					}
				}
			}
		}
	}
	if _, _, err := Diagonalise(mat.NewSymDense(2, []float64{1, 1, 1, 1}),
		mat.NewSymDense(2, []float64{1, 0, 0, 1})); err == nil {
		t.Error("a singular covariance within classes is no error")
	}
}

package moment

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

func normal(r *rand.Rand, rows, columns int) *mat.Dense {
	m := mat.NewDense(rows, columns, nil)
	for i := range m.RawMatrix().Data {
		m.RawMatrix().Data[i] = r.NormFloat64()
	}
	return m
}

// TestProduct: products are gonum's, below and above the size from which processors share them.
func TestProduct(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range [][3]int{{1, 1, 1}, {7, 5, 9}, {401, 170, 333}} {
		a, b, flipped := normal(r, s[0], s[1]), normal(r, s[1], s[2]), normal(r, s[2], s[1])
		var want, wantFlipped, gram mat.Dense
		want.Mul(a, b)
		wantFlipped.Mul(a, flipped.T())
		gram.Mul(a.T(), a)
		gram.Scale(0.25, &gram)
		if !mat.EqualApprox(&want, Product(a, b, false), 1e-11) ||
			!mat.EqualApprox(&wantFlipped, Product(a, flipped, true), 1e-11) {
			t.Errorf("a product of %v is another than gonum's", s)
		}
		if !mat.EqualApprox(&gram, Gram(0.25, a), 1e-11) {
			t.Errorf("the Gram matrix of %d x %d is another than gonum's", s[0], s[1])
		}
	}
}

// TestEigen: on either side of Small, vectors times values give the matrix back.
func TestEigen(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{40, Small + 4} {
		s := Gram(1, normal(r, n-7, n))
		values, v, ok := Eigen(s)
		if !ok {
			t.Fatal("not converged")
		}
		var scaled, back mat.Dense
		scaled.Apply(func(_, j int, x float64) float64 { return x * values[j] }, v)
		back.Mul(&scaled, v.T())
		if !mat.EqualApprox(&back, s, 1e-9*float64(n)) || math.Abs(values[0]) > 1e-9 {
			t.Errorf("n = %d: eigenvectors and values do not give the matrix back", n)
		}
	}
}

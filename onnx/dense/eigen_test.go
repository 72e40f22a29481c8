package dense

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// symmetric returns Q diag(values) Q' for a random orthogonal Q.
func symmetric(r *rand.Rand, values []float64) blas64.General {
	n := len(values)
	g := mat.NewDense(n, n, nil)
	for i := range n * n {
		g.RawMatrix().Data[i] = r.NormFloat64()
	}
	var qr mat.QR
	qr.Factorize(g)
	var q, scaled, a mat.Dense
	qr.QTo(&q)
	scaled.Apply(func(_, j int, v float64) float64 { return v * values[j] }, &q)
	a.Mul(&scaled, q.T())
	for i := range n {
		for j := range i {
			a.Set(i, j, a.At(j, i))
		}
	}
	return a.RawMatrix()
}

// TestEigen: values and vectors of matrices with spread, equal, tiny and absent eigenvalues satisfy
// A V = V diag and V'V = I to rounding, and values are ascending and those that the matrix was made
// of.
func TestEigen(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	kinds := map[string]func(i, n int) float64{
		"spread":   func(i, n int) float64 { return float64(i) - float64(n)/3 },
		"normal":   func(int, int) float64 { return r.NormFloat64() },
		"equal":    func(i, n int) float64 { return float64(i % 3) },
		"all one":  func(int, int) float64 { return 1 },
		"graded":   func(i, n int) float64 { return math.Pow(10, -14*float64(i)/float64(n)) },
		"low rank": func(i, n int) float64 { return float64(max(0, i-n+9)) },
		"clusters": func(i, n int) float64 { return float64(i/7) + 1e-13*r.Float64() },
		"small":    func(i, n int) float64 { return 1e-30 * (1 + float64(i)) },
		"large":    func(i, n int) float64 { return 1e100 * float64(i-n/2) },
		"nothing":  func(int, int) float64 { return 0 },
	}
	for kind, value := range kinds {
		for _, n := range []int{1, 2, 3, 31, 32, 33, 64, 65, 97, 130, 257} {
			t.Run(fmt.Sprint(kind, " ", n), func(t *testing.T) {
				want := make([]float64, n)
				for i := range want {
					want[i] = value(i, n)
				}
				a := symmetric(r, want)
				slices.Sort(want)
				size := 1e-300
				for _, v := range want {
					size = max(size, math.Abs(v))
				}
				values, v := Eigen(copyOf(a))
				if !slices.IsSorted(values) {
					t.Fatal("eigenvalues do not ascend")
				}
				limit := 3e-14 * float64(10+n) * size
				for i := range want {
					if !(math.Abs(values[i]-want[i]) <= limit) {
						t.Fatalf("eigenvalue %d is %v; want %v", i, values[i], want[i])
					}
				}
				av, gram := zeros(n, n), zeros(n, n)
				blas64.Gemm(blas.NoTrans, blas.NoTrans, 1, a, v, 0, av)
				blas64.Gemm(blas.Trans, blas.NoTrans, 1, v, v, 0, gram)
				for i := range n {
					for j := range n {
						got, want, id := av.Data[i*n+j], v.Data[i*n+j]*values[j], 0.0
						if i == j {
							id = 1
						}
						if !(math.Abs(gram.Data[i*n+j]-id) <= 1e-13*float64(10+n)) {
							t.Fatalf("V'V [%d,%d] is %v", i, j, gram.Data[i*n+j])
						}
						if !(math.Abs(got-want) <= limit) {
							t.Fatalf("A V [%d,%d] is %v; V diag %v", i, j, got, want)
						}
					}
				}
			})
		}
	}
}

// BenchmarkEigen measures the decomposition, and up to 1,281 rows beside it gonum's.
func BenchmarkEigen(b *testing.B) {
	for _, n := range sizes {
		r := rand.New(rand.NewPCG(5, 6))
		s := mat.NewSymDense(n, nil)
		for i := range n {
			for j := i; j < n; j++ {
				s.SetSym(i, j, r.NormFloat64())
			}
		}
		b.Run(fmt.Sprint("dense/", n), func(b *testing.B) {
			for range b.N {
				a := mat.DenseCopyOf(s)
				Eigen(a.RawMatrix())
			}
		})
		b.Run(fmt.Sprint("gonum/", n), func(b *testing.B) {
			if n > 1281 {
				b.Skip("takes minutes")
			}
			for range b.N {
				var e mat.EigenSym
				e.Factorize(s, true)
				var v mat.Dense
				e.VectorsTo(&v)
			}
		})
	}
}

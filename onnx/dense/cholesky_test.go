package dense

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// covariance returns a symmetric positive definite matrix of n rows, of about such a condition,
// within a matrix of more columns.
func covariance(n int, condition float64) blas64.General {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	x, q, y := zeros(n, 2*n), zeros(n, n), zeros(n, 2*n)
	for i := range n {
		scale := math.Pow(condition, -.5*float64(i)/float64(max(1, n-1)))
		for j := range 2 * n {
			x.Data[i*2*n+j] = scale * r.NormFloat64()
		}
	}
	// Turned, so that no block is as well conditioned as its rows.
	for i := range q.Data {
		q.Data[i] = r.NormFloat64() / math.Sqrt(float64(n))
	}
	Gemm(blas.NoTrans, blas.NoTrans, 1, q, x, 0, y)
	a := blas64.General{Rows: n, Cols: n, Stride: n + 3, Data: make([]float64, n*(n+3))}
	Gemm(blas.NoTrans, blas.Trans, 1/float64(2*n), y, y, 0, a)
	return a
}

func copyOf(a blas64.General) blas64.General {
	a.Data = append([]float64{}, a.Data...)
	return a
}

func norm(a blas64.General) float64 {
	var s float64
	for i := range a.Rows {
		for _, v := range row64(a, i) {
			s += v * v
		}
	}
	return math.Sqrt(s)
}

// A matrix is the square of its factor, solutions solve, and the inverse is one, to the precision
// of float64 at every condition.
func TestCholesky(t *testing.T) {
	for _, n := range []int{0, 1, 2, 31, 32, 33, 64, 65, 100, 129, 257, 400} {
		for _, condition := range []float64{1, 1e4, 1e8} {
			a := covariance(n, condition)
			below := copyOf(a)
			for i := range n { // the lower triangle is not read
				for j := range i {
					below.Data[i*below.Stride+j] = math.NaN()
				}
			}
			f, ok := Cholesky(below, nil)
			if !ok {
				t.Fatalf("%d, %g: not positive definite", n, condition)
			}
			rest := copyOf(a)
			Gemm(blas.Trans, blas.NoTrans, -1, f.U, f.U, 1, rest)
			if r := norm(rest); !(r <= 1e-14*norm(a)) {
				t.Errorf("%d, %g: U'U differs by %.1e of its size", n, condition, r/norm(a))
			}
			for _, cols := range []int{1, 7, 150} {
				b := zeros(n, cols)
				for i := range b.Data {
					b.Data[i] = math.Sin(float64(i))
				}
				x := copyOf(b)
				f.Solve(x)
				size := norm(a)*norm(x) + norm(b)
				Gemm(blas.NoTrans, blas.NoTrans, -1, a, x, 1, b)
				if r := norm(b); !(r <= 1e-14*size) {
					t.Errorf("%d, %g, %d right sides: the residual is %.1e of its terms", n,
						condition, cols, r/size)
				}
			}
			inverse := copyOf(f.Inverse())
			one := zeros(n, n)
			for i := range n {
				one.Data[i*n+i] = 1
			}
			size := norm(a) * norm(inverse)
			Gemm(blas.NoTrans, blas.NoTrans, -1, a, inverse, 1, one)
			if r := norm(one); !(r <= 1e-14*size) {
				t.Errorf("%d, %g: A times its inverse differs from one by %.1e, of %.1e", n, condition, r, size)
			}
		}
	}
}

func TestCholeskyRefuses(t *testing.T) {
	for name, spoil := range map[string]func(a blas64.General){
		"a negative direction": func(a blas64.General) { a.Data[70*a.Stride+70] = -1 },
		"nothing":              func(a blas64.General) { clear(a.Data) },
		"a NaN":                func(a blas64.General) { a.Data[3*a.Stride+60] = math.NaN() },
		"an infinity":          func(a blas64.General) { a.Data[3*a.Stride+3] = math.Inf(1) },
	} {
		a := covariance(80, 1)
		spoil(a)
		if _, ok := Cholesky(a, make([]float64, FactorWork(80))); ok {
			t.Errorf("%s: taken for positive definite", name)
		}
	}
}

// sizes are those of the table of docs/speed.md.
var sizes = []int{513, 1281, 2049, 4096}

func BenchmarkCholesky(b *testing.B) { factorising(b, func(Factor) {}) }

func BenchmarkInverse(b *testing.B) { factorising(b, func(f Factor) { f.Inverse() }) }

// factorising measures factors, and what is made of them.
func factorising(b *testing.B, then func(f Factor)) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a := covariance(n, 10)
			c, work := copyOf(a), make([]float64, FactorWork(n))
			for b.Loop() {
				copy(c.Data, a.Data)
				f, _ := Cholesky(c, work)
				then(f)
			}
		})
	}
}

func BenchmarkGemm1281(b *testing.B) {
	a := covariance(1281, 10)
	c := copyOf(a)
	for b.Loop() {
		Gemm(blas.NoTrans, blas.NoTrans, 1, a, a, 0, c)
	}
}

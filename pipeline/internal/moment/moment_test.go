package moment

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/moments"
)

// TestOf: the moments are those of gonum's statistics, class by class.
func TestOf(t *testing.T) {
	const k, c = 3, 4
	r := rand.New(rand.NewPCG(1, 2))
	count := []int{5, 2, 9, 30}
	var values []float32
	var labels []int
	for y, n := range count {
		for range n {
			for j := range k {
				values = append(values, float32(r.NormFloat64()+float64(y*j)))
			}
			labels = append(labels, y)
		}
	}
	rows := Rows(values, k)
	m := must.Get(Compute(rows, labels, c, 2))(t)
	within, means, sampling, at := mat.NewSymDense(k, nil), mat.NewDense(c, k, nil), 0.0, 0
	for y, n := range count {
		own := rows.Slice(at, at+n, 0, k)
		at += n
		for j := range k {
			means.Set(y, j, stat.Mean(mat.Col(nil, j, own), nil))
		}
		var s mat.SymDense
		stat.CovarianceMatrix(&s, own, nil)
		s.ScaleSym(float64(n-1)/float64(len(labels)-c), &s)
		within.AddSym(within, &s)
		sampling += 1 / float64(n) / c
	}
	var between, noise mat.SymDense
	stat.CovarianceMatrix(&between, means, nil)
	noise.ScaleSym(-sampling, within)
	between.AddSym(&between, &noise)
	for _, x := range []struct {
		what      string
		got, want mat.Matrix
	}{{"means", m.Means, means}, {"within", m.Within, within},
		{"between", m.Between(m.Within), &between}} {
		if !mat.EqualApprox(x.got, x.want, 1e-9) {
			t.Errorf("%s: %v, want %v", x.what, mat.Formatted(x.got), mat.Formatted(x.want))
		}
	}
	for j, v := range m.Centre {
		if math.Abs(v-stat.Mean(mat.Col(nil, j, means), nil)) > 1e-9 {
			t.Errorf("centre %v", m.Centre)
		}
	}
}

func TestErrors(t *testing.T) {
	rows := mat.NewDense(4, 1, []float64{1, 2, 3, 4})
	for _, x := range []struct {
		labels   []int
		c, least int
		want     string
	}{
		{[]int{0, 1, 0}, 2, 0, "3 labels"}, {[]int{0, 0, 0, 0}, 1, 0, "two classes"},
		{[]int{0, 1, 2, 3}, 4, 0, "more rows than classes"},
		{[]int{0, 1, 0, 2}, 2, 0, "label 2 of row 3"}, {[]int{0, 1, 0, -1}, 2, 0, "label -1"},
		{[]int{0, 0, 0, 1}, 2, 2, "class 1 has 1 rows"},
	} {
		must.Fail(Compute(rows, x.labels, x.c, x.least))(t, x.want)
	}
}

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

// TestEigen: on either side of small, vectors times values give the matrix back.
func TestEigen(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{40, small + 4} {
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

func TestDiagonalise(t *testing.T) {
	t.Parallel()
	for _, d := range []int{1, 7, small + 10} {
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

package moment

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"fmp/onnx/must"
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
		if _, err := Compute(rows, x.labels, x.c, x.least); err == nil ||
			!strings.Contains(err.Error(), x.want) {
			t.Errorf("%v of %d: error %v does not say %q", x.labels, x.c, err, x.want)
		}
	}
}

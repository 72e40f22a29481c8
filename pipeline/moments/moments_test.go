package moments

import (
	"math"
	"slices"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
)

// rows are n random rows of k numbers of c classes in turn, of length 1 at most.
func rows(seed uint64, n, k, c int) ([]float32, []int) {
	x, y := make([]float32, n*k), make([]int, n)
	rng.Normal(rng.New(seed, "rows"), x)
	for i := range y {
		y[i] = i % c
		x[i*k+y[i]] += 3
	}
	for i := range x {
		x[i] /= float32(5 * math.Sqrt(float64(k)))
	}
	return x, y
}

// direct returns the upper triangle of the scatter within classes of the rows that are not
// calibration points.
func direct(x []float32, k int, y []int, c int, chosen []bool) []float64 {
	mean, n := make([]float64, c*k), make([]float64, c)
	for i, l := range y {
		if !chosen[i] {
			n[l]++
			for j := range k {
				mean[l*k+j] += float64(x[i*k+j])
			}
		}
	}
	out := make([]float64, k*k)
	for i, l := range y {
		if chosen[i] {
			continue
		}
		for a := range k {
			for b := a; b < k; b++ {
				out[a*k+b] += (float64(x[i*k+a]) - mean[l*k+a]/n[l]) * (float64(x[i*k+b]) - mean[l*k+b]/n[l])
			}
		}
	}
	return out
}

// TestScatterAdds: uploads of two clients, one with a factor and one with the scatter itself, add
// up to the scatter of all rows within each client's classes; images are counted once.
func TestScatterAdds(t *testing.T) {
	const k, c = 7, 3
	sum, want := make([]float64, k*k), make([]float64, k*k)
	for m, n := range []int{6, 60} {
		x, y := rows(uint64(m), n, k, c)
		means, w := must.Get2(Compute(x, k, y, c, "a"))(t)
		if (w.Rank > 0) != (m == 0) {
			t.Fatalf("%d rows: rank %d", n, w.Rank)
		}
		must.Do(t, w.Check(c))
		if got := int(means.Mass()) + len(w.Labels); got != n || w.Dof != int(means.Mass())-means.N {
			t.Errorf("%d images of %d, %d degrees of freedom", got, n, w.Dof)
		}
		w.AddTo(sum)
		for i, v := range direct(x, k, y, c, Calibration(x, k, "a", MaxCalibration)) {
			want[i] += v
		}
		trace := 0.0
		one := w.Whole()
		for i := range k {
			trace += one[i*k+i]
		}
		if math.Abs(trace-w.Trace()) > 1e-6 {
			t.Errorf("trace %v, want %v", w.Trace(), trace)
		}
	}
	for i := range sum {
		if math.Abs(sum[i]-want[i]) > 1e-6 {
			t.Fatalf("element %d is %v, want %v", i, sum[i], want[i])
		}
	}
}

// TestFactorTellsScatterAlone: rows turned by an orthogonal matrix have the same scatter, and so
// the same factor.
func TestFactorTellsScatterAlone(t *testing.T) {
	const k = 5
	x, _ := rows(3, 2, k, 2)
	a, b := make([]float64, 2*k), make([]float64, 2*k)
	for j := range k {
		p, q := float64(x[j]), float64(x[k+j])
		a[j], a[k+j] = p, q
		b[j], b[k+j] = 0.6*p+0.8*q, -0.8*p+0.6*q
	}
	f, g := factor(a, k, 2), factor(b, k, 2)
	for i := range f {
		if math.Abs(float64(f[i]-g[i])) > 1e-6 {
			t.Fatalf("factors %v and %v differ", f, g)
		}
	}
}

func TestCalibration(t *testing.T) {
	x, _ := rows(4, 100, 3, 2)
	copy(x[3:6], x[:3]) // an image twice
	a, b := Calibration(x, 3, "a", MaxCalibration), Calibration(x, 3, "b", MaxCalibration)
	count := func(v []bool) (n int) {
		for _, is := range v {
			if is {
				n++
			}
		}
		return n
	}
	if n := count(a); n < MaxCalibration-1 || n > MaxCalibration {
		t.Errorf("%d of 100 rows are calibration points, want about %d", n, MaxCalibration)
	}
	if slices.Equal(a, b) {
		t.Error("two clients choose the same rows")
	}
	for key := range 200 {
		if v := Calibration(x, 3, string(rune('a'+key)), MaxCalibration); v[0] != v[1] {
			t.Fatal("one of two equal images is a calibration point")
		}
	}
	for n, want := range map[int]int{1: 0, 2: 1, 10: 2, 40: 8} {
		y, _ := rows(5, n, 3, 2)
		if got := count(Calibration(y, 3, "", MaxCalibration)); got != want {
			t.Errorf("%d calibration points of %d images, want %d", got, n, want)
		}
	}
	same := make([]float32, 30)
	if n := count(Calibration(same, 3, "", MaxCalibration)); n != 0 {
		t.Errorf("%d of ten equal images are calibration points; none would be left", n)
	}
}

func TestRefused(t *testing.T) {
	if _, _, err := Compute([]float32{1, 2}, 2, []int{3}, 3, ""); err == nil {
		t.Error("a class beyond the last is taken")
	}
	if _, _, err := Compute([]float32{1, 2}, 2, nil, 3, ""); err == nil {
		t.Error("no image is taken")
	}
	good := func() *Within {
		return &Within{K: 2, Dof: 3, Data: []float32{1, 0, 1}, Calibration: []float32{1, 2},
			Labels: []int{1}}
	}
	must.Do(t, good().Check(2))
	for name, spoil := range map[string]func(*Within){
		"numbers": func(w *Within) { w.Data = w.Data[:2] }, "rank": func(w *Within) {
			w.Rank, w.Data = 3, make([]float32, 6)
		},
		"rank above dof": func(w *Within) {
			w.Rank, w.Dof, w.Data = 2, 1, make([]float32, 4)
		}, "negative": func(w *Within) { w.Data[2] = -1 },
		"nan": func(w *Within) { w.Data[1] = float32(math.NaN()) }, "class": func(w *Within) {
			w.Labels[0] = 2
		},
		"points":         func(w *Within) { w.Calibration = nil },
		"infinite point": func(w *Within) { w.Calibration[0] = float32(math.Inf(1)) }, "dof": func(
			w *Within) {
			w.Dof = -1
		},
		"scatter of nothing": func(w *Within) { w.Dof = 0 },
		"many": func(w *Within) {
			w.Labels, w.Calibration = make([]int, 11), make([]float32, 22)
		},
	} {
		w := good()
		spoil(w)
		if w.Check(2) == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

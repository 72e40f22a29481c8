package moments

import (
	"math"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
)

// TestHeavy: a feature that has most of the sum of all and varies is told, of rows and of the moments
// of their map alike, of a scatter and of a factor of it. One that is constant is not, nor one of few
// features.
func TestHeavy(t *testing.T) {
	for _, c := range []struct {
		name  string
		n, dx int
		times float64
		fixed bool
		want  bool
	}{
		{"even", 60, 20, 1, false, false},
		{"large, yet no half", 60, 20, 10, false, false},
		{"heavy", 60, 20, 200, false, true},
		{"negative", 60, 20, -200, false, true},
		{"heavy, few images", 8, 20, 1000, false, true},
		{"very heavy", 60, 20, 1e4, false, true},
		{"constant", 60, 20, 1e4, true, false},
		{"few features", 60, 15, 200, false, false},
	} {
		r := rng.New(1, "heavy", c.n, c.dx)
		h, y := make([]float32, c.n*c.dx), make([]int, c.n)
		for i := range h {
			h[i], y[i/c.dx] = float32(math.Pow(r.Float64(), 2)), i/c.dx%2
			if i%c.dx == 7 {
				if c.fixed {
					h[i] = 1
				}
				h[i] *= float32(c.times)
			}
		}
		mapped := make([]float32, len(h))
		for i, v := range h {
			total := 0.0
			for _, v := range h[i/c.dx*c.dx:][:c.dx] {
				total += math.Abs(float64(v))
			}
			mapped[i] = float32(math.Copysign(math.Sqrt(math.Abs(float64(v))/total), float64(v)))
		}
		means, w := must.Get2(Parted(mapped, c.dx, y, 2, nil))(t)
		rows, sums := HeavyRows(h, c.dx), HeavyMoments(means, w)
		if got := rows.Share > 0; got != c.want || got && rows.Feature != 7 || rows.Feature != sums.Feature ||
			math.Abs(rows.Share-sums.Share) > 1e-5 {
			t.Errorf("%s: %+v of rows, %+v of moments of rank %d", c.name, rows, sums, w.Rank)
		}
	}
}

package honesty

import (
	"math"
	"testing"

	"fmp/models/rng"
)

// TestFew: a cell's densities under few classes are those under all, for every number of coordinates
// and for masses as small as a float32 has.
func TestFew(t *testing.T) {
	const classes = 3
	for k := 1; k <= 40; k++ {
		for _, n := range []float64{20, 1, 1e-20, 1e-38, math.SmallestNonzeroFloat32} {
			r := rng.New(uint64(k), "few")
			st := &state{h: &model{k: k, classes: classes}, iv: math.NaN(), dets: make([]logDet, classes)}
			l := &cell{iv: meanVariance(n), near: []int{0, 1, 2, classes, classes + 1}}
			for range classes * k {
				st.mean, st.v = append(st.mean, r.NormFloat64()), append(st.v, math.Exp(r.NormFloat64()))
			}
			for range k {
				l.x = append(l.x, 3*r.NormFloat64())
			}
			want, got := make([]float64, classes+2), make([]float64, classes+2)
			st.components(l, want)
			st.few(l, got)
			for c, v := range want {
				if !(math.Abs(got[c]-v) <= 1e-10*(1+math.Abs(v))) {
					t.Fatalf("%d coordinates, mass %g: log density %g under class %d, want %g", k, n, got[c], c, v)
				}
			}
		}
	}
}

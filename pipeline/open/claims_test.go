package open

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/honesty"
	"fmp/pipeline/point"
)

// TestClaims: on classes that the corpus lacks, claims are class means of covariance within classes
// of about I, their variances descend, Sets is Claims' inverse, and a client that exchanges names
// is found where the others are kept.
func TestClaims(t *testing.T) {
	const k, known, classes, clients, each = 6, 12, 5, 8, 4
	r := rng.New(7, "claims")
	scale := []float64{3, 1, 1, .5, .5, .2} // of class means; the last is noise
	rows := func(n int, centre []float64) []float32 {
		out := make([]float32, n*k)
		for i := range out {
			out[i] = float32(centre[i%k] + r.NormFloat64())
		}
		return out
	}
	centre := func() []float64 {
		c := make([]float64, k)
		for j := range c {
			c[j] = 2 * scale[j] * r.NormFloat64()
		}
		return c
	}
	var features []float32
	var labels []int
	for y := range known {
		features = append(features, rows(60, centre())...)
		for range 60 {
			labels = append(labels, y)
		}
	}
	p := &Predictor{Coordinates: *must.Get(NewCoordinates(features, k, k))(t), Scalars: Start}
	corpus := must.Get(p.Rows(features))(t)
	p.Moments, p.Known = must.Get2(NewMoments(corpus, k, labels, known))(t)
	w := must.Get(p.Whitening())(t)
	for j := 1; j < k; j++ {
		if !(w.Lambda[j] <= w.Lambda[j-1]) || !(w.Lambda[j] > 0) {
			t.Errorf("lambda %v", w.Lambda)
		}
	}
	var unit mat.Dense
	unit.Mul(w.inv, w.basis)
	for i := range k {
		for j := range k {
			if want := map[bool]float64{true: 1}[i == j]; math.Abs(unit.At(i, j)-want) > 1e-9 {
				t.Fatalf("inverse times basis is %v at %d, %d", unit.At(i, j), i, j)
			}
		}
	}
	var centres [][]float64
	for range classes {
		centres = append(centres, centre())
	}
	sets := make([]*point.Set, clients)
	for m := range sets {
		var own []float32
		var names []int
		for y, c := range centres {
			own = append(own, must.Get(p.Map(t.Context(), rows(each, c)))(t)...)
			if m == 0 {
				y = (y + 1) % classes
			}
			for range each {
				names = append(names, y)
			}
		}
		sets[m] = must.Get(point.FromLabelled(own, k, names, classes))(t)
	}
	all := must.Get(w.Claims(len(sets), Each(sets), k))(t)
	back := must.Get(w.Sets(all))(t)
	again := must.Get(w.Claims(len(back), Each(back), k))(t)
	near(t, "means once more", again.Means, all.Means)
	few, err := w.Claims(len(sets), Each(sets), 3)
	if err != nil || few.K != 3 || few.Means[3] != all.Means[k] {
		t.Fatalf("three coordinates: %d, %v", few.K, err)
	}
	states := must.Get(honesty.Infer(t.Context(), few, w.Lambda[:3], 1, 1))(t)
	for m, p := range states.Marginal() {
		if (m == 0) != (p < .5) {
			t.Errorf("client %d is honest with %v", m, p)
		}
	}
}

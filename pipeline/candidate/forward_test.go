package candidate

import (
	"math"
	"math/rand/v2"
	"testing"

	"fmp/onnx/must"
)

// Class means are a martingale under their own predictive: their expectation after draws is the
// mean before them. Statistics of drawn images add up, and heads come nearer to each other as
// images add up.
func TestForward(t *testing.T) {
	w := newWorld(4)
	r := &Round{K: w.k, C: w.c}
	for range 6 {
		x, y := w.rows(5)
		r.Clients = append(r.Clients, upload(t, x, w.k, y, w.c))
	}
	c := &must.Get(r.Posterior(Options{Seed: 1}))(t).Components[0]
	h := c.resample.of(c.resample.pool)
	const paths, images = 400, 50
	mean, square, left := make([]float64, len(h.m)), make([]float64, len(h.m)), make([]float64, h.c)
	rnd := rand.New(rand.NewPCG(1, 1))
	for range paths {
		p := must.Get(h.resampled(images, rnd))(t)
		var n float64
		for _, v := range p.n {
			n += v
		}
		if n != 30+images || p.dof != h.dof+images {
			t.Fatalf("%v images and %v degrees of freedom, want %v and %v", n, p.dof,
				30+images, h.dof+images)
		}
		for y, v := range p.n {
			left[y] += 1 / (v + h.n0) / paths
		}
		// The posterior means, in the basis before the draws and with its n0.
		u := h.of(p.mean, p.c)
		for i, v := range u {
			y := i / h.k
			v *= p.n[y] / (p.n[y] + h.n0)
			mean[i] += v / paths
			square[i] += v * v / paths
		}
	}
	for i, v := range h.m {
		if e := math.Sqrt((square[i] - mean[i]*mean[i]) / paths); math.Abs(mean[i]-v) > 4.5*e {
			t.Errorf("class mean %d is %.4f after draws, want %.4f within %.4f", i, mean[i], v, e)
		}
	}
	// The variance of a class mean falls by that of its posterior mean over paths.
	for y, n := range h.n {
		var ratio float64
		for j, v := range h.precision {
			i := y*h.k + j
			ratio += (square[i] - mean[i]*mean[i]) * v / (1/(n+h.n0) - left[y]) / float64(h.k)
		}
		if math.Abs(ratio-1) > 0.08 {
			t.Errorf("class %d: means vary over paths by %.3f of the variance that the draws take away", y,
				ratio)
		}
	}
	heads, err := c.Forward(4, 100, rnd)
	if err != nil || len(heads) != 5 {
		t.Fatal(len(heads), err)
	}
	regression := Component{Name: "named"}
	must.Fail(regression.Forward(1, 1, rnd))(t, "", "a regression draws features")
}

package rival

import (
	"context"
	"math"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/lab/score"
)

// TestMembership: for Gaussian classes the figure is about Phi(sqrt(k / 2n)), and there is none
// without class means.
func TestMembership(t *testing.T) {
	const dx, c = 16, 3
	w := newWorld(1, dx, c, 3)
	x, y := w.draw(rng.New(9, "test"), 3000)
	for _, n := range []int{6, 60, 600} {
		task := newTestTask(t, w.input(t, 4, 5, n))
		r := must.Get(ncm.Run(context.Background(), task, DefaultSettings()))(t)
		s := must.Get((&score.Test{Features: x, Labels: y}).Score(context.Background(),
			task.Clients(), r, 1))(t)
		want := distuv.UnitNormal.CDF(math.Sqrt(dx / (2 * float64(n) / c)))
		if s.Membership == nil || math.Abs(*s.Membership-want) > 0.04 {
			t.Errorf("%d points a class: %v, want about %.3f", n/c, s.Membership, want)
		}
	}
	task := newTestTask(t, w.input(t, 4, 5, 30))
	r := must.Get(fed3r.Run(context.Background(), task, DefaultSettings()))(t)
	s := must.Get((&score.Test{Features: x, Labels: y}).Score(context.Background(), task.Clients(), r, 1))(t)
	if s.Membership != nil {
		t.Errorf("second moments have a membership of class means: %v", *s.Membership)
	}
}

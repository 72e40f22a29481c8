package rival

import (
	"context"
	"math"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/metric"
)

// TestAbsent: scores on classes that no client holds are those of their points alone; without a
// latent FMP is one head.
func TestAbsent(t *testing.T) {
	const dx, c, tasks = 6, 4, 10
	ctx := context.Background()
	w := newWorld(1, dx, c, 3)
	x, y := w.draw(rng.New(2, "test"), 400)
	test := &score.Test{Features: x, Labels: y}
	for seed := range uint64(tasks) {
		in := w.input(t, seed+1, 1, 2)
		held := map[int]bool{}
		_, labels := in.Clients[0].Labelled()
		for _, l := range labels {
			held[l] = true
		}
		for _, none := range []bool{false, true} {
			in.NoLatent = none
			task := newTestTask(t, in)
			r := must.Get(fmp.Run(ctx, task, DefaultSettings()))(t)
			if got := len(r.Ensembles[0]); none != (got == 1) {
				t.Fatalf("without a latent %v: %d heads", none, got)
			}
			s := must.Get(test.Score(ctx, task.Clients(), r, 1))(t)
			rows := must.Get(r.Rows(ctx, x))(t)
			p := must.Get(metric.Predict(ctx, r.Ensembles[0], rows, 1))(t)
			n, nll := 0, 0.0
			for i, l := range y {
				if !held[l] {
					n++
					nll -= math.Log(p.Row(i)[l])
				}
			}
			if s.Absent == nil || s.Absent.Classes != c-len(held) || s.Absent.Points != n ||
				math.Abs(s.Absent.NLL-nll/float64(n)) > 1e-6 {
				t.Fatalf("absent %+v; want %d classes, %d points, NLL %v", s.Absent, c-len(held),
					n, nll/float64(n))
			}
		}
	}
	task := newTestTask(t, w.input(t, 1, 4, 60))
	r := must.Get(fmp.Run(ctx, task, DefaultSettings()))(t)
	if s, err := test.Score(ctx, task.Clients(), r, 1); err != nil || s.Absent != nil {
		t.Errorf("every class is held: %+v, %v", s.Absent, err)
	}
}

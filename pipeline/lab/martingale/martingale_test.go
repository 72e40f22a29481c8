package martingale

import (
	"math"
	"reflect"
	"testing"

	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/lab/experiment"
)

// TestRun: one posterior's predictions stay where they start within the error of paths, and its
// paths part. Figures do not depend on threads.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("featurizes thousands of images")
	}
	cfg := experiment.Default()
	cfg.Methods, cfg.Seeds = []string{"FMP-ISAB"}, 1
	eng := must.Get(pure.New(engine.Options{}))(t)
	defer eng.Close()
	p := must.Get(experiment.Prepare(t.Context(), cfg, eng, nil, nil))(t)
	defer p.Close()
	o := Options{Rounds: experiment.Rounds{Clients: 5, Points: 30, Repeats: 1, Seed: 1, Threads: 1},
		Paths: 12, Batches: 4, Batch: 40, Test: 100, L2: 1}
	rows := must.Get(Run(t.Context(), p, o))(t)
	o.Threads = 3
	again := must.Get(Run(t.Context(), p, o))(t)
	if !reflect.DeepEqual(rows, again) {
		t.Error("figures depend on threads")
	}
	for _, r := range rows {
		last := r.Steps[len(r.Steps)-1]
		t.Logf("%s: %+v", r.Method, last)
		if last.Drawn != 160 || !(last.Spread > 0) || !(r.Spread > 0) ||
			!(last.Probability > 0.1 && last.Probability <= 1) {
			t.Errorf("%s: %+v, spread of samples %v", r.Method, last, r.Spread)
		}
		var drift float64
		for _, s := range r.Steps {
			drift += s.Drift
		}
		if e := last.Probability - r.Steps[0].Probability; math.Abs(e-drift) > 1e-9 {
			t.Errorf("%s: drifts add up to %v, and the probability changes by %v", r.Method, drift, e)
		}
		if r.Method == One && math.Abs(drift) > 5*last.Spread/math.Sqrt(float64(o.Paths)) {
			t.Errorf("%s drifts by %v, with a spread of %v over %d paths", r.Method, drift,
				last.Spread, o.Paths)
		}
	}
}

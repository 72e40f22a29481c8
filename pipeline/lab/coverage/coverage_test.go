package coverage

import (
	"math"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/conformal"
	"fmp/pipeline/lab/experiment"
)

// TestRun: on drawn digits sets hold as stated, adaptive ones and those of few points by class are
// larger, and the regression has the same rows.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("trains nothing, but featurizes and scores thousands of images")
	}
	cfg := experiment.Default()
	cfg.Methods, cfg.Seeds = []string{"FMP"}, 1
	eng := must.Get(pure.New(engine.Options{}))(t)
	defer eng.Close()
	p := must.Get(experiment.Prepare(t.Context(), cfg, eng, nil, nil))(t)
	defer p.Close()
	rows := must.Get(Run(t.Context(), p,
		Options{Rounds: experiment.Rounds{Clients: 5, Points: 100, Repeats: 2, Samples: 10, Seed: 1},
			Calibrate: []int{4, 40}, Level: 0.9}))(t)
	if len(rows) != 18 {
		t.Fatalf("%d rows; want 2 x 3 x 3", len(rows))
	}
	size := map[[2]string]float64{}
	for _, r := range rows {
		t.Logf("%+v", r)
		if r.Calibrate == 4 {
			if r.Sets == ByClass && r.FMP.Repeats != 0 {
				t.Errorf("two points a class prove %s sets", r.Sets)
			}
			continue
		}
		size[[2]string{r.Sets, string(r.Score)}] = r.FMP.Size
		if m := r.FMP; m.Repeats != 2 || m.Held < 0.85 || m.Size < 1 || m.Alike != 0 &&
			math.Abs(m.Alike-m.Held) > 0.1 ||
			r.Regression.Repeats != 2 || r.Regression.Size < 1 {
			t.Errorf("%+v", r)
		}
	}
	for _, sets := range []string{Mixture, ByClass, Equal} {
		if a, b := size[[2]string{sets, string(conformal.Adaptive)}],
			size[[2]string{sets, string(conformal.Probability)}]; !(a > b) {
			t.Errorf("%s: adaptive sets have the size %v, others %v", sets, a, b)
		}
		if a, b := size[[2]string{sets, string(randomised)}],
			size[[2]string{sets, string(conformal.Adaptive)}]; !(a < b) {
			t.Errorf("%s: randomised sets have the size %v, adaptive ones %v", sets, a, b)
		}
	}
}

// TestRandomised: the score by hand; u of 1 is the adaptive score; of exact probabilities the score
// of the true class is uniform, which no score without u is.
func TestRandomised(t *testing.T) {
	p := []float32{0.2, 0.7, 0.1}
	got, adaptive := scores(randomised, p, 0.5), conformal.Adaptive.Compute(p)
	for c, want := range []float32{0.2, 0.65, 0.05} {
		if math.Abs(float64(got[c]-want)) > 1e-6 ||
			math.Abs(float64(scores(randomised, p, 1)[c]-adaptive[c])) > 1e-6 {
			t.Errorf("class %d: %v; want %v; with u of 1 %v, adaptive %v", c, got[c], want,
				scores(randomised, p, 1)[c], adaptive[c])
		}
	}
	r := rng.New(1, "randomised")
	var below [9]int
	const n = 20000
	for range n {
		y, v := 2, r.Float64()
		if v < 0.2 {
			y = 0
		} else if v < 0.9 {
			y = 1
		}
		s := float64(scores(randomised, p, float32(r.Float64()))[y])
		for k := range below {
			if s < float64(k+1)/10 {
				below[k]++
			}
		}
	}
	for k, hits := range below {
		if share := float64(hits) / n; math.Abs(share-float64(k+1)/10) > 0.02 {
			t.Errorf("the score is below %.1f in a share %v of images", float64(k+1)/10, share)
		}
	}
}

// TestCount: shares held and sizes by hand, the most probable class always in.
func TestCount(t *testing.T) {
	stated := [][]float32{{0.7, 0.2, 0.1}, {0.3, 0.4, 0.3}, {0.1, 0.3, 0.6}}
	o := count(stated, stated, []int{1, 1, 2}, []float32{0.9, 0.25, 0.25}, 3)
	if o.held[1] != 0.5 || o.held[2] != 1 || o.size[1] != 1.5 || o.size[2] != 2 ||
		o.of[0] != 0 || o.of[1] != 2 {
		t.Errorf("%+v", o)
	}
}

// TestScored: a class without test images is refused by name before a round.
func TestScored(t *testing.T) {
	must.Do(t, scored([]int{2, 0, 1, 1}, []string{"a", "b", "c"}))
	for absent, labels := range map[string][]int{"class a:": {1, 2}, "class c:": {0, 1, 1}} {
		must.Fail(0, scored(labels, []string{"a", "b", "c"}))(t, absent, absent)
	}
}

package audit

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/client"
	"fmp/pipeline/privacy"
)

// TestLowerBound: guesses of a mechanism that answers truly with probability e^eps/(1 + e^eps)
// prove at most eps, nearly always, and not much less where there are many; guesses at random prove
// nothing.
func TestLowerBound(t *testing.T) {
	for _, epsilon := range []float64{0, 0.5, 2, 4} {
		q := 1 / (1 + math.Exp(-epsilon))
		above, sum := 0, 0.0
		const trials = 60
		for trial := range trials {
			r := rng.New(1, "trial", epsilon, trial)
			right := 0
			for range 300 {
				if r.Float64() < q {
					right++
				}
			}
			got := lowerBound(300, 300, right, 1e-9, 0.95)
			if sum += got / trials; got > epsilon {
				above++
			}
		}
		if above > trials/10 {
			t.Errorf("epsilon %v: %d of %d bounds are above it", epsilon, above, trials)
		}
		if sum < 0.7*epsilon-0.1 {
			t.Errorf("epsilon %v: the bounds are %v on average", epsilon, sum)
		}
	}
	if got := lowerBound(2000, 100, 100, 1e-5, 0.95); !(got > 2 && got < 6) {
		t.Errorf("100 of 100 right prove %v", got)
	}
	if with, without := lowerBound(1000, 200, 190, 1e-4, 0.95),
		lowerBound(1000, 200, 190, 1e-12, 0.95); with >= without {
		t.Errorf("a larger delta proves %v, a smaller one %v", with, without)
	}
}

// TestTimed: by a clock on which nothing but waiting takes time, replies with 45 images more, with
// a large file and with one that cannot be read leave when those without do.
func TestTimed(t *testing.T) {
	m := must.Get(serde.Unmarshal(assetstest.PrivateClient(t)))(t)
	f := must.Get(models.ReadManifest(m))(t)
	f.Digest = strings.Repeat("0", 64)
	cl := must.Get(client.New(m, f, 1))(t)
	b := privacy.Budget{Epsilon: 1, Delta: 1e-5, Unit: privacy.Example, Relation: privacy.AddRemove,
		Noise: privacy.Local}
	for _, target := range targets {
		if len(target.extractor) > 0 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			a := Timed{Name: target.name, Runs: 6}
			const after = 90 * time.Second
			must.Do(t, a.run(t.Context(), cl, target, b, 1, after))
			if want := float64(after.Milliseconds()); a.Fixed != (Moments{0.5, want, want}) {
				t.Errorf("%s: at a fixed time %+v", target.name, a.Fixed)
			}
		})
	}
}

// TestPacking: through class means of single images, calibration points and a gate an approved
// packing extractor gives whole images away; means of many images and no gate give nothing of one.
func TestPacking(t *testing.T) {
	p := models.Preprocessing{Height: 8, Width: 8, Channels: 3, Raw: true, NHWC: true}
	const most = 8 * 8 * 8 * 3
	for _, c := range []struct {
		leaking
		bits, best [2]float64 // shares of all bits, from and to
	}{
		{leaking{upload: "single", perClass: 1}, [2]float64{0.9, 1}, [2]float64{0.9, 1}},
		{leaking{upload: "means", perClass: 40}, [2]float64{0, 0}, [2]float64{0, 0}},
		{leaking{upload: "points", perClass: 40, points: 10}, [2]float64{0.02, 0.03},
			[2]float64{0.9, 1}},
		{leaking{upload: "gate", perClass: 40, gate: true}, [2]float64{0.002, 0.03},
			[2]float64{0.6, 1}},
		{leaking{upload: "moments", perClass: 40, points: 10, moments: true}, [2]float64{0.01, 0.03},
			[2]float64{0.6, 1}},
		{leaking{upload: "moments, gate", perClass: 40, gate: true, moments: true},
			[2]float64{0.002, 0.03}, [2]float64{0.5, 1}},
	} {
		g, dx := must.Get2(packing(p, c.gate, c.moments))(t)
		cl := must.Get(plainClient(g, p, dx, c.moments))(t)
		var l Leak
		must.Do(t, l.unpack(t.Context(), cl, c.leaking, 1))
		if got := l.Bits / most; got < c.bits[0] || got > c.bits[1] {
			t.Errorf("%s: a share of %.4f of the bits of all images; want %v", c.upload, got, c.bits)
		}
		if got := l.Best / most; got < c.best[0] || got > c.best[1] {
			t.Errorf("%s: a share of %.4f of the bits of one image; want %v", c.upload, got, c.best)
		}
	}
}

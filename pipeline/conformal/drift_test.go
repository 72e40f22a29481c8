package conformal

import (
	"math"
	"testing"

	"fmp/models/rng"
)

// TestDriftLevel: of streams that are alike throughout, at most a share a ever reaches a wealth of 1/a, though one looks after each image;
// p-values are uniform, also where nearly all scores are equal.
func TestDriftLevel(t *testing.T) {
	const streams, images = 400, 1000
	for name, draw := range map[string]func(u float64) float64{
		"spread": func(u float64) float64 { return u }, "sure": func(u float64) float64 { return 1 - math.Exp(-60*u) },
		"equal": func(u float64) float64 { return math.Round(u) }} {
		wrong, below, all := 0, 0, 0
		for s := range streams {
			r, d := rng.New(uint64(s), "drift", name), NewDrift(uint64(s))
			for range images {
				p := d.rank(draw(r.Float64()))
				if d.bet(p); p < 0.1 {
					below++
				}
				all++
			}
			if _, highest := d.Wealth(); highest >= 1 {
				wrong++
			}
		}
		if share := float64(wrong) / streams; share > 0.1+2*math.Sqrt(0.1*0.9/streams) {
			t.Errorf("%s: %.3f of streams reach ten times the stake; want at most .1", name, share)
		}
		if share := float64(below) / float64(all); math.Abs(share-0.1) > 0.005 {
			t.Errorf("%s: %.4f of p-values are below .1", name, share)
		}
	}
}

// TestDriftOfAnything: what is no probability is taken for one of the ends.
func TestDriftOfAnything(t *testing.T) {
	d := NewDrift(1)
	for _, c := range []float64{0, 1, 1.0001, -1, math.NaN(), math.Inf(1), math.Inf(-1), 0.5} {
		d.Add(c)
	}
	if now, _ := d.Wealth(); d.Images() != 8 || math.IsNaN(now) {
		t.Errorf("%d images, wealth %v", d.Images(), now)
	}
}

// TestDriftFound: a classifier that grows less sure, or surer, is found soon, at a level of .01.
func TestDriftFound(t *testing.T) {
	for _, power := range []float64{3, 1. / 3} {
		r, d := rng.New(1, "drift", power), NewDrift(1)
		for range 500 {
			d.Add(r.Float64())
		}
		if _, highest := d.Wealth(); highest >= 2 {
			t.Fatalf("found before it was there")
		}
		for range 300 {
			d.Add(math.Pow(r.Float64(), power))
		}
		if now, highest := d.Wealth(); now < 2 || highest < now || d.Images() != 800 {
			t.Errorf("power %v: wealth %.2f, highest %.2f after %d images; want 2 or more", power, now, highest, d.Images())
		}
	}
}

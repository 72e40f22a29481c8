package conformal

import (
	"math"
	"testing"

	"fmp/models/rng"
)

// TestDriftLevel: of streams that are drawn like their reference throughout, at most a share a ever
// reaches a wealth of 1/a, though one looks after each image; p-values are uniform, also where
// nearly all scores are equal, and behind a reference of any size.
func TestDriftLevel(t *testing.T) {
	const streams, images = 400, 1000
	draws := map[string]func(u float64) float64{"spread": func(u float64) float64 { return u },
		"sure":  func(u float64) float64 { return 1 - math.Exp(-60*u) },
		"equal": func(u float64) float64 { return math.Round(u) }}
	for _, c := range []struct {
		name      string
		reference int
	}{{"spread", 0}, {"sure", 0}, {"equal", 0}, {"spread", 20}, {"sure", 20}, {"equal", 100},
		{"spread", 1000}} {
		draw, wrong, below, all := draws[c.name], 0, 0, 0
		for s := range streams {
			r := rng.New(uint64(s), "drift", c.name)
			d := NewDrift(uint64(s), drawn(c.reference, func() float64 { return draw(r.Float64()) }))
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
			t.Errorf("%s, reference of %d: %.3f of streams reach ten times the stake; want at most .1",
				c.name, c.reference, share)
		}
		if share := float64(below) / float64(all); math.Abs(share-0.1) > 0.005 {
			t.Errorf("%s, reference of %d: %.4f of p-values are below .1", c.name, c.reference, share)
		}
	}
}

func drawn(n int, score func() float64) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(score())
	}
	return out
}

// TestDriftFromTheFirst: a shift that was there from the first image is found against the
// calibration alone, and the sooner the more images that has.
func TestDriftFromTheFirst(t *testing.T) {
	const streams, images = 100, 1000
	for _, c := range []struct{ reference, within, least, most int }{{0, images, 0, 3},
		{100, 100, 95, streams}, {1000, 60, 95, streams}} {
		found := 0
		for s := range streams {
			r := rng.New(uint64(s), "drift from the first")
			score := func() float64 { return 1 / (1 + math.Exp(-2-1.5*r.NormFloat64())) }
			d := NewDrift(uint64(s), drawn(c.reference, score))
			for range c.within {
				d.Add(math.Pow(score(), 3))
			}
			if _, highest := d.Wealth(); highest >= 2 {
				found++
			}
		}
		if found < c.least || found > c.most {
			t.Errorf("reference of %d: %d of %d streams are found within %d images; want %d to %d",
				c.reference, found, streams, c.within, c.least, c.most)
		}
	}
}

// TestDriftOfRounding: a reference whose probabilities end in other bits, as those of another
// engine do, is no drift, where nearly all are 1.
func TestDriftOfRounding(t *testing.T) {
	r := rng.New(1, "drift of rounding")
	score := func() float64 { return 1 - math.Exp(-8-8*r.Float64()) }
	d := NewDrift(1, drawn(1000, func() float64 { return score() - 3e-7 }))
	for range 5000 {
		d.Add(min(score()+3e-7, 1))
	}
	if _, highest := d.Wealth(); highest >= 1 {
		t.Errorf("wealth reaches %.2f decades", highest)
	}
}

// TestDriftOfAnything: what is no probability is taken for one of the ends.
func TestDriftOfAnything(t *testing.T) {
	d := NewDrift(1, []float32{float32(math.NaN()), 2})
	for _, c := range []float64{0, 1, 1.0001, -1, math.NaN(), math.Inf(1), math.Inf(-1), 0.5} {
		d.Add(c)
	}
	if now, _ := d.Wealth(); d.Images() != 8 || d.Reference() != 2 || math.IsNaN(now) {
		t.Errorf("%d images, wealth %v", d.Images(), now)
	}
}

// TestDriftFound: a classifier that grows less sure, or surer, is found soon, at a level of .01.
func TestDriftFound(t *testing.T) {
	for _, power := range []float64{3, 1. / 3} {
		r, d := rng.New(1, "drift", power), NewDrift(1, nil)
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
			t.Errorf("power %v: wealth %.2f, highest %.2f after %d images; want 2 or more", power, now,
				highest, d.Images())
		}
	}
}

package scale

import (
	"math"
	"testing"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/meta"
)

// TestEnds: a twentieth of residuals lie beyond either line of ends, as many for any number of
// threads. Without classes that the extractor has not learned ends get no nearer than one half
// width.
func TestEnds(t *testing.T) {
	bank := corpus(t, [2]float32{0.4, 2})
	p := must.Get(meta.UntrainedOpen(bank, 4))(t)
	p.Scale = 0.5
	c := Config{Corpus: bank, Clients: 4, Threads: 3, Tasks: 4, Seed: 1, Level: 0.9}
	e := must.Get(Ends(t.Context(), p, bank, c))(t)
	for _, v := range []float32{e.Few.Down, e.Few.Up, e.Many.Down, e.Many.Up} {
		if v <= minEnd || v >= maxEnd {
			t.Fatalf("ends %v lie at a bound, so that the test tells nothing", e)
		}
	}
	var below, above, all float64
	for i := range c.Tasks {
		r := must.Get(c.residuals(t.Context(), p, bank, rng.New(c.Seed, "open", "intervals", i),
			meta.OpenAlphas[i%2]))(t)
		if len(r.of) < 60*least || len(r.of) > 2*meta.OpenTarget { // half of 60 images of each class, twice
			t.Fatalf("task %d has %d residuals", i, len(r.of))
		}
		at := e.At(math.Exp2(r.size))
		for _, v := range r.of {
			all++
			if v < -float64(at.Down)-1e-6 {
				below++
			}
			if v > float64(at.Up)+1e-6 {
				above++
			}
		}
	}
	if math.Abs(below/all-0.05) > 0.003 || math.Abs(above/all-0.05) > 0.003 {
		t.Errorf("ends %v: %v of residuals below and %v above", e, below/all, above/all)
	}
	c.Threads = 1
	if again, err := Ends(t.Context(), p, bank, c); err != nil || again != e {
		t.Errorf("ends %v with one worker, %v with three, %v", again, e, err)
	}
	// The half width of level .999 is large, and that of level .001 nearly none.
	c.Level = 0.999
	own := must.Get(Ends(t.Context(), p, bank, c))(t)
	learned := must.Get(Ends(t.Context(), p, nil, c))(t)
	one := models.Ends{Down: 1, Up: 1}
	if !(own.Few.Up < 1 && own.Many.Up < 1) || learned != (models.SizedEnds{Few: one, Many: one}) {
		t.Errorf("of level .999: %v; on learned classes %v", own, learned)
	}
	c.Level = 1e-3
	if e, err := Ends(t.Context(), p, bank, c); err != nil ||
		e.Many != (models.Ends{Down: minEnd, Up: maxEnd}) {
		t.Errorf("of level .001: %v, %v", e, err)
	}
	c.Clients = 1000
	must.Fail(Ends(t.Context(), p, bank, c))(
		t, "intervals of the posterior, task", "a thousand clients")

}

// TestOuter: a line of quantiles is found at each of two sizes.
func TestOuter(t *testing.T) {
	var tasks []residuals
	for _, size := range []float64{1, 3} {
		r := residuals{size: size}
		for i := range 1000 {
			r.of = append(r.of, (float64(i)/1000-0.5)*(4-size)) // up to 1.5 and to .5
		}
		tasks = append(tasks, r)
	}
	for _, sign := range []float64{-1, 1} {
		l := outer(tasks, sign, 0.05)
		for size, want := range map[float64]float64{1: 0.45 * 3, 3: 0.45} {
			if got := l.at(size); math.Abs(got-want) > 0.02 {
				t.Errorf("sign %v, size %v: %v, want %v", sign, size, got, want)
			}
		}
	}
}

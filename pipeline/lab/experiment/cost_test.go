package experiment

import (
	"math"
	"testing"
	"time"
)

// TestWork: the share of the work goes by what methods cost, the timed ones by their time and
// others in proportion.
func TestWork(t *testing.T) {
	w := newWork()
	if w.share() != 0 {
		t.Errorf("share %g of no work", w.share())
	}
	w.total["ANN"], w.total["PRIOR"], w.total["NCM"] = 2, 2, 2
	w.done["ANN"] = 1 // by an earlier run
	near := func(want float64, when string) {
		t.Helper()
		if got := w.share(); math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: share %g, want %g", when, got, want)
		}
	}
	near(1.0/166, "by the usual costs of 1, 80 and 2")
	w.time("PRIOR", 160*time.Second)
	near(2.0*(1+80)/(2*(2+160+4)), "one timed at twice its usual cost, the others scaled")
	w.time("PRIOR", 240*time.Second)
	near((2.5+400)/(5+400+10), "the mean of two times")
	w.time("NCM", time.Second)
	w.time("NCM", time.Second)
	w.time("ANN", time.Second)
	near(1, "all done")
}

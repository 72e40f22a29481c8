package experiment

import (
	"math"
	"testing"
	"time"
)

// TestQueue: every cell is handed out once; a worker stays with its task, goes on to one that
// nobody has begun, and shares the last ones.
func TestQueue(t *testing.T) {
	q := &queue{}
	for r := range 3 {
		g := &group{repeat: r}
		for _, m := range []string{"a", "b", "c"} {
			if r != 1 || m == "a" {
				g.cells = append(g.cells, Cell{Repeat: r, Method: m})
			}
		}
		q.groups = append(q.groups, g)
	}
	own := make([]*group, 2)
	var got string
	for _, worker := range []int{0, 1, 0, 1, 1, 0, 1} {
		var cell Cell
		own[worker], cell = q.next(own[worker])
		if own[worker] == nil {
			t.Fatalf("nothing left after %q", got)
		}
		got += string(rune('0'+cell.Repeat)) + cell.Method + " "
	}
	if want := "0a 1a 0b 2a 2b 0c 2c "; got != want {
		t.Errorf("cells %q; want %q", got, want)
	}
	for i := range own {
		if g, _ := q.next(own[i]); g != nil {
			t.Errorf("worker %d gets a cell of repeat %d at the end", i, g.repeat)
		}
	}
}

// TestWork: the share of the work goes by what methods cost, the timed ones by their time and
// others in proportion.
func TestWork(t *testing.T) {
	w := newCounter("methods", func(Step) {})
	if w.share() != 0 {
		t.Errorf("share %g of no work", w.share())
	}
	for i, method := range []string{"ANN", "ANN", "PRIOR", "PRIOR", "NCM", "NCM"} {
		w.expect(method, i == 0) // by an earlier run
	}
	near := func(want float64, when string) {
		t.Helper()
		if got := w.share(); math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: share %g, want %g", when, got, want)
		}
	}
	near(1.0/166, "by the usual costs of 1, 80 and 2")
	w.finish("PRIOR", 160*time.Second)
	near(2.0*(1+80)/(2*(2+160+4)), "one timed at twice its usual cost, the others scaled")
	w.finish("PRIOR", 240*time.Second)
	near((2.5+400)/(5+400+10), "the mean of two times")
	w.finish("NCM", time.Second)
	w.finish("NCM", time.Second)
	w.finish("ANN", time.Second)
	near(1, "all done")
}

package honesty

import (
	"slices"
	"testing"

	"fmp/onnx/must"
)

// TestWide: a round that is judged as a wide one has the clients of flipped labels found, as when
// all classes are looked at, and nobody else.
func TestWide(t *testing.T) {
	for _, clients := range []int{5, 12} {
		u, lambda := round(1, clients, 40, 9, 120, 2)
		full := must.Get(Infer(t.Context(), u, lambda, 1, 0))(t)
		u.Wide = true
		wide := must.Get(Infer(t.Context(), u, lambda, 1, 0))(t)
		for m, p := range wide.Marginal() {
			if q := full.Marginal()[m]; p > .5 != (q > .5) || p > .5 != (m >= 2) {
				t.Errorf("%d clients: client %d is honest with %.3f, by all classes %.3f",
					clients, m, p, q)
			}
		}
		h := must.Get(newModel(u, lambda))(t)
		for _, cells := range h.cells {
			for _, l := range cells {
				if len(l.near) != h.width() || l.near[l.own] != l.class || !slices.IsSorted(l.near) ||
					l.near[len(l.near)-3] >= u.Classes {
					t.Fatalf("a cell of class %d may be of %v", l.class, l.near)
				}
			}
		}
	}
}

// TestNearest: the candidates are those of the highest scores, without the class itself.
func TestNearest(t *testing.T) {
	h := &model{classes: 100, large: true}
	score := make([]float64, 100)
	for c := range score {
		score[c] = float64((37 * c) % 101)
	}
	got := h.nearest(5, score)
	for c := range score {
		rank := 0
		for d, v := range score {
			if d != 5 && v > score[c] {
				rank++
			}
		}
		if want := c == 5 || rank < candidates; slices.Contains(got[:len(got)-2], c) != want {
			t.Errorf("class %d of rank %d: chosen %v", c, rank, !want)
		}
	}
	if len(got) != h.width() || got[len(got)-2] != 100 || got[len(got)-1] != 101 {
		t.Errorf("%v", got)
	}
}

// TestLargeRound: rounds of many clients and classes are large, those of today's tables are not;
// the clients of flipped labels are found in one.
func TestLargeRound(t *testing.T) {
	for _, c := range []struct {
		clients, classes, k int
		want                bool
	}{{100, 20, 63, false}, {10, 100, 63, false}, {20, 100, 63, true}, {100, 100, 63, true}} {
		u := Uploads{Clients: c.clients, Classes: c.classes, K: c.k}
		if u.large() != c.want {
			t.Errorf("%+v: large %v", c, u.large())
		}
	}
	if testing.Short() {
		t.Skip("judges 30 clients of 100 classes")
	}
	u, lambda := round(1, 30, 100, 30, 1000, 3)
	s := must.Get(Infer(t.Context(), u, lambda, 1, 0))(t)
	for m, p := range s.Marginal() {
		if p > .5 != (m >= 3) {
			t.Errorf("client %d is honest with %.3f", m, p)
		}
	}
}

// TestTables: weights and bound of bad clients' mixtures, which are kept for the classes that cells
// may be of, are to the bit those of tables of classes by classes.
func TestTables(t *testing.T) {
	u, lambda := round(3, 12, 60, 9, 120, 2)
	u.Wide = true
	z := make([]bool, u.Clients)
	for m := range z {
		z[m] = m%3 > 0
	}
	h := must.Get(newModel(u, lambda))(t)
	st := h.start(z)
	few, bound := st.contamination(z, 2)
	narrow := h.among
	all := make([]int, h.classes+2)
	for j := range all {
		all[j] = j
	}
	h.among = slices.Repeat([][]int{all}, h.classes)
	for _, cells := range h.cells {
		for i := range cells {
			cells[i].at = cells[i].near
		}
	}
	full, want := st.contamination(z, 2)
	if bound != want {
		t.Errorf("the bound is %v; want %v", bound, want)
	}
	kept := 0
	for c, among := range narrow {
		kept += len(among)
		for at, j := range among {
			if j != c && few[c][at] != full[c][j] {
				t.Fatalf("weight of class %d for %d is %v; want %v", j, c, few[c][at], full[c][j])
			}
		}
	}
	if kept == 0 || kept >= h.classes*h.classes {
		t.Errorf("%d weights of %d classes", kept, h.classes)
	}
}

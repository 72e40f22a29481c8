package main

import (
	"strings"
	"testing"
)

// TestPrintClients: suspects come first, then the clients of whose claim the smallest share counts;
// of many the text names twenty. A classifier for a suspect is told of, and so are calibration
// points.
func TestPrintClients(t *testing.T) {
	p := pooled{Clients: []string{"small", "large", "suspect"}, Honest: []float64{0.99, 0.98, 0.1},
		Claimed: []float64{20, 20000, 20},
		Counted: []float64{20, 57.4, 20}}
	var b strings.Builder
	p.printClients(&b)
	want := `clients:    P(honest)   claimed   counted
                 0.10        20        20  suspect
                 0.98     20000        57  large
                 0.99        20        20  small
            97 of 20040 images count: the others' images bear no more out; --trust counts all, of clients that you know
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	for _, c := range []struct {
		of    string
		warns bool
	}{{"suspect", true}, {"small", false}, {"", false}} {
		b.Reset()
		p.For = c.of
		if p.printClients(&b); strings.Contains(b.String(), "for suspect, and hardly of its upload") != c.warns ||
			!strings.HasPrefix(b.String(), want) {
			t.Errorf("for %q:\n%s", c.of, b.String())
		}
	}
	p.For, p.Calibration = "", []int{0, 10, 0}
	b.Reset()
	if p.printClients(&b); b.String() != strings.Replace(want, "large", "large, 10 of them calibration points", 1) {
		t.Errorf("with calibration points:\n%s", b.String())
	}
	two := pooled{Clients: []string{"a", "b"}, Honest: []float64{1, 1}, Claimed: []float64{9, 4}, Counted: []float64{9, 4}}
	b.Reset()
	if two.printClients(&b); !strings.Contains(b.String(), "of two clients neither can be judged") {
		t.Errorf("of two clients:\n%s", b.String())
	}
	p.Calibration = nil
	for range 30 {
		p.Clients, p.Honest, p.Claimed, p.Counted = append(p.Clients, "x"), append(p.Honest, 1),
			append(p.Claimed, 5), append(p.Counted, 5)
	}
	b.Reset()
	if p.printClients(&b); strings.Count(b.String(), "\n") != 1+maxClients+2 ||
		!strings.Contains(b.String(), "and 13 more") {
		t.Errorf("of 33 clients:\n%s", b.String())
	}
}

package main

import (
	"strings"
	"testing"

	"fmp/models"
	"fmp/pipeline/erm"
	"fmp/pipeline/pool"
	"fmp/pipeline/posterior"
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
	two.Counted = []float64{4.5, 4} // copies
	b.Reset()
	if two.printClients(&b); strings.Contains(b.String(), "each counts as it claims") {
		t.Errorf("of copies:\n%s", b.String())
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

// TestPrintEffects: clients with another camera are named, the furthest first, and sets state
// level, points and clients.
func TestPrintEffects(t *testing.T) {
	var b strings.Builder
	p := pooled{Clients: []string{"a", "b", "c"}, Effects: []float64{2, 0, 5.25},
		Sets: setsOf(&models.OriginSets{Level: 0.95, Images: 40, Clients: 3, Class: make([]int, 40)},
			[]string{"x", "y"})}
	p.printEffects(&b)
	p.Sets.print(&b)
	want := "cameras:    2 of 3 clients differ from the others in all classes alike, by so many " +
		"standard deviations: c (5.2), a (2.0)\nsets:       hold the class of a new image of these " +
		"clients with probability 0.95 or more, from 40 calibration points of 3 clients (fmp predict " +
		"--level: up to 0.966)\n"
	if b.String() != want {
		t.Errorf("printed is %q", b.String())
	}
	b.Reset()
	p.Shape, p.Chosen = []int{20, 5, 2}, &pooledChoice{Temperature: 0.514, Penalty: 0.1, Points: 50}
	chosen := "chosen:     temperature 0.51 and penalty 0.1 times the corpus's, by 50 calibration points\n"
	if p.print(&b); !strings.Contains(b.String(), chosen) {
		t.Errorf("printed is %q", b.String())
	}
	b.Reset()
	p = pooled{Clients: []string{"a"}, Sets: setsOf(nil, nil)}
	p.printEffects(&b)
	if p.Sets.print(&b); b.Len() != 0 {
		t.Errorf("a round without effects and sets prints %q", b.String())
	}
}

// TestPrintSurvived: sets say how many clients, of which group, may send false points.
func TestPrintSurvived(t *testing.T) {
	groups := []string{"north", "south"}
	for _, c := range []struct {
		want string
		s    models.OriginSets
	}{
		{"2 of the clients", models.OriginSets{False: []int{2}}},
		{"1 of the clients of north and 2 of the clients of south",
			models.OriginSets{False: []int{1, 2}, Groups: groups}},
		{"2 of the clients of south", models.OriginSets{False: []int{0, 2}, Groups: groups}},
		{"", models.OriginSets{False: []int{0}}},
		{"", models.OriginSets{False: []int{2}, Proportions: []float64{.5, .5}}},
	} {
		want, s := c.want, c.s
		if want != "" {
			want = "            whatever the points of " + want + " are\n"
		}
		s.Level, s.Images, s.Clients = 0.8, 60, 6
		for i := range 60 {
			s.Class, s.Client = append(s.Class, 0), append(s.Client, i%6)
			if s.Groups != nil {
				s.Group = append(s.Group, i%2)
			}
		}
		var b strings.Builder
		sets := setsOf(&s, []string{"x", "y"})
		if sets.print(&b); (sets.False != nil) != (want != "") {
			t.Errorf("%+v: %v may be false", s, sets.False)
		}
		if _, got, _ := strings.Cut(b.String(), ")\n"); got != want {
			t.Errorf("%v of %v: printed is %q; want %q", s.False, s.Groups, b.String(), want)
		}
	}
}

// TestPrintMoments: the form of a round of moments says whether calibration points corrected the
// temperature of clients left out, and advises no kappa.
func TestPrintMoments(t *testing.T) {
	for want, p := range map[string]pooled{
		"left out, times 1.54 ± 17% for the tails of images\n": {Tails: []float64{1.54, 0.17},
			Calibration: []int{9}},
		"for the tails of images, corrected by 58 calibration points\n": {Tails: []float64{1.54, 0.17}, judged: 58},
		"moments, the corpus was not read: no (kappa 0.85 ± 25%)\n":     {Kappa: []float64{0.85, 0.25}, Unread: "no"},
		"(kappa 0.85 ± 25%)\n": {Kappa: []float64{0.85, 0.25}, Calibration: []int{2}},
	} {
		p.Shape = []int{1, 2, 2}
		var b strings.Builder
		if p.print(&b); !strings.Contains(b.String(), want) {
			t.Errorf("want %q in %s", want, b.String())
		}
	}
}

// TestCorpusUnread: a corpus that nothing weighed has a reason in place of its log evidence.
func TestCorpusUnread(t *testing.T) {
	for _, c := range []struct {
		unread      string
		kappa       float64
		diagnostics map[string]float64
		want        string
	}{
		{"", 0.7, nil, ""},
		{"", 0.7, map[string]float64{"corpus": 0}, ""},
		{"it is of one class", 0.7, nil, "kappa is known, and it is of one class"},
		{"it is of one class", 0, nil, "it is of one class, and clients left out cannot weigh it"},
	} {
		var p pooled
		p.describe(&pool.Round{Client: models.Manifest{Bytes: 1, Kappa: c.kappa}},
			&posterior.Result{Ensembles: []posterior.Ensemble{{erm.NewTheta(2, 2)}}, Diagnostics: c.diagnostics,
				Unread: c.unread})
		if p.Unread != c.want || (p.Corpus != nil) != (c.diagnostics != nil) {
			t.Errorf("%+v: the corpus is unread as %q, log evidence %v", c, p.Unread, p.Corpus)
		}
	}
}

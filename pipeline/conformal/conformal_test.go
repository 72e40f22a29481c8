package conformal

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/must"
)

// draw returns probabilities of six classes and a class; a larger apart makes classes easier to
// tell, and sharp says how far the stated probabilities are from those that the class is drawn by.
func draw(r interface{ Float64() float64 }, apart, sharp float64) ([]float32, int) {
	const classes = 6
	p, stated := make([]float64, classes), make([]float32, classes)
	sum, total := 0.0, 0.0
	for c := range p {
		p[c] = math.Pow(-math.Log(1-r.Float64()), apart)
		sum += p[c]
		stated[c] = float32(math.Pow(p[c], sharp))
		total += float64(stated[c])
	}
	u, y := r.Float64()*sum, 0
	for y < classes-1 && u > p[y] {
		u -= p[y]
		y++
	}
	for c := range stated {
		stated[c] /= float32(total)
	}
	return stated, y
}

// TestCoverage holds the coverage of sets, over many calibrations, to the theorem's two bounds, for
// calibrated and overconfident classifiers.
func TestCoverage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n     int
		level float64
		sharp float64
	}{{40, 0.9, 1}, {100, 0.9, 3}, {19, 0.95, 1}, {57, 0.8, 0.5}} {
		for _, s := range Scores {
			const rounds, later = 1000, 20
			hits := 0
			r := rng.New(7, "conformal", string(s), c.n)
			for range rounds {
				var x Points
				for range c.n {
					must.Do(t, x.Add(draw(r, 2, c.sharp)))
				}
				threshold := (Design{}).Table(x.True[s], x.Class, 6).At(c.level)[0]
				for range later {
					p, y := draw(r, 2, c.sharp)
					if s.Compute(p)[y] >= threshold {
						hits++
					}
				}
			}
			got := float64(hits) / (rounds * later)
			// Images of one round share its calibration: their spread is that of a Beta
			// distribution beside the binomial's.
			sd := math.Sqrt(c.level * (1 - c.level) / rounds * (1/float64(later) + 1/float64(c.n+2)))
			if got < c.level-3*sd || got > c.level+1/float64(c.n+1)+3*sd {
				t.Errorf("%s, %d images, level %v: sets hold %.4f; want %v to %.4f, give or "+
					"take %.4f", s, c.n, c.level, got, c.level, c.level+1/float64(c.n+1), 3*sd)
			}
		}
	}
}

// TestThreshold holds the rank to hand-made cases and refuses levels that the images do not allow.
func TestThreshold(t *testing.T) {
	t.Parallel()
	scores := []float32{.9, .1, .5, .3, .7, .2, .8, .4, .6} // nine
	for _, c := range []struct {
		level float64
		want  float32 // 0: refused
	}{{0.9, .1}, {0.8, .2}, {0.5, .5}, {0.91, 0}, {0.4, 0}, {math.NaN(), 0}, {1, 0}} {
		err := (Design{}).Enough([]int{4, 5}, c.level)
		got := (Design{}).Table(scores, make([]int, len(scores)), 2).At(c.level)[0]
		if (err == nil) != (c.want > 0) || err == nil && math.Abs(float64(got-c.want)) > 1e-4 {
			t.Errorf("level %v: %v, %v; want %v", c.level, got, err, c.want)
		}
	}
	for _, d := range []Design{{}, {ByClass: true}, {Clients: true}, {Proportions: []float64{.5, .5}}} {
		if d.Enough([]int{0, 0}, 0.5) == nil {
			t.Errorf("%+v: no points at all prove a level", d)
		}
	}
	if Images(0.9) != 9 || Images(0.95) != 19 {
		t.Errorf("levels .9 and .95 want %d and %d images; want 9 and 19", Images(0.9), Images(0.95))
	}
}

// TestLacks: the error of too few points names the class that lacks some for its share.
func TestLacks(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}
	for _, c := range []struct {
		shares []float64
		names  []string
		counts []int
		says   string // nothing: they are enough
	}{
		{[]float64{.5, .5, 0}, names, []int{6, 4, 5}, "at least 5 calibration points of class b, and there are 4:"},
		{[]float64{.9, .1, 0}, names, []int{0, 1, 50}, "at least 9 calibration points of class a, and there are 0:"},
		{[]float64{0, 1. / 3, 2. / 3}, nil, []int{0, 2, 9}, "at least 3 calibration points of class 1, and there are 2:"},
		{[]float64{.5, .5, 0}, names, []int{5, 5, 0}, ""},
	} {
		err := Design{Proportions: c.shares, Names: c.names}.Enough(c.counts, 0.9)
		if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("shares %v, counts %v: %v; want %q", c.shares, c.counts, err, c.says)
		}
	}
}

// TestAdaptive computes the score by hand: 1 less the probability of all classes that are at least
// as likely.
func TestAdaptive(t *testing.T) {
	t.Parallel()
	got := Adaptive.Compute([]float32{0.25, 0.5, 0.125, 0.125})
	for c, want := range []float32{0.25, 0.5, 0.125, 0} {
		if got[c] != want {
			t.Errorf("class %d has %v, want %v", c, got[c], want)
		}
	}
}

// TestClopperPearson compares with the intervals of published tables.
func TestClopperPearson(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hits, n   int
		low, high float64
	}{{0, 10, 0, 0.3085}, {10, 10, 0.6915, 1}, {5, 10, 0.1871, 0.8129}, {90, 100, 0.8238, 0.9510}} {
		low, high := ClopperPearson(c.hits, c.n, 0.95)
		if math.Abs(low-c.low) > 1e-4 || math.Abs(high-c.high) > 1e-4 {
			t.Errorf("%d of %d: %.4f to %.4f; want %.4f to %.4f", c.hits, c.n, low, high, c.low, c.high)
		}
	}
}

// TestAnswerable holds the true error among answered images, over many calibrations, to the risk in
// all but a share delta, and to the decimals that are printed of it, and wants most images of an easy task answered.
func TestAnswerable(t *testing.T) {
	t.Parallel()
	const rounds, n, risk, delta = 300, 400, 0.1, 0.1
	broken, none, answered := 0, 0, 0
	r := rng.New(9, "answerable")
	for range rounds {
		var x Points
		for range n {
			must.Do(t, x.Add(draw(r, 6, 1.5)))
		}
		threshold, _, ok := x.Answerable(risk, delta, false)
		if !ok {
			none++
			continue
		}
		if printed := math.Round(1000*threshold) / 1000; threshold != printed {
			t.Fatalf("a threshold is %v; printed with three decimals it is %v", threshold, printed)
		}
		var later Points
		for range 4000 {
			must.Do(t, later.Add(draw(r, 6, 1.5)))
		}
		wrong, of := 0, 0
		for i, p := range later.Top {
			if float64(p) >= threshold {
				of++
				if !later.Right[i] {
					wrong++
				}
			}
		}
		answered += of
		if float64(wrong) > risk*float64(of)+2*math.Sqrt(risk*(1-risk)*float64(of)) {
			broken++
		}
	}
	if broken > int(delta*rounds) {
		t.Errorf("%d of %d thresholds break the risk; at most %v may", broken, rounds, delta*rounds)
	}
	if none > rounds/10 || answered < rounds*4000/20 {
		t.Errorf("%d of %d rounds have no threshold, and %d of %d images are answered", none, rounds,
			answered, rounds*4000)
	}
	var few Points
	for range 20 {
		must.Do(t, few.Add([]float32{0.999, 0.001}, 0))
	}
	if _, _, ok := few.Answerable(0.05, 0.05, false); ok {
		t.Error("twenty images prove an error of at most 5%; they cannot")
	}
}

// TestGroups: thresholds are the lowest of the groups' at every level, there is none beyond the
// highest level of a group, and names of groups are read or refused.
func TestGroups(t *testing.T) {
	r := rng.New(2, "groups")
	const n, classes = 200, 3
	scores, of, group := make([]float32, n), make([]int, n), make([]int, n)
	for i := range n {
		group[i], of[i] = i%5/3, r.IntN(classes) // three fifths in the first group
		scores[i] = float32(r.Float64()) + 0.1*float32(group[i])
	}
	for _, d := range []Design{{Clients: true}, {ByClass: true},
		{Clients: true, Proportions: []float64{0.2, 0.3, 0.5}}} {
		var own []*models.SetTable
		highest := 1.
		for g := range 2 {
			var s []float32
			var c []int
			for i := range n {
				if group[i] == g {
					s, c = append(s, scores[i]), append(c, of[i])
				}
			}
			own, highest = append(own, d.Table(s, c, classes)),
				min(highest, d.Highest(count(c, classes)))
		}
		d.Group = group
		both := d.Table(scores, of, classes)
		for level := models.MinLevel; level < 1; level += 0.003 {
			for c, got := range both.At(level) {
				want := min(own[0].At(level)[c], own[1].At(level)[c])
				if got != want {
					t.Fatalf("%+v, level %v, column %d: threshold %v; want %v", d.ByClass,
						level, c, got, want)
				}
			}
		}
		counts := d.Counts(of, classes)
		if len(counts) != 2 || d.Enough(counts[1], highest+1e-3) == nil &&
			d.Enough(counts[0], highest+1e-3) == nil {
			t.Errorf("counts %v prove more than %v", counts, highest)
		}
	}
	names, clients, err := Groups("north=a,b;south=c")
	if err != nil || !slices.Equal(names, []string{"north", "south"}) || clients["b"] != 0 ||
		clients["c"] != 1 || len(clients) != 3 {
		t.Errorf("groups %v of %v: %v", names, clients, err)
	}
	for _, text := range []string{"", "north", "=a", "north=", "north=a;north=b", "north=a;south=a",
		"north=a,,b", "north=a;"} {
		if _, _, err := Groups(text); err == nil {
			t.Errorf("groups %q are read", text)
		}
	}
}

// TestShares: shares are divided by their sum, which must be finite.
func TestShares(t *testing.T) {
	for text, want := range map[string][]float64{"a=1,b=3": {0.25, 0.75}, "equal": {0.5, 0.5},
		"a=1e308": {1, 0}, "a=1e308,b=1e308": nil, "a=Inf": nil, "a=-1": nil} {
		got, err := Shares(text, []string{"a", "b"}, 2)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
}

// TestSetsAreAnonymous: sets are the same in any order of the clients and of their points. A file
// without classes has the same thresholds where these do not depend on them.
func TestSetsAreAnonymous(t *testing.T) {
	sent := map[string][]struct {
		p []float32
		y int
	}{
		"a": {{[]float32{0.7, 0.2, 0.1}, 0}, {[]float32{0.1, 0.8, 0.1}, 1}, {[]float32{0.6, 0.3, 0.1}, 1}},
		"b": {{[]float32{0.9, 0.05, 0.05}, 0}, {[]float32{0.2, 0.2, 0.6}, 2}},
		"c": {{[]float32{0.7, 0.2, 0.1}, 0}, {[]float32{0.1, 0.75, 0.15}, 1}, {[]float32{0.4, 0.5, 0.1}, 1}},
		"d": {{[]float32{0.3, 0.3, 0.4}, 2}, {[]float32{0.5, 0.1, 0.4}, 2}},
	}
	of := map[string]int{"b": 1, "d": 1}
	for name, d := range map[string]Design{
		"alike":       {},
		"clients":     {Clients: true},
		"some false":  {Clients: true, Client: []int{}, False: []int{1}},
		"by class":    {Clients: true, ByClass: true},
		"shares":      {Clients: true, Proportions: []float64{0.5, 0.25, 0.25}},
		"groups":      {Clients: true, Group: []int{}},
		"both groups": {Clients: true, Group: []int{}, Client: []int{}, False: []int{1, 0}},
	} {
		var want any
		for _, order := range []string{"abcd", "dcba", "bdca"} {
			var x Points
			d := d
			for m, client := range order {
				points := slices.Clone(sent[string(client)])
				if m%2 == 1 {
					slices.Reverse(points)
				}
				for _, p := range points {
					must.Do(t, x.Add(p.p, p.y))
					if d.Client != nil {
						d.Client = append(d.Client, m)
					}
					if d.Group != nil {
						d.Group = append(d.Group, of[string(client)])
					}
				}
			}
			got := must.Get(x.Sets(d, 0.5, Probability, 3))(t)
			if want == nil {
				want = got
			} else if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, clients as %s: %+v; want %+v", name, order, got, want)
			}
			bare := *got
			if bare.Class = nil; d.ByClass || d.Proportions != nil {
				continue
			}
			if d.Clients {
				bare.Clients = len(sent)
			}
			if again := Thresholds(&bare, Probability, 3); !slices.Equal(again, got.Thresholds) {
				t.Errorf("%s: thresholds without classes %v; want %v", name, again, got.Thresholds)
			}
		}
	}
}

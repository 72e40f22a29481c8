package conformal

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"fmp/models"
	"fmp/models/rng"
)

// TestBoundOfClients: the bound is the integral that it stands for, stays below j/(n+1), and nears
// it with many points.
func TestBoundOfClients(t *testing.T) {
	for _, n := range []int{5, 14, 40, 100, 400} {
		for _, j := range []int{1, n / 2, n - 1, n} {
			var want float64
			const steps = 600
			x := float64(j-1) / float64(n)
			for s := range steps { // midpoints
				u := (float64(s) + 0.5) / steps * x
				var p float64
				for i := range j {
					lg := func(v int) float64 { g, _ := math.Lgamma(float64(v + 1)); return g }
					p += math.Exp(lg(n) - lg(i) - lg(n-i) + float64(i)*math.Log(u) + float64(n-i)*math.Log1p(-u))
				}
				want += p * x / steps
			}
			got := heldByClients(n, j)
			if math.Abs(got-want) > 1e-4 {
				t.Errorf("n %d, j %d: bound %v; the integral is %v", n, j, got, want)
			}
			if alike := float64(j) / float64(n+1); got > alike || n == 400 && j > 1 &&
				alike-got > 0.03 {
				t.Errorf("n %d, j %d: bound %v; alike points hold %v", n, j, got, alike)
			}
		}
	}
	for _, level := range []float64{0.8, 0.9, 0.95} {
		n := ImagesOfClients(level)
		if heldByClients(n, n) < level || n > 1 && heldByClients(n-1, n-1) >= level {
			t.Errorf("level %v: %d points", level, n)
		}
		d := Design{Clients: true}
		if d.Enough([]int{n - 1}, level) == nil || d.Enough([]int{1, n - 1}, level) != nil {
			t.Errorf("level %v: %d points do not suffice, or %d do", level, n, n-1)
		}
	}
	for _, level := range []float64{0.4, 1, math.NaN()} {
		if err := (Design{}).Enough([]int{10_000}, level); err == nil {
			t.Errorf("level %v is taken", level)
		}
	}
}

// families of clients: each returns the scores' quantile functions, one a client, as different from
// each other as they may be.
var families = map[string]func(r *rand.Rand, clients int) []func(u float64) float64{
	"alike": func(_ *rand.Rand, clients int) []func(float64) float64 {
		return slices.Repeat([]func(float64) float64{func(u float64) float64 { return u }}, clients)
	},
	"one client hard": func(_ *rand.Rand, clients int) []func(float64) float64 {
		out := slices.Repeat([]func(float64) float64{func(u float64) float64 { return 1 + u }}, clients)
		out[0] = func(u float64) float64 { return u }
		return out
	},
	"apart": func(_ *rand.Rand, clients int) (out []func(float64) float64) {
		for m := range clients {
			out = append(out, func(u float64) float64 { return float64(m) + u })
		}
		return out
	},
	"scattered": func(r *rand.Rand, clients int) (out []func(float64) float64) {
		for range clients {
			at, wide := r.NormFloat64(), math.Exp(r.NormFloat64())
			out = append(out, func(u float64) float64 { return at + wide*math.Log(u/(1-u)) })
		}
		return out
	},
	"nested": func(_ *rand.Rand, clients int) (out []func(float64) float64) {
		for m := range clients {
			out = append(out, func(u float64) float64 { return (u - 0.5) * float64(1+m*m) })
		}
		return out
	},
}

// simulated is a family of rounds whose clients have shares of classes of their own, and a
// distribution of scores for each class.
type simulated struct {
	r                *rand.Rand
	clients, classes int
	quantiles        []func(u float64) float64 // of class c of client m at m classes + c
	shares           [][]float64
}

func simulate(r *rand.Rand, family func(r *rand.Rand, clients int) []func(float64) float64, clients,
	classes int) *simulated {
	s := &simulated{r: r, clients: clients, classes: classes, quantiles: family(r, clients*classes)}
	for range clients {
		share, sum := make([]float64, classes), 0.
		for c := range share {
			share[c] = 0.2 + r.ExpFloat64()
			sum += share[c]
		}
		for c := range share {
			share[c] /= sum
		}
		s.shares = append(s.shares, share)
	}
	return s
}

// points draws points of each client, and returns their scores and classes, and the number of those
// of each class of each client.
func (s *simulated) points(each int) (scores []float32, of, cells []int) {
	cells = make([]int, s.clients*s.classes)
	for m, share := range s.shares {
		for range each {
			c := 0
			for u := s.r.Float64() - share[0]; u > 0 && c < s.classes-1; u -= share[c] {
				c++
			}
			cells[m*s.classes+c]++
			scores, of = append(scores, float32(s.quantiles[m*s.classes+c](s.r.Float64()))),
				append(of, c)
		}
	}
	return scores, of, cells
}

// held returns the probability that a new image's score is at least its class's threshold, where it
// is of class c of client m with weight [m classes + c].
func (s *simulated) held(thresholds []float32, weights []float64) float64 {
	var p, sum float64
	const grid = 60
	for i, w := range weights {
		q := float64(thresholds[min(i%s.classes, len(thresholds)-1)])
		for j := range grid {
			if q == float64(models.NoThreshold) || s.quantiles[i]((float64(j)+0.5)/grid) >= q {
				p += w / grid
			}
		}
		sum += w
	}
	return p / sum
}

// TestThousandRounds: over 1,000 random rounds of each family of clients, sets hold the class of a
// new image at least as often as their theorem says, to within four standard errors, and not much
// more often: of the clients' mixture, of each class, with shares of classes that are named, and of
// each of two groups of clients.
func TestThousandRounds(t *testing.T) {
	const clients, classes, level = 6, 3, 0.9
	rounds := 1000.
	if testing.Short() {
		rounds = 100
	}
	named := []float64{0.2, 0.5, 0.3}
	for name, family := range families {
		least := 1. // of the groups
		for _, c := range []struct {
			what string
			each int
			most float64 // how much more often, beyond the level
			Design
		}{
			{"mixture", 5, 0.055, Design{Clients: true}},
			{"mixture", 20, 0.03, Design{Clients: true}},
			{"by class", 20, 0.055, Design{Clients: true, ByClass: true}},
			{"first group", 20, 1, Design{Clients: true, Group: []int{}}},
			{"second group", 20, 1, Design{Clients: true, Group: []int{}}},
			{"first group", 60, 1, Design{Clients: true, ByClass: true, Group: []int{}}},
			{"named shares", 10, 0.07, Design{Clients: true, Proportions: named}},
			{"named shares", 25, 0.045, Design{Clients: true, Proportions: named}},
		} {
			r := rng.New(1, "rounds", name, c.what, c.each)
			var held, squared float64
			for range int(rounds) {
				s := simulate(r, family, clients, classes)
				scores, of, cells := s.points(c.each)
				if c.Group != nil { // the first half of the clients, and the second
					c.Group = make([]int, len(of))
					for i := len(of) / 2; i < len(of); i++ {
						c.Group[i] = 1
					}
				}
				counts := count(of, classes)
				weights := make([]float64, clients*classes)
				for i, n := range cells {
					switch y := i % classes; {
					case c.Group != nil && (2*i/len(cells) == 1) != (c.what == "second group"):
					case c.ByClass && y == 0: // the images of the first class
						weights[i] = float64(n)
					case c.ByClass:
					case c.Proportions != nil:
						weights[i] = named[y] * float64(n) / float64(max(counts[y], 1))
					default:
						weights[i] = s.shares[i/classes][y]
					}
				}
				p := 1.
				if c.Enough(counts, level) == nil {
					p = s.held(c.Table(scores, of, classes).At(level), weights)
				} else if !c.ByClass && c.Proportions == nil {
					t.Fatal("too few points")
				}
				held, squared = held+p/rounds, squared+p*p/rounds
			}
			se := math.Sqrt(max(squared-held*held, 0) / rounds)
			t.Logf("%s, %s, %d points each: held %.4f ± %.4f", name, c.what, c.each, held, se)
			if c.Group != nil && c.each == 20 {
				least = min(least, held)
			}
			if held < level-4*se || held > level+c.most+4*se {
				t.Errorf("%s, %s, %d points each: sets of %v hold %.4f ± %.4f", name, c.what, c.each,
					level, held, se)
			}
		}
		if least > level+0.06 {
			t.Errorf("%s: sets of groups hold %.4f of both", name, least)
		}
	}
}

// TestWeights: with equal weights the bound is below the binomial one and nears it; with theta 1
// both are n/(n+1).
func TestWeights(t *testing.T) {
	// The largest weight, that of the one point of the first class, bounds what all points prove.
	d := Design{Clients: true, Proportions: []float64{0.5, 0.5}}
	few := d.Table(make([]float32, 20), append(make([]int, 1), slices.Repeat([]int{1}, 19)...), 2)
	if got, want := float64(slices.Max(few.Levels)),
		d.Highest([]int{1, 19}); math.Abs(got-want) > 1e-3 || math.Abs(want-2./3) > 1e-9 {
		t.Errorf("one point of half of the images, and 19 of the others: highest level %v in the "+
			"table, %v by number; want 2/3", got, want)
	}
	// Thirty points of the first class weigh .6 in all, ten of the other .4: level .7 wants some of
	// these, whose scores are lower.
	d.Proportions = []float64{0.6, 0.4}
	high := d.Table(append(slices.Repeat([]float32{1}, 30), make([]float32, 10)...),
		append(make([]int, 30), slices.Repeat([]int{1}, 10)...), 2)
	if got := high.At(0.7)[0]; math.Abs(float64(got)) > 1e-3 {
		t.Errorf("the threshold of level .7 is %v; want the score 0", got)
	}
	for _, n := range []int{10, 40, 400} {
		if got, want := heldByWeights(1, 1/float64(n)),
			float64(n)/float64(n+1); math.Abs(got-want) > 1e-4 {
			t.Errorf("%d points, all: %v, want %v", n, got, want)
		}
		for _, j := range []int{n * 6 / 10, n * 9 / 10} {
			got, want := heldByWeights(float64(j)/float64(n), 1/float64(n)), heldByClients(n, j)
			if got > want+1e-3 || want-got > 1/math.Sqrt(float64(n)) {
				t.Errorf("%d of %d points: %v, the binomial bound is %v", j, n, got, want)
			}
		}
	}
}

// TestErrorOfClients: for clients that differ, over 2,000 rounds at the edge of the risk, a
// threshold is found in at most the share delta of them, and the p-value is that of Markov's
// inequality; far from the edge it is found in most.
func TestErrorOfClients(t *testing.T) {
	const each, risk, delta = 40, 0.1, 0.1
	for name, clients := range map[string][]struct{ answered, wrong float64 }{
		"alike":             {{1, 0.1}, {1, 0.1}, {1, 0.1}, {1, 0.1}},
		"one is wrong":      {{1, 0.4}, {1, 0}, {1, 0}, {1, 0}},
		"answered by share": {{0.1, 1}, {0.3, 0}, {0.3, 0}, {0.3, 0}},
		"seldom answered":   {{0.4, 0.125}, {0.2, 0.05}, {0.4, 0.1}, {0.4, 0.1}},
		"right":             {{1, 0}, {1, 0.02}, {1, 0}, {1, 0}},
	} {
		r := rng.New(4, "error", name)
		const rounds = 2000
		found := 0
		for range rounds {
			var x Points
			for _, m := range clients {
				for range each {
					if r.Float64() < m.answered {
						x.Top, x.Right = append(x.Top, 1), append(x.Right, r.Float64() >= m.wrong)
					} else {
						x.Top, x.Right = append(x.Top, 0), append(x.Right, true)
					}
				}
			}
			// At any threshold above 0 the share of wrong answers is 0.1, but for the last case,
			// where all may be answered.
			if at, _, ok := x.Answerable(risk, delta, true); ok && (at > 0 || name == "right") {
				found++
			}
		}
		if share := float64(found) / rounds; (share > delta) != (name == "right") ||
			name == "right" && share < 0.9 {
			t.Errorf("%s: a threshold is found in %.3f of the rounds", name, share)
		}
	}
	// a mixture of likelihood ratios has the mean 1 where all points are alike, at the edge of the
	// risk
	var sum float64
	const n = 30
	for w := range n + 1 {
		sum += distuv.Binomial{N: n, P: risk}.Prob(float64(w)) * evidence(n, w, risk)
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("the e-value's mean is %v", sum)
	}
	// None of 95 is wrong: enough for points that are drawn alike, and not for those of clients.
	x := Points{Top: slices.Repeat([]float32{1}, 95), Right: slices.Repeat([]bool{true}, 95)}
	_, _, alike := x.Answerable(0.05, 0.05, false)
	if _, _, of := x.Answerable(0.05, 0.05, true); !alike || of {
		t.Errorf("95 right answers prove an error of at most 5%%: %v for points drawn alike, %v for "+
			"those of clients", alike, of)
	}
}

// TestFalsePoints: whatever scores a client's false points have, sets of the honest clients' images
// hold what the rank proves without them: with f of n points false and the threshold at rank j, the
// bound of n-f points at rank j-f. Scores below all others put the threshold there once f is above
// n-j, and every class into every set.
func TestFalsePoints(t *testing.T) {
	const honest, each, level = 9, 10, 0.9
	r := rng.New(5, "false points")
	for _, f := range []int{0, 5, 10, 20} {
		n := honest*each + f
		j := sort.Search(n, func(j int) bool { return heldByClients(n, j+1) >= level }) + 1
		bound := 0.0
		if j > f {
			bound = heldByClients(n-f, j-f)
		}
		for _, at := range []float32{1e6, -1e6} {
			var held float64
			const rounds = 2000
			for range rounds {
				var scores []float32
				for range n - f {
					scores = append(scores, float32(r.NormFloat64()))
				}
				for range f {
					scores = append(scores, at)
				}
				threshold := Design{Clients: true}.Table(scores, make([]int, n), 1).At(level)[0]
				if at < 0 && (f > n-j) != (threshold < -1e5) {
					t.Fatalf("%d of %d points false, rank %d: threshold %v", f, n, j, threshold)
				}
				held += distuv.UnitNormal.Survival(float64(threshold)) / rounds
			}
			t.Logf("%d of %d points at %g: held %.3f, bound %.3f, rank %d", f, n, at, held, bound, j)
			if held < bound {
				t.Errorf("%d of %d points at %g: held %.3f; the bound is %.3f", f, n, at, held, bound)
			}
		}
	}
}

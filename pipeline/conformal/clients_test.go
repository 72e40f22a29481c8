package conformal

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/models/rng"
)

// TestBoundOfClients: the bound is the integral that it stands for, stays below j/(n+1), and nears it with many points.
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
			if alike := float64(j) / float64(n+1); got > alike || n == 400 && j > 1 && alike-got > 0.03 {
				t.Errorf("n %d, j %d: bound %v; alike points hold %v", n, j, got, alike)
			}
		}
	}
	for _, level := range []float64{0.8, 0.9, 0.95} {
		n := ImagesOfClients(level)
		if heldByClients(n, n) < level || n > 1 && heldByClients(n-1, n-1) >= level {
			t.Errorf("level %v: %d points", level, n)
		}
		if _, err := ThresholdOfClients(make([]float64, n-1), level); err == nil {
			t.Errorf("level %v: a threshold of %d points", level, n-1)
		}
		if _, err := ThresholdOfClients(make([]float64, n), level); err != nil {
			t.Errorf("level %v: %v", level, err)
		}
	}
	for _, level := range []float64{0.4, 1, math.NaN()} {
		if _, err := ThresholdOfClients(make([]float64, 1000), level); err == nil {
			t.Errorf("level %v is taken", level)
		}
	}
}

// families of clients: each returns the scores' quantile functions, one a client, as different from each other as they may be.
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

// TestThousandRounds: over 1,000 random rounds of each family of clients, sets hold the class of a new image at least as often as the
// theorem says, to within four standard errors, and not much more often.
func TestThousandRounds(t *testing.T) {
	const rounds, clients, level = 1000, 6, 0.9
	for name, family := range families {
		for _, each := range []int{5, 20} {
			r := rng.New(1, "rounds", name, each)
			var held, squared float64
			for range rounds {
				of := family(r, clients)
				var scores []float64
				for _, quantile := range of {
					for range each {
						scores = append(scores, quantile(r.Float64()))
					}
				}
				q, err := ThresholdOfClients(scores, level)
				if err != nil {
					t.Fatal(err)
				}
				// The probability that a new image's score is at least q, by the quantile functions.
				var p float64
				const grid = 100
				for _, quantile := range of {
					for i := range grid {
						if quantile((float64(i)+0.5)/grid) >= q {
							p += 1. / grid / clients
						}
					}
				}
				held, squared = held+p/rounds, squared+p*p/rounds
			}
			se := math.Sqrt((squared - held*held) / rounds)
			t.Logf("%s, %d points each: held %.4f ± %.4f", name, each, held, se)
			if most := float64(clients*each) / float64(clients*each+1); held < level-4*se-0.005 ||
				held > min(level+0.05+4*se, max(most, level+0.04)+4*se) {
				t.Errorf("%s, %d points each: sets of %v hold %.4f ± %.4f", name, each, level, held, se)
			}
		}
	}
}

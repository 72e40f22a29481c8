package privacy

import (
	"math"
	"math/rand/v2"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
)

// neighbours returns two releases that one unit tells apart, of a random kind that comes near the
// worst case.
func neighbours(t *testing.T, b Budget, r *rand.Rand, classes, k int) (*Release, *Release) {
	t.Helper()
	point := func(sign float32) []float32 {
		w := make([]float32, k)
		for j := range w {
			w[j] = sign * float32(r.NormFloat64())
		}
		return w
	}
	first := point(1)
	opposite := make([]float32, k)
	scale := float32(math.Exp(4 * r.NormFloat64()))
	for j, v := range first {
		first[j] = v * scale
		opposite[j] = -v * scale
	}
	if r.IntN(4) == 0 {
		opposite = point(scale)
	}
	y, other := r.IntN(classes), r.IntN(classes)
	if r.IntN(2) == 0 {
		other = y
	}
	release := func(w []float32, y, n int) *Release {
		s, one := NewRelease(classes, k), must.Get(Sum(w, []int{y}, classes, k, 2.5))(t)
		for range n {
			must.Do(t, s.Add(one))
		}
		if b.Unit == Client {
			s.Clip(b.ClientNorm(classes))
		}
		return s
	}
	n := 1
	if b.Unit == Client {
		n = 1 + r.IntN(8*b.Points) // more than a client may have are clipped
	}
	one, two := release(first, y, n), NewRelease(classes, k)
	if b.Relation == ReplaceOne {
		two = release(opposite, other, n)
	}
	return one, two
}

// TestSensitivity: for each unit and relation no neighbours are further apart than the
// sensitivity, some are nearly as far, and noise of the budget keeps its delta.
func TestSensitivity(t *testing.T) {
	t.Parallel()
	const k, classes = 7, 4
	for _, unit := range Units {
		for _, relation := range Relations {
			b := usual
			b.Unit, b.Relation, b.Points = unit, relation, 12
			r := rng.New(1, "neighbours", unit, relation)
			most := 0.0
			for range 3000 {
				one, two := neighbours(t, b, r, classes, k)
				var square float64
				for i, v := range one.Values {
					square += math.Pow(float64(v-two.Values[i]), 2)
				}
				most = max(most, math.Sqrt(square))
			}
			if s := b.Sensitivity(classes); most > s || most < 0.95*s {
				t.Errorf("%s, %s: neighbours are up to %.1f apart; the sensitivity is %.1f", unit,
					relation, most, s)
			}
			for _, epsilon := range []float64{minEpsilon, 0.5, 4, maxEpsilon} {
				b.Epsilon = epsilon
				sigma := float64(b.NoiseSteps(classes)) / most
				if d := Delta(epsilon, sigma); d > b.Delta {
					t.Errorf("%s, %s, epsilon %v: noise of %d steps has delta %v", unit,
						relation, epsilon, b.NoiseSteps(classes), d)
				}
			}
		}
	}
}

// TestMaxNumber: as many images as a client may have reach the largest number of a release and do
// not exceed it; fewer would do for none.
func TestMaxNumber(t *testing.T) {
	t.Parallel()
	const classes = 4
	for _, unit := range Units {
		for _, points := range []int{1, 12, 300} {
			b := Budget{Unit: unit, Points: points}
			var w []float32
			labels := make([]int, points)
			for range points {
				w = append(w, 9, 0)
			}
			s := must.Get(Sum(w, labels, classes, 2, 2.5))(t)
			if unit == Client {
				s.Clip(b.ClientNorm(classes))
			}
			if got, most := float64(s.Values[0]), float64(b.MaxNumber(classes)); got > most ||
				got < 0.95*most {
				t.Errorf("%s, %d images: a number of %v; the bound is %v", unit, points, got, most)
			}
		}
	}
}

// TestBound: numbers beyond a range are brought to its ends, and neighbours come no further apart.
func TestBound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ v, most, want int64 }{
		{5, 4, 4}, {4, 4, 4}, {-4, 4, -4}, {-5, 4, -4}, {0, 4, 0}, {-3, 4, -3},
	} {
		r := &Release{1, 0, []int64{c.v}}
		if r.Bound(uint64(c.most)); r.Values[0] != c.want {
			t.Errorf("%d within %d is %d, want %d", c.v, c.most, r.Values[0], c.want)
		}
	}
}

// TestParts: the noise of a total is that of as many sources as add it.
func TestParts(t *testing.T) {
	t.Parallel()
	for noise, want := range map[string]int{Local: 7, Trusted: 1, TwoServers: 2} {
		b := usual
		b.Noise, b.Points = noise, 5
		a := b.Spend(3, 7)
		if a.Releases != want || a.Variance() != float64(want)*math.Pow(float64(b.NoiseSteps(3)), 2) {
			t.Errorf("%s: %d releases of variance %v", noise, a.Releases, a.Variance())
		}
		if math.Abs(a.Sigma*b.Sensitivity(3)-float64(b.NoiseSteps(3))) > 1e-6 ||
			a.Sigma < Sigma(1, 1e-5) {
			t.Errorf("%s: noise multiplier %v", noise, a.Sigma)
		}
	}
}

// TestClientNorm: a client is clipped to .7 of the root mean square norm of as many images, of one
// direction and classes at random.
func TestClientNorm(t *testing.T) {
	t.Parallel()
	r := rng.New(1, "client norm")
	for _, points := range []int{1, 10, 100} {
		for _, classes := range []int{2, 10} {
			const rounds = 400
			square := 0.0
			for range rounds {
				count := make([]float64, classes)
				for range points {
					count[r.IntN(classes)]++
				}
				for _, n := range count {
					square += n * n * (Steps*Steps + CountSteps*CountSteps) / rounds
				}
			}
			// E(sum of squares) is n + n(n-1)/C, of which the norm takes n + n^2/C.
			square += float64(points) / float64(classes) * (Steps*Steps + CountSteps*CountSteps)
			if share := float64(Budget{Points: points}.ClientNorm(classes)) /
				math.Sqrt(square); math.Abs(share-0.7) > 0.02 {
				t.Errorf("%d images of %d classes: clipped to %.3f of their norm",
					points, classes, share)
			}
		}
	}
}

package privacy

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"gonum.org/v1/gonum/stat/distuv"

	"fmp/models/rng"
	"fmp/onnx/must"
)

// TestSigma: the values of the analytic Gaussian mechanism at delta 1e-5, and the definition of
// theorem 8 at many others; it is below the classical sqrt(2 log(1.25/delta))/epsilon.
func TestSigma(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ epsilon, want float64 }{{0.5, 7.032}, {1, 3.730}, {2, 1.993},
		{4, 1.080}, {8, 0.600}} {
		if got := Sigma(c.epsilon, 1e-5); math.Abs(got-c.want) > 2e-3 {
			t.Errorf("epsilon %v: sigma %.4f, want %.3f", c.epsilon, got, c.want)
		}
	}
	for _, epsilon := range []float64{minEpsilon, 0.1, 1, 5, maxEpsilon} {
		for _, delta := range []float64{minDelta, 1e-9, 1e-5, maxDelta} {
			s := Sigma(epsilon, delta)
			if d := Delta(epsilon, s); !(d <= delta) || Delta(epsilon, s*0.9999) <= delta {
				t.Errorf("epsilon %v, delta %v: sigma %v has delta %v, and the least has not",
					epsilon, delta, s, d)
			}
			if epsilon <= 1 && s >= math.Sqrt(2*math.Log(1.25/delta))/epsilon {
				t.Errorf("epsilon %v, delta %v: sigma %v is above the classical one", epsilon, delta, s)
			}
			if e := Epsilon(s, delta); math.Abs(e-epsilon) > 1e-6*(1+epsilon) {
				t.Errorf("epsilon of sigma(%v, %v) is %v", epsilon, delta, e)
			}
		}
	}
	// Beyond the range of e^eps; by 60 digits in Python's mpmath.
	for mu, want := range map[float64]float64{30: 577.011973688017, 32: 647.537991670471,
		100: 5425.50984614743, 268: 37053.9986106882} {
		if e := Epsilon(1/mu, 1e-5); math.Abs(e-want) > 1e-6*want {
			t.Errorf("epsilon of noise of 1/%v is %.9f; want %.9f", mu, e, want)
		}
	}
	// Two releases of epsilon 1 are one of more than 1 and less than 2.
	s := Sigma(1, 1e-5) / math.Sqrt2
	if e := Epsilon(s, 1e-5); !(e > 1 && e < 2) {
		t.Errorf("two releases cost %v", e)
	}
}

// TestDiscreteDelta: noise of whole numbers is as private as the mechanism says: the delta of a
// discrete Gaussian, summed over its values, for the sensitivity and deviation of a round.
func TestDiscreteDelta(t *testing.T) {
	t.Parallel()
	for _, epsilon := range []float64{0.5, 2, 8} {
		b := usual
		b.Epsilon = epsilon
		sigma := float64(b.NoiseSteps(10))
		shift := math.Floor(b.Sensitivity(10))
		density := func(x float64) float64 { return math.Exp(-x * x / (2 * sigma * sigma)) }
		var sum, delta float64
		for x := math.Floor(-12 * sigma); x < 12*sigma; x++ {
			sum += density(x)
			delta += math.Max(0, density(x)-math.Exp(epsilon)*density(x+shift))
		}
		if delta /= sum; !(delta <= 1e-5*(1+1e-6)) || delta < 0.9e-5 {
			t.Errorf("epsilon %v: discrete noise has delta %v", epsilon, delta)
		}
	}
}

// TestDiscreteGaussian: chi-square of 40,000 draws against exp(-x^2/2 sigma^2), narrow and wide,
// and moments of a wide one.
func TestDiscreteGaussian(t *testing.T) {
	t.Parallel()
	const n = 40_000
	for _, sigma := range []uint64{1, 3, 20} {
		s := must.Get(NewSampler(sigma, rng.Bytes(rng.New(1, "gaussian", sigma))))(t)
		count := map[int64]int{}
		for range n {
			count[must.Get(s.Next())(t)]++
		}
		width := float64(sigma)
		p, sum := map[int64]float64{}, 0.0
		for x := -int64(12 * sigma); x <= int64(12*sigma); x++ {
			p[x] = math.Exp(-float64(x*x) / (2 * width * width))
			sum += p[x]
		}
		var chi, rest, restWant, cells float64
		for x, v := range p {
			want := n * v / sum
			if want < 8 {
				rest, restWant = rest+float64(count[x]), restWant+want
				continue
			}
			d := float64(count[x]) - want
			chi, cells = chi+d*d/want, cells+1
		}
		chi += (rest - restWant) * (rest - restWant) / restWant
		if above := 1 - (distuv.ChiSquared{K: cells}).CDF(chi); above < 1e-3 {
			t.Errorf("sigma %d: chi-square %.1f on %v cells, probability %.2g", sigma,
				chi, cells, above)
		}
	}
	const wide = 1 << 20
	s := must.Get(NewSampler(wide, rng.Bytes(rng.New(1, "wide"))))(t)
	var square, fourth float64
	for range 4000 {
		x := float64(must.Get(s.Next())(t)) / wide
		square, fourth = square+x*x/4000, fourth+x*x*x*x/4000
	}
	if math.Abs(square-1) > 0.1 || math.Abs(fourth-3) > 0.6 {
		t.Errorf("second and fourth moment %v and %v, want 1 and 3", square, fourth)
	}
}

// TestNoRandomness: where randomness fails nothing is released.
func TestNoRandomness(t *testing.T) {
	t.Parallel()
	r := NewRelease(2, 3)
	must.Fail(r.AddNoise(5, iotest.ErrReader(io.ErrUnexpectedEOF)))(t, "no randomness")
	for _, sigma := range []uint64{0, maxDeviation + 1} {
		must.Fail(NewSampler(sigma, rand.Reader))(t, "", "a sampler of deviation", sigma)
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	must.Do(t, usual.Check())
	for want, change := range map[string]func(*Budget){
		"epsilon is 0":      func(b *Budget) { b.Epsilon = 0 },
		"epsilon is NaN":    func(b *Budget) { b.Epsilon = math.NaN() },
		"delta is 0.5":      func(b *Budget) { b.Delta = 0.5 },
		`unit is "user"`:    func(b *Budget) { b.Unit = "user" },
		`relation is ""`:    func(b *Budget) { b.Relation = "" },
		`noise is "none"`:   func(b *Budget) { b.Noise = "none" },
		"points is 0":       func(b *Budget) { b.Unit = Client },
		"points is 2000000": func(b *Budget) { b.Points = 2_000_000 },
	} {
		b := usual
		change(&b)
		must.Fail(b.Check())(t, want)
	}
	for want, b := range map[string]Budget{
		"one image added or removed, noise: local":                    {Noise: Local, Unit: Example},
		"one image added or removed, noise: trusted":                  {Noise: Trusted, Unit: Example},
		"a whole client added or removed, noise: trusted, points: 40": {Noise: Trusted, Unit: Client},
		"one image added or removed, noise: two-servers, points: 40":  {Noise: TwoServers, Unit: Example},
	} {
		b.Epsilon, b.Delta, b.Relation, b.Points = 1, 1e-5, AddRemove, 40
		if got, want := b.String(), "epsilon 1, delta 1e-05 for "+want; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		other := b
		other.Points = 50
		if same, stray := b.Effective() == other.Effective(), !strings.Contains(want, "points"); same != stray {
			t.Errorf("of %v and other points: the same is %t, want %t", b, same, stray)
		}
	}
	if v := usual.Spend(10, 50); v.Releases != 50 ||
		v.Variance() != 50*float64(v.Deviation*v.Deviation) {
		t.Errorf("account %+v", v)
	}
}

// TestPosterior: expectations of the count, and of mean and variance of the class mean, against the
// reference (numpy; values of robust_private.py's grid), by many samples.
func TestPosterior(t *testing.T) {
	t.Parallel()
	data := must.Get(os.ReadFile("testdata/posterior.json"))(t)
	var ref struct {
		K      int
		Beta   []float64
		Rounds []struct {
			Sums, Counts  []float64
			SumVariance   float64 `json:"sum_variance"`
			CountVariance float64 `json:"count_variance"`
			Classes       []struct {
				Count, Square  float64
				Mean, Variance []float64
			}
		}
	}
	must.Do(t, json.Unmarshal(data, &ref))
	const samples = 20_000
	for i, r := range ref.Rounds {
		classes := len(r.Counts)
		totals := &Totals{Classes: classes, K: ref.K, Sums: r.Sums, Counts: r.Counts,
			SumVariance: r.SumVariance, CountVariance: r.CountVariance}
		counts := totals.DrawCounts(ref.Beta, samples, rng.New(1, "posterior", i))
		mean, variance := totals.Moments(ref.Beta, counts)
		for c, want := range r.Classes {
			var count, square float64
			m, v := make([]float64, ref.K), make([]float64, ref.K)
			for s := range samples {
				n := counts[s*classes+c]
				count, square = count+n/samples, square+n*n/samples
				for j := range ref.K {
					m[j] += mean[(s*classes+c)*ref.K+j] / samples
					v[j] += variance[(s*classes+c)*ref.K+j] / samples
				}
			}
			near := func(what string, got, want float64) {
				if math.Abs(got-want) > 2e-3*(1+math.Abs(want)) {
					t.Errorf("round %d, class %d: %s is %v, want %v", i, c, what, got, want)
				}
			}
			near("count", count, want.Count)
			near("squared count", square, want.Square)
			for j := range ref.K {
				near("mean", m[j], want.Mean[j])
				near("variance", v[j], want.Variance[j])
			}
		}
	}
}

// TestNoNoise: with next to no noise the posterior is that of known counts and means.
func TestNoNoise(t *testing.T) {
	t.Parallel()
	r := NewRelease(2, 1)
	r.Values = []int64{10 * Steps, 20 * CountSteps, -5 * Steps, 5 * CountSteps}
	totals := r.Totals(2, 1)
	beta := []float64{3}
	counts := totals.DrawCounts(beta, 50, rng.New(1, "none"))
	mean, variance := totals.Moments(beta, counts)
	for s := range 50 {
		if counts[2*s] != 20 || counts[2*s+1] != 5 {
			t.Fatalf("counts %v", counts[2*s:2*s+2])
		}
		if v, m := 1/(1/3.0+20), mean[2*s]; math.Abs(variance[2*s]-v) > 1e-4 ||
			math.Abs(m-v*20) > 1e-3 {
			t.Fatalf("mean %v and variance %v", m, variance[2*s])
		}
	}
	if p := totals.Points(); p.N != 2 || p.W[0] != 20 || p.Row(1)[0] != -2 {
		t.Errorf("points %+v", p)
	}
}

// TestSum: labels that are no class's are left out, and a row that is not finite counts and adds
// nothing else.
func TestSum(t *testing.T) {
	t.Parallel()
	s, err := Sum([]float32{3, 4, 3, 4}, []int{7, 1}, 2, 2, 5)
	if err != nil || s.Values[2] != 0 || s.Values[5] != CountSteps || s.Values[3] != 3*Steps/5 {
		t.Errorf("%v, %v: want one point of class 1 at (.6, .8) of the norm", s, err)
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		s, err := Sum([]float32{1, float32(v), 3, 4}, []int{0, 0}, 2, 2, 5)
		if err != nil || s.Values[2] != 2*CountSteps || s.Values[0] != 3*Steps/5 {
			t.Errorf("beside a row with %v: %v, %v", v, s, err)
		}
	}
	for _, radius := range []float64{math.SmallestNonzeroFloat64, 5.6e-306, 5.8e-306, math.MaxFloat64} {
		s := must.Get(Sum([]float32{0, 0}, []int{0}, 1, 2, radius))(t)
		if want := []int64{0, 0, CountSteps}; !slices.Equal(s.Values, want) {
			t.Errorf("a row of zeros at norm %v: %v; want %v", radius, s.Values, want)
		}
	}
}

// TestRefuses: sizes and norms that make no release, and releases that make no sum, are refused one
// by one.
func TestRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		classes, k int
		labels     []int
		radius     float64
	}{
		"no class": {0, 2, []int{0}, 1}, "no coordinate": {2, 0, nil, 1},
		"a label too many":     {2, 2, []int{0, 1}, 1},
		"a coordinate too few": {2, 3, []int{0}, 1}, "a norm of nothing": {2, 2, []int{0}, 0},
		"a norm of no number": {2, 2, []int{0}, math.NaN()},
	} {
		w := []float32{1, 2}
		if c.k == 0 {
			w = nil
		}
		must.Fail(Sum(w, c.labels, c.classes, c.k, c.radius))(t, "", name)
	}
	must.Fail(Sum(make([]float32, maxPoints+1), make([]int, maxPoints+1), 2, 1, 1))(t, "", "a point too many")
	a := NewRelease(2, 3) // as many numbers as 4 classes of 1 coordinate
	for name, r := range map[string]*Release{
		"no class": {K: 2}, "no coordinate": {Classes: 2, Values: make([]int64, 2)},
		"a number too few":   {Classes: 2, K: 2, Values: make([]int64, 5)},
		"a number too small": {Classes: 1, K: 1, Values: []int64{0, -maxEntry - 1}},
		"a number too large": {Classes: 1, K: 1, Values: []int64{maxEntry + 1, 0}},
	} {
		must.Fail(a.Add(r))(t, fmt.Sprint(r.Check()), name)
	}
	must.Do(t, (&Release{Classes: 1, K: 1, Values: []int64{maxEntry, -maxEntry}}).Check())
	for _, size := range [][2]int{{4, 1}, {2, 2}, {3, 3}} {
		must.Fail(a.Add(NewRelease(size[0], size[1])))(t, "use one client graph", size)
	}
}

// TestWidths: counts between those of the grid are not lost: without anything that tells, each
// count of one of two classes is as likely.
func TestWidths(t *testing.T) {
	tot := Totals{Classes: 2, K: 1, Sums: make([]float64, 2), Counts: []float64{500, 500},
		SumVariance: 1e15, CountVariance: 1e15}
	const samples = 2000
	var mean, below float64
	for i, n := range tot.DrawCounts([]float64{1}, samples, rng.New(1, "widths")) {
		if i%2 == 0 {
			mean += n / samples
			if n < 100 {
				below += 1. / samples
			}
		}
	}
	if math.Abs(mean-500) > 15 || math.Abs(below-0.1) > 0.02 {
		t.Errorf("mean count %v, and %v of them below 100; want 500 and .1", mean, below)
	}
}

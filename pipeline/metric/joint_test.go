package metric

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/onnx/must"
)

// logistic is a world in which the posterior is known: class means mu_c = m_c + sqrt(v) e with
// known m and v, points x near the m whatever mu is, and labels drawn from softmax_c(x mu_c -
// |mu_c|^2 / 2).
type logistic struct {
	c, k int
	m    []float64 // c x k
	v    float64
}

// draw is class means from the posterior with its variance times tau: right is 1.
func (w *logistic) draw(r *rand.Rand, tau float64) []float64 {
	mu := make([]float64, len(w.m))
	for i := range mu {
		mu[i] = w.m[i] + math.Sqrt(tau*w.v)*r.NormFloat64()
	}
	return mu
}

func (w *logistic) probabilities(mu, x, p []float64) {
	for c := range p {
		p[c] = 0
		for j, m := range mu[c*w.k : (c+1)*w.k] {
			p[c] += m * (x[j] - m/2)
		}
	}
	softmax(p)
}

// TestJointOfKnownPosterior: where the posterior is known, both joint scores are least at its own
// width. Two forms that look as good are not: batches of the points of two chosen classes are least
// for a posterior too wide (about 1.4 times the variance, as heads can then adapt to the batch's
// own class shares), and batches of 100 points, with as few heads as anyone draws, for one too
// narrow (.5 to .7: the mean over S heads of a product of 100 is far below its expectation).
func TestJointOfKnownPosterior(t *testing.T) {
	const c, k, n, heads, count = 10, 9, 600, 100, 200
	repeats := 24
	if testing.Short() {
		repeats = 8
	}
	taus := []float64{0.5, 0.7, 1, 1.4, 2}
	names := []string{"random points", "neighbours", "two classes", "100 points"}
	scores := make([][]float64, len(names))
	for f := range scores {
		scores[f] = make([]float64, len(taus))
	}
	p := make([]float64, c)
	for rep := range repeats {
		r := rand.New(rand.NewPCG(uint64(rep), 1))
		w := &logistic{c: c, k: k, m: make([]float64, c*k), v: 0.64}
		for i := range w.m {
			w.m[i] = 1.8 * r.NormFloat64()
		}
		truth := w.draw(r, 1)
		x, x32 := make([]float64, n*k), make([]float32, n*k)
		y, byClass := make([]int, n), make([][]int, c)
		for i := range n {
			near := r.IntN(c)
			for j := range k {
				x[i*k+j] = w.m[near*k+j] + r.NormFloat64()
				x32[i*k+j] = float32(x[i*k+j])
			}
			w.probabilities(truth, x[i*k:(i+1)*k], p)
			for u := r.Float64(); y[i] < c-1 && u > p[y[i]]; y[i]++ {
				u -= p[y[i]]
			}
			byClass[y[i]] = append(byClass[y[i]], i)
		}
		b := must.Get(NewBatches(r, x32, k, count))(t)
		forms := [][][]int{b.Random, b.Near, nil, nil}
		for range count {
			var batch []int
			for _, class := range choose(r, c, 2) {
				for _, i := range choose(r, len(byClass[class]), JointPoints/2) {
					batch = append(batch, byClass[class][i])
				}
			}
			forms[2] = append(forms[2], batch)
			forms[3] = append(forms[3], choose(r, n, 100))
		}
		for ti, tau := range taus {
			r := rand.New(rand.NewPCG(uint64(rep), 2)) // the same noise at every tau
			l := NewLikelihood(n, heads)
			for s := range heads {
				mu := w.draw(r, tau)
				for i := range n {
					w.probabilities(mu, x[i*k:(i+1)*k], p)
					l[i][s] = p[y[i]] + nllFloor
				}
			}
			for f, batches := range forms {
				scores[f][ti] += JointNLL(l, batches) / float64(repeats)
			}
		}
	}
	for f, want := range []func(best float64) bool{
		func(best float64) bool { return best == 1 }, func(best float64) bool { return best == 1 },
		func(best float64) bool { return best > 1 }, func(best float64) bool { return best < 1 },
	} {
		best := taus[slices.Index(scores[f], slices.Min(scores[f]))]
		t.Logf("%-13s best tau %.1f of %v: %.4f", names[f], best, taus, scores[f])
		if !want(best) {
			t.Errorf("%s: the score is least at tau = %v", names[f], best)
		}
	}
}

// TestJointByHand: two heads, a batch of two points.
func TestJointByHand(t *testing.T) {
	t.Parallel()
	l := Likelihood{{0.5, 0.1}, {0.2, 0.8}, {1e-9, 1e-9}}
	if got, want := JointNLL(l, [][]int{{0, 1}}),
		-math.Log((0.5*0.2+0.1*0.8)/2)/2; math.Abs(got-want) > 1e-12 {
		t.Errorf("joint NLL is %v, want %v", got, want)
	}
	// With one head it is the NLL.
	if got, want := JointNLL(l.first(1), [][]int{{0, 1}}),
		-(math.Log(0.5)+math.Log(0.2))/2; math.Abs(got-want) > 1e-12 {
		t.Errorf("joint NLL of one head is %v, want %v", got, want)
	}
}

// TestJointOfLargeBatches: likelihoods at the floor, whose product over a batch is below every
// float64, keep their joint score.
func TestJointOfLargeBatches(t *testing.T) {
	t.Parallel()
	for _, points := range []int{direct, direct + 1, 3*direct + 1} {
		l, batch := NewLikelihood(points, 2), make([]int, points)
		for i := range l {
			l[i][0], l[i][1], batch[i] = nllFloor, nllFloor/2, i
		}
		want := -math.Log(nllFloor) - math.Log((1+math.Pow(0.5, float64(points)))/2)/float64(points)
		if got := JointNLL(l, [][]int{batch}); math.Abs(got-want) > 1e-12*want {
			t.Errorf("%d points: joint NLL is %v, want %v", points, got, want)
		}
	}
}

// TestBatches: the right number of points, none twice among the random ones, and neighbours that
// are near.
func TestBatches(t *testing.T) {
	t.Parallel()
	const n, dx = 300, 3
	r := rand.New(rand.NewPCG(5, 6))
	x := make([]float32, n*dx)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	b := must.Get(NewBatches(rand.New(rand.NewPCG(1, 1)), x, dx, 50))(t)
	again := must.Get(NewBatches(rand.New(rand.NewPCG(1, 1)), x, dx, 50))(t)
	if !slices.EqualFunc(b.Near, again.Near, slices.Equal[[]int]) ||
		!slices.EqualFunc(b.Random, again.Random, slices.Equal[[]int]) {
		t.Error("the same stream gave other batches")
	}
	distance := func(i, j int) (d float64) {
		for q := range dx {
			e := float64(x[i*dx+q] - x[j*dx+q])
			d += e * e
		}
		return d
	}
	for i := range b.Random {
		sorted := slices.Sorted(slices.Values(b.Random[i]))
		if len(slices.Compact(sorted)) != JointPoints || len(b.Near[i]) != JointPoints {
			t.Fatalf("batch %d: %v and %v", i, b.Random[i], b.Near[i])
		}
	}
	for _, anchor := range []int{0, 17, n - 1} {
		got := nearest(x, dx, []int{anchor}, 5)[0]
		var all []int
		for i := range n {
			all = append(all, i)
		}
		slices.SortFunc(all, func(i, j int) int {
			return int(math.Copysign(1, distance(i, anchor)-distance(j, anchor)))
		})
		if !slices.Equal(got, all[:5]) {
			t.Errorf("nearest to %d are %v, want %v", anchor, got, all[:5])
		}
	}
	must.Fail(NewBatches(r, x[:19*dx], dx, 5))(t, "", "batches of neighbours from 19 points")
}

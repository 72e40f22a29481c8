package candidate

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/floats"

	"fmp/onnx/must"
)

// TestOneUnlike: one class far away is unlike the others, and no shift; all of them are a shift.
func TestOneUnlike(t *testing.T) {
	for far := range 11 {
		d := newDistances()
		var last distance
		for y := range 10 {
			square := 0.1
			if y >= 10-far {
				square = 3
			}
			last = newDistance(square, 0.1, 5)
			d.add(last)
		}
		none := floats.MaxIdx(d) == 0
		if none != (far < 5) {
			t.Errorf("with %d of ten classes far away no shift is the most likely: %v", far, none)
		}
		if m := last.mass(1000); (m < 0.01) != (far > 0) || far == 0 && m < 0.99 {
			t.Errorf("%d classes far away: images of the last have a mass of %.3f", far, m)
		}
	}
}

// tailed returns images a twentieth of which lie six times as far from their class mean.
func (w *world) tailed(n int) ([]float32, []int) {
	x, y := w.rows(n)
	for i, of := range y {
		if w.r.Float64() < 0.05 {
			for j := range w.k {
				m := float32(w.mean[of*w.k+j])
				x[i*w.k+j] = m + 6*(x[i*w.k+j]-m)
			}
		}
	}
	return x, y
}

// tailedRound is a round of such images behind a corpus of them.
func (w *world) tailedRound(t *testing.T, clients, n int) *Round {
	t.Helper()
	rows, labels := w.tailed(2000)
	c := must.Get(NewCorpus(rows, w.k, labels, w.c))(t)
	r := &Round{K: w.k, C: w.c, Corpora: []Corpus{*c}}
	for range clients {
		x, y := w.tailed(n)
		u := upload(t, x, w.k, y, w.c)
		u.Within, u.Curve = nil, nil
		r.Clients = append(r.Clients, u)
	}
	return r
}

// TestFreedom: the squared distance of a mean of few images from the class mean varies as the
// formula says, with tails and without.
func TestFreedom(t *testing.T) {
	for name, share := range map[string]float64{"gaussian": 0, "tails": 0.05} {
		at, k := rand.New(rand.NewPCG(1, 2)), 6
		draw := func() []float64 {
			x, far := make([]float64, k), 1.
			if at.Float64() < share {
				far = 6
			}
			for j := range x {
				x[j] = far * float64(j+1) / 4 * at.NormFloat64()
			}
			return x
		}
		own := &known{centre: make([]float64, k)}
		var all []int
		for i := range 40_000 {
			own.rows, all = append(own.rows, draw()...), append(all, i)
		}
		w := own.measure(0, all, k)
		for _, n := range []int{1, 3, 20} {
			var sum, squares float64
			const times = 20_000
			for range times {
				mean := make([]float64, k)
				for range n {
					axpy(1/float64(n), draw(), mean)
				}
				d := dot(mean, mean)
				sum, squares = sum+d/times, squares+d*d/times
			}
			want := 2 * sum * sum / (squares - sum*sum)
			if got := w.freedom(float64(n), math.Inf(1)); !(math.Abs(got/want-1) < 0.1) {
				t.Errorf("%s: means of %d images vary in %.2f coordinates, want %.2f", name, n, got, want)
			}
		}
	}
}

// TestTails: few images far from their class mean are no shift, neither of the corpus nor among
// clients.
func TestTails(t *testing.T) {
	for seed := range uint64(12) {
		w := newWorld(seed)
		r := w.tailedRound(t, 8, 12)
		of := namedOf(t, r)
		if of.clientVariance > 0.05 {
			t.Errorf("seed %d: clients of one kind lie apart by %.3f", seed, of.clientVariance)
		}
		if m := posterior(t, r, Options{Seed: seed}); m.Counted < 0.8 {
			t.Errorf("seed %d: %.2f of the images of the clients' own kind count", seed, m.Counted)
		}
	}
}

// TestEvenPrior: a regression's answer has an even prior of classes, whatever masses these have.
func TestEvenPrior(t *testing.T) {
	w := newWorld(4)
	r := w.round(t, 4, 20)
	r.Corpora = w.corpus(4000)
	of := namedOf(t, r)
	x, y := w.rows(2000)
	for _, tied := range []bool{false, true} {
		of.tied = tied
		loss := func(share float64) (sum float64) {
			on := of.known.images(0)
			for i, y := range on.label {
				if y == 0 {
					on.mass[i] *= share
				}
			}
			m := Mixture{Components: []Component{{Weight: 1,
				Head: of.head(must.Get(of.regression(on, of.centre, of.known))(t))}}}
			return nll(m.logProbabilities(x), y, w.c)
		}
		if even, few := loss(1), loss(0.03); few > even+0.03 {
			t.Errorf("tied %v: NLL %.3f of a class with few images, %.3f of as many as the others", tied,
				few, even)
		}
	}
}

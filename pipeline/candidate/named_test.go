package candidate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"

	"fmp/onnx/dense"
	"fmp/onnx/must"
	"fmp/pipeline/point"
)

// moved returns a round whose clients' images lie away from a corpus's by a variance in the
// coordinates from one on, each class in a direction of its own, with the corpus's images and
// images of theirs.
func (w *world) moved(t *testing.T, shift float64, from, clients, n int) (r *Round, x []float32, y []int) {
	t.Helper()
	there := *w
	there.mean = slices.Clone(w.mean)
	at := rand.New(rand.NewPCG(9, 9))
	for c := range w.c {
		for j := from; j < w.k; j++ {
			there.mean[c*w.k+j] += math.Sqrt(shift*w.covariance(false)[j*w.k+j]) * at.NormFloat64()
		}
	}
	r = there.round(t, clients, n)
	r.Corpora = w.corpus(600)
	x, y = there.rows(1000)
	return r, x, y
}

// corpus is one of n images whose classes are the round's.
func (w *world) corpus(n int) []Corpus {
	rows, labels := w.rows(n)
	return []Corpus{{Within: w.covariance(false), Rows: rows, Labels: labels}}
}

// namedOf returns the round of the first corpus, whose classes are the round's.
func namedOf(t *testing.T, r *Round) *named {
	t.Helper()
	return must.Get(r.corpusNames(0, must.Get(r.sum(1))(t).all, &Options{}))(t)
}

// TestShifts: a corpus counts as long as its class means lie where the clients' do, and not where
// they lie far away, where the temperature is less sure. Its images never cost more than .005 nats
// beside its covariance alone.
func TestShifts(t *testing.T) {
	for seed := range uint64(3) {
		w := newWorld(seed)
		for _, shift := range []float64{0, 0.1, 1, 10} {
			r, x, y := w.moved(t, shift, 0, 6, 40)
			m := posterior(t, r, Options{Seed: seed})
			if v := m.Counted; shift == 0 && v < 0.9 || shift >= 10 && v > 0.1 {
				t.Errorf("seed %d: %.3f of the images count at shift %g", seed, v, shift)
			}
			if d := m.Components[0].Deviation; (d > 0.2) != (shift > 0) {
				t.Errorf("seed %d: the log temperature at shift %g has a deviation of %.2f", seed, shift, d)
			}
			with := nll(m.logProbabilities(x), y, w.c)
			r.Corpora[0].Rows, r.Corpora[0].Labels = nil, nil
			without := nll(posterior(t, r, Options{Seed: seed}).logProbabilities(x), y, w.c)
			if with > without+.005 {
				t.Errorf("seed %d, shift %g: NLL %.4f, without the images %.4f", seed, shift, with, without)
			}
		}
	}
}

// TestIdleShift: where class means lie away in coordinates that hardly tell classes apart, the
// corpus counts more than by their distance, in the mean over seeds.
func TestIdleShift(t *testing.T) {
	var counted, by float64
	for seed := range uint64(3) {
		w := newWorld(seed)
		for i := range w.mean {
			w.mean[i] *= 0.4
		}
		r, _, _ := w.moved(t, 1, w.k-3, 10, 12)
		m := posterior(t, r, Options{Seed: seed})
		of := namedOf(t, r)
		counted += m.Counted
		for i, v := range of.away {
			by += math.Exp(v-floats.LogSumExp(of.away)) * of.share(i)
		}
	}
	if counted < 1.2*by {
		t.Errorf("%.3f of the images count, by distance alone %.3f", counted/3, by/3)
	}
}

// TestTied: many images whose covariance is far from W are best told by a regression that is tied
// to zero, and few of them by one that is tied to the discriminant.
func TestTied(t *testing.T) {
	w := newWorld(3)
	r := w.round(t, 4, 20)
	r.Corpora = w.corpus(3000)
	for i := range w.k {
		r.Corpora[0].Within[i*w.k+i] = math.Pow(r.Corpora[0].Within[i*w.k+i], -0.5)
	}
	of := namedOf(t, r)
	for shift, tied := range map[int]bool{0: false, len(shifts) - 1: true} { // at a far shift no other counts
		ks := must.Get(of.at(of.discriminant, shift, &Options{}))(t)
		sum := 0.0
		for _, k := range ks {
			sum += k.weight
		}
		if k := ks[0]; k.tied != tied || (len(ks) == 1) != tied || k.weight < 0.5 || math.Abs(sum-1) > 1e-12 {
			t.Errorf("at shift %d the first of %d regressions is tied to the discriminant: %v, by %.2f of %.2f", shift,
				len(ks), k.tied, k.weight, sum)
		}
	}
}

// TestNamedSum: clients that hold the same numbers of images, and lie no farther apart than such
// numbers do, have the posterior of their sum, as merging needs.
func TestNamedSum(t *testing.T) {
	w := newWorld(1)
	r, x, _ := w.moved(t, 0, 0, 6, 25)
	for i := range r.Clients { // even
		u := &r.Clients[i]
		u.Within, u.Curve = nil, nil
		for j := range u.Means.W {
			u.Means.W[j] = 8
		}
	}
	one := &point.Set{N: w.c, Dx: w.k, C: w.c, Z: make([]float32, w.c*w.k)}
	for y := range w.c {
		one.Y, one.W = append(one.Y, int32(y)), append(one.W, 48)
	}
	sums := make([]float64, w.c*w.k)
	for _, u := range r.Clients {
		for i, y := range u.Means.Y {
			for j, v := range u.Means.Z[i*w.k:][:w.k] {
				sums[int(y)*w.k+j] += float64(v) / 6
			}
		}
	}
	copy(one.Z, dense.As[float32](sums))
	for _, u := range r.Clients {
		for i, y := range u.Means.Y {
			for j := range w.k {
				u.Means.Z[i*w.k+j] = (u.Means.Z[i*w.k+j] + one.Z[int(y)*w.k+j]) / 2
			}
		}
	}
	apart := posterior(t, r, Options{}).logProbabilities(x)
	r.Clients = []Client{{Means: one}}
	near(t, "log probabilities", posterior(t, r, Options{}).logProbabilities(x), apart, 1e-4)
}

// TestAmong: where clients differ, the mean of a class that one of them holds nearly alone is worth
// few images, and one that all share evenly is worth all.
func TestAmong(t *testing.T) {
	w := newWorld(2)
	r := w.round(t, 8, 60)
	for i := range r.Clients {
		u := &r.Clients[i]
		for j, y := range u.Means.Y {
			for d := range w.k {
				u.Means.Z[j*w.k+d] += float32(3 * math.Sqrt(w.covariance(false)[d*w.k+d]) * float64(1-2*(i%2)))
			}
			u.Means.W[j] = 10
			if y == 0 && i > 0 {
				u.Means.W[j] = 1
			}
		}
	}
	r.Corpora = w.corpus(600)
	of := namedOf(t, r)
	if got := of.effectiveImages(0); got > 3 {
		t.Errorf("a class mean of one client among eight that lie apart is worth %.1f images of 17", got)
	}
	if got := of.effectiveImages(1); !(got > 79) {
		t.Errorf("a class mean that clients share evenly is worth %.1f images of 80", got)
	}
}

// TestApart: images of clients that lie apart from one another are predicted at the temperature
// that suits them, although the corpus's lie closer together.
func TestApart(t *testing.T) {
	for seed := range uint64(3) {
		w := newWorld(seed)
		for i := range w.mean {
			w.mean[i] *= 0.7
		}
		r := &Round{K: w.k, C: w.c}
		at, home := rand.New(rand.NewPCG(seed, 9)), slices.Clone(w.mean)
		var x []float32
		var y []int
		for range 10 {
			for i := range w.mean {
				w.mean[i] = home[i] + w.sd[i%w.k]*at.NormFloat64()
			}
			own, labels := w.rows(40)
			u := upload(t, own, w.k, labels, w.c)
			u.Within, u.Curve = nil, nil
			r.Clients = append(r.Clients, u)
			own, labels = w.rows(200)
			x, y = append(x, own...), append(y, labels...)
		}
		w.mean = home
		r.Corpora = w.corpus(600)
		m := posterior(t, r, Options{Seed: seed})
		got, best := nll(m.logProbabilities(x), y, w.c), math.Inf(1)
		for f := -2.; f <= 2; f += 0.1 {
			of := Mixture{Components: slices.Clone(m.Components)}
			for i := range of.Components {
				head := &of.Components[i].Head
				head.W = slices.Clone(head.W)
				scale(math.Exp(f), head.W)
			}
			best = min(best, nll(of.logProbabilities(x), y, w.c))
		}
		if got > best+0.05 {
			t.Errorf("seed %d: NLL %.3f, at the best temperature %.3f", seed, got, best)
		}
	}
}

// TestOrderOfCorpus: the order of classes in a corpus does not matter, sorted or in turn, whose
// step is that of the parts that are left out.
func TestOrderOfCorpus(t *testing.T) {
	w := newWorld(2)
	r, x, _ := w.moved(t, 0.1, 0, 6, 40)
	c := r.Corpora[0]
	of := make([][]int, w.c)
	for i, y := range c.Labels {
		of[y] = append(of[y], i)
	}
	least := len(c.Labels)
	for _, rows := range of {
		least = min(least, len(rows))
	}
	least -= least % regressionFolds
	log := map[string][]float64{}
	for name, at := range map[string]func(i int) (class, rank int){
		"sorted":  func(i int) (int, int) { return i / least, i % least },
		"in turn": func(i int) (int, int) { return i % w.c, i / w.c },
	} {
		var rows []float32
		var labels []int
		for i := range w.c * least {
			y, rank := at(i)
			rows = append(rows, c.Rows[of[y][rank]*w.k:][:w.k]...)
			labels = append(labels, y)
		}
		r.Corpora = []Corpus{{Within: c.Within, Rows: rows, Labels: labels}}
		m := posterior(t, r, Options{})
		log[name] = append(m.logProbabilities(x), m.LogKappa, m.LogKappaError)
	}
	for i, v := range log["sorted"] {
		if !(math.Abs(log["in turn"][i]-v) < 1e-5) {
			t.Fatalf("number %d is %g in turn, and %g sorted", i, log["in turn"][i], v)
		}
	}
}

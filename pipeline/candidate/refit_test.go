package candidate

import (
	"context"
	"math"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/erm"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// TestFitEnds: a regression on rows that no images make, ten million each and told apart by a
// direction in which they hardly vary, ends at the bound of products, nearer to the minimum than
// its start.
func TestFitEnds(t *testing.T) {
	const n, k, c, small = 100, 60, 3, 40
	h := &discriminant{basis: &basis{pool: &pool{k: k, c: c}}, precision: make([]float64, k)}
	r, on := rng.New(1, "fit"), &images{}
	for j := range h.precision {
		h.precision[j] = 1
	}
	for i := range n {
		row, label := make([]float64, k), 0
		for j := range k {
			z := 30 * math.Pow(10, -float64(j)/10) * r.NormFloat64()
			for l := range row { // a direction of its own, of a cosine transform
				row[l] += z * math.Cos(math.Pi*float64(j)*(float64(l)+.5)/k)
			}
			if j == small && z > 0 {
				label = 1 + i%2
			}
		}
		on.add(row, 1e7, label)
	}
	p := h.problem(on, make([]float64, c), nil)
	free := must.Get(erm.Solve(context.Background(), p, erm.Options{Threads: 1}))(t)
	bounded := must.Get(erm.Solve(context.Background(), p, erm.Options{Threads: 1, MaxProducts: 500}))(t)
	if free.Products < 600 || !bounded.Stopped || bounded.Products > 500 {
		t.Fatalf("%d products, with a bound %d: the regression is too easy for the test", free.Products,
			bounded.Products)
	}
	begin := float64(n) * 1e7 * math.Log(c)
	if bounded.Objective >= begin {
		t.Errorf("the objective is %g, where it was %g at the start", bounded.Objective, begin)
	}
	l := must.Get(h.fitted(on, make([]float64, c), nil))(t)
	near(t, "bias", l.bias, bounded.Theta.Row(k), 0)
}

// TestNobodyIsAsked: where no class is held by two clients the prior of the temperature stands.
func TestNobodyIsAsked(t *testing.T) {
	if got := temperature(make([]moments.Curve, 3)); got != priorT {
		t.Errorf("a temperature of %v, want the prior %v", got, priorT)
	}
	curve := moments.Curve{}
	for i := range curve {
		curve[i] = -float64((i - 20) * (i - 20))
	}
	if got := temperature([]moments.Curve{curve, {}, curve}); got == priorT {
		t.Error("the prior stands although two clients were asked")
	}
}

// TestTogether: rows that stand for images are those of each client where they fit, and else those
// of all clients together, as many as fit.
func TestTogether(t *testing.T) {
	const k, clients, classes = maxNumbers / 24, 4, 2
	r := &Round{K: k, C: classes}
	for range clients {
		means := &point.Set{N: classes, Dx: k, C: classes, Z: make([]float32, classes*(k+classes)),
			W: []float32{3, 5}}
		for y := range classes {
			means.Z[y*(k+classes)+k+y] = 1
		}
		r.Clients = append(r.Clients, Client{Means: means})
	}
	p := &pool{k: k, c: classes, n: []float64{12, 20}, mean: make([]float64, classes*k),
		clients: []int{0, 1, 2, 3}}
	if d, rows := r.drawing(p); len(d.together) != classes || rows != 24 { // 64 rows, and 24 fit
		t.Errorf("%d cells, %d rows", len(d.together), rows)
	}
	p.clients = p.clients[:1]
	for of, want := range map[float32]int{5: 16, 10: 16, 14: 16 + 6, 15: 16 + 6, 16: 22, 40: 22} {
		r.Clients[0].Means.W[1] = of
		if d, rows := r.drawing(p); d.together != nil || rows != want {
			t.Errorf("one client of 3 and %v images: %d cells, %d rows; want %d", of,
				len(d.together), rows, want)
		}
	}
	must.Do(t, r.Clients[0].check(k, classes))
	few := &Round{K: 1, C: 2, Clients: []Client{{Means: &point.Set{N: 2, Dx: 1, C: 2,
		Z: []float32{0, 1}, W: []float32{20, 1e9}, Y: []int32{0, 1}}}}}
	p = &pool{k: 1, c: 2, n: []float64{20, 1e9}, mean: []float64{0, 1}, clients: []int{0}}
	for half, want := range map[int]int{0: 16, 3: 16, 4: 20 + maxRefitDraws} {
		few.halfOf = half
		if _, rows := few.drawing(p); rows != want {
			t.Errorf("half of %d: %d rows of class means of 20 and a claimed billion of images; "+
				"want %d", half, rows, want)
		}
	}
}

// TestMoreImagesAreNoWorse: with ever more images a client the posterior nears the truth, which is
// known: classes are Gaussian.
func TestMoreImagesAreNoWorse(t *testing.T) {
	w := &world{k: 48, c: 4, r: rng.New(5, "more images")}
	for range w.c * w.k {
		w.mean = append(w.mean, .25*w.r.NormFloat64())
	}
	for range w.k {
		w.sd = append(w.sd, 1)
	}
	x, y := w.rows(4000)
	truth := &Mixture{Components: []Component{{Weight: 1, Head: erm.NewTheta(w.k+1, w.c)}}}
	head := truth.Components[0].Head
	for c := range w.c {
		for j, v := range w.mean[c*w.k:][:w.k] {
			head.W[j*w.c+c] = v
			head.Row(w.k)[c] -= v * v / 2
		}
	}
	best := nll(truth.logProbabilities(x), y, w.c)
	before := math.Inf(1)
	for _, images := range []int{100, 800, 6400} {
		m := posterior(t, w.round(t, 3, images), Options{Seed: 1, Stream: "t"})
		over := nll(m.logProbabilities(x), y, w.c) - best
		if over > before+.005 {
			t.Errorf("%d images a client: NLL %.3f over the truth's, with fewer %.3f", images, over, before)
		}
		before = over
	}
	if before > .02 {
		t.Errorf("NLL is %.3f over the truth's with 19,200 images; want .02 at most", before)
	}
}

package sample

import (
	"context"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/dense"
	"fmp/onnx/engine"
	"fmp/onnx/must"
	"fmp/pipeline/erm"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
)

// TestRefit: fits tied to the closed form tightly are the closed form's heads. A sample depends on
// its own latent and on no other, nor on threads, nor, where every mean is one image, on the order
// of the uploads.
func TestRefit(t *testing.T) {
	ctx := context.Background()
	k, clients, test := conjugateWorld(t)
	seen := uploaded(t, k, clients)
	const samples = 3
	size := k.LatentSize()
	latent := latents(k, samples)
	plain := must.Get(k.Heads(ctx, seen, latent, samples))(t)
	heads := func(f *Refit, seen *point.Set, latent []float32) []erm.Theta {
		t.Helper()
		return must.Get(f.Heads(ctx, seen, latent, len(latent)/size))(t)
	}
	far := func(a, b []erm.Theta) (most float64) {
		for s := range a {
			for i, v := range a[s].W {
				most = max(most, math.Abs(v-b[s].W[i]))
			}
		}
		return most
	}
	if d := far(heads(&Refit{Conjugate: k, Penalty: 1e9}, seen, latent), plain); d > 1e-4 {
		t.Errorf("a fit tied to the closed form differs by %v", d)
	}
	f := &Refit{Conjugate: k, Penalty: 10, Doubt: 1}
	all := heads(f, seen, latent)
	if d := far(all, plain); d < 0.05 {
		t.Errorf("the fit moves no weight by more than %v", d)
	}
	scaled := &Refit{Conjugate: k, Penalty: 10, Scale: 0.5}
	half := must.Get(f.Posterior(ctx, seen, latent, samples, 0.5))(t)
	if d := far(heads(scaled, seen, latent), half); d != 0 || far(half, all) < 0.05 {
		t.Errorf("samples of scale 1/2 differ by %v from those asked for at that scale, and by %v from "+
			"those of scale 0", d, far(half, all))
	}
	if d := far(all[1:2], heads(f, seen, latent[size:2*size])); d != 0 {
		t.Errorf("sample 1 alone differs by %v", d)
	}
	k.Threads = 3
	if d := far(all, heads(f, seen, latent)); d != 0 {
		t.Errorf("on three threads heads differ by %v", d)
	}
	for i := range seen.W {
		seen.W[i] = 1
	}
	reversed := point.New(seen.N, seen.Dx, seen.C)
	for i := range seen.N {
		copy(reversed.Row(i), seen.Row(seen.N-1-i))
		reversed.W[i] = 1
	}
	if d := far(heads(f, seen, latent), heads(f, reversed, latent)); d > 1e-4 {
		t.Errorf("uploads in another order give heads that differ by %v", d)
	}

	// The graph of a round gives the ends that the predictor gives, which hold the heads' mean log
	// odds, and lie wider apart with more doubt.
	uniform := make([]float32, samples)
	low, high := must.Get2(f.Intervals(ctx, Drawn{Seen: seen, Heads: all, Latent: latent, Uniform: uniform},
		test.Features, 0.9))(t)
	graph := must.Get(f.IntervalGraph(ctx, Drawn{Seen: seen, Heads: all, Latent: latent, Uniform: uniform},
		0.9))(t)
	session := must.Get(k.engine.Load(graph))(t)
	defer session.Close()
	n := len(test.Labels)
	out := must.Get(engine.Eval(session,
		map[string]*onnx.Tensor{"features": onnx.NewTensor(test.Features, n, test.Dx)}))(t)
	rows := must.Get(f.Map(ctx, test.Features))(t)
	near(t, "the graph's coordinates", out["coordinates"].F32(), rows, 1e-4)
	for name, ends := range map[string][]float64{"low": low, "high": high} {
		near(t, name+" of the graph", dense.As[float64](out[name].F32()), ends, 1e-4)
	}
	doubtful := &Refit{Conjugate: k, Penalty: 10, Doubt: 9}
	wideLow, wideHigh := must.Get2(doubtful.Intervals(ctx,
		Drawn{Seen: seen, Heads: all, Latent: latent, Uniform: uniform}, test.Features, 0.9))(t)
	cooled := map[float64][2][]float64{}
	for _, at := range []float64{0.5, 2} {
		d := Drawn{Seen: seen, Heads: all, Latent: latent, Uniform: uniform, Temperature: at}
		l, h := must.Get2(f.Intervals(ctx, d, test.Features, 0.9))(t)
		cooled[at] = [2][]float64{l, h}
	}
	// Above 1 a temperature narrows nothing; half of it spreads logits twice as far.
	near(t, "intervals at temperature 2", cooled[2], [2][]float64{low, high}, 0)
	single := make([]*metric.Probabilities, samples)
	for s := range single {
		single[s] = must.Get(metric.Predict(ctx, all[s:s+1], rows, 1))(t)
	}
	odds := func(p float64) float64 { return math.Log(p / (1 - p)) }
	var width, wide, reach, hotter float64
	for i := range low {
		middle := 0.0
		for _, p := range single {
			middle += odds(p.P[i]) / samples
		}
		middle = 1 / (1 + math.Exp(-middle))
		if !(low[i] <= middle+1e-5 && middle-1e-5 <= high[i]) {
			t.Fatalf("interval %d is %v to %v; the heads' mean log odds is that of %v", i, low[i],
				high[i], middle)
		}
		reach += odds(high[i]) - odds(low[i])
		hotter += odds(cooled[0.5][1][i]) - odds(cooled[0.5][0][i])
		width += high[i] - low[i]
		wide += wideHigh[i] - wideLow[i]
	}
	if !(hotter > 1.9*reach && hotter < 2.1*reach) {
		t.Errorf("log odds of intervals are %v wide in all, at half the temperature %v", reach, hotter)
	}
	if !(wide > 1.2*width) {
		t.Errorf("intervals of %v in all with doubt 1, of %v with 9", width, wide)
	}
	must.Fail(f.Heads(ctx, point.New(2, seen.Dx, seen.C), latent, samples))(t, "",
		"uploads without mass are no error")
}

// TestPerturb: the centre of a fit moves by draws of covariance scale (F + P I)/P^2, of the Fisher
// information F and the penalty P.
func TestPerturb(t *testing.T) {
	const scale, penalty, draws = 0.25, 3.0, 20000
	at := erm.Theta{D: 2, C: 2, W: []float64{0.7, -0.3, 0.2, 0.1}}
	x, w := []float64{2, 1, -1, 1}, []float64{1, 4}
	q := &Fit{Problem: &erm.Problem{N: 2, Dx: 1, C: 2, X: x, W: w, L2: penalty, Centre: &erm.Theta{}}}
	r := rng.New(1, "perturb")
	var got [4]float64
	for range draws {
		centre := erm.NewTheta(2, 2)
		q.Centre = &centre
		q.perturb(r, at, scale)
		for i, v := range centre.W {
			got[i] += v * v / draws
		}
	}
	for j := range 2 {
		want := penalty
		for i := range w {
			odds := x[i*2]*(at.W[0]-at.W[1]) + at.W[2] - at.W[3]
			p := 1 / (1 + math.Exp(-odds))
			want += w[i] * x[i*2+j] * x[i*2+j] * p * (1 - p)
		}
		want *= scale / penalty / penalty
		for y := range 2 {
			if v := got[j*2+y]; math.Abs(v/want-1) > 0.05 {
				t.Errorf("row %d, class %d moves with variance %v; want %v", j, y, v, want)
			}
		}
	}
}

// TestRefitLearns: where classes scatter unlike each other, which the closed form cannot know, fits
// to many uploads predict better.
func TestRefitLearns(t *testing.T) {
	ctx := context.Background()
	k, _, _ := conjugateWorld(t)
	k8, c := k.config.Dx, k.config.C
	draw := func(name string, n int) ([]float32, []int) {
		r := rng.New(2, name)
		x, y := make([]float32, n*k8), make([]int, n)
		rng.Normal(r, x)
		for i := range y {
			y[i] = i % c
			for j := range k8 {
				x[i*k8+j] *= []float32{0.3, 3}[(y[i]+j)%2]
			}
			x[i*k8+y[i]] += 2
		}
		return x, y
	}
	x, y := draw("clients", 2000)
	rows := must.Get(point.FromLabelled(x, k8, y, c))(t)
	var single []*point.Set
	for i := range rows.N {
		one := point.New(1, k8, c)
		copy(one.Z, rows.Row(i))
		one.W[0] = 1
		single = append(single, one)
	}
	seen := uploaded(t, k, single)
	testX, testY := draw("test", 1000)
	at := must.Get(k.Map(ctx, testX))(t)
	f := &Refit{Conjugate: k, Penalty: 10}
	nll := func(head func(context.Context, *point.Set) (erm.Theta, error)) (sum float64) {
		theta := must.Get(head(ctx, seen))(t)
		p := must.Get(metric.Predict(ctx, []erm.Theta{theta}, at, 1))(t)
		for i, y := range testY {
			sum -= math.Log(p.Row(i)[y]) / float64(len(testY))
		}
		return sum
	}
	if plain, fitted := nll(k.Mean), nll(f.Mean); !(fitted < plain-0.02) {
		t.Errorf("NLL %v of the closed form, %v of the fit", plain, fitted)
	}

	// A class of which clients hold ten times as many images is no likelier for that: without the
	// offset its mean probability would be.
	frequent := point.New(seen.N, seen.Dx, seen.C)
	copy(frequent.Z, seen.Z)
	for i, w := range seen.W {
		if frequent.W[i] = w / 10; seen.Row(i)[seen.Dx] == 1 {
			frequent.W[i] = w
		}
	}
	theta := must.Get(f.Mean(ctx, frequent))(t)
	said := must.Get(metric.Predict(ctx, []erm.Theta{theta}, at, 1))(t)
	share := 0.0
	for i := range testY {
		share += said.Row(i)[0] / float64(len(testY))
	}
	if want := 1 / float64(c); math.Abs(share-want) > 0.08 {
		t.Errorf("a frequent class has mean probability %.3f; its share is %v", share, want)
	}

	for i := range frequent.W {
		frequent.W[i] = 1e6
	}
	if u, err := f.images(frequent); err != nil || u.of[0] < 1e6 || slices.Max(u.count) != maxOfOne {
		t.Errorf("means of a million images count for %v in a fit, %v", u.count[:3], err)
	}
}

// TestImagesOfAMean: images drawn for a mean of four have this mean, and the variance of four
// images about it, 1 - 1/4; for a mean of one image it is drawn itself.
func TestImagesOfAMean(t *testing.T) {
	const k, m = 2000, 4
	u := &images{rows: make([]float64, 2*k), class: []int{1, 0}, mass: []float64{m, 1}, count: []float64{m, 1},
		of: []float64{1, m}, total: m + 1}
	u.rows[0], u.rows[k] = 3, 5
	p, _ := u.draw(k, 2, rng.New(1, "images"), false)
	if p.N != m+1 {
		t.Fatalf("%d images of %d", p.N, m+1)
	}
	var square, mean float64
	for i := range m {
		row := p.X[i*(k+1):][:k]
		mean += row[0] / m
		for _, v := range row[1:] {
			square += v * v / m / (k - 1)
		}
	}
	if math.Abs(mean-3) > 1e-9 || math.Abs(square-0.75) > 0.03 {
		t.Errorf("images of mean %v and variance %v about it", mean, square)
	}
	if one := p.X[m*(k+1):]; one[0] != 5 || floats.Norm(one[1:k], 1) != 0 || p.Y[2*m] != 1 || p.Y[2*m+1] != 0 {
		t.Errorf("a mean of one image is drawn as %v of class %v", one[0], p.Y[2*m:])
	}
}

package posterior

import (
	"math"
	"slices"
	"testing"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/pipeline/discriminant"
)

// TestMomentsUntold: the temperature is that of clients left out where nothing tells kappa and there
// are two clients at least, and there alone; it is nearer to the best than that of an unknown kappa.
func TestMomentsUntold(t *testing.T) {
	const many = 6
	w := &cameras{k: 12, c: 4, mean: make([]float32, 12*4),
		shift: func(int) [3]float64 { return [3]float64{} }}
	rng.Normal(rng.New(1, "mean"), w.mean)
	b := build.New("identity")
	b.Output("coordinates", b.Op("Identity", []build.Ref{b.Input("features", onnx.Float32, "n", w.k)}))
	at := must.Get(embedded(must.Get(b.Model())(t), w.k))(t)
	all := w.clients(t, many)
	plain := withoutPoints(all)
	x, y := w.images(many, 2000, "test")
	found := map[string]float64{}
	for name, c := range map[string]struct {
		clients []discriminant.Client
		change  func(o *MomentsOptions)
		untold  bool
	}{
		"untold":             {plain, func(*MomentsOptions) {}, true},
		"clients are judged": {plain, func(o *MomentsOptions) { o.Honesty = true }, true},
		"a corpus":           {plain, func(o *MomentsOptions) { o.Corpus = &all[0] }, true},
		"kappa": {plain,
			func(o *MomentsOptions) { o.Kappa = discriminant.Unknown }, false},
		"points":     {all, func(*MomentsOptions) {}, false},
		"one client": {plain[:1], func(*MomentsOptions) {}, false},
		"merged":     {plain[1:], func(o *MomentsOptions) { o.Rest = &plain[0] }, false},
	} {
		o := MomentsOptions{Options: discriminant.Options{Samples: 20, Seed: 1, Stream: "test"},
			Threads: 1}
		c.change(&o)
		r := must.Get(Moments(t.Context(), c.clients, at, o))(t)
		if got := r.Diagnostics[DiagnosticLeftOut] == 1; got != c.untold {
			t.Errorf("%s: the temperature is of clients left out: %v, want %v", name, got, c.untold)
		}
		found[name] = nll(t, r, x, y)
	}
	if found["a corpus"] != found["untold"] {
		t.Errorf("NLL %v: a corpus for which no point speaks takes part", found)
	}
	if !(found["untold"] < found["kappa"]) || !(found["clients are judged"] < found["kappa"]) {
		t.Errorf("NLL %v: with clients left out it is not below that of an unknown kappa", found)
	}
	t.Logf("NLL %v", found)
}

// withoutPoints returns clients without their calibration points.
func withoutPoints(clients []discriminant.Client) []discriminant.Client {
	out := slices.Clone(clients)
	for m := range out {
		within := *out[m].Within
		within.Labels, within.Calibration = nil, nil
		out[m].Within = &within
	}
	return out
}

// TestMomentsUntoldEffects: where each client has another camera and nothing tells kappa, the scatter
// for a client to come is wider by the covariance of cameras. NLL of the cameras of the round is as
// low as where all are alike, whose temperature sees them too; images without labels of a camera that
// no client has lower its NLL.
func TestMomentsUntoldEffects(t *testing.T) {
	const many = 8
	w := &cameras{k: 12, c: 4, mean: make([]float32, 12*4)}
	rng.Normal(rng.New(1, "mean"), w.mean)
	w.shift = func(m int) [3]float64 {
		r := rng.New(2, "shift", m)
		return [3]float64{1.5 * r.NormFloat64(), 0.2 * r.NormFloat64()}
	}
	b := build.New("identity")
	b.Output("coordinates", b.Op("Identity", []build.Ref{b.Input("features", onnx.Float32, "n", w.k)}))
	at := must.Get(embedded(must.Get(b.Model())(t), w.k))(t)
	clients := withoutPoints(w.clients(t, many))
	o := MomentsOptions{Options: discriminant.Options{Samples: 20, Seed: 1, Stream: "test"}, Honesty: true, Threads: 1}
	come := must.Get(Moments(t.Context(), clients, at, o))(t)
	o.Alike = true
	alike := must.Get(Moments(t.Context(), clients, at, o))(t)
	if come.Diagnostics[DiagnosticLeftOut] != 1 || !come.Effects.Any() || come.Shift == nil {
		t.Fatalf("%v, effects %v, shift %v", come.Diagnostics, come.Effects, come.Shift)
	}
	var before, after float64
	for m := range many {
		x, y := w.images(m, 400, "test")
		before, after = before+nll(t, alike, x, y)/many, after+nll(t, come, x, y)/many
	}
	if t.Logf("NLL %.3f, all alike %.3f", after, before); after > before+.02 {
		t.Errorf("NLL %.3f for a client to come, where all are alike %.3f", after, before)
	}
	w.shift = func(int) [3]float64 { return [3]float64{0, 0, 4} }
	seen, _ := w.images(many, 60, "unlabelled")
	x, y := w.images(many, 400, "test")
	adapted := must.Get(come.Adapt(seen))(t)
	if before, after := nll(t, come, x, y), nll(t, adapted, x, y); after > before-.5 {
		t.Errorf("another camera: NLL %.3f, adapted %.3f", before, after)
	} else {
		t.Logf("another camera: NLL %.3f, adapted %.3f", before, after)
	}
	e := come.Effects.ToCome().Covariance()
	plain, wide := statisticsOf(clients[0], nil).Within, statisticsOf(clients[0], e).Within
	own, sum := make([]float64, w.k*w.k), make([]float64, w.k*w.k)
	plain.AddTo(own)
	wide.AddTo(sum)
	for i := range w.k {
		for j := i; j < w.k; j++ {
			want := own[i*w.k+j] + float64(plain.Dof)*e.At(i, j)
			if got := sum[i*w.k+j]; math.Abs(got-want) > 1e-6*(1+math.Abs(want)) || wide.Dof != plain.Dof {
				t.Fatalf("scatter %d, %d is %v, want %v", i, j, got, want)
			}
		}
	}
}

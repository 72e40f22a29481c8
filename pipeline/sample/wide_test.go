package sample

import (
	"testing"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
	"fmp/pipeline/point"
)

// manyClasses is an untrained conjugate predictor of 30 classes, more than a wide classifier
// computes at a time, and class means of 28 of them.
func manyClasses(t *testing.T) (*Conjugate, *point.Set, []float32) {
	t.Helper()
	w := newWorld(40, 30, 0.4)
	k := w.untrained(t, 1500)
	set := w.draw(t, "clients", 200, w.c-2).Points(allRows(200), nil)
	return k, uploaded(t, k, []*point.Set{set}), w.draw(t, "test", 11, w.c).Features
}

// TestWideClassifier: on both engines all outputs of the wide classifier are those of the
// classifier that holds every head.
func TestWideClassifier(t *testing.T) {
	k, seen, rows := manyClasses(t)
	const samples = 12
	latent, uniform := latents(k, samples), make([]float32, samples)
	models.Steps(latent)
	for s := range uniform {
		uniform[s] = (float32(s*5%samples) + 0.5) / samples
	}
	heads := must.Get(k.Heads(t.Context(), seen, latent, samples))(t)
	d := Drawn{Seen: seen, Heads: heads, Latent: latent, Uniform: uniform}
	before := must.Get(k.IntervalGraph(t.Context(), d, 0.9))(t)
	var all []float64
	for _, h := range heads {
		all = append(all, h.W...)
	}
	full := must.Get(models.NewClassifier(models.ClassifierParts{Coordinates: before,
		Heads: onnx.NewTensor(all, samples, k.config.K+1, k.config.C), Samples: true},
		models.Manifest{}))(t)
	parts := must.Get(k.WideParts(t.Context(), d, 0.9))(t)
	parts.Samples = true
	wide := must.Get(models.NewWideClassifier(*parts, models.Manifest{}))(t)
	in := map[string]*onnx.Tensor{"features": onnx.NewTensor(rows, len(rows)/k.config.Dx, k.config.Dx)}
	of := func(e engine.Engine, m *onnx.Model) map[string][]float32 {
		s := must.Get(e.Load(m))(t)
		defer s.Close()
		out := map[string][]float32{}
		for name, v := range must.Get(engine.Eval(s, in))(t) {
			out[name] = v.F32()
		}
		return out
	}
	want := of(k.engine, full)
	for name, e := range map[string]engine.Engine{"pure": k.engine, "ort": orttest.New(t)} {
		near(t, "outputs by "+name, of(e, wide), want, 2e-5)
	}
}

// TestWideClaims: what honesty weighs of a wide round is what it weighs of any, in the leading
// coordinates.
func TestWideClaims(t *testing.T) {
	k, seen, _ := manyClasses(t)
	means := ofPhi(t, k)
	full, _ := must.Get2(k.Claims([]*point.Set{seen, means}))(t)
	wide := must.Get(k.claims([]*point.Set{seen, means}, true))(t)
	if full, wide = full.Dense(), wide.Dense(); wide.K != min(64, full.K) || !wide.Wide {
		t.Fatalf("%d coordinates", wide.K)
	}
	near(t, "masses", wide.Masses, full.Masses, 0)
	for i := range full.Masses {
		near(t, "means", wide.Means[i*wide.K:(i+1)*wide.K], full.Means[i*full.K:][:wide.K], 1e-5)
	}
}

// ofPhi returns class means of phi, with class indices for labels.
func ofPhi(t *testing.T, k *Conjugate) *point.Set {
	s := &point.Set{N: 3, Dx: k.config.Dx, C: k.config.C, Z: make([]float32, 3*k.config.Dx),
		W: []float32{2, 3, 4}, Y: []int32{7, 1, 29}}
	rng.Normal(rng.New(1, "phi"), s.Z)
	return s
}

// TestWideHeads: heads that are computed a few samples at a time, without labels of classes by
// classes, are to the bit those of the predictor's graph, for uploads of w and of phi.
func TestWideHeads(t *testing.T) {
	k, seen, _ := manyClasses(t)
	const samples = wideSamples + 3
	latent := latents(k, samples)
	phi := ofPhi(t, k)
	w := k.leading(phi, k.config.K)
	mapped := &point.Set{N: phi.N, Dx: k.config.K, C: phi.C, Z: make([]float32, len(w)),
		W: phi.W, Y: phi.Y}
	for i, v := range w {
		mapped.Z[i] = float32(v)
	}
	for name, sets := range map[string][2]*point.Set{"w": {seen, seen}, "phi": {phi, mapped}} {
		got := must.Get(k.wideHeads(t.Context(), sets[0], latent, samples))(t)
		want := must.Get(k.limit(t.Context(), sets[1], latent, samples))(t)
		near(t, "heads of "+name, got, want, 0)
	}
	must.Fail(k.wideHeads(t.Context(), seen, latent[1:], samples))(t, "",
		"a latent that is a number short: no error")
}

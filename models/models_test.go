package models

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/must"
)

const (
	testDx, testC = 4, 3
	testDz        = testDx + testC
)

// predictors and embeddings under test: the identity path and the published block, with and without
// options.
var (
	predictors = map[string]PredictorConfig{
		"identity":        {Dx: testDx, C: testC},
		"identity hidden": {Dx: testDx, C: testC, Hidden: 9},
		"published":       {Dx: testDx, C: testC, Published: true, Dim: 16},
	}
	embeddings = map[string]EmbeddingConfig{
		"identity":          {Dx: testDx, C: testC, Size: 5},
		"identity blocks":   {Dx: testDx, C: testC, Size: 5, Blocks: 2, Hidden: 8},
		"published":         {Dx: testDx, C: testC, Size: 5, Published: true, Dim: 16, Blocks: 1},
		"constant weights":  {Dx: testDx, C: testC, Size: 5, ConstantWeights: true},
		"published, 1 head": {Dx: testDx, C: testC, Size: 2, Published: true, Dim: 10, Heads: 1},
	}
)

// shake moves every parameter, so that properties are tested away from the starting values.
func shake(m *onnx.Model) {
	for _, n := range Parameters(m) {
		r := rng.New(3, "shake", n)
		for i, p := 0, m.Graph.Initializers[n].F32(); i < len(p); i++ {
			p[i] += float32(0.1 * r.NormFloat64())
		}
	}
}

func somePoints(r *rand.Rand, batch, n int) *onnx.Tensor {
	t := onnx.ZerosF32(batch, n, testDz)
	for i := range batch * n {
		row := t.F32()[i*testDz : (i+1)*testDz]
		rng.Normal(r, row[:testDx])
		row[testDx+r.IntN(testC)] = 1
	}
	return t
}

func someNoise(r *rand.Rand, shape ...int) *onnx.Tensor {
	t := onnx.ZerosF32(shape...)
	rng.Normal(r, t.F32())
	return t
}

// rows is t, of one batch, with row p[i] at place i.
func rows(t *onnx.Tensor, p []int) *onnx.Tensor {
	w := t.Len() / t.Shape[1]
	out := onnx.ZerosF32(append([]int{1, len(p)}, t.Shape[2:]...)...)
	for i, j := range p {
		copy(out.F32()[i*w:(i+1)*w], t.F32()[j*w:(j+1)*w])
	}
	return out
}

func near(t *testing.T, what string, got, want *onnx.Tensor, tolerance float64) {
	t.Helper()
	if diff := cmp.Diff(want.Shape, got.Shape); diff != "" {
		t.Fatalf("%s: shape differs (-want +got):\n%s", what, diff)
	}
	for i, v := range got.F32() {
		if d := math.Abs(float64(v - want.F32()[i])); !(d <= tolerance) {
			t.Fatalf("%s: element %d is %v, want %v to %v", what, i, v, want.F32()[i], tolerance)
		}
	}
}

func TestPredictorProperties(t *testing.T) {
	for name, cfg := range predictors {
		t.Run(name, func(t *testing.T) {
			m := must.Get(NewPredictor(cfg, 7))(t)
			shake(m)
			f := must.Get(ReadManifest(m))(t)
			r := rng.New(1, name)
			const n, fresh = 6, 5
			z, e := somePoints(r, 1, n), someNoise(r, 1, fresh, f.D)
			draw := func(z, w, e *onnx.Tensor) *onnx.Tensor {
				return eval(t, m, map[string]*onnx.Tensor{"points": z, "weights": w, "noise": e})["drawn"]
			}
			base := draw(z, ones(1, n), e)

			p := r.Perm(fresh)
			near(t, "the pure engine",
				evalPure(t, m, map[string]*onnx.Tensor{"points": z, "weights": ones(1, n),
					"noise": e})["drawn"], base, 1e-5)
			near(t, "permuted noise", draw(z, ones(1, n), rows(e, p)), rows(base, p), 1e-5)
			ofSet(z, rows(z, r.Perm(n)), func(what string, z, w, as, by *onnx.Tensor) {
				t.Helper()
				near(t, what, draw(z, w, e), draw(as, by, e), 1e-5)
			})

			// One context for several draws is the context repeated.
			e2 := someNoise(r, 2, fresh, f.D)
			z2 := onnx.NewTensor(append(append([]float32{}, z.F32()...), z.F32()...), 2, n, testDz)
			near(t, "one context on the pure engine", evalPure(t, m,
				map[string]*onnx.Tensor{"points": z, "weights": ones(1, n), "noise": e2})["drawn"],
				draw(z, ones(1, n), e2), 1e-5)
			near(t, "one context", draw(z, ones(1, n), e2), draw(z2, ones(2, n), e2), 1e-5)

			checkSimplex(t, base)
			if cfg.Published {
				cfg.IgnoreMasses = true
				m = must.Get(NewPredictor(cfg, 7))(t)
				w := ones(1, n)
				w.F32()[0] = 9
				near(t, "ignored masses", draw(z, w, e), draw(z, ones(1, n), e), 0)
			}
		})
	}
}

// ofSet calls same with two forms of one weighted set of points z, [1, n, dz], at a time: permuted, with
// weight 2 for a point that comes twice, and padded with a point of weight 0.
func ofSet(z, permuted *onnx.Tensor, same func(what string, z, w, as, by *onnx.Tensor)) {
	n := z.Shape[1]
	twice, double, padded := rows(z, append(seq(n), 2)), ones(1, n), ones(1, n+1)
	double.F32()[2], padded.F32()[n] = 2, 0
	same("permuted points", permuted, ones(1, n), z, ones(1, n))
	same("weight 2", z, double, twice, ones(1, n+1))
	same("padding", twice, padded, z, ones(1, n))
}

func seq(n int) []int {
	p := make([]int, n)
	for i := range p {
		p[i] = i
	}
	return p
}

// checkSimplex fails unless the labels of points have no negative part and the sum 1.
func checkSimplex(t *testing.T, points *onnx.Tensor) {
	t.Helper()
	for row := range slices.Chunk(points.F32(), testDz) {
		if p := row[testDx:]; slices.Min(p) < 0 || math.Abs(float64(total(p))-1) > 1e-5 {
			t.Fatalf("label %v has the sum %v", p, total(p))
		}
	}
}

func total(v []float32) (sum float32) {
	for _, x := range v {
		sum += x
	}
	return sum
}

func TestEmbeddingProperties(t *testing.T) {
	for name, cfg := range embeddings {
		t.Run(name, func(t *testing.T) {
			m := must.Get(NewEmbedding(cfg, 7))(t)
			shake(m)
			r := rng.New(1, name)
			const n = 6
			z := somePoints(r, 1, n)
			run := func(z, w *onnx.Tensor) map[string]*onnx.Tensor {
				return eval(t, m, map[string]*onnx.Tensor{"points": z, "weights": w})
			}
			same := func(what string, got, want map[string]*onnx.Tensor, tolerance float64) {
				t.Helper()
				near(t, what, got["compressed"], want["compressed"], tolerance)
				near(t, what+": masses", got["masses"], want["masses"], 1e-5)
			}
			base := run(z, ones(1, n))
			// Over 40 draws of the points either order of sums lies up to 2e-5 from float64's.
			same("the pure engine", evalPure(t, m,
				map[string]*onnx.Tensor{"points": z, "weights": ones(1, n)}), base, 3e-5)
			ofSet(z, rows(z, r.Perm(n)), func(what string, z, w, as, by *onnx.Tensor) {
				t.Helper()
				same(what, run(z, w), run(as, by), 1e-5)
			})

			masses := base["masses"]
			if sum := total(masses.F32()); math.Abs(float64(sum)-n) > 1e-5 {
				t.Errorf("masses %v sum to %v, want %d", masses.F32(), sum, n)
			}
			if cfg.ConstantWeights {
				equal := slices.Repeat([]float32{n / float32(cfg.Size)}, cfg.Size)
				near(t, "equal masses", masses, onnx.NewTensor(equal, 1, cfg.Size), 1e-6)
			}
			checkSimplex(t, base["compressed"])
		})
	}
}

// TestUntrainedEmbedding: with the identity path it returns class means, and the class counts as
// masses.
func TestUntrainedEmbedding(t *testing.T) {
	for _, blocks := range []int{0, 2} {
		m := must.Get(NewEmbedding(EmbeddingConfig{Dx: testDx, C: testC, Blocks: blocks}, 7))(t)
		const n = 12
		z := somePoints(rng.New(1, "means"), 1, n)
		means, counts := onnx.ZerosF32(1, testC, testDz), onnx.ZerosF32(1, testC)
		for row := range slices.Chunk(z.F32(), testDz) {
			class := slices.Index(row[testDx:], 1)
			counts.F32()[class]++
			for j, v := range row { // its label, too
				means.F32()[class*testDz+j] += v
			}
		}
		for i := range means.F32() { // a class without points has no mean that anything is near
			means.F32()[i] /= counts.F32()[i/testDz]
		}
		out := eval(t, m, map[string]*onnx.Tensor{"points": z, "weights": ones(1, n)})
		near(t, fmt.Sprint("masses of ", blocks, " blocks"), out["masses"], counts, 0.1)
		near(t, fmt.Sprint("points of ", blocks, " blocks"), out["compressed"], means, 0.1)
	}
}

// TestUntrainedPredictor: with the identity path it is a smoothed bootstrap. Features of all drawn
// points stay within the range of the context's, but for the feed-forward part's small start, and
// over many draws every class of the context comes up, by no more than twice its share.
func TestUntrainedPredictor(t *testing.T) {
	m := must.Get(NewPredictor(PredictorConfig{Dx: testDx, C: testC}, 7))(t)
	const n, fresh = 10, 2000
	r := rng.New(1, "bootstrap")
	z := somePoints(r, 1, n)
	var lo, hi [testDx]float32
	var want, got [testC]float32
	for row := range slices.Chunk(z.F32(), testDz) {
		for j := range testDx {
			lo[j], hi[j] = min(lo[j], row[j]), max(hi[j], row[j])
		}
		for c := range testC {
			want[c] += row[testDx+c] / n
		}
	}
	out := eval(t, m, map[string]*onnx.Tensor{"points": z, "weights": ones(1, n),
		"noise": someNoise(r, 1, fresh, testDz+64)})
	for row := range slices.Chunk(out["drawn"].F32(), testDz) {
		for j, v := range row[:testDx] {
			if v < lo[j]-0.5 || v > hi[j]+0.5 {
				t.Fatalf("feature %d of a drawn point is %v, outside the context's %v to %v", j, v, lo[j], hi[j])
			}
		}
		for c := range testC {
			got[c] += row[testDx+c] / fresh
		}
	}
	for c := range testC {
		if got[c] < 0.05 || got[c] > 2*want[c] {
			t.Errorf("class %d has share %v of the drawn points and %v of the context", c, got[c], want[c])
		}
	}
}

// TestNamedStreams: parameters' starting values depend on the seed and their names alone.
func TestNamedStreams(t *testing.T) {
	params := func(cfg PredictorConfig, seed uint64) map[string]*onnx.Tensor {
		m := must.Get(NewPredictor(cfg, seed))(t)
		out := map[string]*onnx.Tensor{}
		for _, n := range Parameters(m) {
			out[n] = m.Graph.Initializers[n]
		}
		return out
	}
	a, b := params(PredictorConfig{Dx: testDx, C: testC}, 1),
		params(PredictorConfig{Dx: testDx, C: testC, Hidden: 8}, 1)
	for _, n := range []string{"lift/mlp0/weight", "inner/q/weight", "outer/r/weight", "inner/beta",
		"decode/kappa"} {
		if a[n] == nil {
			t.Fatalf("no parameter %q among %d", n, len(a))
		}
		near(t, n, b[n], a[n], 0)
	}
	other := params(PredictorConfig{Dx: testDx, C: testC}, 2)
	if cmp.Equal(a["inner/q/weight"].F32(), other["inner/q/weight"].F32()) {
		t.Error("two seeds start inner/q/weight alike")
	}
	if cmp.Equal(a["inner/k/weight"].F32(), a["outer/k/weight"].F32()) {
		t.Error("inner/k/weight and outer/k/weight start alike")
	}
}

func TestConfigurationErrors(t *testing.T) {
	for want, c := range map[string]PredictorConfig{
		"dx 0": {C: 3}, "dim is 7; allowed are 8 to": {Dx: 4, C: 3, Dim: 7},
		"must divide": {Dx: 4, C: 3, Dim: 10, Heads: 3, Published: true},
	} {
		must.Fail(NewPredictor(c, 1))(t, want)
	}
	for want, c := range map[string]EmbeddingConfig{
		"C 1": {Dx: 3, C: 1}, "-1 points": {Dx: 4, C: 3, Size: -1}, "17 attention blocks": {Dx: 4, C: 3, Blocks: 17},
	} {
		must.Fail(NewEmbedding(c, 1))(t, want)
	}
}

// TestNoise: rows of a sample share the latent's columns and no others, and samples share none.
func TestNoise(t *testing.T) {
	m := must.Get(NewPredictor(PredictorConfig{Dx: 3, C: 2, Latent: 4}, 1))(t)
	f := must.Get(ReadManifest(m))(t)
	const samples, fresh = 3, 5
	e := f.Noise(rng.New(1, "noise"), samples, fresh)
	if len(e) != samples*fresh*f.D {
		t.Fatalf("%d numbers", len(e))
	}
	for s := range samples {
		for i := range fresh {
			for j := range f.D {
				own, first := e[(s*fresh+i)*f.D+j], e[s*fresh*f.D+j]
				if i > 0 && (own == first) != (j < 4) {
					t.Errorf("sample %d, row %d, column %d: %v, in the first row %v", s, i, j, own, first)
				}
				if s > 0 && first == e[j] {
					t.Errorf("samples 0 and %d share column %d", s, j)
				}
			}
		}
	}
	f.Latent = 0
	if plain := f.Noise(rng.New(1, "noise"), samples, fresh); plain[f.D] == plain[0] {
		t.Error("without a latent rows share numbers")
	}
	must.Fail(NewPredictor(PredictorConfig{Dx: 3, C: 2, Dim: 6, Latent: 6}, 1))(t,
		"latent is 6; allowed are 0 to 5", "a latent of all columns")
}

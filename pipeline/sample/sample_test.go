package sample

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
	"fmp/pipeline/point"
)

func newPredictor(t *testing.T, dx, c int) *Predictor {
	t.Helper()
	m := must.Get(models.NewPredictor(models.PredictorConfig{Dx: dx, C: c}, 3))(t)
	p := must.Get(New(orttest.New(t), m))(t)
	t.Cleanup(func() { p.Close() })
	return p
}

func seen(n, dx, c int) *point.Set {
	r := rng.New(1, "seen", n)
	s := point.New(n, dx, c)
	for i := range n {
		rng.Normal(r, s.Row(i)[:dx])
		s.Row(i)[dx+r.IntN(c)] = 1
		s.W[i] = float32(2 * r.Float64())
	}
	return s
}

// TestDrawIsReproducible: the number of draws does not change a draw by a bit, nor another predictor.
func TestDrawIsReproducible(t *testing.T) {
	const dx, c, fresh, samples = 64, 10, 100, 9
	s := seen(200, dx, c)
	one, two := newPredictor(t, dx, c), newPredictor(t, dx, c)
	noise := must.Get(one.Noise(rng.New(1, "noise"), samples, fresh))(t)
	if again, err := two.Noise(rng.New(1, "noise"), samples, fresh); err != nil ||
		!cmp.Equal(noise, again) {
		t.Fatalf("one stream gave two noises: %v", err)
	}
	draw := func(p *Predictor, noise []float32, samples int) []*point.Set {
		return must.Get(p.Draw(context.Background(), s, noise, samples))(t)
	}
	want := draw(one, noise, samples)
	if len(want) != samples || want[0].N != fresh || want[0].Dx != dx || want[0].C != c ||
		want[0].Mass() != fresh {
		t.Fatalf("%d sets, the first of %d points of mass %v", len(want), want[0].N, want[0].Mass())
	}
	if !cmp.Equal(want, draw(two, noise, samples)) {
		t.Error("the same predictor made twice draws other points")
	}
	per := len(noise) / samples
	if !cmp.Equal(want[:3], draw(one, noise[:3*per], 3)) {
		t.Error("three draws differ from the first three of nine")
	}
	if cmp.Equal(want[0].Z, want[1].Z) {
		t.Error("two draws from different noise are the same")
	}
}

func TestDrawErrors(t *testing.T) {
	p := newPredictor(t, 4, 3)
	noise := make([]float32, 2*5*p.manifest.D)
	nan := seen(5, 4, 3)
	nan.Z[0] = float32(math.NaN())
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		want    string
		ctx     context.Context
		s       *point.Set
		noise   []float32
		samples int
	}{
		{"no seen points", context.Background(), nil, noise, 2},
		{"dx 5", context.Background(), seen(5, 5, 3), noise, 2},
		{"noise numbers", context.Background(), seen(5, 4, 3), noise[1:], 2},
		{"noise numbers", context.Background(), seen(5, 4, 3), nil, 2},
		{"NaN", context.Background(), nan, noise, 2},
		{"canceled", cancelled, seen(5, 4, 3), noise, 2},
	} {
		must.Fail(p.Draw(c.ctx, c.s, c.noise, c.samples))(t, c.want)
	}
	if _, err := p.Draw(cancelled, seen(5, 4, 3), noise, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled draw says %v", err)
	}
	m := must.Get(models.NewEmbedding(models.EmbeddingConfig{Dx: 4, C: 3}, 1))(t)
	must.Fail(New(orttest.New(t), m))(t, "embedding", "an embedding was taken for a predictor")
	must.Fail(New(orttest.New(t), onnx.NewModel(m.Graph)))(t, "",
		"a model without a manifest was taken for a predictor")
}

// TestDrawInParts: a draw by parts is the draw of the whole graph, and no part has more rows than
// allowed.
func TestDrawInParts(t *testing.T) {
	const dx, c, fresh, samples = 6, 3, 2*partPoints + 77, 2
	s := seen(40, dx, c)
	for _, cfg := range []models.PredictorConfig{{Dx: dx, C: c}, {Dx: dx, C: c, Published: true, Heads: 2},
		{Dx: dx, C: c, IgnoreMasses: true}} {
		m := must.Get(models.NewPredictor(cfg, 3))(t)
		p := must.Get(New(orttest.New(t), m))(t)
		noise := must.Get(p.Noise(rng.New(1, "noise"), samples, fresh))(t)
		by := must.Get(p.Draw(context.Background(), s, noise, samples))(t)
		if p.opened == nil {
			t.Errorf("%+v: %d points were drawn at once", cfg, fresh)
		}
		p.parts = func() (*parts, error) { return nil, nil }
		whole := must.Get(p.Draw(context.Background(), s, noise, samples))(t)
		for i := range samples {
			for j, v := range whole[i].Z {
				if math.Abs(float64(v-by[i].Z[j])) > 1e-6*(1+math.Abs(float64(v))) {
					t.Fatalf("%+v: sample %d, number %d: %v whole, %v by parts", cfg, i,
						j, v, by[i].Z[j])
				}
			}
		}
		must.Do(t, p.Close())
	}
}

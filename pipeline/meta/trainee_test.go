package meta

import (
	"math"
	"testing"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
	"fmp/onnx/optim"
)

func normal(name string, shape ...int) *onnx.Tensor {
	t := onnx.ZerosF32(shape...)
	rng.Normal(rng.New(1, name), t.F32())
	return t
}

func dot(a, b *onnx.Tensor) float64 {
	var s float64
	for i, v := range a.F32() {
		s += float64(v) * float64(b.F32()[i])
	}
	return s
}

// TestGradientGraphs: directional derivatives of predictor and embedding agree with central
// differences.
func TestGradientGraphs(t *testing.T) {
	e := orttest.New(t)
	const dx, c, n = 4, 3, 6
	p := must.Get(models.NewPredictor(models.PredictorConfig{Dx: dx, C: c}, 1))(t)
	pp := must.Get(models.NewPredictor(models.PredictorConfig{Dx: dx, C: c, Published: true,
		Dim: 16, Hidden: 8}, 1))(t)
	m := must.Get(models.NewEmbedding(models.EmbeddingConfig{Dx: dx, C: c, Blocks: 1, Hidden: 8}, 1))(t)
	mp := must.Get(models.NewEmbedding(models.EmbeddingConfig{Dx: dx, C: c, Published: true, Blocks: 1}, 1))(t)
	weights := onnx.ZerosF32(1, n)
	for i := range n {
		weights.F32()[i] = float32(i+1) / 2
	}
	w2 := onnx.NewTensor(append(append([]float32{}, weights.F32()...), weights.F32()...), 2, n)
	for _, c := range []struct {
		name  string
		m     *onnx.Model
		in    map[string]*onnx.Tensor
		cot   map[string]*onnx.Tensor
		input []string
	}{
		{"predictor, one context for three draws", p,
			map[string]*onnx.Tensor{"points": normal("z", 1, n, dx+c), "weights": weights,
				"noise": normal("e", 3, 5, dx+c+64)},
			map[string]*onnx.Tensor{"drawn": normal("cot", 3, 5, dx+c)}, []string{"points", "weights"}},
		{"published predictor", pp,
			map[string]*onnx.Tensor{"points": normal("z", 1, n, dx+c), "weights": weights,
				"noise": normal("e", 3, 5, 16)},
			map[string]*onnx.Tensor{"drawn": normal("cot", 3, 5, dx+c)}, []string{"points", "weights"}},
		{"embedding", m, map[string]*onnx.Tensor{"points": normal("z", 2, n, dx+c), "weights": w2},
			map[string]*onnx.Tensor{"compressed": normal("cot", 2, 3, dx+c),
				"masses": normal("cotw", 2, 3)}, nil},
		{"published embedding", mp,
			map[string]*onnx.Tensor{"points": normal("z", 2, n, dx+c), "weights": w2},
			map[string]*onnx.Tensor{"compressed": normal("cot", 2, 3, dx+c),
				"masses": normal("cotw", 2, 3)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			params := models.Parameters(c.m)
			for _, n := range params { // away from the kinks and zeros of the starting values
				for i, d := 0, normal("shake"+n, c.m.Graph.Initializers[n].Shape...); i < d.Len(); i++ {
					c.m.Graph.Initializers[n].F32()[i] += 0.1 * d.F32()[i]
				}
			}
			tr := must.Get(newTrainee(e, c.m, optim.Options{}, 1))(t)
			defer tr.Close()
			fr := must.Get(newFrozen(e, c.m, append(append([]string{}, params...), c.input...)...))(t)
			defer fr.Close()
			g := must.Get(fr.vjp(c.in, c.cot))(t)
			f := func() float64 {
				out := must.Get(tr.run(c.in))(t)
				var s float64
				for n, v := range c.cot {
					s += dot(out[n], v)
				}
				return s
			}
			for _, n := range append(append([]string{}, params...), c.input...) {
				x := tr.Params()[n]
				if x == nil {
					x = c.in[n]
				}
				// Along the gradient itself the derivative is the gradient's norm, the largest that
				// there is, which float32 differences resolve best.
				v, keep := g[n].Clone(), append([]float32{}, x.F32()...)
				norm := math.Sqrt(dot(v, v))
				h := 3e-3 / max(norm, 1e-12)
				at := func(s float64) float64 {
					for i := range keep {
						x.F32()[i] = keep[i] + float32(s*h)*v.F32()[i]
					}
					defer copy(x.F32(), keep)
					return f()
				}
				want, got := (at(1)-at(-1))/(2*h), dot(g[n], v)
				// Rounding of the forward graph is worth about 1e-6 of its output, which the step
				// divides.
				if d := math.Abs(got-want) / max(norm, 1e-12); norm > 1e-4 &&
					d > 0.05*norm+3e-6*(1+math.Abs(f()))/3e-3 {
					t.Errorf("%s: derivative %v, central difference %v", n, got, want)
				}
			}
		})
	}
}

package sample

import (
	"context"
	"fmt"

	"gonum.org/v1/gonum/blas"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/dense"
	"fmp/pipeline/erm"
	"fmp/pipeline/point"
)

// wideSamples is the number of samples whose heads or biases are computed at a time, which bounds
// the memory of the graph's values.
const wideSamples = 8

// Wide reports whether a number of samples makes a wide classifier (models.NewWideClassifier): its
// latents are to be in steps (models.Steps).
// It depends on samples times the numbers of a head.
func (c *Conjugate) Wide(samples int) bool { return c.config.Wide(samples) }

// Wide is false: heads that are fitted to the uploads are no function of their latents alone.
func (f *Refit) Wide(int) bool { return false }

// WideParts returns the parts of a wide classifier, for latents in steps. Features and Samples are
// left to the caller.
// level is that of credible intervals, between 0 and 1. Latents are shared with the parts.
func (c *Conjugate) WideParts(ctx context.Context, d Drawn,
	level float64) (*models.WideParts, error) {
	samples, classes := len(d.Uniform), c.config.C
	width, err := studentWidth(samples, level)
	if err != nil {
		return nil, err
	}
	masses, means, err := c.pooled(d.Seen)
	if err != nil {
		return nil, err
	}
	p := &models.WideParts{Predictor: c.model, Latent: d.Latent, Uniform: d.Uniform, Width: width,
		Masses: masses, Means: means, Biases: onnx.ZerosF32(3, samples, classes)}
	return p, c.wide(ctx, models.WideBias, masses, means, d.Latent,
		func(from, to int, out *onnx.Tensor) error {
			made, n := out.F32(), (to-from)*classes
			for i := range 3 {
				copy(p.Biases.F32()[(i*samples+from)*classes:], made[i*n:(i+1)*n])
			}
			return nil
		})
}

// wideHeads is Heads of a wide round, wideSamples samples at a time, which bounds the memory. Each
// block has its own part of the latent, so that blocks do not move the samples.
// Heads are in the order of the samples, [k + 1, C] each.
func (c *Conjugate) wideHeads(ctx context.Context, seen *point.Set, latent []float32,
	samples int) (all []erm.Theta, err error) {
	if err := c.holds(latent, samples); err != nil {
		return nil, err
	}
	masses, means, err := c.pooled(seen)
	if err != nil {
		return nil, err
	}
	return all, c.wide(ctx, models.ConjHeads, masses, means, latent,
		func(from, to int, out *onnx.Tensor) error {
			some, err := heads("conjugate predictor", out, to-from, c.config.K+1, c.config.C)
			all = append(all, some...)
			return err
		})
}

// wide computes an output of models.WidePart for wideSamples samples at a time, given masses and
// means of classes. The graph is loaded for the call and released at its end.
// do gets the samples of one block, in order. An error of do ends the walk.
func (c *Conjugate) wide(ctx context.Context, output string, masses, means *onnx.Tensor,
	latent []float32, do func(from, to int, out *onnx.Tensor) error) error {
	graph, err := models.WidePart(c.model, output)
	if err != nil {
		return err
	}
	part := &lazy{engine: c.engine, model: graph}
	defer part.Close()
	size := c.LatentSize()
	samples := len(latent) / size
	for from := 0; from < samples; from += wideSamples {
		if err := ctx.Err(); err != nil {
			return err
		}
		to := min(from+wideSamples, samples)
		out, err := part.eval(map[string]*onnx.Tensor{models.WideMasses: masses,
			models.WideMeans: means,
			"latent": onnx.NewTensor(latent[from*size:to*size], to-from, c.config.C,
				c.config.K)})
		if err != nil {
			return fmt.Errorf("conjugate predictor: %w", err)
		}
		if err := do(from, to, out[output]); err != nil {
			return err
		}
	}
	return nil
}

// pooled returns the masses [C] and the means [C, k] of w of pooled class means, in float32 as the
// predictor's graph computes them. With p_iy the share of point i in class y, and W_i its mass
//
//	mass_y = sum_i p_iy W_i,   mean_y = sum_i p_iy W_i w_i / max(mass_y, minMass)
//
// It never writes out labels, of which there are classes by classes. The mean of a class that
// nobody holds is zero: its sum is zero, over [minMass].
// It takes C k numbers for the means.
func (c *Conjugate) pooled(seen *point.Set) (masses, means *onnx.Tensor, err error) {
	if err := c.fits(seen); err != nil {
		return nil, nil, err
	}
	k := c.config.K
	row := seen.Features
	if seen.Dx == c.config.Dx {
		at := dense.As[float32](c.leading(seen, k))
		row = func(i int) []float32 { return at[i*k : (i+1)*k] }
	}
	masses, means = onnx.ZerosF32(c.config.C), onnx.ZerosF32(c.config.C, k)
	mass := masses.F32()
	for i := range seen.N {
		seen.Shares(i, func(y int, p float32) {
			n := p * seen.W[i]
			mass[y] += n
			mean := means.F32()[y*k:][:k]
			for j, v := range row(i) {
				mean[j] += n * v
			}
		})
	}
	for y, n := range mass {
		mean := means.F32()[y*k:][:k]
		for j := range mean {
			mean[j] /= max(n, minMass)
		}
	}
	return masses, means, nil
}

// minMass is the mass by which the graph divides the mean of a class that nobody holds.
const minMass = 1e-9

// leading returns the first k coordinates w of class means, of phi or of w. Of phi it is phi V - m0
// of the first k columns, by one product of [N, dx] and [dx, k].
// The result is [N, k] in row-major order. Of w it is a copy of the first k numbers of each row.
func (c *Conjugate) leading(set *point.Set, k int) []float64 {
	out := make([]float64, 0, set.N*k)
	if set.Dx != c.config.Dx {
		for i := range set.N {
			out = append(out, dense.As[float64](set.Features(i)[:k])...)
		}
		return out
	}
	dx, all := c.config.Dx, c.config.K
	v, origin := c.values[models.ConjMap].F32(), c.values[models.ConjOrigin].F32()
	b := dense.General(dx, k, nil)
	for d := range dx {
		b.Data = append(b.Data, dense.As[float64](v[d*all:][:k])...)
	}
	a := dense.General(set.N, dx, nil)
	for i := range set.N {
		a.Data = append(a.Data, dense.As[float64](set.Features(i))...)
		for _, v := range origin[:k] {
			out = append(out, -float64(v))
		}
	}
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, a, b, 1, dense.General(set.N, k, out))
	return out
}

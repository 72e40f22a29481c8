package sample

import (
	"context"
	"fmt"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/dense"
	"fmp/onnx/engine"
	"fmp/pipeline/honesty"
	"fmp/pipeline/point"
)

// wideSamples is the number of samples whose biases are computed at a time.
const wideSamples = 8

// Wide reports whether a number of samples makes a wide classifier (models.NewWideClassifier): its latents are to be in steps
// (models.Steps).
func (c *Conjugate) Wide(samples int) bool { return c.config.Wide(samples) }

// Wide is false: heads that are fitted to the uploads are no function of their latents alone.
func (f *Refit) Wide(int) bool { return false }

// WideParts returns the parts of a wide classifier, for latents in steps. Features and Samples are left to the caller.
func (c *Conjugate) WideParts(ctx context.Context, d Drawn, level float64) (*models.WideParts, error) {
	graph, err := models.WideBiases(c.model)
	if err != nil {
		return nil, err
	}
	session, err := c.engine.Load(graph)
	if err != nil {
		return nil, fmt.Errorf("conjugate predictor: %w", err)
	}
	defer session.Close()
	samples, size := len(d.Uniform), c.LatentSize()
	width, err := studentWidth(samples, level)
	if err != nil {
		return nil, err
	}
	p := &models.WideParts{Predictor: c.model, Latent: d.Latent, Uniform: d.Uniform, Width: width,
		Biases: onnx.ZerosF32(3, samples, c.config.C)}
	in, err := c.context(d.Seen)
	if err != nil {
		return nil, err
	}
	for from := 0; from < samples; from += wideSamples {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		to := min(from+wideSamples, samples)
		in["latent"] = onnx.NewTensor(d.Latent[from*size:to*size], to-from, c.config.C, c.config.K)
		out, err := engine.Eval(session, in)
		if err != nil {
			return nil, fmt.Errorf("conjugate predictor: %w", err)
		}
		p.Masses, p.Means = out[models.WideMasses], out[models.WideMeans]
		made, n := out[models.WideBias].F32(), (to-from)*c.config.C
		for i := range 3 {
			copy(p.Biases.F32()[(i*samples+from)*c.config.C:], made[i*n:(i+1)*n])
		}
	}
	return p, nil
}

// wideClaims is Claims of a wide round: in the leading coordinates.
func (c *Conjugate) wideClaims(clients []*point.Set) (u honesty.Uploads, err error) {
	k, classes := min(honesty.Leading, c.config.K), c.config.C
	u = honesty.Uploads{Clients: len(clients), Classes: classes, K: k, Wide: true, Masses: make([]float64, len(clients)*classes),
		Means: make([]float64, len(clients)*classes*k)}
	for m, set := range clients {
		if err := c.fits(set); err != nil {
			return u, fmt.Errorf("client %d: %w", m, err)
		}
		rows, w := c.leading(set, k), set.W
		for i := range set.N {
			set.Shares(i, func(y int, p float32) {
				n := float64(p) * float64(w[i])
				u.Masses[m*classes+y] += n
				mean := u.Means[(m*classes+y)*k:][:k]
				for j, v := range rows[i*k : (i+1)*k] {
					mean[j] += n * v
				}
			})
		}
		for y := range classes {
			if n := u.Masses[m*classes+y]; n > 0 {
				for j := range k {
					u.Means[(m*classes+y)*k+j] /= n
				}
			}
		}
	}
	return u, nil
}

// leading returns the first k coordinates w of class means, of phi or of w.
func (c *Conjugate) leading(set *point.Set, k int) []float64 {
	out := make([]float64, set.N*k)
	if set.Dx != c.config.Dx {
		for i := range set.N {
			for j, v := range set.Features(i)[:k] {
				out[i*k+j] = float64(v)
			}
		}
		return out
	}
	dx, all := c.config.Dx, c.config.K
	v, origin := c.values[models.ConjMap].F32(), c.values[models.ConjOrigin].F32()
	b := blas64.General{Rows: dx, Cols: k, Stride: k, Data: make([]float64, dx*k)}
	for d := range dx {
		for j := range k {
			b.Data[d*k+j] = float64(v[d*all+j])
		}
	}
	a := blas64.General{Rows: set.N, Cols: dx, Stride: dx, Data: make([]float64, set.N*dx)}
	for i := range set.N {
		for j, x := range set.Features(i) {
			a.Data[i*dx+j] = float64(x)
		}
		for j := range k {
			out[i*k+j] = -float64(origin[j])
		}
	}
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, a, b, 1, blas64.General{Rows: set.N, Cols: k, Stride: k, Data: out})
	return out
}

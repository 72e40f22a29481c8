package sample

import (
	"context"
	"errors"
	"fmt"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/dense"
	"fmp/onnx/engine"
	"fmp/pipeline/erm"
)

// Private runs a private predictor: coordinates that clients clip and sum, and heads from class
// means known through noise. It is safe for concurrent use if its engine's sessions are.
//
// Class means are unknown: the caller gives mean and variance of each in each sample, from the
// noisy totals (privacy.Totals), and the graph draws the means by a latent.
// Heads do not see features or sums: noise is all in mean and variance.
type Private struct {
	// Threads is the number of chunks of feature rows processed at once; 0 means 1.
	Threads int

	config      models.ConjugateConfig
	prior       []float64
	clip        float64
	coordinates *onnx.Model
	parts       map[string]engine.Session
}

// NewPrivate prepares a private predictor for running.
// All three parts are loaded at once, and none stays open after an error.
func NewPrivate(e engine.Engine, m *onnx.Model) (_ *Private, err error) {
	p := &Private{parts: map[string]engine.Session{}}
	var values map[string]*onnx.Tensor
	if p.config, values, err = models.PrivateValues(m); err != nil {
		return nil, err
	}
	p.prior = models.Prior(values, models.PrivateSet)
	p.clip = float64(values[models.PrivateClip].F32()[0])
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	for _, output := range []string{models.PrivateRows, models.PrivateCoordinates,
		models.PrivateHeads} {
		part, err := models.PrivatePart(m, output)
		if err != nil {
			return nil, err
		}
		if output == models.PrivateCoordinates {
			p.coordinates = part
		}
		if p.parts[output], err = e.Load(part); err != nil {
			return nil, fmt.Errorf("private predictor: %w", err)
		}
	}
	return p, nil
}

// Close releases the sessions.
func (p *Private) Close() error {
	var errs []error
	for _, s := range p.parts {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Graph returns the graph of [Private.Map], features [n, dx] to coordinates [n, k].
func (p *Private) Graph() *onnx.Model { return p.coordinates }

// K returns the number of coordinates.
func (p *Private) K() int { return p.config.K }

// Clip returns the norm to which a point is clipped.
func (p *Private) Clip() float64 { return p.clip }

// Prior returns the variance of class means in each coordinate.
// The slice is the predictor's own, and the caller only reads it.
func (p *Private) Prior() []float64 { return p.prior }

// Map returns the coordinates w R of feature rows, the inputs of the heads.
func (p *Private) Map(ctx context.Context, features []float32) ([]float32, error) {
	return p.rows(ctx, models.PrivateCoordinates, features)
}

// Rows returns the coordinates w of feature rows, which clients clip and sum.
func (p *Private) Rows(ctx context.Context, features []float32) ([]float32, error) {
	return p.rows(ctx, models.PrivateRows, features)
}

// Features are [n, dx] and the result is [n, k], in the order of the rows.
func (p *Private) rows(ctx context.Context, part string, features []float32) ([]float32, error) {
	return mapped(ctx, features, p.config.Dx, p.config.K, p.Threads,
		func(in map[string]*onnx.Tensor) (*onnx.Tensor, error) {
			out, err := engine.Eval(p.parts[part], in)
			if err != nil {
				return nil, fmt.Errorf("private predictor: %w", err)
			}
			return out[part], nil
		})
}

// Heads returns posterior samples, on the coordinates of [Private.Map], given the mean and variance
// of each class mean in each sample and latent from N(0, 1): samples x classes x k numbers each.
// The sizes are checked before anything is computed. Heads are [k + 1, classes], in float64.
func (p *Private) Heads(ctx context.Context, mean, variance []float64, latent []float32, samples,
	classes int) ([]erm.Theta, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	k := p.config.K
	if n := samples * classes * k; n == 0 || len(mean) != n || len(variance) != n ||
		len(latent) != n {
		return nil, fmt.Errorf("private predictor: %d means, %d variances and %d numbers of "+
			"latent for %d samples of %d classes; want samples x classes x %d", len(mean),
			len(variance), len(latent), samples, classes, k)
	}
	in := map[string]*onnx.Tensor{"latent": onnx.NewTensor(latent, samples, classes, k)}
	for name, v := range map[string][]float64{"mean": mean, "variance": variance} {
		in[name] = onnx.NewTensor(dense.As[float32](v), samples, classes, k)
	}
	out, err := engine.Eval(p.parts[models.PrivateHeads], in)
	if err != nil {
		return nil, fmt.Errorf("private predictor: %w", err)
	}
	return heads("private predictor", out[models.PrivateHeads], samples, k+1, classes)
}

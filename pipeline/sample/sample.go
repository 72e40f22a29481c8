// Package sample runs predictor models. Predictor draws fresh points given seen ones, from Gaussian
// base noise (arXiv:2605.18554, the step Z̃' = ISAB(Z̃, E)); Conjugate and Private compute
// posterior samples of heads in closed form.
package sample

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/pipeline/point"
)

// chunk is how many draws one session call computes: fixed, so that a draw does not depend on their
// number.
// A last call may have fewer draws.
const chunk = 5

// Every point of a draw attends to all others of the draw. Draws of more than partPoints points are
// computed in parts of at most as many, and about maxLogits logits (64 MB): memory is bounded. Time
// stays quadratic.
// 2^24 logits of float32 take 64 MiB.
const (
	partPoints = 1024
	maxLogits  = 1 << 24
)

// Predictor runs a predictor model. It is safe for concurrent use if its engine's sessions are.
//
// The outputs of the ONNX Runtime differ in the last bits between numbers of threads per operator.
// For reproducible figures, create the engine with one thread (engine.Options).
// A caller closes it once, after the last draw.
type Predictor struct {
	session  engine.Session
	manifest models.Manifest
	// parts are nil where the graph cannot be cut.
	parts  func() (*parts, error)
	opened *parts
}

// parts are the sessions of a predictor's two parts, see [models.SplitPredictor].
type parts struct{ induce, attend engine.Session }

// New prepares a predictor model for running. The model must carry the manifest of a predictor. Its
// two parts are loaded when a draw first has more than partPoints points.
// The engine must stay open as long as the predictor. Draws of few points load neither part.
func New(e engine.Engine, m *onnx.Model) (*Predictor, error) {
	f, err := models.ReadManifest(m)
	if err != nil {
		return nil, fmt.Errorf("predictor: %w", err)
	}
	if f.Kind != models.KindPredictor || f.Dx < 1 || f.C < 2 || f.D < 1 || f.Latent < 0 ||
		f.Latent >= f.D {
		return nil, fmt.Errorf("predictor: the model's manifest says kind %q, dx %d, classes %d, "+
			"d %d, latent %d; want a predictor with the first three, and a latent below d, as "+
			"fmp train predictor writes it", f.Kind, f.Dx, f.C, f.D, f.Latent)
	}
	s, err := e.Load(m)
	if err != nil {
		return nil, fmt.Errorf("predictor: %w", err)
	}
	p := &Predictor{session: s, manifest: f}
	// An error of loading is remembered, and given to each draw that needs the parts.
	p.parts = sync.OnceValues(func() (*parts, error) {
		induce, attend := models.SplitPredictor(m, f)
		if induce == nil {
			return nil, nil
		}
		in, err := e.Load(induce)
		if err != nil {
			return nil, fmt.Errorf("predictor: %w", err)
		}
		out, err := e.Load(attend)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("predictor: %w", err), in.Close())
		}
		p.opened = &parts{in, out}
		return p.opened, nil
	})
	return p, nil
}

// Close releases the sessions.
func (p *Predictor) Close() error {
	if p.opened != nil {
		return errors.Join(p.session.Close(), p.opened.induce.Close(), p.opened.attend.Close())
	}
	return p.session.Close()
}

// maxNoise is the maximum size of base noise in numbers.
// 2^31 - 1 numbers of float32 take 8 GiB.
const maxNoise = math.MaxInt32

// Noise returns samples x fresh x d base noise from a stream. The same stream gives the same E to
// every method, so that MP and FMP differ only by their contexts.
// It costs O(samples fresh d). Numbers are standard normal, and all points of a sample share their
// first Latent ones.
func (p *Predictor) Noise(r *rand.Rand, samples, fresh int) ([]float32, error) {
	if samples < 1 || fresh < 1 || samples > maxNoise/p.manifest.D/fresh {
		return nil, fmt.Errorf("base noise of %d samples x %d points x %d; allowed are 1 to %d "+
			"numbers: lower posterior.samples or predictor.fresh", samples, fresh,
			p.manifest.D, maxNoise)
	}
	return p.manifest.Noise(r, samples, fresh), nil
}

// Draw returns samples sets of fresh points of weight 1, each from its own part of noise (samples x
// fresh x d, row-major), given seen, whose weights count as masses. The same noise gives the same
// points. seen is not changed. An error names the sample with a number that is not finite.
// Sets come in the order of their noise.
func (p *Predictor) Draw(ctx context.Context, seen *point.Set, noise []float32,
	samples int) ([]*point.Set, error) {
	f := p.manifest
	if seen == nil || seen.N < 1 {
		return nil, fmt.Errorf("drawing: no seen points; give at least one")
	}
	if seen.Dx != f.Dx || seen.C != f.C {
		return nil, fmt.Errorf("drawing: the seen points have dx %d and %d classes, the "+
			"predictor has dx %d and %d; use models that were made for each other",
			seen.Dx, seen.C, f.Dx, f.C)
	}
	if samples < 1 || len(noise) == 0 || len(noise)%(samples*f.D) != 0 {
		return nil, fmt.Errorf("drawing: %d noise numbers for %d samples; want samples x fresh x "+
			"%d with at least one of each", len(noise), samples, f.D)
	}
	fresh, dz := len(noise)/(samples*f.D), f.Dx+f.C
	points, weights := onnx.NewTensor(seen.Dense().Z, 1, seen.N, dz),
		onnx.NewTensor(seen.W, 1, seen.N)
	draw := func(e []float32) ([]float32, error) {
		n := len(e) / (fresh * f.D)
		out, err := engine.Eval(p.session,
			map[string]*onnx.Tensor{"points": points, "weights": weights,
				"noise": onnx.NewTensor(e, n, fresh, f.D)}, "drawn")
		if err != nil {
			return nil, err
		}
		z := out["drawn"].F32()
		if len(z) != n*fresh*dz {
			return nil, fmt.Errorf("the predictor gave %v; want %d x %d x %d",
				out["drawn"], n, fresh, dz)
		}
		return z, nil
	}
	each := chunk
	// One draw at a time, since a part holds keys and values of one.
	if fresh > partPoints {
		each = 1
		by, err := p.parts()
		if err != nil {
			return nil, err
		}
		if by != nil {
			draw = func(e []float32) ([]float32, error) {
				return by.draw(ctx, points, weights, e, fresh, dz)
			}
		}
	}
	var sets []*point.Set
	for some := range slices.Chunk(noise, each*fresh*f.D) {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("drawing: %w", err)
		}
		z, err := draw(some)
		if err != nil {
			return nil, fmt.Errorf("drawing: %w", err)
		}
		for i, v := range z {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return nil, fmt.Errorf("drawing: the predictor gave %v in sample %d; check the "+
					"model and the features for numbers out of range", v, len(sets)+i/(fresh*dz))
			}
		}
		for one := range slices.Chunk(z, fresh*dz) {
			s := point.New(fresh, f.Dx, f.C)
			copy(s.Z, one)
			sets = append(sets, s)
		}
	}
	return sets, nil
}

// draw returns one draw (fresh x dz) from noise (fresh x d), computed some rows at a time. Keys and
// values of all rows come first, since each point attends to all of them. It takes fresh (2 d + dz)
// numbers, and logits of some rows by all points.
// Two passes run over the rows: one for keys and values, one that attends to them.
func (p *parts) draw(ctx context.Context, points, weights *onnx.Tensor, noise []float32, fresh,
	dz int) ([]float32, error) {
	d := len(noise) / fresh
	rows := max(1, min(partPoints, maxLogits/max(fresh, weights.Shape[1])))
	keys, values, z := make([]float32, fresh*d), make([]float32, fresh*d), make([]float32, fresh*dz)
	// run evaluates s on the rows from at on, and writes its outputs to the same rows of to.
	run := func(s engine.Session, at int, in map[string]*onnx.Tensor,
		to map[string][]float32) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(rows, fresh-at)
		in["noise"] = onnx.NewTensor(noise[at*d:(at+n)*d], 1, n, d)
		out, err := engine.Eval(s, in, slices.Collect(maps.Keys(to))...)
		if err != nil {
			return err
		}
		for name, all := range to {
			width := len(all) / fresh
			if got := out[name]; len(got.F32()) != n*width {
				return fmt.Errorf("the predictor gave %s %v; want 1 x %d x %d", name, got, n, width)
			}
			copy(all[at*width:], out[name].F32())
		}
		return nil
	}
	for at := 0; at < fresh; at += rows {
		if err := run(p.induce, at, map[string]*onnx.Tensor{"points": points, "weights": weights},
			map[string][]float32{"keys": keys, "values": values}); err != nil {
			return nil, err
		}
	}
	for at := 0; at < fresh; at += rows {
		in := map[string]*onnx.Tensor{"keys": onnx.NewTensor(keys, 1, fresh, d),
			"values": onnx.NewTensor(values, 1, fresh, d)}
		if err := run(p.attend, at, in, map[string][]float32{"drawn": z}); err != nil {
			return nil, err
		}
	}
	return z, nil
}

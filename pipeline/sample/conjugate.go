package sample

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"

	"gonum.org/v1/gonum/stat/distuv"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/pipeline/candidate"
	"fmp/pipeline/compress"
	"fmp/pipeline/erm"
	"fmp/pipeline/honesty"
	"fmp/pipeline/internal/parallel"
	"fmp/pipeline/point"
)

// rowChunk is how many feature rows one session call maps, and intervalChunk for how many it
// computes intervals, each of which needs a multiple of samples x classes numbers. Both are fixed,
// so that a row does not depend on the machine.
const (
	rowChunk      = 1024
	intervalChunk = 200
)

// Conjugate runs a conjugate predictor: uploads of class means, and posterior samples in closed
// form. Its graph is that of models.NewConjugate, and its equations are those of docs/concepts.md
// (The conjugate predictor). It is safe for concurrent use if its engine's sessions are; see
// [Predictor] on threads.
type Conjugate struct {
	// Threads is the number of chunks of feature rows processed at once; 0 means 1. Figures do not
	// depend on it.
	Threads int

	engine engine.Engine
	config models.ConjugateConfig
	values map[string]*onnx.Tensor
	client *compress.Compressor

	model, coordinates *onnx.Model
	parts              map[string]*lazy

	corpus func() (*candidate.Corpus, error) // read once
}

// lazy is a part of the model that is loaded when it is first asked for: of many classes each takes
// memory, and few tasks take all.
type lazy struct {
	engine  engine.Engine
	model   *onnx.Model
	load    sync.Once
	session engine.Session
	err     error
}

// eval runs the part. Callers at the same time wait for one load.
func (p *lazy) eval(in map[string]*onnx.Tensor) (map[string]*onnx.Tensor, error) {
	p.load.Do(func() { p.session, p.err = p.engine.Load(p.model) })
	if p.err != nil {
		return nil, p.err
	}
	return engine.Eval(p.session, in)
}

// Close releases the session, if there is one. A part that is closed before
// it is loaded is never loaded.
func (p *lazy) Close() error {
	p.load.Do(func() { p.err = errors.New("the predictor is closed") })
	if p.session == nil {
		return nil
	}
	return p.session.Close()
}

// conjugateParts lists the outputs of each part that is loaded.
var conjugateParts = map[string][]string{
	models.ConjCoordinates:  {models.ConjCoordinates},
	models.ConjHeads:        {models.ConjHeads},
	models.ConjMeanHead:     {models.ConjMeanHead},
	models.ConjIntervalHead: {models.ConjIntervalHead},
	models.ConjLow:          {models.ConjLogOddsLow, models.ConjLogOddsHigh},
}

// NewConjugate prepares a conjugate predictor for running.
func NewConjugate(e engine.Engine, m *onnx.Model) (_ *Conjugate, err error) {
	c := &Conjugate{engine: e, model: m, parts: map[string]*lazy{}}
	c.corpus = sync.OnceValues(c.readCorpus)
	if c.config, c.values, err = models.ConjugateValues(m); err != nil {
		return nil, fmt.Errorf("conjugate predictor: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	embedding, err := models.ConjugateEmbedding(m, c.config.K == c.config.Dx)
	if err != nil {
		return nil, err
	}
	if c.client, err = compress.New(e, embedding); err != nil {
		return nil, err
	}
	if c.coordinates, err = models.ConjugatePart(m, models.ConjCoordinates); err != nil {
		return nil, err
	}
	for name, outputs := range conjugateParts {
		part, err := models.ConjugatePart(m, outputs...)
		if err != nil {
			return nil, err
		}
		c.parts[name] = &lazy{engine: e, model: part}
	}
	return c, nil
}

// Close releases the sessions.
func (c *Conjugate) Close() error {
	var errs []error
	if c.client != nil {
		errs = append(errs, c.client.Close())
	}
	for _, s := range c.parts {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Graph returns the graph of [Conjugate.Map], features [n, dx] to coordinates [n, k].
func (c *Conjugate) Graph() *onnx.Model { return c.coordinates }

// LatentSize returns C k, the size of a sample's latent.
func (c *Conjugate) LatentSize() int { return c.config.C * c.config.K }

// Compress returns one upload per client: for each class that it holds, the mean of w (k numbers)
// and the class's mass.
func (c *Conjugate) Compress(ctx context.Context, clients []*point.Set) ([]*point.Set, error) {
	out, err := c.client.Compress(ctx, clients)
	for i, u := range out {
		out[i] = u.Held()
	}
	return out, err
}

// Map returns the coordinates w R of feature rows, the inputs of the heads.
func (c *Conjugate) Map(ctx context.Context, features []float32) ([]float32, error) {
	return mapped(ctx, features, c.config.Dx, c.config.K, c.Threads,
		func(in map[string]*onnx.Tensor) (*onnx.Tensor, error) {
			out, err := c.parts[models.ConjCoordinates].eval(in)
			return out[models.ConjCoordinates], err
		})
}

// mapped returns k coordinates for each of feature rows of dx numbers.
func mapped(ctx context.Context, features []float32, dx, k, threads int,
	eval func(in map[string]*onnx.Tensor) (*onnx.Tensor, error)) ([]float32, error) {
	if len(features)%dx != 0 {
		return nil, fmt.Errorf("%d feature values do not divide into rows of dx %d",
			len(features), dx)
	}
	n := len(features) / dx
	out := make([]float32, n*k)
	return out, chunks(ctx, threads, n, rowChunk, func(from, to int) error {
		part := onnx.NewTensor(features[from*dx:to*dx], to-from, dx)
		rows, err := eval(map[string]*onnx.Tensor{"features": part})
		if err != nil {
			return err
		}
		copy(out[from*k:], rows.F32())
		return nil
	})
}

// chunks processes n rows, size at a time, on the given number of threads.
func chunks(ctx context.Context, threads, n, size int, do func(from, to int) error) error {
	return parallel.Each(ctx, max(threads, 1), (n+size-1)/size,
		func(_ context.Context, i int) error { return do(i*size, min((i+1)*size, n)) })
}

// context returns the inputs that hold the uploads: class means of w (k numbers) or of phi (dx
// numbers).
func (c *Conjugate) context(seen *point.Set) (map[string]*onnx.Tensor, error) {
	if err := c.fits(seen); err != nil {
		return nil, err
	}
	k := c.config.K
	seen = seen.Dense()
	if seen.Dx == c.config.Dx { // also where k equals dx
		seen = c.project(seen)
	}
	return map[string]*onnx.Tensor{"points": onnx.NewTensor(seen.Z, 1, seen.N, k+seen.C),
		"weights": onnx.NewTensor(seen.W, 1, seen.N)}, nil
}

// fits returns an error unless uploads are of the predictor's sizes.
func (c *Conjugate) fits(seen *point.Set) error {
	if seen == nil || seen.N < 1 {
		return fmt.Errorf("conjugate predictor: no uploaded points; give at least one")
	}
	if k := c.config.K; seen.C != c.config.C || seen.Dx != k && seen.Dx != c.config.Dx {
		return fmt.Errorf("conjugate predictor: the uploads have %d numbers a point and %d "+
			"classes, the predictor takes %d coordinates or %d features, and %d classes; use "+
			"models that were made for each other", seen.Dx, seen.C, k, c.config.Dx, c.config.C)
	}
	return nil
}

// manyCoordinates is the product of coordinates and classes above which class means are projected
// by one product, whose last bits are its own.
const manyCoordinates = 1 << 14

// project turns class means of phi into those of w. It is w = phi V - m0 for each class mean. Its
// sums are in float64, in the order of the features.
func (c *Conjugate) project(seen *point.Set) *point.Set {
	k := c.config.K
	v, origin := c.values[models.ConjMap].F32(), c.values[models.ConjOrigin].F32()
	out := point.New(seen.N, k, seen.C)
	copy(out.W, seen.W)
	if k*seen.C > manyCoordinates {
		w := c.leading(seen, k)
		for i := range seen.N {
			row := out.Row(i)
			copy(row[k:], seen.Row(i)[seen.Dx:])
			for j := range k {
				row[j] = float32(w[i*k+j])
			}
		}
		return out
	}
	for i := range seen.N {
		from, to := seen.Row(i), out.Row(i)
		copy(to[k:], from[seen.Dx:])
		for j := range k {
			w := -float64(origin[j])
			for d, x := range from[:seen.Dx] {
				w += float64(x) * float64(v[d*k+j])
			}
			to[j] = float32(w)
		}
	}
	return out
}

// Heads returns posterior samples given the pooled uploads, one per latent (samples x C k numbers
// from N(0, 1)): heads on the coordinates of [Conjugate.Map], in the limit of infinitely many drawn
// points.
func (c *Conjugate) Heads(ctx context.Context, seen *point.Set, latent []float32,
	samples int) ([]erm.Theta, error) {
	if honesty.IsWide(c.config.C, c.config.K) { // class means are pooled already
		return c.wideHeads(ctx, seen, latent, samples)
	}
	return c.limit(ctx, seen, latent, samples)
}

// limit is Heads, of all samples at once.
func (c *Conjugate) limit(ctx context.Context, seen *point.Set, latent []float32,
	samples int) ([]erm.Theta, error) {
	in, err := c.withLatent(seen, latent, samples)
	if err != nil {
		return nil, err
	}
	return c.thetas(ctx, models.ConjHeads, in, samples)
}

// Mean returns the head of the posterior means given the pooled uploads.
func (c *Conjugate) Mean(ctx context.Context, seen *point.Set) (erm.Theta, error) {
	return c.point(ctx, models.ConjMeanHead, seen)
}

// IntervalLimit returns the head, given class means of very many points, whose probabilities the
// intervals of [Conjugate.Intervals] should cover.
func (c *Conjugate) IntervalLimit(ctx context.Context, all *point.Set) (erm.Theta, error) {
	return c.point(ctx, models.ConjIntervalHead, all)
}

// point returns the single head of a part.
func (c *Conjugate) point(ctx context.Context, part string, seen *point.Set) (erm.Theta, error) {
	in, err := c.context(seen)
	if err != nil {
		return erm.Theta{}, err
	}
	out, err := c.thetas(ctx, part, in, 1)
	if err != nil {
		return erm.Theta{}, err
	}
	return out[0], nil
}

// intervalInputs returns the inputs of the part that computes intervals, except the features.
func (c *Conjugate) intervalInputs(seen *point.Set, latent, uniform []float32,
	level float64) (map[string]*onnx.Tensor, error) {
	samples := len(uniform)
	in, err := c.withLatent(seen, latent, samples)
	if err != nil {
		return nil, err
	}
	width, err := studentWidth(samples, level)
	if err != nil {
		return nil, err
	}
	in["uniform"], in["width"] = onnx.NewTensor(uniform, samples), onnx.Scalar(width)
	return in, nil
}

// studentWidth returns how many standard deviations of S samples an interval extends to either side
// of their mean: t sqrt(1 + 1/S). t is the quantile of 1/2 + level/2 of Student's distribution of
// S - 1 degrees of freedom. It is the interval of one draw more.
func studentWidth(samples int, level float64) (float32, error) {
	if samples < 2 || !(level > 0 && level < 1) {
		return 0, fmt.Errorf("conjugate predictor: intervals of level %v from %d samples; "+
			"allowed are levels between 0 and 1 and 2 samples or more", level, samples)
	}
	s := float64(samples)
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: s - 1}.Quantile(0.5 + level/2)
	return float32(t * math.Sqrt(1+1/s)), nil
}

// Drawn is the samples of a round: the pooled class means, heads given these, and for each head its
// latent and a number in (0, 1).
type Drawn struct {
	Seen            *point.Set
	Heads           []erm.Theta
	Latent, Uniform []float32
	// Temperature is that by which Heads were divided since they were drawn (Refit); 0: none.
	Temperature float64
}

// Intervals returns the ends, n x C each, of intervals of the given level for the class
// probabilities in the limit of infinite data, for feature rows (n x dx, row-major). It does not
// read the heads.
func (c *Conjugate) Intervals(ctx context.Context, d Drawn, features []float32,
	level float64) (low, high []float64, err error) {
	in, err := c.intervalInputs(d.Seen, d.Latent, d.Uniform, level)
	if err != nil {
		return nil, nil, err
	}
	return c.ends(ctx, c.parts[models.ConjLow], in, features)
}

// ends runs a part that computes intervals, with the given inputs beside the feature rows.
func (c *Conjugate) ends(ctx context.Context, part *lazy, in map[string]*onnx.Tensor,
	features []float32) (low, high []float64, err error) {
	// Log odds in float32 keep all digits of a probability close to 1.
	low, high, err = c.oddsEnds(ctx, part, in, features)
	for _, ends := range [][]float64{low, high} {
		for i, v := range ends {
			ends[i] = 1 / (1 + math.Exp(-v))
		}
	}
	return low, high, err
}

// oddsEnds is ends in log odds.
func (c *Conjugate) oddsEnds(ctx context.Context, part *lazy, in map[string]*onnx.Tensor,
	features []float32) (low, high []float64, err error) {
	dx, classes := c.config.Dx, c.config.C
	n := len(features) / dx
	low, high = make([]float64, n*classes), make([]float64, n*classes)
	err = chunks(ctx, c.Threads, n, intervalChunk, func(from, to int) error {
		rows := onnx.NewTensor(features[from*dx:to*dx], to-from, dx)
		feeds := map[string]*onnx.Tensor{"features": rows}
		maps.Copy(feeds, in)
		out, err := part.eval(feeds)
		if err != nil {
			return fmt.Errorf("conjugate predictor: intervals: %w", err)
		}
		for name, ends := range map[string][]float64{
			models.ConjLogOddsLow: low, models.ConjLogOddsHigh: high} {
			for i, v := range out[name].F32() {
				ends[from*classes+i] = float64(v)
			}
		}
		return nil
	})
	return low, high, err
}

// IntervalGraph returns the graph of [Conjugate.Map] and [Conjugate.Intervals], features [n, dx] to
// coordinates [n, k], low and high [n, C], with all other inputs built in.
func (c *Conjugate) IntervalGraph(_ context.Context, d Drawn, level float64) (*onnx.Model, error) {
	in, err := c.intervalInputs(d.Seen, d.Latent, d.Uniform, level)
	if err != nil {
		return nil, err
	}
	return models.ConjugateIntervals(c.model, in)
}

// withLatent returns the inputs of uploads with a latent, [samples, C, k].
func (c *Conjugate) withLatent(seen *point.Set, latent []float32,
	samples int) (map[string]*onnx.Tensor, error) {
	in, err := c.context(seen)
	if err != nil {
		return nil, err
	}
	if err := c.holds(latent, samples); err != nil {
		return nil, err
	}
	in["latent"] = onnx.NewTensor(latent, samples, c.config.C, c.config.K)
	return in, nil
}

// holds returns an error unless a latent is of a number of samples.
func (c *Conjugate) holds(latent []float32, samples int) error {
	if samples < 1 || len(latent) != samples*c.LatentSize() {
		return fmt.Errorf("conjugate predictor: a latent of %d numbers for %d samples; want "+
			"samples x %d, and at least one sample", len(latent), samples, c.LatentSize())
	}
	return nil
}

// thetas returns the n heads of a part.
func (c *Conjugate) thetas(ctx context.Context, part string, in map[string]*onnx.Tensor,
	n int) ([]erm.Theta, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out, err := c.parts[part].eval(in)
	if err != nil {
		return nil, fmt.Errorf("conjugate predictor: %w", err)
	}
	return heads("conjugate predictor", out[part], n, c.config.K+1, c.config.C)
}

// heads returns a predictor's output, n x d x classes, as heads. A number that is not finite is an
// error, as no fit or score could read it.
func heads(model string, out *onnx.Tensor, n, d, classes int) ([]erm.Theta, error) {
	all := out.F32()
	if len(all) != n*d*classes {
		return nil, fmt.Errorf("%s: it gave %v; want %d x %d x %d", model, out, n, d, classes)
	}
	heads := make([]erm.Theta, n)
	for s := range heads {
		heads[s] = erm.NewTheta(d, classes)
		for i := range heads[s].W {
			v := float64(all[s*d*classes+i])
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("%s: head %d holds %v; check the uploads for numbers out "+
					"of range", model, s, v)
			}
			heads[s].W[i] = v
		}
	}
	return heads, nil
}

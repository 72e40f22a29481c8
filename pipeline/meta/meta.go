package meta

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/optim"
	"fmp/onnx/train"
	"fmp/pipeline/erm"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/task"
)

// Config is what the trainings of predictor and embedding have in common. The zero value of a field means its
// default.
type Config struct {
	// Engine runs the graphs. For figures that can be had again it is made with one thread an operator.
	Engine engine.Engine
	// Workers is how many tasks are worked on at a time; default: one a processor. Figures do not depend on it.
	Workers int
	// Corpus is what training tasks are drawn from, Validation what validation tasks are: disjoint rows. Validation
	// may be nil.
	Corpus, Validation *task.Bank
	// Clients (M) and Points (n) are the federation's; defaults 10 and 20.
	Clients, Points int
	// Alphas are the partitions to draw from; default task.DefaultAlphas. FixedLabels leaves classes their names.
	Alphas      []float64
	FixedLabels bool
	// L2 is the head's lambda; default 3. Fresh is n', the points drawn; default the predictor's own.
	L2    float64
	Fresh int

	// Steps of training (required), Batch tasks a step, and Samples noises a task.
	Steps, Batch, Samples int
	// Rate is the peak learning rate, reached after Warmup steps (default 30) and left along half a cosine. Clip is
	// the largest norm of a gradient (default 1). EMA is the decay of the running average of the parameters that
	// is kept as the result; default 0, none.
	Rate   float64
	Warmup int
	Clip   float64
	EMA    float64

	// Seed is the run's.
	Seed uint64
	// Checkpoint, Interval and Log: see [train.Loop]. Run says what this is a run of, besides what the models'
	// configurations say: a checkpoint of another run is refused.
	Checkpoint string
	Interval   time.Duration
	Log        string
	Run        string
	// ValidateEvery is in steps; default 100. ValidationTasks is their number; default 12. ValidationSamples is S in
	// them; default 8.
	ValidateEvery, ValidationTasks, ValidationSamples int
	// Progress, where not nil, is called after every step.
	Progress func(train.Progress)
}

// Tolerances of the fits while training, and of the solves behind their implicit gradients: far below the noise
// of a step.
const (
	tolerance = 1e-5
	residual  = 1e-4
)

// targetPoints is how many held-out points a training task is scored on, and validationPoints a validation task.
const (
	targetPoints     = 128
	validationPoints = 500
)

func (c *Config) fill(batch, samples int, rate float64) error {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.Clients, 10)
	def(&c.Points, 20)
	def(&c.Batch, batch)
	def(&c.Samples, samples)
	def(&c.Warmup, 30)
	def(&c.ValidateEvery, 100)
	def(&c.ValidationTasks, 12)
	def(&c.ValidationSamples, 8)
	if c.Workers <= 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	if c.Rate == 0 {
		c.Rate = rate
	}
	if c.Clip == 0 {
		c.Clip = 1
	}
	if c.L2 == 0 {
		c.L2 = 3
	}
	switch {
	case c.Engine == nil:
		return fmt.Errorf("training: no engine given")
	case c.Corpus == nil:
		return fmt.Errorf("training: no corpus given")
	case c.Validation != nil && (c.Validation.Dx != c.Corpus.Dx || c.Validation.C != c.Corpus.C):
		return fmt.Errorf("training: the corpus has dx %d and %d classes, the validation part %d and %d", c.Corpus.Dx, c.Corpus.C, c.Validation.Dx, c.Validation.C)
	case c.Steps < 1:
		return fmt.Errorf("training: steps is %d; allowed are numbers from 1", c.Steps)
	case c.Clients < 1 || c.Points < 1 || c.Batch < 1 || c.Samples < 1 || c.Fresh < 1:
		return fmt.Errorf("training: %d clients of %d points, %d fresh points, batches of %d tasks with %d noises; allowed are numbers from 1", c.Clients, c.Points, c.Fresh, c.Batch, c.Samples)
	case !(c.Rate > 0) || !(c.Clip > 0) || !(c.L2 > 0) || c.EMA < 0 || c.EMA >= 1:
		return fmt.Errorf("training: rate %v, clip %v, l2 %v, ema %v; allowed are numbers above 0, and an ema from 0 to below 1", c.Rate, c.Clip, c.L2, c.EMA)
	case c.Validation != nil && c.Validation.Len() < c.Clients*c.Points+metric.Neighbours: // refused here and not after ValidateEvery steps
		return fmt.Errorf("training: %d validation rows for %d clients of %d points; give more validation rows: lower federation.clients or federation.points, or enlarge the part in dataset.splits", c.Validation.Len(), c.Clients, c.Points)
	}
	return nil
}

func (c *Config) sampler(b *task.Bank, target int) *task.Sampler {
	return &task.Sampler{Bank: b, Points: c.Points, Alphas: c.Alphas, Target: target, FixedLabels: c.FixedLabels}
}

// checkModel reports whether a model is of the kind and for the points of the corpus.
func (c *Config) checkModel(m *onnx.Model, kind string) (models.Manifest, error) {
	f, err := models.ReadManifest(m)
	if err != nil {
		return f, fmt.Errorf("training: %s: %w", kind, err)
	}
	if f.Kind != kind || f.Dx != c.Corpus.Dx || f.C != c.Corpus.C {
		return f, fmt.Errorf("training: the model is of kind %q for dx %d and %d classes; want kind %q, and the corpus has dx %d and %d classes", f.Kind, f.Dx, f.C, kind, c.Corpus.Dx, c.Corpus.C)
	}
	return f, nil
}

// loop trains t: step makes, for one task of a batch, its shards of the gradient and its metrics.
func (c *Config) loop(ctx context.Context, t *trainee, what string, config string,
	step func(ctx context.Context, r *rand.Rand) ([]map[string]*onnx.Tensor, train.Metrics, error),
	validate func(ctx context.Context, t int) (train.Metrics, error)) error {
	l := train.Loop{
		Steps: c.Steps, Rate: optim.WarmupCosine(c.Rate, 0, min(c.Warmup, c.Steps)), Model: t,
		Run:        fmt.Sprintf("%s seed %d steps %d batch %d samples %d rate %v clients %d points %d l2 %v fresh %d fixed %v alphas %v ema %v %s %s", what, c.Seed, c.Steps, c.Batch, c.Samples, c.Rate, c.Clients, c.Points, c.L2, c.Fresh, c.FixedLabels, c.Alphas, c.EMA, config, c.Run),
		Checkpoint: c.Checkpoint, Interval: c.Interval, Log: c.Log, LogEvery: 10, Progress: c.Progress,
		ValidateEvery: c.ValidateEvery,
	}
	if c.Validation != nil {
		l.Validate = validate
	}
	l.Step = func(ctx context.Context, at int, rate float64) (train.Metrics, error) {
		shards := make([][]map[string]*onnx.Tensor, c.Batch)
		metrics := make([]train.Metrics, c.Batch)
		if err := parallel(ctx, c.Workers, c.Batch, func(ctx context.Context, i int) (err error) {
			shards[i], metrics[i], err = step(ctx, rng.New(c.Seed, what, at, i))
			return err
		}); err != nil {
			return nil, fmt.Errorf("training %s, step %d: %w", what, at, err)
		}
		var all []map[string]*onnx.Tensor
		sums, counts := train.Metrics{}, map[string]float64{}
		for i := range c.Batch {
			all = append(all, shards[i]...)
			for k, v := range metrics[i] {
				sums[k] += v
				counts[k]++
			}
		}
		for k := range sums {
			sums[k] /= counts[k]
		}
		if _, err := t.Accumulate(all...); err != nil {
			return nil, err
		}
		norm, err := t.Update(at, rate, false)
		if err != nil {
			return nil, err
		}
		sums["grad_norm"] = norm
		return sums, nil
	}
	return l.Train(ctx)
}

// parallel does n things, up to workers at a time.
func parallel(ctx context.Context, workers, n int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for i := range n {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return do(ctx, i)
		})
	}
	return g.Wait()
}

// fits solves the problem of seen together with each set of fresh points; a nil seen leaves the fresh ones alone.
// Start, where given, is where each fit begins.
func (c *Config) fits(ctx context.Context, seen *point.Set, fresh []*point.Set, start []erm.Theta) ([]*erm.Problem, []erm.Theta, error) {
	ps := make([]*erm.Problem, len(fresh))
	for i, f := range fresh {
		sets := []*point.Set{f}
		if seen != nil {
			sets = []*point.Set{seen, f}
		}
		var err error
		if ps[i], err = erm.FromSets(c.L2, sets...); err != nil {
			return nil, nil, err
		}
		if start != nil {
			ps[i].Start = &start[i]
		}
	}
	heads := make([]erm.Theta, 0, len(ps))
	opt := erm.Options{Threads: 1, Tolerance: tolerance}
	for i, p := range ps {
		if i > 0 && start == nil {
			// Heads of one context are much alike.
			p.Start = &heads[0]
		}
		s, err := erm.Solve(ctx, p, opt)
		if err != nil {
			return nil, nil, err
		}
		heads = append(heads, s.Theta)
	}
	return ps, heads, nil
}

// pullBack carries cotangents of the heads back to the problems' points. It adds what belongs to the first n
// points, summed over problems, to seen (n x dz, and their weights to seenW), where seen is not nil, and what
// belongs to the others to fresh ([problems, n', dz], row-major).
func pullBack(ctx context.Context, ps []*erm.Problem, heads, cots []erm.Theta, n int, seen, seenW, fresh []float64) error {
	gs, err := erm.BackwardAll(ctx, ps, heads, cots, erm.Options{Threads: 1, Residual: residual})
	if err != nil {
		return err
	}
	for k, g := range gs {
		p := ps[k]
		dz := p.Dx + p.C
		add := func(to []float64, row, from int) {
			for j := range p.Dx {
				to[row*dz+j] += g.Points[from*p.Dx+j]
			}
			for j := range p.C {
				to[row*dz+p.Dx+j] += g.Labels[from*p.C+j]
			}
		}
		if seen != nil {
			for i := range n {
				add(seen, i, i)
				seenW[i] += g.Weights[i]
			}
		}
		for i := n; i < p.N; i++ {
			add(fresh, k*(p.N-n)+i-n, i)
		}
	}
	return nil
}

// narrow is v, times by, as a float32 tensor.
func narrow(v []float64, by float64, shape ...int) *onnx.Tensor {
	t := onnx.ZerosF32(shape...)
	for i, x := range v {
		t.F32()[i] = float32(x * by)
	}
	return t
}

// contextFeeds are the predictor's inputs for one context.
func contextFeeds(s *point.Set, noise *onnx.Tensor) map[string]*onnx.Tensor {
	return map[string]*onnx.Tensor{
		"points":  onnx.NewTensor(s.Z, 1, s.N, s.Dx+s.C),
		"weights": onnx.NewTensor(s.W, 1, s.N),
		"noise":   noise,
	}
}

// sets cuts a tensor [k, n, dx+c] into k sets of points of weight 1.
func sets(t *onnx.Tensor, dx, c int) []*point.Set {
	k, n := t.Shape[0], t.Shape[1]
	out := make([]*point.Set, k)
	for i := range out {
		out[i] = point.New(n, dx, c)
		copy(out[i].Z, t.F32()[i*n*(dx+c):])
	}
	return out
}

// noise is k base noises of n rows for a predictor.
func noise(r *rand.Rand, f models.Manifest, k, n int) *onnx.Tensor {
	return onnx.NewTensor(f.Noise(r, k, n), k, n, f.D)
}

// finite fails on numbers that no fit can take, naming what holds them.
func finite(what string, t *onnx.Tensor) error {
	for i, v := range t.F32() {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return fmt.Errorf("%s holds %v at %d; lower the learning rate", what, v, i)
		}
	}
	return nil
}

package meta

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"

	"gonum.org/v1/gonum/floats"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/optim"
	"fmp/onnx/train"
	"fmp/pipeline/erm"
	"fmp/pipeline/internal/parallel"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/task"
)

// Config is the common configuration of the trainings of this package. Zero fields take their
// defaults.
type Config struct {
	// Engine runs the graphs. For reproducible results it must use one thread per operator.
	Engine engine.Engine
	// Threads is the number of tasks processed in parallel; default: one per processor. Results do
	// not depend on it.
	Threads int
	// Corpus is the data that training tasks are drawn from, Validation that of validation tasks:
	// disjoint rows. Validation may be nil.
	Corpus, Validation *task.Bank
	// Clients (M) and Points (n) are the numbers of clients and of points per client; defaults 10
	// and 20.
	Clients, Points int
	// Alphas are the partitions to draw from; default task.DefaultAlphas. FixedLabels disables the
	// permutation of class labels.
	Alphas      []float64
	FixedLabels bool
	// L2 is the head's penalty lambda; default 3. Fresh is n', the number of points drawn; default
	// the predictor's own.
	L2    float64
	Fresh int

	// Steps is the number of training steps (required), Batch that of tasks per step, and Samples
	// that of noise draws per task.
	Steps, Batch, Samples int
	// Rate is the peak learning rate, reached after Warmup steps (default 30; negative means none)
	// and followed by half a cosine decay. Clip is the maximum norm of a gradient (default 1;
	// negative means none). EMA is the decay of the
	// exponential moving average of the parameters that is returned as the result; default 0, none.
	Rate   float64
	Warmup int
	Clip   float64
	EMA    float64

	// Seed is the seed of the run.
	Seed uint64
	// Checkpoint and Log are as in [train.Loop]. Run identifies the run beyond settings and models:
	// a checkpoint of another run is refused.
	Checkpoint string
	Log        string
	Run        string
	// ValidateEvery is the number of steps between validations; default 100. ValidationTasks is the
	// number of validation tasks; default 12. ValidationSamples is S in validation; default 8.
	ValidateEvery, ValidationTasks, ValidationSamples int
	// Progress, if not nil, is called after every step.
	Progress func(train.Progress)

	crew crew
}

// Tolerances of the fits during training, and of the solves for their implicit gradients: far below
// the noise of a step.
const (
	tolerance = 1e-5
	residual  = 1e-4
)

// targetPoints is the number of held-out points that a training task is scored on, and
// validationPoints that of a validation task.
const (
	targetPoints     = 128
	validationPoints = 500
)

// fill sets the defaults of fields that are 0, and checks all of them before any graph is built.
// batch, samples and rate are the defaults of a kind of training.
func (c *Config) fill(batch, samples int, rate float64) error {
	c.Clients = cmp.Or(c.Clients, 10)
	c.Points = cmp.Or(c.Points, 20)
	c.Batch = cmp.Or(c.Batch, batch)
	c.Samples = cmp.Or(c.Samples, samples)
	c.Warmup = cmp.Or(c.Warmup, 30)
	c.ValidateEvery = cmp.Or(c.ValidateEvery, 100)
	c.ValidationTasks = cmp.Or(c.ValidationTasks, 12)
	c.ValidationSamples = cmp.Or(c.ValidationSamples, 8)
	if c.Threads <= 0 {
		c.Threads = runtime.GOMAXPROCS(0)
	}
	c.crew = make(crew, c.Threads)
	c.Rate = cmp.Or(c.Rate, rate)
	c.Clip = cmp.Or(c.Clip, 1)
	c.L2 = cmp.Or(c.L2, 3)
	switch {
	case c.Engine == nil:
		return fmt.Errorf("training: no engine given")
	case c.Corpus == nil:
		return fmt.Errorf("training: no corpus given")
	case c.Validation != nil && (c.Validation.Dx != c.Corpus.Dx || c.Validation.C != c.Corpus.C):
		return fmt.Errorf("training: the corpus has dx %d and %d classes, the validation part %d "+
			"and %d", c.Corpus.Dx, c.Corpus.C, c.Validation.Dx, c.Validation.C)
	case c.Steps < 1:
		return fmt.Errorf("training: steps is %d; allowed are numbers from 1", c.Steps)
	case c.Clients < 1 || c.Points < 1 || c.Batch < 1 || c.Samples < 1 || c.Fresh < 1:
		return fmt.Errorf("training: %d clients of %d points, %d fresh points, batches of %d "+
			"tasks with %d noises; allowed are numbers from 1", c.Clients, c.Points, c.Fresh,
			c.Batch, c.Samples)
	case !(c.Rate > 0) || math.IsNaN(c.Clip) || !(c.L2 > 0) || c.EMA < 0 || c.EMA >= 1:
		return fmt.Errorf("training: rate %v, clip %v, l2 %v, ema %v; allowed are a rate and an "+
			"l2 above 0, a number, and an ema from 0 to below 1", c.Rate, c.Clip, c.L2, c.EMA)
	// refuse it now rather than after ValidateEvery steps
	case c.Validation != nil && c.Validation.Len() < c.Clients*c.Points+metric.Neighbours:
		return c.tooFewRows()
	}
	return nil
}

// tooFewRows says how many validation rows a task wants, and names a task that suits the rows at
// hand. Of all rows of a corpus a fixed share is held out: where that is have, and want are wanted,
// want all/have rows would hold out enough.
func (c *Config) tooFewRows() error {
	have, want := c.Validation.Len(), c.Clients*c.Points+metric.Neighbours
	err := fmt.Errorf("training: %d clients of %d points want %d validation rows (%d of them for "+
		"joint scores) and the corpus holds out %d", c.Clients, c.Points, want,
		metric.Neighbours, have)
	all := c.Corpus.Len() + have
	need := (want*all + have - 1) / max(have, 1)
	switch room := have - metric.Neighbours; {
	case room >= 2*c.Points:
		return fmt.Errorf(
			"%w: lower federation.clients to %d at most, or give the corpus %d images for its %d",
			err, room/c.Points, need, all)
	case room >= 4:
		return fmt.Errorf("%w: lower federation.clients and federation.points to %d points in "+
			"all (2 clients of %d), or give the corpus %d images for its %d",
			err, room, room/2, need, all)
	}
	return fmt.Errorf("%w: give the corpus %d images for its %d (dataset.splits.corpus), or %d "+
		"for 2 clients of 2 points",
		err, need, all, ((metric.Neighbours+4)*all+have-1)/max(have, 1))
}

// sampler returns the source of tasks of a bank, each with target held-out points.
func (c *Config) sampler(b *task.Bank, target int) *task.Sampler {
	return &task.Sampler{Bank: b, Points: c.Points, Alphas: c.Alphas, Target: target,
		FixedLabels: c.FixedLabels}
}

// optim returns how gradients become steps.
func (c *Config) optim() optim.Options {
	return optim.Options{ClipNorm: max(c.Clip, 0), EMA: c.EMA}
}

// checkModel returns an error unless a model is of the given kind and fits the points of the
// corpus.
func (c *Config) checkModel(m *onnx.Model, kind string) (models.Manifest, error) {
	f, err := models.ReadManifest(m)
	if err != nil {
		return f, fmt.Errorf("training: %s: %w", kind, err)
	}
	if f.Kind != kind || f.Dx != c.Corpus.Dx || f.C != c.Corpus.C {
		return f, fmt.Errorf("training: the model is of kind %q for dx %d and %d classes; want "+
			"kind %q, and the corpus has dx %d and %d classes", f.Kind, f.Dx, f.C, kind,
			c.Corpus.Dx, c.Corpus.C)
	}
	return f, nil
}

// identity identifies a training of a kind: by every setting that decides its result, more being
// those of its kind alone, and by the models that it starts from or reads.
func (c *Config) identity(kind string, reads []*onnx.Model, more ...any) (string, error) {
	run := fmt.Sprintf("%s seed %d steps %d batch %d samples %d rate %v warmup %d clip %v "+
		"clients %d points %d l2 %v fresh %d fixed %v alphas %v ema %v %v %s on %s",
		kind, c.Seed, c.Steps, c.Batch, c.Samples, c.Rate, c.Warmup, c.Clip, c.Clients, c.Points,
		c.L2, c.Fresh, c.FixedLabels, c.Alphas, c.EMA, more, c.Run, engine.Identity(c.Engine))
	for _, m := range reads {
		digest, err := models.Digest(m)
		if err != nil {
			return "", fmt.Errorf("training %s: %w", kind, err)
		}
		run += " " + digest
	}
	return run, nil
}

// loop trains t, a run of an identity: step returns, for one task of a batch, its gradients (of
// [train.Split.Gradient]) and its metrics. Gradients are added in the order of tasks, so that
// threads do not move their sum. A task's gradient is its share 1/Batch of the mean over tasks. A
// metric is averaged over the tasks that have it.
func (c *Config) loop(ctx context.Context, t *trainee, what, run string,
	step func(ctx context.Context, r *rand.Rand) ([]map[string]*onnx.Tensor, train.Metrics, error),
	validate func(ctx context.Context, t int) (train.Metrics, error)) error {
	l := c.newLoop(run, validate)
	l.Rate, l.Model = optim.WarmupCosine(c.Rate, 0, max(0, min(c.Warmup, c.Steps))), t
	l.Step = func(ctx context.Context, at int, rate float64) (train.Metrics, error) {
		gradients := make([][]map[string]*onnx.Tensor, c.Batch)
		metrics := make([]train.Metrics, c.Batch)
		if err := c.tasks(ctx, c.Batch, func(ctx context.Context, i int) (err error) {
			gradients[i], metrics[i], err = step(ctx, rng.New(c.Seed, what, at, i))
			return err
		}); err != nil {
			return nil, fmt.Errorf("training %s, step %d: %w", what, at, err)
		}
		sums, counts := train.Metrics{}, map[string]float64{}
		for i := range c.Batch {
			t.Add(gradients[i]...)
			for k, v := range metrics[i] {
				sums[k] += v
				counts[k]++
			}
		}
		for k := range sums {
			sums[k] /= counts[k]
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

// newLoop returns the loop of a run of an identity, without rate, model and step. It validates
// where there is data to validate by.
func (c *Config) newLoop(run string,
	validate func(ctx context.Context, t int) (train.Metrics, error)) train.Loop {
	l := train.Loop{Steps: c.Steps, Run: run, Checkpoint: c.Checkpoint, Log: c.Log, LogEvery: 10,
		Progress: c.Progress, ValidateEvery: c.ValidateEvery}
	if c.Validation != nil {
		l.Validate = validate
	}
	return l
}

// crew counts the threads that are busy. Tasks take one each; parts of a task take those that no
// task is waiting for. Its capacity is Config.Threads. A task puts a token in when it begins, and
// takes it out at its end.
type crew chan struct{}

// tasks calls do for 0 to n-1, each with a worker of its own.
func (c *Config) tasks(ctx context.Context, n int,
	do func(ctx context.Context, i int) error) error {
	return parallel.Each(ctx, c.Threads, n, func(ctx context.Context, i int) error {
		c.crew <- struct{}{}
		defer func() { <-c.crew }()
		return do(ctx, i)
	})
}

// all calls do for the parts 0 to n-1 of a task: each with another worker if one is free, else with
// the task's own, and the last with that in any case. The error is that of the first part that
// failed. A send to a nil channel never proceeds, so that the last part always takes the default
// branch. Parts write to places of their own.
func (c crew) all(n int, do func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		var free chan<- struct{}
		if i < n-1 {
			free = c
		}
		select {
		case free <- struct{}{}:
			wg.Go(func() {
				defer func() { <-c }()
				errs[i] = do(i)
			})
		default:
			errs[i] = do(i)
		}
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// fits solves the problem of seen together with each set of fresh points; if seen is nil, of the
// fresh points alone. start, if given, holds the starting points of the fits. The caller closes
// them. Rows of seen are prepared once for all fits.
func (c *Config) fits(ctx context.Context, seen *point.Set, fresh []*point.Set,
	start []erm.Theta) (*erm.Fits, []erm.Theta, error) {
	own, err := c.problems(fresh, start)
	if err != nil {
		return nil, nil, err
	}
	var shared *erm.Problem
	if seen != nil {
		if shared, err = erm.FromSets(c.L2, seen); err != nil {
			return nil, nil, err
		}
	}
	f, err := erm.NewFits(shared, own)
	if err != nil {
		return nil, nil, err
	}
	return c.solve(ctx, f, len(own))
}

// problems returns the problem of each set of fresh points, with its start. It is an error if a
// label is no distribution.
func (c *Config) problems(fresh []*point.Set, start []erm.Theta) ([]*erm.Problem, error) {
	own := make([]*erm.Problem, len(fresh))
	for i, f := range fresh {
		var err error
		if own[i], err = erm.FromSets(c.L2, f); err != nil {
			return nil, err
		}
		if start != nil {
			own[i].Start = &start[i]
		}
	}
	return own, nil
}

// solve fits n heads to tolerance. The first fit is alone, and the others are parts of the task.
// After an error the fits are closed.
func (c *Config) solve(ctx context.Context, f *erm.Fits, n int) (*erm.Fits, []erm.Theta, error) {
	heads := make([]erm.Theta, n)
	one := func(i int) error {
		s, err := f.Solve(ctx, i, erm.Options{Tolerance: tolerance})
		if err == nil {
			heads[i] = s.Theta
		}
		return err
	}
	err := one(0)
	if err == nil {
		err = c.crew.all(n-1, func(i int) error { return one(i + 1) })
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, heads, nil
}

// pullBack propagates cotangents of the heads back to the points of the fits: those of their own
// points it adds to fresh ([fits, n', dx+c], row-major), and, if seen is not nil, those of the
// shared points, summed over fits, to seen (n x (dx+c)) and those of their weights to seenW. The
// derivative is that of the implicit function: one solve with the Hessian for each head, to
// residual. Sums over heads run in their order.
func (c *Config) pullBack(f *erm.Fits, cots []erm.Theta, seen, seenW, fresh []float64) error {
	own, shared := make([]*erm.Gradient, len(cots)), make([]*erm.Gradient, len(cots))
	if err := c.crew.all(len(cots), func(i int) (err error) {
		if own[i], err = f.Backward(i, cots[i], erm.Options{Residual: residual}); err == nil &&
			seen != nil {
			shared[i] = f.Shared(i)
		}
		return err
	}); err != nil {
		return err
	}
	dx, classes := cots[0].D-1, cots[0].C
	add := func(to []float64, g *erm.Gradient) {
		for i := range g.Weights {
			row := to[i*(dx+classes):]
			floats.Add(row[:dx], g.Points[i*dx:(i+1)*dx])
			floats.Add(row[dx:dx+classes], g.Labels[i*classes:(i+1)*classes])
		}
	}
	for k := range cots {
		size := len(own[k].Weights) * (dx + classes)
		add(fresh[k*size:(k+1)*size], own[k])
		if seen != nil {
			add(seen, shared[k])
			floats.Add(seenW, shared[k].Weights)
		}
	}
	return nil
}

// narrow returns by times v as a float32 tensor.
func narrow(v []float64, by float64, shape ...int) *onnx.Tensor {
	t := onnx.ZerosF32(shape...)
	for i, x := range v {
		t.F32()[i] = float32(x * by)
	}
	return t
}

// contextFeeds returns the predictor's inputs for one context: points [1, N, dx+C], weights [1, N],
// and noise [draws, n', d]. Tensors share the memory of the set.
func contextFeeds(s *point.Set, noise *onnx.Tensor) map[string]*onnx.Tensor {
	return map[string]*onnx.Tensor{
		"points":  onnx.NewTensor(s.Z, 1, s.N, s.Dx+s.C),
		"weights": onnx.NewTensor(s.W, 1, s.N),
		"noise":   noise,
	}
}

// noise returns k draws of base noise, n rows each, for a predictor. Its shape is [k, n, d].
func noise(r *rand.Rand, f models.Manifest, k, n int) *onnx.Tensor {
	return onnx.NewTensor(f.Noise(r, k, n), k, n, f.D)
}

// finite returns an error, with the name of the tensor, if it has numbers that no fit can take.
func finite(what string, t *onnx.Tensor) error {
	for i, v := range t.F32() {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return fmt.Errorf("%s holds %v at %d; lower the learning rate", what, v, i)
		}
	}
	return nil
}

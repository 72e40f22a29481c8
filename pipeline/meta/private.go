package meta

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/dense"
	"fmp/onnx/engine"
	"fmp/onnx/optim"
	"fmp/onnx/train"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/internal/parallel"
	"fmp/pipeline/metric"
	"fmp/pipeline/privacy"
	"fmp/pipeline/task"
)

// PrivateConfig configures the training of a private predictor. The fields Clients, L2, Fresh,
// Warmup, Clip and EMA of Config are not used; Steps defaults to 200, Batch to 8 tasks, Samples to
// 32 and Rate to 0.05.
type PrivateConfig struct {
	Config
	// Conjugate is the predictor whose coordinates, prior and metric the private one takes.
	Conjugate *onnx.Model
	// Coordinates, if above 0, trains a predictor for classes that the corpus lacks, in place of
	// one from Conjugate: with this number of coordinates, those in which the classes of the corpus
	// differ most, and all scalars learned by leaving classes out, with coordinates from half of
	// the classes and rounds from the other half.
	Coordinates int
}

// Simulated rounds have at most privateMostPoints points of all clients together, homogeneous or
// with few classes per client, are released at an epsilon between privateLow and privateHigh (a
// share privateNoiseless of them without noise), and protect an image or a client. A client has
// Config.Points points, or ten or a hundred times as many if there are enough.
const (
	privateLow, privateHigh = 0.5, 16
	privateNoiseless        = 0.1
	privateDelta            = 1e-5
	privateMostPoints       = 10_000
)

// privateClients are the numbers of clients of a round, each as likely as another. Few points allow
// fewer clients.
var privateClients = []int{5, 10, 20, 40, 100}

// privateWidths are the factors by which the classes of a round are wider than the corpus's when
// classes are left out, as are classes that the extractor has not learned (see openWidest).
var privateWidths = []float64{1, 1.2, 1.4}

// privateTarget is the number of held-out points of a simulated round, privateClip the quantile of
// |w| over the corpus at which points are clipped.
const (
	privateTarget = 200
	privateClip   = 0.3
)

// StartPrivate returns the initial parameters of a private predictor: those of a conjugate
// predictor, and the clipping norm.
// Tensors are clones, and c1 and c2 start at 0.
func StartPrivate(corpus *task.Bank,
	conjugate *onnx.Model) (models.ConjugateConfig, map[string]*onnx.Tensor, error) {
	c, from, err := models.ConjugateValues(conjugate)
	if err != nil {
		return models.ConjugateConfig{}, nil, err
	}
	if corpus == nil || corpus.Dx != c.Dx {
		return models.ConjugateConfig{}, nil,
			fmt.Errorf("private predictor: no corpus of %d features; set dataset.splits.corpus "+
				"above 0", c.Dx)
	}
	values := map[string]*onnx.Tensor{}
	for _, name := range []string{models.ConjCentre, models.ConjRadius, models.ConjMap,
		models.ConjOrigin, models.ConjLogLambda, models.ConjMetric} {
		values[name] = from[name].Clone()
	}
	for _, name := range allScalars {
		values[models.PrivateSet+name] = from[models.ConjSample+name].Clone()
	}
	values[models.PrivateC1], values[models.PrivateC2] = onnx.Scalar[float32](0),
		onnx.Scalar[float32](0)
	values[models.PrivateClip] = onnx.Scalar(float32(clipNorm(values, corpus)))
	return models.ConjugateConfig{Dx: c.Dx, K: c.K}, values, nil
}

// clipNorm returns the quantile of |w| to which points are clipped: the one in place
// floor(privateClip n) of n in ascending order. A low quantile clips most points. It bounds the
// noise, which grows with the norm, and leaves their directions.
func clipNorm(values map[string]*onnx.Tensor, corpus *task.Bank) float64 {
	w := coordinates(values, corpus)
	norms := make([]float64, corpus.Len())
	for i := range norms {
		for _, v := range w.RawRowView(i) {
			norms[i] += v * v
		}
		norms[i] = math.Sqrt(norms[i])
	}
	slices.Sort(norms)
	return max(norms[int(privateClip*float64(len(norms)))], 1e-6)
}

// TrainPrivate learns the scalars of a private predictor on simulated private rounds of the corpus,
// by Adam on the score of single held-out points plus the joint score of ten of them. Metrics:
// loss, nll, joint; in validation nll and joint.
func TrainPrivate(ctx context.Context, c PrivateConfig) (*onnx.Model, error) {
	c.Fresh = 1 // no points are drawn
	c.Steps = cmp.Or(c.Steps, 200)
	if err := c.fill(8, 32, 0.05); err != nil {
		return nil, err
	}
	t := &privateTrainee{PrivateConfig: &c}
	all := c.Corpus
	var err error
	rounds := all
	if c.Coordinates > 0 {
		if rounds, err = c.leaveOut(); err != nil {
			return nil, fmt.Errorf("training private predictor: %w", err)
		}
	}
	if t.sizes, t.values, err = StartPrivate(c.Corpus, c.Conjugate); err != nil {
		return nil, fmt.Errorf("training private predictor: %w", err)
	}
	if t.corpus, err = t.bank(rounds); err != nil {
		return nil, err
	}
	if c.Coordinates > 0 {
		for _, by := range privateWidths {
			b, err := t.bank(rounds)
			if err != nil {
				return nil, err
			}
			widen(b, by)
			t.wide = append(t.wide, b)
		}
	}
	if c.Validation != nil {
		if t.validation, err = t.bank(c.Validation); err != nil {
			return nil, err
		}
	}
	loss, params, err := t.loss()
	if err != nil {
		return nil, err
	}
	if t.run, err = c.newStep(loss, params); err != nil {
		return nil, err
	}
	defer t.run.Close()
	run, err := c.identity("private", []*onnx.Model{c.Conjugate}, c.Coordinates)
	if err != nil {
		return nil, err
	}
	l := c.newLoop(run, t.validate)
	l.Rate, l.Model, l.Step = optim.WarmupCosine(c.Rate, 0, 0), t.run, t.step
	if err := l.Train(ctx); err != nil {
		return nil, fmt.Errorf("training private predictor: %w", err)
	}
	values := t.now()
	if c.Coordinates > 0 {
		if values, err = c.overWhole(all, values); err != nil {
			return nil, err
		}
	}
	return models.NewPrivate(t.sizes, values)
}

// overWhole returns learned scalars with coordinates, prior and clipping norm of the whole corpus.
func (c *PrivateConfig) overWhole(all *task.Bank,
	scalars map[string]*onnx.Tensor) (map[string]*onnx.Tensor, error) {
	m, err := conjugateOf(all, c.Coordinates)
	if err != nil {
		return nil, err
	}
	_, values, err := StartPrivate(all, m)
	if err != nil {
		return nil, err
	}
	for _, name := range models.PrivateScalars(true) {
		values[name] = scalars[name]
	}
	return values, nil
}

// leaveOut splits the corpus's classes in halves: corpus and coordinates are then of one half, and
// rounds, including those of validation, of the other. Learned scalars are then those of classes
// that the coordinates were not made for. The order of classes is a stream of the seed.
// It changes Corpus, Conjugate and Validation of c.
func (c *PrivateConfig) leaveOut() (rounds *task.Bank, err error) {
	classes := rng.New(c.Seed, "private", "classes").Perm(c.Corpus.C)
	half := len(classes) / 2
	if rounds, err = chosenHalf(c.Corpus, classes, classes[:half]); err != nil {
		return nil, err
	}
	rest, err := c.Corpus.Choose(classes[half:])
	if err != nil {
		return nil, err
	}
	if c.Validation != nil {
		if c.Validation, err = c.Validation.Choose(classes[:half]); err != nil {
			return nil, err
		}
	}
	c.Corpus = rest
	c.Conjugate, err = conjugateOf(rest, c.Coordinates)
	return rounds, err
}

// privateTrainee is the state of the training: parameters, and the rows that rounds are drawn from.
type privateTrainee struct {
	*PrivateConfig
	sizes              models.ConjugateConfig
	values             map[string]*onnx.Tensor
	corpus, validation *task.Bank   // in coordinates w
	wide               []*task.Bank // the corpus widened by each of privateWidths
	run                *train.Step
}

// bank returns a bank's rows in coordinates w. Coordinates do not change in training, so that rows
// are mapped before it.
// Labels are shared with the bank given.
func (t *privateTrainee) bank(b *task.Bank) (*task.Bank, error) {
	w := moment.Tensor(coordinates(t.values, b))
	return task.NewBank(w.F32(), t.sizes.K, b.Labels, b.C)
}

// loss returns the graph of the loss, and the names of the parameters that it is differentiated by.
func (t *privateTrainee) loss() (*onnx.Model, []string, error) {
	return models.PrivateLoss{ConjugateConfig: t.sizes, Values: t.now(), Samples: t.Samples,
		Joint: metric.JointPoints, All: t.Coordinates > 0}.Model()
}

// now returns the current parameters.
// Scalars of a running training are clones, and the other tensors are shared.
func (t *privateTrainee) now() map[string]*onnx.Tensor {
	out := maps.Clone(t.values)
	if t.run != nil {
		state := t.run.State()
		for _, name := range models.PrivateScalars(t.Coordinates > 0) {
			out[name] = state[name].Clone()
		}
	}
	return out
}

// step makes one step of Adam on a batch of rounds. Widths take turns by step.
func (t *privateTrainee) step(ctx context.Context, i int, rate float64) (train.Metrics, error) {
	bank := t.corpus
	if len(t.wide) > 0 {
		bank = t.wide[i%len(t.wide)]
	}
	batch, err := t.draw(ctx, bank, t.Batch, "private", i)
	if err != nil {
		return nil, err
	}
	out, err := t.run.Run(i, rate, batch)
	if err != nil {
		return nil, err
	}
	return scoresOf(out), nil
}

// draw returns the inputs of the loss for some rounds, each drawn from its own stream. Counts are
// drawn from their posterior given the noisy totals, S for each round. The prior is that of the
// current parameters.
// With T rounds of C classes, k coordinates and n targets, the shapes are:
//
//	sums [T, C, k]   noise [T]   counts [T, S, C]   latent [T, S, C, k]
//	targets [T, n, k]   target_labels [T, n, C]   batches [T, n, conjugateBatches]
//
// A stream gives round, counts, targets and latents in this order. Rounds write to places of their
// own, so that the result does not depend on threads.
func (t *privateTrainee) draw(ctx context.Context, bank *task.Bank, tasks int,
	stream ...any) (map[string]*onnx.Tensor, error) {
	k, c := t.sizes.K, bank.C
	target := min(privateTarget, bank.Len()/3)
	in := map[string]*onnx.Tensor{
		"sums": onnx.ZerosF32(tasks, c, k), "noise": onnx.ZerosF32(tasks),
		"counts":        onnx.ZerosF32(tasks, t.Samples, c),
		"targets":       onnx.ZerosF32(tasks, target, k),
		"target_labels": onnx.ZerosF32(tasks, target, c),
		"batches":       onnx.ZerosF32(tasks, target, conjugateBatches),
		"latent":        onnx.ZerosF32(tasks, t.Samples, c, k),
	}
	prior := models.Prior(t.now(), models.PrivateSet)
	radius := float64(t.values[models.PrivateClip].F32()[0])
	return in, parallel.Each(ctx, t.Threads, tasks, func(_ context.Context, i int) error {
		r := rng.New(t.Seed, append(append([]any{}, stream...), i)...)
		totals, held, err := t.round(r, bank, target, radius)
		if err != nil {
			return err
		}
		copy(in["sums"].F32()[i*c*k:], dense.As[float32](totals.Sums))
		in["noise"].F32()[i] = float32(totals.SumVariance)
		copy(in["counts"].F32()[i*t.Samples*c:],
			dense.As[float32](totals.DrawCounts(prior, t.Samples, r)))
		addTargets(in, i, r, held.Target)
		rng.Normal(r, in["latent"].F32()[i*t.Samples*c*k:(i+1)*t.Samples*c*k])
		return nil
	})
}

// round simulates a private round. Points are clipped to the radius, and the sums of a client to
// its norm where clients are protected. A deviation of one step, the smallest there is, stands for
// rounds without noise. Epsilon is log-uniform, low (high/low)^u for u of [0, 1). Points a client
// are cut to a tenth until two clients of them fit among all.
// Before the cut a client has Config.Points in half of the rounds, and ten or a hundred times as
// many in a quarter each. One half of the rounds protects images, and the other clients.
func (t *privateTrainee) round(r *rand.Rand, bank *task.Bank, target int,
	radius float64) (*privacy.Totals, *task.Task, error) {
	most := min(privateMostPoints, bank.Len()-target)
	points := t.Points * []int{1, 1, 10, 100}[r.IntN(4)]
	for points > max(most/2, 1) {
		points = (points + 9) / 10
	}
	clients := min(privateClients[r.IntN(len(privateClients))], max(most/points, 1))
	drawn, err := (&task.Sampler{Bank: bank, Points: points, Alphas: conjugateAlphas,
		Target:      target,
		FixedLabels: t.FixedLabels}).Draw(r, clients)
	if err != nil {
		return nil, nil, err
	}
	b := privacy.Budget{Delta: privateDelta, Unit: privacy.Example, Relation: privacy.AddRemove,
		Noise: privacy.Trusted, Points: points}
	b.Epsilon = privateLow * math.Pow(privateHigh/privateLow, r.Float64())
	if r.IntN(2) == 1 {
		b.Unit = privacy.Client
	}
	sum := privacy.NewRelease(bank.C, t.sizes.K)
	for _, set := range drawn.Clients {
		w, labels := set.Labelled()
		own, err := privacy.Sum(w, labels, bank.C, t.sizes.K, radius)
		if err != nil {
			return nil, nil, err
		}
		if b.Unit == privacy.Client {
			own.Clip(b.ClientNorm(bank.C))
		}
		if err := sum.Add(own); err != nil {
			return nil, nil, err
		}
	}
	account := b.Spend(bank.C, clients)
	if r.Float64() < privateNoiseless {
		account.Deviation = 1
	}
	if err := sum.AddNoise(account.Deviation, rng.Bytes(r)); err != nil {
		return nil, nil, err
	}
	return sum.Totals(radius, account.Variance()), drawn, nil
}

// validate scores the current parameters on fixed validation rounds.
// Their stream does not depend on the step, so that scores of steps compare.
func (t *privateTrainee) validate(ctx context.Context, _ int) (train.Metrics, error) {
	loss, _, err := t.loss()
	if err != nil {
		return nil, err
	}
	s, err := t.Engine.Load(loss)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	batch, err := t.draw(ctx, t.validation, t.ValidationTasks, "private validation")
	if err != nil {
		return nil, err
	}
	out, err := engine.Eval(s, batch)
	if err != nil {
		return nil, err
	}
	return train.Metrics{"nll": float64(out["nll"].F32()[0]),
			"joint": float64(out["joint"].F32()[0])},
		nil
}

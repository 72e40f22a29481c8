package meta

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"

	"gonum.org/v1/gonum/mat"

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
	"fmp/pipeline/open"
	"fmp/pipeline/point"
	"fmp/pipeline/task"
)

// ConjugateConfig configures the training of a conjugate predictor. The fields L2, Fresh, Rate,
// Warmup, Clip and EMA of Config are not used; Batch defaults to 4 tasks and Samples to 64.
type ConjugateConfig struct {
	Config
	// K is the number of coordinates; default C - 1, at most dx - 1.
	K int
	// Shrinkage is the weight, 0 to 1, of a multiple of the identity in the within-class covariance
	// from which coordinates and metric are initialised; default 0. If classes are far apart, the
	// remaining confusions need not lie in the directions in which classes vary least, and 1 is a
	// better start.
	Shrinkage float64
	// FixedMetric keeps coordinates and metric at their initial values and learns the scalars
	// alone.
	FixedMetric bool
}

// conjugateAlphas are the partitions of training tasks: homogeneous, and one in which many clients
// lack classes.
var conjugateAlphas = []float64{0, 0.1}

// Held-out points of a training task, and batches of the joint score on them.
const (
	// conjugateTarget is the points of a task, and each of conjugateBatches batches has ten of
	// them.
	conjugateTarget  = 200
	conjugateBatches = 40
)

// conjugatePhase learns some parameters of one set of scalars by Adam, with half a cosine decay
// from rate.
type conjugatePhase struct {
	steps int
	rate  float64
	set   string
	learn []string
	// matrices also learns V and R, each at a tenth of rate times its mean absolute element.
	matrices bool
	// mean uses the head of the posterior means: one sample, with latent 0.
	mean bool
	// begin changes the parameters before the phase.
	begin func(*conjugateTrainee) error
}

// allScalars are the scalars of one set, by the ends of their names, which follow the set's.
var allScalars = []string{models.ConjLogRho, models.ConjLogTau, models.ConjLogB,
	models.ConjLogitGamma, models.ConjO1, models.ConjO2}

// phases returns the phases of training: V and R with the scalars; then, with moments computed
// again under V, the scalars; then those of the point head; then those of the intervals, whose
// posterior is the plain one: tau = b = 1, gamma = 0.
func (c *ConjugateConfig) phases() []conjugatePhase {
	second := max(1, c.Steps*2/5)
	return []conjugatePhase{
		{steps: c.Steps, rate: 3e-2, set: models.ConjSample, learn: allScalars,
			matrices: !c.FixedMetric, begin: func(*conjugateTrainee) error { return nil }},
		{steps: second, rate: 2e-2, set: models.ConjSample, learn: allScalars,
			// w has then within-class covariance I and between-class covariance diag(lambda), while
			// the head's coordinates w R are unchanged
			begin: func(t *conjugateTrainee) error { return standardise(t.values, t.Corpus, 0) }},
		{steps: second, rate: 2e-2, set: models.ConjMean, mean: true,
			learn: []string{models.ConjLogRho, models.ConjLogB, models.ConjLogitGamma,
				models.ConjO1, models.ConjO2},
			begin: func(t *conjugateTrainee) error {
				t.copyScalars(models.ConjSample, models.ConjMean)
				t.set(models.ConjMean+models.ConjLogTau, 0)
				return nil
			}},
		{steps: max(1, c.Steps/2), rate: 3e-2, set: models.ConjInterval,
			learn: []string{models.ConjLogRho, models.ConjO1, models.ConjO2},
			begin: func(t *conjugateTrainee) error {
				t.copyScalars(models.ConjSample, models.ConjInterval)
				t.set(models.ConjInterval+models.ConjLogTau, 0)
				t.set(models.ConjInterval+models.ConjLogB, 0)
				t.set(models.ConjInterval+models.ConjLogitGamma, plainGamma)
				widening, err := t.widening()
				t.set(models.ConjWidening, widening)
				return err
			}},
	}
}

// plainGamma is the logit of a gamma that is practically 0. The sigmoid of -6 is 0.0025.
const plainGamma = -6

// TrainConjugate trains a conjugate predictor (models.NewConjugate) on the corpus: first moments,
// then V, R and the scalars by gradients through the closed form, on the score of single held-out
// points of tasks plus the joint score of ten of them, five near each of two anchors. Steps is the
// number of steps of the first phase; the four phases together take 2.3 times as many. Metrics:
// loss, nll, joint; in validation nll, joint, acc and ece with 100 samples.
func TrainConjugate(ctx context.Context, c ConjugateConfig) (*onnx.Model, error) {
	c.Fresh = cmp.Or(c.Fresh, 1) // no points are drawn
	if len(c.Alphas) == 0 {
		c.Alphas = conjugateAlphas
	}
	if err := c.fill(4, 64, 3e-2); err != nil {
		return nil, err
	}
	t := &conjugateTrainee{ConjugateConfig: &c, phase: -1}
	defer t.close()
	var err error
	if t.values, err = StartConjugate(c.Corpus, c.K, c.Shrinkage); err != nil {
		return nil, err
	}
	t.sizes = models.ConjugateConfig{Dx: c.Corpus.Dx, C: c.Corpus.C,
		K: t.values[models.ConjOrigin].Len()}
	t.classes = c.bound(t.sizes.K)
	run, err := c.identity("conjugate", nil, t.sizes.K, c.Shrinkage, c.FixedMetric)
	if err != nil {
		return nil, err
	}
	l := c.newLoop(run, t.validate)
	l.Rate, l.Model, l.Step, l.Steps = t.rate, t, t.step, 0
	for _, p := range c.phases() {
		l.Steps += p.steps
	}
	if err := l.Train(ctx); err != nil {
		return nil, fmt.Errorf("training conjugate predictor: %w", err)
	}
	t.take()
	return models.NewConjugate(t.sizes, t.values)
}

// conjugateTrainee is the state of the training between two steps. It is both the model of the loop
// and its state, so that a checkpoint within a phase resumes there.
type conjugateTrainee struct {
	*ConjugateConfig
	sizes models.ConjugateConfig
	// classes is the number of classes of a task.
	classes int
	values  map[string]*onnx.Tensor // parameters at the start of the phase

	phase int // -1: none started
	run   *train.Step
}

// close releases the graph of the phase.
func (t *conjugateTrainee) close() {
	if t.run != nil {
		t.run.Close()
		t.run = nil
	}
}

// at returns the phase of step i and the step within the phase. A step beyond the last phase is one
// of it.
func (t *conjugateTrainee) at(i int) (phase, step int) {
	for phase, p := range t.phases() {
		if i < p.steps {
			return phase, i
		}
		i -= p.steps
	}
	return len(t.phases()) - 1, i
}

// rate returns the learning rate of step i: half a cosine over its phase, which begins at the rate
// of the phase.
func (t *conjugateTrainee) rate(i, _ int) float64 {
	phase, step := t.at(i)
	p := t.phases()[phase]
	return optim.WarmupCosine(p.rate, 0, 0)(step, p.steps)
}

// loss returns the loss of a phase at values of the parameters, for the classes of a task.
func (t *conjugateTrainee) loss(p conjugatePhase,
	values map[string]*onnx.Tensor) models.ConjugateLoss {
	l := models.ConjugateLoss{Values: values, Set: p.set, Samples: t.Samples,
		Joint: metric.JointPoints}
	l.ConjugateConfig = models.ConjugateConfig{Dx: t.sizes.Dx, C: t.classes, K: t.sizes.K}
	if p.mean {
		l.Samples = 1
	}
	return l
}

// enter starts a phase. It builds the loss of the parameters that the phase learns. The optimiser
// starts anew.
func (t *conjugateTrainee) enter(phase int) error {
	p := t.phases()[phase]
	l := t.loss(p, t.values)
	l.Learn = p.learn
	if p.matrices {
		l.Moves = map[string]float64{models.ConjMap: meanAbs(t.values[models.ConjMap]) / 10,
			models.ConjMetric: meanAbs(t.values[models.ConjMetric]) / 10}
	}
	loss, params, err := l.Model()
	if err != nil {
		return err
	}
	// The phase before keeps its graph until the loss of this one is built.
	t.close()
	t.phase = phase
	t.run, err = t.newStep(loss, params)
	return err
}

// newStep prepares the steps of Adam on a loss.
func (c *Config) newStep(loss *onnx.Model, params []string) (*train.Step, error) {
	// Squares of gradients are averaged over about 1/(1 - 0.99) = 100 steps.
	adam := optim.AdamW{Beta2: 0.99}
	init := train.Params(loss, nil)
	m, err := train.StepModel(loss, "loss", params, adam, optim.Options{})
	if err != nil {
		return nil, err
	}
	return train.NewStep(c.Engine, m, adam, init)
}

// take copies the values that the phase has learned so far into the parameters.
func (t *conjugateTrainee) take() {
	maps.Copy(t.values, t.now())
}

// now returns the current values of the parameters that the phase learns. A matrix is its value at
// the start of the phase plus meanAbs/10 times the move. Moves have the scale of scalars, and one
// rate serves both.
func (t *conjugateTrainee) now() map[string]*onnx.Tensor {
	out := map[string]*onnx.Tensor{}
	state := t.run.State()
	for name, v := range t.values {
		if move := state[models.ConjMove+name]; move != nil {
			// The scale is that of Moves in enter, as values are those at the start of the phase.
			w, by := v.Clone(), float32(meanAbs(v)/10)
			for i, d := range move.F32() {
				w.F32()[i] += by * d
			}
			out[name] = w
		} else if s := state[name]; s != nil {
			out[name] = s.Clone()
		}
	}
	return out
}

// step makes step i of all phases. Where a phase begins it takes the values of the one before.
func (t *conjugateTrainee) step(ctx context.Context, i int, rate float64) (train.Metrics, error) {
	phase, at := t.at(i)
	if phase != t.phase {
		if t.run != nil {
			t.take()
		}
		if err := t.phases()[phase].begin(t); err != nil {
			return nil, err
		}
		if err := t.enter(phase); err != nil {
			return nil, err
		}
	}
	// The tasks of step i depend on the seed and on i alone: a resumed training draws the same.
	batch, err := t.draw(ctx, t.Corpus, conjugateTarget, t.Batch, "conjugate", i)
	if err != nil {
		return nil, err
	}
	out, err := t.run.Run(at, rate, batch)
	if err != nil {
		return nil, err
	}
	return scoresOf(out), nil
}

// scoresOf returns the metrics of a training step by both scores.
func scoresOf(out map[string]*onnx.Tensor) train.Metrics {
	m := train.Metrics{}
	for _, name := range []string{"loss", "nll", "joint", optim.NormOutput} {
		m[name] = float64(out[name].F32()[0])
	}
	return m
}

// draw returns the inputs of the loss for some tasks, each drawn from its own stream. Shapes are
// those of ConjugateLoss: rows [tasks, n, dx], targets [tasks, target, dx], latent [tasks, S, C,
// k]. n is the images of all clients together. For the head of means the latent is 0, of one
// sample.
func (t *conjugateTrainee) draw(ctx context.Context, bank *task.Bank, target, tasks int,
	stream ...any) (map[string]*onnx.Tensor, error) {
	dx, c, n := bank.Dx, t.classes, t.Clients*t.Points
	in := map[string]*onnx.Tensor{
		"rows": onnx.ZerosF32(tasks, n, dx), "labels": onnx.ZerosF32(tasks, n, c),
		"targets":       onnx.ZerosF32(tasks, target, dx),
		"target_labels": onnx.ZerosF32(tasks, target, c),
		"batches":       onnx.ZerosF32(tasks, target, conjugateBatches),
		"latent":        onnx.ZerosF32(tasks, t.Samples, c, t.sizes.K),
	}
	err := parallel.Each(ctx, t.Threads, tasks, func(_ context.Context, k int) error {
		r := rng.New(t.Seed, append(append([]any{}, stream...), k)...)
		tk, err := t.sampler(some(r, bank, c), target).Draw(r, t.Clients)
		if err != nil {
			return err
		}
		seen, err := point.Pool(tk.Clients...)
		if err != nil {
			return err
		}
		spread(seen, k*n, in["rows"], in["labels"])
		addTargets(in, k, r, tk.Target)
		size := t.Samples * c * t.sizes.K
		rng.Normal(r, in["latent"].F32()[k*size:(k+1)*size])
		return nil
	})
	if t.phases()[t.phase].mean {
		in["latent"] = onnx.ZerosF32(tasks, 1, c, t.sizes.K)
	}
	return in, err
}

// spread writes points to rows and labels of a batch, from one on.
func spread(set *point.Set, from int, rows, labels *onnx.Tensor) {
	for i := range set.N {
		z := set.Row(i)
		copy(rows.F32()[(from+i)*set.Dx:], z[:set.Dx])
		copy(labels.F32()[(from+i)*set.C:], z[set.Dx:])
	}
}

// addTargets writes the points that task i is scored on, and batches of them for the joint score.
// Entry [i, j, b] of batches is how often batch b of task i has point j.
func addTargets(in map[string]*onnx.Tensor, i int, r *rand.Rand, set *point.Set) {
	spread(set, i*set.N, in["targets"], in["target_labels"])
	rows := in["targets"].F32()[i*set.N*set.Dx : (i+1)*set.N*set.Dx]
	for b, batch := range metric.NearBatches(r, rows, set.Dx, conjugateBatches) {
		for _, j := range batch {
			in["batches"].F32()[(i*set.N+j)*conjugateBatches+b]++
		}
	}
}

// validate scores the current parameters on fixed validation tasks. Tasks have their own streams,
// which do not depend on the step: figures of two steps are of the same tasks.
func (t *conjugateTrainee) validate(ctx context.Context, _ int) (train.Metrics, error) {
	values := maps.Clone(t.values)
	maps.Copy(values, t.now())
	loss, _, err := t.loss(t.phases()[t.phase], values).Model()
	if err != nil {
		return nil, err
	}
	s, err := t.Engine.Load(loss)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	// Clients take their points first, and targets are of the rows that are left.
	target := min(validationPoints, t.Validation.Len()-t.Clients*t.Points)
	mean := train.Metrics{}
	for i := range t.ValidationTasks {
		batch, err := t.draw(ctx, t.Validation, target, 1, "conjugate validation", i)
		if err != nil {
			return nil, err
		}
		out, err := engine.Eval(s, batch)
		if err != nil {
			return nil, err
		}
		for _, name := range []string{"nll", "joint"} {
			mean[name] += float64(out[name].F32()[0]) / float64(t.ValidationTasks)
		}
	}
	return mean, nil
}

// Names of a checkpoint's entries besides the state of the step.
const (
	statePhase  = "phase"
	stateValues = "values/"
	stateStep   = "step/"
)

// State returns the parameters at the start of the phase, and the state of the step. Parameters are
// not copied: later steps replace their tensors and never change them.
func (t *conjugateTrainee) State() map[string]*onnx.Tensor {
	out := map[string]*onnx.Tensor{statePhase: onnx.Scalar(float32(t.phase))}
	for name, v := range t.values {
		out[stateValues+name] = v
	}
	if t.run != nil {
		for name, v := range t.run.State() {
			out[stateStep+name] = v
		}
	}
	return out
}

// SetState restores a state. A phase below 0 is one before the first step. The graph of the phase
// is built before its state is read. An error may leave a part of the state restored, and training
// must not go on from there.
func (t *conjugateTrainee) SetState(state map[string]*onnx.Tensor) error {
	phase := state[statePhase]
	if phase == nil || phase.Len() != 1 ||
		!(phase.F32()[0] >= -1 && int(phase.F32()[0]) < len(t.phases())) {
		return fmt.Errorf("the state's phase is %v; allowed are -1 to %d", phase, len(t.phases())-1)
	}
	step := map[string]*onnx.Tensor{}
	for name, v := range state {
		if n, ok := strings.CutPrefix(name, stateValues); ok {
			t.values[n] = v.Clone()
		} else if n, ok := strings.CutPrefix(name, stateStep); ok {
			step[n] = v
		}
	}
	if phase.F32()[0] < 0 {
		return nil
	}
	if err := t.enter(int(phase.F32()[0])); err != nil {
		return err
	}
	return t.run.SetState(step)
}

// set sets a scalar parameter.
func (t *conjugateTrainee) set(name string, v float64) { t.values[name] = onnx.Scalar(float32(v)) }

// copyScalars gives the set to the values of the set from.
func (t *conjugateTrainee) copyScalars(from, to string) {
	for _, name := range allScalars {
		t.values[to+name] = t.values[from+name].Clone()
	}
}

// StartConjugate returns the initial parameters of a conjugate predictor, from the moments of a
// corpus: the k coordinates (0: C - 1, at most dx - 1) in which classes differ most, and the metric
// of the moments, with the within-class covariance shrunk by the given share toward a multiple of
// the identity.
func StartConjugate(corpus *task.Bank, k int, shrinkage float64) (map[string]*onnx.Tensor, error) {
	if corpus == nil {
		return nil, fmt.Errorf("moments of the corpus: there is none; " +
			"set dataset.splits.corpus above 0")
	}
	dx, n := corpus.Dx, corpus.Len()
	k = cmp.Or(k, min(corpus.C-1, dx-1))
	if k < 1 || k >= dx {
		return nil,
			fmt.Errorf("moments of the corpus: %d coordinates of %d features; allowed are 1 to "+
				"one less than these", k, dx)
	}
	at, err := open.NewCoordinates(corpus.Features, dx, dx)
	if err != nil {
		return nil, fmt.Errorf("moments of the corpus: all %d rows of features are the same", n)
	}
	values := map[string]*onnx.Tensor{
		models.ConjCentre: narrow(at.Centre, 1, dx),
		models.ConjRadius: onnx.Scalar(float32(at.Radius)),
		models.ConjMap:    narrow(identity(dx), 1, dx, dx), models.ConjOrigin: onnx.ZerosF32(dx),
		models.ConjMetric:   narrow(identity(dx), 1, dx, dx),
		models.ConjWidening: onnx.Scalar[float32](1),
	}
	if !(shrinkage >= 0 && shrinkage <= 1) {
		return nil, fmt.Errorf("moments of the corpus: shrinkage %v; allowed are 0 to 1", shrinkage)
	}
	if err := standardise(values, corpus, shrinkage); err != nil {
		return nil, err
	}
	// The leading k coordinates, in descending order of lambda.
	v := mat.NewDense(dx, k, nil)
	// Copy takes as much as fits: the first k of dx columns.
	v.Copy(matrix(values[models.ConjMap]))
	values[models.ConjMap] = moment.Tensor(v)
	for _, name := range []string{models.ConjOrigin, models.ConjLogLambda} {
		values[name] = onnx.NewTensor(append([]float32{}, values[name].F32()[:k]...), k)
	}
	values[models.ConjMetric] = narrow(identity(k), 1, k, k)
	if shrinkage > 0 { // the coordinates are those of the unshrunk moments; the metric stays
		if err := standardise(values, corpus, 0); err != nil {
			return nil, err
		}
	}
	for _, set := range []string{models.ConjSample, models.ConjMean, models.ConjInterval} {
		for name, v := range map[string]float64{
			models.ConjLogRho: math.Log(startRho), models.ConjLogTau: 0, models.ConjLogB: 0,
			// The sigmoid of -3 is 0.047.
			models.ConjLogitGamma: -3, models.ConjO1: 0,
			models.ConjO2: 0,
		} {
			values[set+name] = onnx.Scalar(float32(v))
		}
	}
	return values, nil
}

// conjugateOf returns the predictor of k coordinates with the parameters of [StartConjugate].
func conjugateOf(corpus *task.Bank, k int) (*onnx.Model, error) {
	values, err := StartConjugate(corpus, k, 0)
	if err != nil {
		return nil, err
	}
	return conjugateWith(corpus, values)
}

// conjugateWith returns the predictor with the given parameters. Its K is the length of their
// origin m0.
func conjugateWith(corpus *task.Bank, values map[string]*onnx.Tensor) (*onnx.Model, error) {
	return models.NewConjugate(models.ConjugateConfig{Dx: corpus.Dx, C: corpus.C,
		K: values[models.ConjOrigin].Len()}, values)
}

// startRho is the initial precision of the head: features of a class are less certain than their
// covariance suggests, as their errors are correlated.
const startRho = 0.17

// smallestLambda is the lower bound of the between-class variances, in units of the within-class
// variance.
const smallestLambda = 1e-2

// standardise changes V, m0, lambda and R so that w = phi V - m0 of the corpus has within-class
// covariance I, between-class covariance diag(lambda), descending, and class means of mean 0; w R
// is unchanged up to a shift. The within-class covariance is shrunk toward a multiple of I, by the
// given share and a little more, dx/(dx + 10 n), so that the moments exist for few rows too. With S
// the within-class covariance after shrinking, V2 has V2'S V2 = I and V2'B V2 = diag(lambda). The
// parameters become
//
//	V <- V V2,   R <- V2^-1 R,   m0 <- V2'(mean + m0)
//
// It costs O(n k^2 + k^3) for n rows of k coordinates.
func standardise(values map[string]*onnx.Tensor, corpus *task.Bank, share float64) error {
	m, err := moment.Compute(coordinates(values, corpus), corpus.Labels, corpus.C, 1)
	if err != nil {
		return fmt.Errorf("corpus: %w", err)
	}
	k, n := len(m.Centre), float64(corpus.Len())
	within, mean := m.Within, mat.NewVecDense(len(m.Centre), m.Centre)
	between := m.Between(within)
	share += (1 - share) * float64(corpus.Dx) / (float64(corpus.Dx) + 10*n)
	if t := mat.Trace(within); !(t > 0) {
		return fmt.Errorf("moments of the corpus: within-class covariance has eigenvalue %v; "+
			"want more varied features", t)
	}
	v2, lambda, err := moment.Diagonalise(moment.Shrunk(within, share), between)
	if err != nil {
		return fmt.Errorf("moments of the corpus: %w", err)
	}
	log := make([]float64, k)
	for j, v := range lambda {
		log[j] = math.Log(math.Max(v, smallestLambda))
	}
	var inverse mat.Dense
	v := moment.Product(matrix(values[models.ConjMap]), v2, false)
	for j, m := range values[models.ConjOrigin].F32() {
		mean.SetVec(j, mean.AtVec(j)+float64(m))
	}
	origin := mat.NewVecDense(k, nil)
	origin.MulVec(v2.T(), mean)
	if err := inverse.Inverse(v2); err != nil {
		return fmt.Errorf("moments of the corpus: %w", err)
	}
	values[models.ConjMap], values[models.ConjMetric] = moment.Tensor(v),
		moment.Tensor(moment.Product(&inverse, matrix(values[models.ConjMetric]), false))
	values[models.ConjOrigin], values[models.ConjLogLambda] = narrow(origin.RawVector().Data, 1, k),
		narrow(log, 1, k)
	return nil
}

// coordinates returns w of the corpus's rows. Sums are in float64, and rows are softened first. A
// product with the identity is left out. The result is w = phi V - m0, [n, k].
func coordinates(values map[string]*onnx.Tensor, corpus *task.Bank) *mat.Dense {
	n, dx := corpus.Len(), corpus.Dx
	c := open.Coordinates{Centre: dense.As[float64](values[models.ConjCentre].F32()),
		Radius: float64(values[models.ConjRadius].F32()[0])}
	rows, _ := c.Rows(corpus.Features[:n*dx]) // whole rows are no error
	phi := mat.NewDense(n, dx, rows)
	w := phi
	if v := matrix(values[models.ConjMap]); !isIdentity(v) {
		w = moment.Product(phi, v, false)
	}
	origin := values[models.ConjOrigin].F32()
	for i := range n {
		row := w.RawRowView(i)
		for j := range row {
			row[j] -= float64(origin[j])
		}
	}
	return w
}

// isIdentity reports whether a matrix is I, bit for bit.
func isIdentity(m *mat.Dense) bool {
	r, c := m.Dims()
	for i := range r {
		for j, v := range m.RawRowView(i) {
			if i == j && v != 1 || i != j && v != 0 {
				return false
			}
		}
	}
	return r == c
}

// meanAbs returns the mean size of the elements, sum_i |t_i|/n: the scale of a matrix that is
// learned by moves.
func meanAbs(t *onnx.Tensor) float64 {
	var s float64
	for _, v := range t.F32() {
		s += math.Abs(float64(v)) / float64(t.Len())
	}
	return s
}

// identity returns I, [n, n], row by row.
func identity(n int) []float64 {
	out := make([]float64, n*n)
	for i := range n {
		out[i*n+i] = 1
	}
	return out
}

// matrix returns the matrix of a tensor of rank 2, in float64. It is a copy.
func matrix(t *onnx.Tensor) *mat.Dense { return moment.Rows(t.F32(), t.Shape[1]) }

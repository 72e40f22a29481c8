package meta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/dense"
	"fmp/onnx/optim"
	"fmp/onnx/train"
	"fmp/pipeline/internal/parallel"
	"fmp/pipeline/metric"
	"fmp/pipeline/open"
	"fmp/pipeline/task"
)

// OpenConfig configures the training of an open predictor. The fields Points, Alphas, L2, Fresh,
// Warmup, Clip, EMA and Validation of Config are not used; Steps defaults to 300, Batch to 4 tasks,
// Samples to 32 and Rate to 0.05.
type OpenConfig struct {
	Config
	// Coordinates is the maximum number of coordinates that features are projected to; default
	// [open.MaxCoordinates].
	Coordinates int
}

// openSplits is the number of ways in which the corpus's classes are split in halves.
const openSplits = 8

// Training tasks have 5 to 20 classes and 5, 10, 20 or 40 points per client, homogeneous or with
// few classes per client. In a share openHard of them the classes are neighbours. In a share
// openWide the classes are up to openWidest times as wide as the corpus's, as an extractor scatters
// classes that it has not learned (1.2 to 1.6 times the variance, CIFAR-10 behind one of
// CIFAR-100).
const (
	openLeast, openMost = 5, 20
	openHard            = 0.3
	openWide            = 0.25
	openWidest          = 1.2
	OpenTarget          = 200 // held-out points
	openBatches         = 40  // of the joint score
)

// OpenAlphas are the concentrations of clients' classes in such tasks; 0: homogeneous.
var OpenAlphas = []float64{0, 0.1}

// openPoints are the points that a client of a task has, each number as likely as another.
var openPoints = []int{5, 10, 20, 40}

// openPenalty keeps scalars on which few tasks depend near 0.
const openPenalty = 0.003

// openSplit is one half of the corpus's classes as tasks, with the moments of the other half.
type openSplit struct {
	moments *open.Moments
	tasks   *task.Bank // of the classes left out, in coordinates of the others
	// distance [K][K] is the squared distance of the class means left out, in these coordinates.
	distance [][]float64
}

// TrainOpen trains an open predictor (package open) by leaving classes out: moments come from half
// of the corpus's classes, tasks from the other half. The scalars are learned by Adam on the score
// of single held-out points plus the joint score of ten of them. The moments of the result are
// those of the whole corpus. Metrics: loss, nll, joint; in validation those of tasks that no step
// used.
func TrainOpen(ctx context.Context, c OpenConfig) (*onnx.Model, error) {
	c.Steps = cmp.Or(c.Steps, 300)
	c.Coordinates = cmp.Or(c.Coordinates, open.MaxCoordinates)
	c.Fresh, c.Validation = 1, nil // no points are drawn; validation tasks use classes left out
	if err := c.fill(4, 32, 0.05); err != nil {
		return nil, err
	}
	out, err := UntrainedOpen(c.Corpus, c.Coordinates)
	if err != nil {
		return nil, fmt.Errorf("training open predictor: %w", err)
	}
	t := &openTrainee{OpenConfig: c, scalars: open.Start}
	for i := range openSplits {
		s, err := t.split(rng.New(c.Seed, "open", "split", i))
		if err != nil {
			return nil, fmt.Errorf("training open predictor: %w", err)
		}
		t.splits = append(t.splits, s)
	}
	run, err := c.identity("open", nil, c.Coordinates)
	if err != nil {
		return nil, err
	}
	l := c.newLoop(run, nil)
	l.Rate, l.Model, l.Step, l.Validate = optim.WarmupCosine(c.Rate, 0, 0), t, t.step, t.validate
	if err := l.Train(ctx); err != nil {
		return nil, fmt.Errorf("training open predictor: %w", err)
	}
	out.Scalars = t.scalars
	rows, err := out.Rows(c.Corpus.Features)
	if err != nil {
		return nil, err
	}
	if err := out.Widen(rows, c.Corpus.Labels); err != nil {
		return nil, fmt.Errorf("training open predictor: %w", err)
	}
	return out.Model()
}

// openTrainee is the scalars and Adam's moments of their gradients. It has no graph: package open
// differentiates its loss by itself.
type openTrainee struct {
	OpenConfig
	splits      []*openSplit
	scalars     open.Scalars
	first, then open.Scalars // running means of the gradients and of their squares
}

// State returns the state in double precision, so that a resumed run equals an uninterrupted one.
// The tensors are copies.
func (t *openTrainee) State() map[string]*onnx.Tensor {
	out := map[string]*onnx.Tensor{}
	for name, v := range t.parts() {
		out[name] = onnx.NewTensor(slices.Clone(v[:]), len(v))
	}
	return out
}

// SetState restores a state.
// After an error some of its vectors may be those of the state.
func (t *openTrainee) SetState(state map[string]*onnx.Tensor) error {
	for name, v := range t.parts() {
		s := state[name]
		if s == nil || s.DType != onnx.Float64 || s.Len() != len(v) {
			return fmt.Errorf("%s is %v; want %d numbers of double precision", name, s, len(v))
		}
		copy(v[:], s.Data.([]float64))
	}
	return nil
}

// parts returns the vectors of a state by their names in a checkpoint.
func (t *openTrainee) parts() map[string]*open.Scalars {
	return map[string]*open.Scalars{"scalars": &t.scalars, "first": &t.first, "second": &t.then}
}

// LeaveOut leaves half of a corpus's classes out, in an order drawn from r. It returns the
// untrained predictor of the others, of at most that many coordinates, and the classes that are
// left out, one more than stay where their number is odd.
func LeaveOut(corpus *task.Bank, r *rand.Rand,
	coordinates int) (p *open.Predictor, classes []int, err error) {
	classes = r.Perm(corpus.C)
	half := (len(classes) + 1) / 2
	rest, err := chosenHalf(corpus, classes, classes[half:])
	if err != nil {
		return nil, nil, err
	}
	p, err = UntrainedOpen(rest, coordinates)
	return p, classes[:half], err
}

// chosenHalf returns the rows of some of a corpus's classes, where two or more are on either side.
func chosenHalf(corpus *task.Bank, all, some []int) (*task.Bank, error) {
	if len(some) < 2 || len(all)-len(some) < 2 {
		return nil, fmt.Errorf("the corpus has %d classes; leaving half of them out takes 4 and "+
			"more", len(all))
	}
	return corpus.Choose(some)
}

// DrawOpen draws a task of all classes of a bank: OpenTarget images held out or half of all, and as
// many more as there are, at most more. It draws the number of points a client, and then the task.
func DrawOpen(bank *task.Bank, r *rand.Rand, clients int, alphas []float64,
	more int) (*task.Task, error) {
	held := min(OpenTarget, bank.Len()/2)
	points := min(openPoints[r.IntN(len(openPoints))], (bank.Len()-held)/clients)
	if points < 1 {
		return nil, fmt.Errorf("%d corpus images of %d classes for %d clients; lower "+
			"federation.clients, or enlarge dataset.splits.corpus", bank.Len(), bank.C, clients)
	}
	held += min(more, bank.Len()-held-points*clients)
	s := task.Sampler{Bank: bank, Points: points, Alphas: alphas, Target: held, FixedLabels: true}
	return s.Draw(r, clients)
}

// split leaves half of the classes out. Coordinates and moments are those of the half that stays.
// Distances of the class means left out find neighbours.
func (t *openTrainee) split(r *rand.Rand) (*openSplit, error) {
	p, classes, err := LeaveOut(t.Corpus, r, t.Coordinates)
	if err != nil {
		return nil, err
	}
	half := len(classes)
	left, err := t.Corpus.Choose(classes)
	if err != nil {
		return nil, err
	}
	rows, err := p.Map(context.Background(), left.Features)
	if err != nil {
		return nil, err
	}
	s := &openSplit{moments: &p.Moments}
	if s.tasks, err = task.NewBank(rows, p.K(), left.Labels, half); err != nil {
		return nil, err
	}
	all, err := s.tasks.Partition(rand.New(rand.NewPCG(0, 0)), 1, s.tasks.Len(), 0)
	if err != nil {
		return nil, err
	}
	means := open.Means(s.tasks.Points(all[0], nil)).Mean
	for a := range half {
		row := make([]float64, half)
		for b := range row {
			for j, v := range means.RawRowView(a) {
				row[b] += (v - means.At(b, j)) * (v - means.At(b, j))
			}
		}
		s.distance = append(s.distance, row)
	}
	return s, nil
}

// choose returns the classes of a task. Neighbours are ordered by squared distance plus noise of up
// to 0.1 times the mean of all distances.
// There are 5 to 20 of them, as far as the half has as many.
func (s *openSplit) choose(r *rand.Rand) []int {
	k := len(s.distance)
	least := min(openLeast, k)
	n := min(least+r.IntN(openMost-least+1), k)
	order := r.Perm(k)
	if r.Float64() < openHard { // approximate neighbours of the first
		near, mean := slices.Clone(s.distance[order[0]]), 0.0
		for _, row := range s.distance {
			for _, v := range row {
				mean += v / float64(k*k)
			}
		}
		for i := range near {
			near[i] += 0.1 * mean * r.Float64()
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(near[a], near[b]) })
	}
	return order[:n]
}

// widen multiplies the distance of each row from the mean of its class. With x the row and m the
// mean of its class, the row becomes m + by (x - m). The features are changed in place.
func widen(bank *task.Bank, by float64) {
	k := bank.Dx
	sums, count := make([]float64, bank.C*k), make([]float64, bank.C)
	for i, y := range bank.Labels {
		count[y]++
		for j, v := range bank.Row(i) {
			sums[y*k+j] += float64(v)
		}
	}
	for i, y := range bank.Labels {
		for j, v := range bank.Row(i) {
			mean := sums[y*k+j] / count[y]
			bank.Features[i*k+j] = float32(mean + by*(float64(v)-mean))
		}
	}
}

// episode draws a task from the classes left out. Widening comes before clients are drawn, so that
// held-out points are as wide as theirs.
func (t *openTrainee) episode(r *rand.Rand) (*open.Episode, error) {
	s := t.splits[r.IntN(len(t.splits))]
	bank, err := s.tasks.Choose(s.choose(r))
	if err != nil {
		return nil, err
	}
	if r.Float64() < openWide {
		widen(bank, 1+(openWidest-1)*r.Float64())
	}
	drawn, err := DrawOpen(bank, r, t.Clients, OpenAlphas, 0)
	if err != nil {
		return nil, err
	}
	e := &open.Episode{Moments: s.moments}
	if e.Stats, err = open.Pool(drawn.Clients); err != nil {
		return nil, err
	}
	rows, labels := drawn.Target.Labelled()
	e.Labels, e.Rows = labels, dense.As[float64](rows)
	batches, err := metric.NewBatches(r, rows, bank.Dx, openBatches)
	if err != nil {
		return nil, err
	}
	e.Batches = batches.Near
	e.Noise = make([]float64, t.Samples*bank.C*bank.Dx)
	for i := range e.Noise {
		e.Noise[i] = r.NormFloat64()
	}
	return e, nil
}

// losses returns the means over n episodes, each drawn from its own stream. The penalty is
// openPenalty v^2 for each scalar v of O1, O2, R2, R3 and R4.
func (t *openTrainee) losses(ctx context.Context, differentiate bool, n int,
	stream func(i int) *rand.Rand) (train.Metrics, open.Scalars, error) {
	nll, joint, gradients := make([]float64, n), make([]float64, n), make([]open.Scalars, n)
	err := parallel.Each(ctx, t.Threads, n, func(_ context.Context, i int) error {
		e, err := t.episode(stream(i))
		if err != nil {
			return err
		}
		nll[i], joint[i], gradients[i], err = e.Loss(&t.scalars, differentiate)
		return err
	})
	var sum open.Scalars
	m := train.Metrics{"nll": 0, "joint": 0, "loss": 0}
	for i := range n { // in order, whichever finished first
		m["nll"] += nll[i] / float64(n)
		m["joint"] += joint[i] / float64(n)
		for j, g := range gradients[i] {
			sum[j] += g / float64(n)
		}
	}
	m["loss"] = m["nll"] + m["joint"]
	for _, j := range []int{open.O1, open.O2, open.R2, open.R3, open.R4} {
		v := t.scalars[j]
		m["loss"] += openPenalty * v * v
		sum[j] += 2 * openPenalty * v
	}
	return m, sum, err
}

// step makes one step of Adam (Kingma and Ba 2015) with decays 0.9 and 0.99. With g the gradient, n
// the steps with this one, and m and v the running means of g and g^2, each scalar moves by
//
//	-rate m/(1 - 0.9^n) / (sqrt(v/(1 - 0.99^n)) + 1e-8)
//
// It is an error where a scalar is no number, or beyond 50.
func (t *openTrainee) step(ctx context.Context, at int, rate float64) (train.Metrics, error) {
	m, gradient, err := t.losses(ctx, true, t.Batch,
		func(i int) *rand.Rand { return rng.New(t.Seed, "open", at, i) })
	if err != nil {
		return nil, fmt.Errorf("step %d: %w", at, err)
	}
	n, s := float64(at+1), &t.scalars
	for j, g := range gradient {
		t.first[j] = 0.9*t.first[j] + 0.1*g
		t.then[j] = 0.99*t.then[j] + 0.01*g*g
		s[j] -= rate * t.first[j] / (1 - math.Pow(0.9, n)) /
			(math.Sqrt(t.then[j]/(1-math.Pow(0.99, n))) + 1e-8)
		if math.IsNaN(s[j]) || math.Abs(s[j]) > 50 {
			return nil, errors.New("a scalar runs away: the corpus tells classes apart by less " +
				"than noise")
		}
	}
	return m, nil
}

// validate returns the scores of tasks of streams that no step reads.
func (t *openTrainee) validate(ctx context.Context, _ int) (train.Metrics, error) {
	m, _, err := t.losses(ctx, false, t.ValidationTasks,
		func(i int) *rand.Rand { return rng.New(t.Seed, "open", "validation", i) })
	delete(m, "loss")
	return m, err
}

// UntrainedOpen returns an untrained open predictor of a corpus with at most the given number of
// coordinates: the corpus's moments and the initial scalars.
// Coordinates are made of the features alone, and moments of features and labels.
func UntrainedOpen(corpus *task.Bank, most int) (*open.Predictor, error) {
	coordinates, err := open.NewCoordinates(corpus.Features, corpus.Dx, most)
	if err != nil {
		return nil, err
	}
	p := &open.Predictor{Coordinates: *coordinates, Scalars: open.Start}
	rows, err := p.Rows(corpus.Features)
	if err != nil {
		return nil, err
	}
	if p.Moments, p.Known, err = open.NewMoments(rows, p.K(), corpus.Labels, corpus.C); err != nil {
		return nil, err
	}
	return p, p.Widen(rows, corpus.Labels)
}

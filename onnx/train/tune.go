package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/engine"
	"fmp/onnx/grad"
	"fmp/onnx/internal/try"
	"fmp/onnx/optim"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// stream returns the named stream of a seed. Names are told apart by a hash of 64 bits (FNV-1a).
// Streams of different names are independent, so that a resumed run draws the same numbers. The
// generator is PCG with the seed and the hash as its two words of state.
func stream(seed uint64, name ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintln(h, name...)
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// Data are examples to train on or to measure with.
type Data struct {
	N int
	// Batch returns the inputs of the model and "target" (see [CrossEntropy]) for some rows. With
	// random numbers the examples are to be varied, as images are in training; r is nil where they
	// are measured. It is called from several goroutines.
	Batch func(rows []int, r *rand.Rand) (map[string]*onnx.Tensor, error)
}

// Rows returns examples that are rows of tensors, of the model's inputs and of "target", alike in
// their first axis. The tensors are kept and copied from at each batch, so that they must not
// change while they are in use.
func Rows(tensors map[string]*onnx.Tensor) (Data, error) {
	d := Data{N: -1}
	for name, t := range tensors {
		if t == nil {
			return d, fmt.Errorf("rows to train on: %q is nil", name)
		}
		if len(t.Shape) == 0 || (d.N >= 0 && t.Shape[0] != d.N) {
			return d, fmt.Errorf("rows to train on: %q is %v; want the same first axis as in the others",
				name, t)
		}
		if t.F32() == nil && t.U8() == nil && t.I64() == nil {
			return d, fmt.Errorf("rows to train on: %q is of %v; want float32, int64 or uint8",
				name, t.DType)
		}
		d.N = t.Shape[0]
	}
	if d.N < 1 {
		return d, fmt.Errorf("rows to train on: there are none")
	}
	d.Batch = func(rows []int, _ *rand.Rand) (map[string]*onnx.Tensor, error) {
		out := map[string]*onnx.Tensor{}
		for name, t := range tensors {
			to, err := onnx.Zeros(t.DType, append([]int{len(rows)}, t.Shape[1:]...)...)
			if err != nil {
				return nil, err
			}
			// Elements of one example lie together, row-major.
			size := t.Len() / d.N
			for i, row := range rows {
				from := row * size
				copy(to.F32()[min(i*size, len(to.F32())):], slice(t.F32(), from, size))
				copy(to.I64()[min(i*size, len(to.I64())):], slice(t.I64(), from, size))
				copy(to.U8()[min(i*size, len(to.U8())):], slice(t.U8(), from, size))
			}
			out[name] = to
		}
		return out, nil
	}
	return d, nil
}

// slice is n numbers from one on; nil of a tensor of another type.
func slice[T any](v []T, from, n int) []T {
	if v == nil {
		return nil
	}
	return v[from : from+n]
}

// Part returns some of the examples. The rows are kept and must not change.
func (d Data) Part(rows []int) Data {
	return Data{N: len(rows), Batch: func(of []int, r *rand.Rand) (map[string]*onnx.Tensor, error) {
		chosen := make([]int, len(of))
		for i, k := range of {
			chosen[i] = rows[k]
		}
		return d.Batch(chosen, r)
	}}
}

// HoldOut divides examples at random: a share of them, at least one, is held out. The number held
// out is share N, rounded to the nearest.
func (d Data) HoldOut(share float64, seed uint64) (train, held Data, err error) {
	n := int(math.Round(share * float64(d.N)))
	if share > 0 {
		n = max(n, 1)
	}
	if !(share >= 0 && share < 1) || n >= d.N {
		return d, held, fmt.Errorf(
			"holding out %v of %d examples; allowed are 0 to below 1, and one must be left", share,
			d.N)
	}
	rows := stream(seed, "held out").Perm(d.N)
	return d.Part(rows[n:]), d.Part(rows[:n]), nil
}

// Tuning trains a model further on new examples ([Tuning.Train]).
type Tuning struct {
	// Output is the output that is trained; "" is the first.
	Output string
	Loss   Loss
	// Weights are the initializers that are trained ([Weights] lists them).
	Weights []string
	// LoRA, where not 0, trains factors of this rank in place of the weights in Adapted, whether
	// Weights has them or not. One that [AddLoRA] passes over is trained itself where Weights has
	// it.
	LoRA    int
	Adapted []string

	Optimizer optim.Optimizer
	Update    optim.Options // without an EMA
	Rate      optim.Schedule
	// Epochs are passes over the examples, Batch the examples of a step, Parts (which divides
	// Batch) the parts that a batch is cut into: their gradients are summed, so that a step takes
	// the memory of Threads parts at once. A model with a fixed batch takes parts of that size.
	Epochs, Batch, Parts, Threads int
	// Patience is the number of epochs that may pass without a lower held-out loss before training
	// ends; 0 has no end. With held-out examples, the weights of the epoch with the lowest loss are
	// the result.
	Patience int
	Seed     uint64

	// Run, Checkpoint, Log and Progress are those of [Loop]. The engine identifies a run too.
	Run, Checkpoint, Log string
	Progress             func(Progress)
}

// Tuned is a trained model.
type Tuned struct {
	Model *onnx.Model
	// Steps are those taken, Best the step of the lowest held-out loss, where the weights are from.
	Steps, Best int
	// Trained is the number of numbers that were trained, Normalised that of the batch
	// normalisations whose statistics were moved.
	Trained, Normalised int
}

// tuner is the state of a run: that of the steps, the best weights so far and the book of their
// scores.
type tuner struct {
	*Split
	best map[string]*onnx.Tensor
	book *onnx.Tensor // steps validated, step of the best, its loss
}

const (
	bestPrefix = "best/"
	bookName   = "best_book"
)

// State returns the steps' state and the best weights. The tensors are the live ones, which the
// next step changes.
func (t *tuner) State() map[string]*onnx.Tensor {
	out := t.Split.State()
	for n, v := range t.best {
		out[bestPrefix+n] = v
	}
	out[bookName] = t.book
	return out
}

// SetState replaces both. On an error of the steps' state the best weights and the book stay.
func (t *tuner) SetState(state map[string]*onnx.Tensor) error {
	rest, best := map[string]*onnx.Tensor{}, map[string]*onnx.Tensor{}
	for n, v := range state {
		if name, ok := strings.CutPrefix(n, bestPrefix); ok {
			best[name] = v
		} else if n != bookName {
			rest[n] = v
		}
	}
	book := state[bookName]
	if book == nil || len(book.F64()) != len(t.book.F64()) {
		return fmt.Errorf("the state has no %q", bookName)
	}
	if err := t.Split.SetState(rest); err != nil {
		return err
	}
	t.best, t.book = best, book
	return nil
}

// weights returns a copy of the weights learnt so far, running statistics with it. The copy is
// needed, since the step after next overwrites the live tensors.
func (t *tuner) weights() map[string]*onnx.Tensor {
	out := t.Params()
	maps.Copy(out, t.running.now)
	for n, v := range out {
		out[n] = v.Clone()
	}
	return out
}

// tuned is a model that is made ready: the graph that runs, and the weights that are put back.
type tuned struct {
	loss, eval *onnx.Model
	scores     string
	classes    bool     // the target is their probabilities
	names      []string // trained
	statistics []string // of batch normalisations in training form
	fixed      int      // batch of the model; 0 where it is open
	init       map[string]*onnx.Tensor
}

// Train trains the model, and returns it with its weights replaced. m is not changed. held may be
// empty. Dropout drops nothing, also where m has it in training form, and is in evaluation form in
// the result.
func (t Tuning) Train(ctx context.Context, eng engine.Engine, m *onnx.Model, data,
	held Data) (*Tuned, error) {
	res, err := t.train(ctx, eng, m, data, held)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("training %q: %w", m.Graph.Name, err)
	}
	return res, err
}

// train checks the settings, builds the models of the loss and of its gradient, and trains. The
// result has the weights of the best validation, or the last ones where there was none.
func (t Tuning) train(ctx context.Context, eng engine.Engine, m *onnx.Model, data,
	held Data) (tuned *Tuned, err error) {
	defer try.Catch(&err)
	if t.Optimizer == nil || t.Rate == nil {
		return nil, errors.New("an Optimizer and a Rate are wanted, and not both are given")
	}
	if min(t.Parts, t.Threads, t.Patience, t.LoRA) < 0 {
		return nil, fmt.Errorf("%d parts, %d threads, a patience of %d and low-rank factors of rank %d; "+
			"allowed are 0 and up", t.Parts, t.Threads, t.Patience, t.LoRA)
	}
	if t.Update.EMA != 0 {
		return nil, errors.New("running averages (Update.EMA) are given, and the result is of the weights themselves")
	}
	base := onnx.Clone(m)
	try.Do(pass.Inline(base))
	p := t.prepare(base)
	if len(p.names) == 0 {
		return nil, errors.New("no weights are trained; freeze fewer, or give a model with weights of float32")
	}
	// With a fixed batch a step is as many whole parts of that size as Batch holds, and one at
	// least.
	if t.Parts = max(1, t.Parts); p.fixed > 0 {
		t.Parts = max(1, t.Batch/p.fixed)
		t.Batch = t.Parts * p.fixed
	}
	if t.Epochs < 1 || t.Batch < 1 || t.Batch%t.Parts != 0 || t.Batch > data.N {
		return nil, fmt.Errorf("%d epochs with batches of %d in %d parts; allowed are 1 epoch and up, "+
			"and batches of 1 to %d (the examples) that the parts divide",
			t.Epochs, t.Batch, t.Parts, data.N)
	}
	gradient := try.Get(grad.Build(p.loss, grad.Options{
		Outputs: []string{LossOutput}, WRT: p.names, KeepOutputs: true, ParamsAsInputs: true,
		UnitCotangent: true, Prefix: optim.GradPrefix,
	}))
	o := SplitOptions{Params: p.names, Optimizer: t.Optimizer, Update: t.Update, Init: p.init,
		Threads: t.Threads}
	split := try.Get(NewSplit(eng, gradient, o))
	run := &tuner{Split: split, book: onnx.Vector[float64](0, 0, math.Inf(1))}
	defer split.Close()
	try.Do(t.loop(ctx, eng, p, run, data, held))
	values := run.weights()
	if len(run.best) > 0 {
		values = run.best
	}
	return t.result(base, p, values, run), nil
}

// result puts the learnt values into the model. Factors of adaptations are added to their weights,
// and no trace of them is left. A batch normalisation has two statistics, its mean and its
// variance.
func (t Tuning) result(base *onnx.Model, p *tuned, values map[string]*onnx.Tensor,
	run *tuner) *Tuned {
	out := &Tuned{Model: base, Steps: int(run.book.F64()[0]), Best: int(run.book.F64()[1]),
		Normalised: len(p.statistics) / 2}
	for _, n := range p.names {
		out.Trained += values[n].Len()
	}
	for n, v := range values {
		if base.Graph.Initializers[n] != nil {
			base.Graph.Initializers[n] = v
		}
	}
	try.Do(MergeLoRA(base, values))
	evaluation(base.Graph)
	try.Do(check.Model(base))
	return out
}

// keepAll brings Dropout to evaluation form: engines draw its masks from no seed of the run. It
// reports whether one was in another form.
func keepAll(nodes []*onnx.Node) (changed bool) {
	for _, n := range nodes {
		for _, b := range n.Subgraphs() {
			changed = keepAll(b.Nodes) || changed
		}
		if n.Op == "Dropout" && n.Domain == "" && n.Input(2) != "" {
			n.Inputs, changed = n.Inputs[:1], true
		}
	}
	return changed
}

// prepare builds the models of the loss, for training and for measuring. m's batch normalisations
// get statistics of their own, and its Dropout is in evaluation form.
func (t Tuning) prepare(m *onnx.Model) *tuned {
	own := ownStatistics(m.Graph)
	if keepAll(own.Nodes) || own != m.Graph {
		m.Graph = own
		pass.RemoveUnused(own)
	}
	if t.Output == "" && len(m.Graph.Outputs) > 0 {
		t.Output = m.Graph.Outputs[0].Name
	}
	out, ok := m.Graph.Output(t.Output)
	if !ok {
		try.Fail("the model has no output %q", t.Output)
	}
	p := &tuned{names: slices.Clone(t.Weights), classes: t.Loss.Name == CrossEntropy,
		init: map[string]*onnx.Tensor{}}
	adapted := m
	if t.LoRA > 0 {
		var factors []string
		adapted, factors = try.Get2(AddLoRA(m, t.Adapted, t.LoRA, t.Seed))
		inPlace := func(n string) bool { return slices.Contains(factors, n+loraA) }
		p.names = append(slices.DeleteFunc(p.names, inPlace), factors...)
	}
	p.scores = t.Output
	adapted = onnx.Clone(adapted)
	try.Do(scores(adapted, out, t.Loss.Name))
	if out.Name == LossOutput {
		taken := map[string]bool{}
		adapted.Graph.AddNames(taken)
		p.scores = pass.Unique(taken, LossOutput)
		pass.Rename(adapted.Graph, map[string]string{LossOutput: p.scores})
		out.Name = p.scores
	}
	for _, v := range adapted.Graph.Inputs {
		if len(v.Shape) > 0 && v.Shape[0].IsKnown() {
			p.fixed = v.Shape[0].Size
		}
	}
	// Measuring takes the loss without smoothing, which would not be 0 for a perfect model.
	plain := t.Loss
	plain.Smoothing = 0
	eval := onnx.Clone(adapted)
	p.statistics = moving(adapted)
	p.loss = try.Get(WithLoss(adapted, out, t.Loss))
	// The statistics move: their replacement is an output, and so must outlast the cut at the
	// scores.
	try.Do(carry(p.loss, adapted, p.statistics))
	evaluation(eval.Graph)
	p.eval = try.Get(WithLoss(eval, out, plain))
	for _, n := range slices.Concat(p.names, p.statistics) {
		v := p.eval.Graph.Initializers[n]
		if v == nil {
			try.Fail("the output does not depend on the initializer %q", n)
		}
		p.init[n] = v
		delete(p.eval.Graph.Initializers, n)
		p.eval.Graph.Inputs = append(p.eval.Graph.Inputs, info(n, v))
	}
	if bad := notFinite(p.init); bad != "" {
		try.Fail("the initializer %q holds a number that is not finite: it cannot be trained, "+
			"leave it out", bad)
	}
	try.Do(check.Model(p.eval))
	return p
}

// info describes a tensor whose shape is fixed.
func info(name string, v *onnx.Tensor) onnx.ValueInfo {
	out := onnx.ValueInfo{Name: name, DType: v.DType}
	for _, d := range v.Shape {
		out.Shape = append(out.Shape, onnx.Known(d))
	}
	return out
}

// moving returns the names of the running statistics of batch normalisations in training form, mean
// and variance in turn. Nodes within graphs of nodes are not looked at.
func moving(m *onnx.Model) (out []string) {
	for _, n := range m.Graph.Nodes {
		if n.Op == "BatchNormalization" && attr(n, "training_mode") {
			out = append(out, n.Input(3), n.Input(4))
		}
	}
	return out
}

// carry makes the running statistics of a loss model inputs, and their replacements outputs. The
// replacement of the input NAME is the output optim.NewPrefix + NAME.
func carry(loss, whole *onnx.Model, statistics []string) error {
	if len(statistics) == 0 {
		return nil
	}
	for _, n := range loss.Graph.Nodes {
		if n.Op != "BatchNormalization" || !attr(n, "training_mode") {
			continue
		}
		n.Outputs = n.Outputs[:1:1] // an exporter may have left the others out
		for i := range 2 {
			name := n.Input(3 + i)
			v := whole.Graph.Initializers[name]
			if v == nil || loss.Graph.Initializers[name] == nil {
				return fmt.Errorf("node %q: its running statistics %q are not an initializer of its own",
					n.Name, name)
			}
			delete(loss.Graph.Initializers, name)
			loss.Graph.Inputs = append(loss.Graph.Inputs, info(name, v))
			n.Outputs = append(n.Outputs, optim.NewPrefix+name)
			loss.Graph.Outputs = append(loss.Graph.Outputs, info(optim.NewPrefix+name, v))
		}
	}
	loss.Graph.Values = nil
	return shape.Infer(loss)
}

// evaluation brings batch normalisations in training form to that of evaluation. The running
// statistics then take the place of the batch's.
func evaluation(g *onnx.Graph) {
	for _, n := range g.Nodes {
		if n.Op == "BatchNormalization" && attr(n, "training_mode") {
			n.Attrs = slices.DeleteFunc(n.Attrs,
				func(a onnx.Attr) bool { return a.Name == "training_mode" })
			n.Outputs = n.Outputs[:1]
		}
	}
	g.Values = nil
}

// loop takes the steps. It measures the held-out examples after every epoch and keeps the weights
// of the best one.
func (t Tuning) loop(ctx context.Context, eng engine.Engine, p *tuned, run *tuner, data,
	held Data) error {
	session, err := eng.Load(p.eval)
	if err != nil {
		return err
	}
	defer session.Close()
	perEpoch := data.N / t.Batch
	steps := t.Epochs * perEpoch
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	book := func() []float64 { return run.book.F64() }
	validate := func(ctx context.Context, step int) (Metrics, error) {
		if held.N == 0 {
			book()[0] = float64(step)
			return nil, nil
		}
		m, err := measure(ctx, session, p, run.weights(), held, t.Batch/t.Parts)
		if err != nil {
			return nil, err
		}
		book()[0] = float64(step)
		if m[LossOutput] < book()[2] {
			run.best = run.weights()
			book()[1], book()[2] = float64(step), m[LossOutput]
			// Epochs since the best are counted in steps, which a checkpoint keeps.
		} else if t.Patience > 0 && step-int(book()[1]) >= t.Patience*perEpoch {
			return m, ErrStop
		}
		return m, nil
	}
	var next func(int) ([]map[string]*onnx.Tensor, error)
	loop := Loop{
		Steps: steps, Rate: t.Rate, Model: run, Run: t.Run + " on " + engine.Identity(eng),
		Checkpoint: t.Checkpoint, Log: t.Log, Progress: t.Progress,
		Validate: validate, ValidateEvery: perEpoch,
		Step: func(_ context.Context, step int, rate float64) (Metrics, error) {
			if next == nil {
				next = Prefetch(inner, step, steps, 2, t.batches(data))
			}
			parts, err := next(step)
			if err != nil {
				return nil, err
			}
			outs, err := run.Accumulate(parts...)
			if err != nil {
				return nil, err
			}
			m := Metrics{}
			for i, o := range outs {
				for k, v := range p.scored(o, parts[i]) {
					// Parts are of one size, so that the mean of their means is that of the batch.
					m[k] += v / float64(len(outs))
				}
			}
			m["gradient norm"], err = run.Update(step, rate, true)
			return m, err
		},
	}
	return loop.Train(ctx)
}

// batches returns the parts of the batch of a step, from the step's number and the seed alone.
// Examples beyond the last whole batch of an epoch are left out, others in each epoch. It keeps the
// order of one epoch, and is for one goroutine. A new order costs O(N) once an epoch.
func (t Tuning) batches(data Data) func(step int) ([]map[string]*onnx.Tensor, error) {
	perEpoch, epoch := data.N/t.Batch, -1
	var order []int
	return func(step int) ([]map[string]*onnx.Tensor, error) {
		if e := step / perEpoch; e != epoch {
			epoch, order = e, stream(t.Seed, "order", e).Perm(data.N)
		}
		rows := order[step%perEpoch*t.Batch:][:t.Batch]
		size := t.Batch / t.Parts
		parts := make([]map[string]*onnx.Tensor, t.Parts)
		for i := range parts {
			var err error
			if parts[i], err = data.Batch(rows[i*size:(i+1)*size],
				stream(t.Seed, "vary", step, i)); err != nil {
				return nil, err
			}
		}
		return parts, nil
	}
}

// scored returns the loss of one part, and the accuracy where the loss is that of classes. Of equal
// scores, and of equal targets, the first class counts. Accuracy is of scores and targets [n,
// classes].
func (p *tuned) scored(out, feeds map[string]*onnx.Tensor) Metrics {
	m := Metrics{LossOutput: float64(out[LossOutput].F32()[0])}
	scores, target := out[p.scores], feeds[TargetInput]
	if !p.classes || len(scores.Shape) != 2 || !slices.Equal(scores.Shape, target.Shape) || scores.Shape[1] < 2 {
		return m
	}
	n, classes, right := scores.Shape[0], scores.Shape[1], 0
	for i := range n {
		y, t := scores.F32()[i*classes:(i+1)*classes], target.F32()[i*classes:(i+1)*classes]
		if slices.Index(y, slices.Max(y)) == slices.Index(t, slices.Max(t)) {
			right++
		}
	}
	m["acc"] = float64(right) / float64(n)
	return m
}

// measure returns the mean loss and accuracy over examples. Where the model's batch is fixed, those
// that fill none are left out. Parts weigh as many as they have examples.
func measure(ctx context.Context, s engine.Session, p *tuned, values map[string]*onnx.Tensor,
	data Data, size int) (Metrics, error) {
	total, n := Metrics{}, 0
	for from := 0; from < data.N; from += size {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		rows := make([]int, min(size, data.N-from))
		for i := range rows {
			rows[i] = from + i
		}
		if p.fixed > 0 && len(rows) < p.fixed {
			break
		}
		feeds, err := data.Batch(rows, nil)
		if err != nil {
			return nil, err
		}
		given := maps.Clone(feeds)
		maps.Copy(given, values)
		out, err := engine.Eval(s, given)
		if err != nil {
			return nil, err
		}
		for k, v := range p.scored(out, feeds) {
			total[k] += v * float64(len(rows))
		}
		n += len(rows)
	}
	if n == 0 {
		return nil, fmt.Errorf("measuring: %d examples: the model's batch is fixed at %d; hold out as many "+
			"(--held-out), or none (--held-out 0)", data.N, p.fixed)
	}
	for k := range total {
		total[k] /= float64(n)
	}
	return total, nil
}

// Measure returns the loss of a model ("loss"), without smoothing, and with cross-entropy the
// accuracy ("acc").
func (t Tuning) Measure(ctx context.Context, eng engine.Engine, m *onnx.Model,
	data Data) (mean Metrics, err error) {
	defer try.Catch(&err)
	base := onnx.Clone(m)
	try.Do(pass.Inline(base))
	t.LoRA = 0
	p := t.prepare(base)
	s := try.Get(eng.Load(p.eval))
	defer s.Close()
	size := cmp.Or(p.fixed, max(1, t.Batch/max(1, t.Parts)))
	return measure(ctx, s, p, p.init, data, size)
}

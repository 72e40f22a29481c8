package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/optim"
	"fmp/onnx/serde"
	"fmp/onnx/train"
	"fmp/pipeline/meta"
	"fmp/pipeline/settings"
)

// report is the output of a training run. Before and After are absent where nothing is held out.
type tuningReport struct {
	File    string        `json:"file"`
	Trained int           `json:"trained"`    // numbers
	Steps   int           `json:"steps"`      // taken
	Best    int           `json:"best_step"`  // where the weights are from
	Before  train.Metrics `json:"before"`     // of the test images, or the held-out examples
	After   train.Metrics `json:"after"`      // of the same
	Measure string        `json:"measured"`   // on which
	Norms   string        `json:"batch_norm"` // how batch normalisations were handled
	Seconds float64       `json:"seconds"`    // of training alone
}

// settle sets examples and parts of a step, by n examples to train on, and the rate of each step,
// and returns the peak rate. With n examples an epoch has floor(n/batch) steps, one at least. Step t
// of T, from 0, has with W = warmup*T the rate
//
//	peak (t+1)/W                                          for t < W, else
//	floor + (peak - floor) (1 + cos(pi (t-W)/(T-W)))/2
//
// The floor is 0 for cosine, and the peak itself for constant.
func (o *tuning) settle(cmd *cobra.Command, n int) (rate float64, err error) {
	if len(o.t.Weights) == 0 && o.t.LoRA == 0 {
		return 0, usageErrorf("no weights are trained; freeze fewer, or give a model with " +
			"weights of float32")
	}
	// A step has no more examples than there are, and its parts have one size.
	batch, parts := o.t.Batch, o.t.Parts
	o.t.Batch = min(batch, n)
	// The largest number of parts that divides the batch is the nearest below.
	for o.t.Parts > 1 && o.t.Batch%o.t.Parts != 0 {
		o.t.Parts--
	}
	// The result depends on parts, and so the change is told.
	if o.t.Batch < batch || o.t.Parts < parts {
		fmt.Fprintf(cmd.ErrOrStderr(), "fmp onnx train: a step takes %d examples in %d parts, "+
			"not %d in %d: there are %d to train on, and the parts must divide a step's\n",
			o.t.Batch, o.t.Parts, batch, parts, n)
	}
	// Examples of an epoch that fill no batch make no step of their own.
	steps := o.t.Epochs * max(1, n/max(1, o.t.Batch))
	rate = cmp.Or(o.rate, 1e-4)
	floor, ok := map[string]float64{"cosine": 0, "constant": rate}[o.schedule]
	if !ok {
		return 0, usageErrorf("--schedule is %q; allowed are cosine and constant", o.schedule)
	}
	o.t.Rate = optim.WarmupCosine(rate, floor, int(o.warmup*float64(steps)))
	return rate, nil
}

// train trains the model and writes it. All that the result depends on is the identity of the run:
// a checkpoint of another one is not gone on from.
// The order is: rate, identity, engine, scores before, training, scores after, writing. An error of
// the training leaves its checkpoint and log.
func (o *tuning) train(cmd *cobra.Command, m *onnx.Model, ex *examples, cfg settings.Engine) error {
	ctx := cmd.Context()
	rate, err := o.settle(cmd, ex.train.N)
	if err != nil {
		return err
	}
	digest, err := models.Digest(m)
	if err != nil {
		return err
	}
	// Threads are no part of it: they leave the result as it is.
	identity, err := json.Marshal([]any{digest, ex.digest, ex.side, o.t.Output, o.t.Loss,
		o.t.Weights, o.t.Adapted, o.t.LoRA, o.t.Optimizer, o.t.Update, rate, o.warmup, o.schedule,
		o.t.Epochs, o.t.Batch, o.t.Parts, o.t.Patience, o.t.Seed, o.heldOut, o.augment, o.x})
	if err != nil {
		return err
	}
	o.t.Run, o.t.Checkpoint, o.t.Log = "onnx train "+string(identity),
		o.out+".checkpoint", o.out+".jsonl"
	// Parts run at once instead of threads within an operator.
	eng, err := openEngine(ctx, cfg, 1, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer eng.Close()
	report := tuningReport{File: o.out, Measure: "test images", Norms: norms(m)}
	// The images of a test part are preferred, since the held-out ones choose the best step.
	measured := ex.test
	if measured.N == 0 {
		measured, report.Measure = ex.held, "held-out examples"
	}
	// Without examples to measure on the report has no scores.
	measure := func(m *onnx.Model) (train.Metrics, error) {
		if measured.N == 0 {
			return nil, nil
		}
		return o.t.Measure(ctx, eng, m, measured)
	}
	if report.Before, err = measure(m); err != nil {
		return usageError(err)
	}
	p := newProgress(cmd.ErrOrStderr())
	if o.t.Progress = p.training; wantsJSON(cmd) {
		o.t.Progress = p.trainingJSON
	}
	// Measuring before and after is no part of the time.
	began := time.Now()
	res, err := o.t.Train(ctx, eng, m, ex.train, ex.held)
	p.close()
	if err != nil {
		return err
	}
	report.Seconds, report.Trained, report.Steps, report.Best = time.Since(began).Seconds(),
		res.Trained, res.Steps, res.Best
	if report.After, err = measure(res.Model); err != nil {
		return err
	}
	return o.write(cmd, res.Model, ex, report)
}

// norms says how batch normalisations are handled. A node without training_mode is in evaluation
// form. It reads the main graph alone, where trainable has brought the nodes of functions.
func norms(m *onnx.Model) string {
	kept, moved := 0, 0
	for _, n := range m.Graph.Nodes {
		if a, _ := n.Attr("training_mode"); n.Op == "BatchNormalization" && a.Int != 0 {
			moved++
		} else if n.Op == "BatchNormalization" {
			kept++
		}
	}
	switch {
	case moved > 0:
		return fmt.Sprintf("%d in training form: batch statistics in training, running ones "+
			"moved and written in evaluation form; %d kept", moved, kept)
	case kept > 0:
		return fmt.Sprintf("%d in evaluation form: running statistics kept", kept)
	}
	return "none in the graph, or folded into weights by the exporter"
}

// write writes the model and says how good it is. The checkpoint goes last: until then the same
// command does no work twice. The order is model, side-car, drawing, checkpoint, report. A run that
// ends between two of these is made good by the same command.
func (o *tuning) write(cmd *cobra.Command, m *onnx.Model, ex *examples, r tuningReport) error {
	var err error
	if o.finish != nil {
		if m, err = o.finish(m); err != nil {
			return err
		}
	} else if len(ex.names) > 0 {
		// Class names are metadata of the model, a JSON list in the order of its outputs.
		names, err := json.Marshal(ex.names)
		if err != nil {
			return err
		}
		if m.Metadata == nil {
			m.Metadata = map[string]string{}
		}
		m.Metadata["classes"] = string(names)
	}
	if err := serde.Save(o.out, m); err != nil {
		return err
	}
	if o.side != nil {
		if err := o.side.write(); err != nil {
			return err
		}
	}
	if err := meta.DrawLog(o.t.Log, o.out+".svg"); err != nil {
		return err
	}
	if err := removeCheckpoint(o.t.Checkpoint); err != nil {
		return err
	}
	score := func(m train.Metrics) string {
		if acc, ok := m["acc"]; ok {
			return fmt.Sprintf("loss %.4f, accuracy %.4f", m["loss"], acc)
		}
		return fmt.Sprintf("loss %.4f", m["loss"])
	}
	return tell(cmd, r, func(b *strings.Builder) {
		fmt.Fprintf(b, "model:        %s (step %d of %d taken; curve in %s.svg)\n"+
			"trained:      %d numbers in %.0f s\nbatch norms:  %s\n", r.File,
			cmp.Or(r.Best, r.Steps), r.Steps, r.File, r.Trained, r.Seconds, r.Norms)
		if r.Before != nil {
			fmt.Fprintf(b, "before:       %s, on the %s\nafter:        %s\n", score(r.Before),
				r.Measure, score(r.After))
		}
	})
}

// check refuses settings that are out of range, and those that nothing would read. Each row of the
// table is a flag, its value, whether that is allowed, and the words for it. It reads no file, so
// that a slip of a flag costs no time. A flag counts as given by cmd, whatever its value.
func (o *tuning) check(cmd *cobra.Command) error {
	if o.out == "" && !o.list {
		return usageErrorf("-o is not given; name the file to write")
	}
	if (o.images == "") == (o.data == "") {
		return usageErrorf("give one of --images FOLDER and --data FILE.npz")
	}
	if err := o.t.Loss.Check(); err != nil {
		return usageErrorf("--loss: %w", err)
	}
	if _, err := whole(o.freeze); err != nil {
		return usageErrorf("--freeze: %w", err)
	}
	// NaN is within no bounds, as comparisons with it are false. Infinity is within some, and is
	// refused apart.
	const up = "0 and up"
	for _, c := range []struct {
		flag    string
		value   float64
		ok      bool
		allowed string
	}{
		{"epochs", float64(o.t.Epochs), o.t.Epochs >= 1, "1 epoch and up"},
		{"batch", float64(o.t.Batch), o.t.Batch >= 1, "1 and up"},
		{"parts", float64(o.t.Parts), o.t.Parts >= 1, "1 and up"},
		{"parallel", float64(o.t.Threads), o.t.Threads >= 1, "1 and up"},
		{"patience", float64(o.t.Patience), o.t.Patience >= 0, up},
		{"lora", float64(o.t.LoRA), o.t.LoRA >= 0, up},
		{"classes", float64(o.classes), o.classes >= 0, up},
		{"shift", float64(o.augment.Shift), o.augment.Shift >= 0, up},
		{"held-out", o.heldOut, o.heldOut >= 0 && o.heldOut < 1, "0 to below 1"},
		{"rate", o.rate, o.rate > 0 || !cmd.Flags().Changed("rate"), "above 0"},
		{"warmup", o.warmup, o.warmup >= 0 && o.warmup <= 1, "0 to 1"},
		{"momentum", o.momentum, o.momentum >= 0 && o.momentum < 1, "0 to below 1"},
		{"weight-decay", o.decay, o.decay >= 0, up},
		{"clip", o.clip, o.clip >= 0, up},
		{"temperature", o.t.Loss.Temperature, o.t.Loss.Temperature > 0, "above 0"},
	} {
		if !c.ok || math.IsInf(c.value, 0) {
			return usageErrorf("--%s %v; allowed are %s", c.flag, c.value, c.allowed)
		}
	}
	// Each row of the second table is a condition, the flag that sets it, and flags that act only
	// with it.
	for _, c := range []struct {
		acts  bool
		with  string
		flags []string
	}{
		{o.images != "", "--images",
			[]string{"preset", "mean", "std", "layout", "side", "flip", "shift", "on-bad"}},
		{o.data != "", "--data", []string{"classes"}},
		{o.optimizer != "adamw", "--optimizer sgd", []string{"momentum"}},
		{o.t.Loss.Name == train.CrossEntropy || o.t.Loss.Name == train.Contrastive,
			"--loss " + train.CrossEntropy + " or " + train.Contrastive, []string{"classes"}},
		{o.t.Loss.Name == train.CrossEntropy, "--loss " + train.CrossEntropy,
			[]string{"smoothing", "head"}},
		{o.t.Loss.Name == train.Contrastive, "--loss " + train.Contrastive,
			[]string{"temperature"}},
	} {
		for _, name := range c.flags {
			if cmd.Flags().Changed(name) && !c.acts {
				return usageErrorf("--%s goes with %s, and would be ignored here", name, c.with)
			}
		}
	}
	return nil
}

// checkRows returns an error for the first row of an array that is no target of the loss, or, of an
// input, has a number that is not finite. Probabilities may miss a sum of 1 by 0.001, as float32
// rounds. It costs one pass over the array. A row that is empty has no numbers, and its limits stay
// infinite. Arrays of all element types are looked at.
func (o *tuning) checkRows(name string, t *onnx.Tensor) error {
	if len(t.Shape) == 0 || t.Shape[0] == 0 {
		return nil
	}
	target, size := name == train.TargetInput, t.Len()/t.Shape[0]
	for row := range t.Shape[0] {
		sum, low, high := 0.0, math.Inf(1), math.Inf(-1)
		for i := range size {
			v := t.At(row*size + i)
			sum, low, high = sum+v, min(low, v), max(high, v)
		}
		want := ""
		switch {
		case math.IsNaN(sum) || size > 0 && (math.IsInf(low, 0) || math.IsInf(high, 0)):
			want = "finite numbers"
		case target && o.t.Loss.Name == train.CrossEntropy &&
			!(low >= 0 && math.Abs(sum-1) <= 1e-3):
			want = "probabilities that sum to 1, or the number of a class"
		case target && o.t.Loss.Name == train.Binary && !(low >= 0 && high <= 1):
			want = "numbers from 0 to 1"
		}
		if want != "" {
			return fmt.Errorf("%s: row %d of %q has %v to %v, of sum %v; want %s", o.data, row,
				name, low, high, sum, want)
		}
	}
	return nil
}

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/featurize/learn"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/npy"
	"fmp/onnx/optim"
	"fmp/onnx/serde"
	"fmp/onnx/train"
	"fmp/pipeline/meta"
	"fmp/pipeline/option"
	"fmp/pipeline/settings"
)

// tuning is the input of fmp onnx train.
type tuning struct {
	t                                      train.Tuning
	images, data, out, head, freeze, onBad string
	optimizer, schedule                    string
	// groups are REGEXP=FACTOR of the learning rate.
	groups  []string
	x       extractor.Options
	augment learn.Augment
	// rate is the highest one, 0 for the default. warmup and heldOut are shares: of the steps, and
	// of the examples.
	rate, warmup, decay, momentum, clip float64
	heldOut                             float64
	// classes is the number of those of --data, 0 for as many as the targets show.
	classes int
	list    bool
	// finish makes of the trained model the one that is written; nil writes it with the names of
	// its classes.
	finish func(m *onnx.Model) (*onnx.Model, error)
	side   *sidecar // nil: none
}

// newONNXTrainCommand declares fmp onnx train, whose run fmp train extractor --from shares.
func newONNXTrainCommand() *cobra.Command {
	var o tuning
	cfg := option.Default[engineSettings]()
	cmd := &cobra.Command{
		Use: "train MODEL --images FOLDER | --data FILE.npz -o OUT",
		Short: "Train an ONNX model further on new examples: fine-tuning, with a new head where " +
			"the classes are new",
		Long: `Differentiate MODEL, train it on labelled examples, and write it with its weights replaced. Whoever
made the model, the stock ONNX Runtime trains it. --images takes a folder with one folder of images
a class, or train/CLASS and test/CLASS; --data takes arrays by the names of the model's inputs, and
"target" (class numbers, or scores of the output's shape).

Cross-entropy is of the scores before a last Softmax of MODEL, and binary of those before a last
Sigmoid. Each is refused for the operator of the other.

Where the model has another number of classes than the data, its last linear layer is replaced by a
new one. --freeze keeps weights as they are, by their names or those of the nodes that read them;
--list shows both. --lora R trains factors of rank R beside each matrix instead and adds them to it
in the end; the head and no other vector is trained beside them.

After every epoch the held-out examples are scored, and the weights with the lowest loss are
written. Where flags or a side-car file say how images are fed to MODEL, OUT.yaml says the same of the
model that is written. Batch normalisations stay as the exporter left them: in evaluation form their
statistics are kept, in training form they move and are written in evaluation form. Dropout in training
form is brought to evaluation form: nothing is dropped.

The run is saved every 30 seconds as OUT.checkpoint and goes on from there, to the bit, when the
same command is given again. A checkpoint of another engine, or of another version of the ONNX Runtime,
is refused. The log is OUT.jsonl, drawn in OUT.svg. The result depends on --parts and not on the number
of threads.`,
		Example: `  fmp onnx train efficientnet.onnx --images photos --preset=-1-1 -o mine.onnx
  fmp onnx train vit.onnx --images photos --preset imagenet --lora 8 -o mine.onnx
  fmp onnx train net.onnx --data rows.npz --loss mse --freeze 'layer[1-3].*' -o mine.onnx`,
		Args: exactArgs("MODEL"),
	}
	bindSettings(cmd, &cfg, engineAliases)
	o.bind(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return o.run(cmd, args[0], cfg.Engine)
	}
	return cmd
}

func (o *tuning) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.images, "images", "",
		"`FOLDER` of images, one folder a class, or a known data set")
	f.StringVar(&o.data, "data", "", "`FILE` of arrays (.npz)")
	f.StringVarP(&o.out, "out", "o", "", "model to write")
	outputs.Files(f, "out")
	f.StringVar(&o.t.Output, "output", "", "output that is trained (default: the first)")
	f.StringVar(&o.head, "head", "auto", "last layer: auto (new where the number of classes "+
		"differs), keep, new, or add (behind features)")
	f.IntVar(&o.classes, "classes", 0, "number of classes of --data (default: the largest and one)")
	f.StringVar(&o.t.Loss.Name, "loss", train.CrossEntropy, strings.Join(train.LossNames, ", "))
	f.Float64Var(&o.t.Loss.Smoothing, "smoothing", 0,
		"share of a label that is spread over all classes, 0 to below 1")
	f.Float64Var(&o.t.Loss.Temperature, "temperature", 0.1, "temperature of the contrastive loss")
	f.StringVar(&o.freeze, "freeze", "", "weights to keep, a `REGEXP` of whole names")
	f.IntVar(&o.t.LoRA, "lora", 0,
		"rank of low-rank factors to train in place of matrices; 0 for none")
	f.StringVar(&o.optimizer, "optimizer", "adamw", "adamw or sgd")
	f.Float64Var(&o.rate, "rate", 0,
		"highest learning rate (default 0.0001, and ten times that for a new head)")
	f.StringVar(&o.schedule, "schedule", "cosine",
		"learning rate after warmup: cosine (to 0) or constant")
	f.Float64Var(&o.warmup, "warmup", 0.1, "share of the steps over which the learning rate rises")
	f.StringArrayVar(&o.groups, "rate-of", nil, "`REGEXP=FACTOR` of the learning rate for "+
		"weights of these names; the first that fits counts")
	f.Float64Var(&o.decay, "weight-decay", 0.01, "weight decay of matrices")
	f.Float64Var(&o.momentum, "momentum", 0.9, "momentum of sgd")
	f.Float64Var(&o.clip, "clip", 1, "norm that gradients are clipped at; 0 for none")
	f.IntVar(&o.t.Epochs, "epochs", 5, "passes over the examples")
	f.IntVar(&o.t.Batch, "batch", 32, "examples of a step")
	f.IntVar(&o.t.Parts, "parts", 4, "parts that a batch is cut into; their gradients are summed")
	f.IntVar(&o.t.Threads, "parallel", 2,
		"parts that run at once; the result does not depend on it")
	f.Float64Var(&o.heldOut, "held-out", 0.1, "share of the examples that is held out")
	f.IntVar(&o.t.Patience, "patience", 0,
		"epochs without a lower held-out loss before training ends; 0 for no end")
	f.Uint64Var(&o.t.Seed, "seed", 1, "seed of the new head, the order and the variation of images")
	f.BoolVar(&o.augment.Flip, "flip", true, "mirror images left and right, half the time")
	f.IntVar(&o.augment.Shift, "shift", 0, "shift images by up to so many pixels")
	preprocessingFlags(cmd, &o.x)
	onBadFlag(cmd, &o.onBad)
	f.BoolVar(&o.list, "list", false, "list the weights and which are trained, and stop")
	jsonFlag(cmd, "print JSON, progress (on standard error) too")
}

// flagNames are the flags of preprocessing in place of the settings that they stand for.
var flagNames = strings.NewReplacer("extractor.layout", "--layout", "extractor.mean", "--mean",
	"extractor.std", "--std", "extractor.preset", "--preset", "extractor.side", "--side")

// flagged is an error of an extractor that names flags.
type flagged struct{ error }

func (f flagged) Error() string { return flagNames.Replace(f.error.Error()) }

func (f flagged) Unwrap() error { return f.error }

// imagesNamed is the name of a data set: a folder that is there is none that is known.
func imagesNamed(images string) string {
	if st, err := os.Stat(images); err == nil && st.IsDir() && filepath.IsLocal(images) {
		return "./" + images
	}
	return images
}

// preprocessingFlags says how images are fed to a model that is trained.
func preprocessingFlags(cmd *cobra.Command, x *extractor.Options) {
	f := cmd.Flags()
	f.StringVar(&x.Preset, "preset", "",
		"preprocessing of images: "+strings.Join(extractor.PresetNames(), ", "))
	f.Float64SliceVar(&x.Mean, "mean", nil,
		"mean of pixels scaled to 0..1, one number or one a channel")
	f.Float64SliceVar(&x.Std, "std", nil, "standard deviation, likewise")
	f.StringVar(&x.Layout, "layout", "", "NCHW or NHWC (default: by the input's shape)")
	f.IntVar(&x.Side, "side", 0, "height and width of images where the model leaves them open")
}

// examples are the rows for training, for validation, and for the measurement before and after.
type examples struct {
	train, held, test train.Data
	classes           int      // 0 where the target is no class
	names             []string // of classes
	digest            string
	side              extractor.Options // of the side-car file beside the model
	notes             []string
}

// run loads the model, reads the examples, gives the model its head and trains it. All weights
// become float32 initializers first; inputs and outputs that change their type by it are told.
// --list ends before an engine is opened.
func (o *tuning) run(cmd *cobra.Command, path string, cfg settings.Engine) error {
	if err := o.check(cmd); err != nil {
		return err
	}
	m, manifest, err := models.Load(path)
	if err != nil {
		return usageError(err)
	}
	_, err = checkModel(m)
	was := *m.Graph
	if err == nil {
		// So that --list, --freeze and --rate-of see all weights.
		err = trainable(m)
	}
	if err != nil {
		return usageError(fmt.Errorf("%s: %w", path, err))
	}
	if o.t.Output == "" && len(m.Graph.Outputs) > 0 {
		o.t.Output = m.Graph.Outputs[0].Name
	}
	if err := o.sidecar(cmd, path, manifest); err != nil {
		return err
	}
	var ex *examples
	if o.images != "" {
		ex, err = o.photos(cmd, path, m, manifest, dataset.Options{Name: imagesNamed(o.images)})
	} else {
		ex, err = o.arrays(m)
	}
	if err != nil {
		return err
	}
	m, err = o.prepare(m, ex)
	if err != nil {
		return usageError(fmt.Errorf("%s: %w", path, err))
	}
	if o.list {
		return o.printWeights(cmd.OutOrStdout(), m)
	}
	if slices.ContainsFunc(m.Graph.Nodes,
		func(n *onnx.Node) bool { return n.Op == "Dropout" && n.Input(2) != "" }) {
		ex.notes = append(ex.notes,
			"nothing is dropped: Dropout is in evaluation form, in training and in the result")
	}
	if o.side != nil {
		if err := o.side.fits(m); err != nil {
			return err
		}
	}
	for _, n := range append(ex.notes, retyped(&was, m.Graph)...) {
		fmt.Fprintln(cmd.ErrOrStderr(), "fmp onnx train: "+n)
	}
	return o.train(cmd, m, ex, cfg)
}

// sidecar makes the side-car of the model that is written. A model of arrays has one where the
// model that is read has.
func (o *tuning) sidecar(cmd *cobra.Command, path string, manifest models.Manifest) (err error) {
	if o.list {
		return nil
	}
	if _, from, _ := extractor.Sidecar(path); o.images == "" && from == "" {
		return noSidecar(o.out)
	}
	o.side, err = newSidecar(cmd.Flags(), path, o.out, manifest, o.x, false)
	return err
}

// photos reads a data set of images. An extractor sees the part and the classes of it that are an
// extractor's.
func (o *tuning) photos(cmd *cobra.Command, path string, m *onnx.Model, manifest models.Manifest,
	d dataset.Options) (*examples, error) {
	x := o.x
	x.Output = o.t.Output
	var err error
	if d.Fit, err = extractor.Fit(path, x); err != nil {
		return nil, usageError(flagged{err})
	}
	ds, err := loadForTraining(cmd, d, o.onBad)
	if err != nil {
		return nil, err
	}
	feed, notes, err := extractor.Feeder(path, m, manifest, x, ds.Train.Images)
	if err != nil {
		return nil, usageError(fmt.Errorf("%s: %w", path, flagged{err}))
	}
	part := &ds.Train
	ex := &examples{classes: len(ds.Classes), names: ds.Classes, digest: ds.Digest, notes: notes}
	if ex.side, _, err = extractor.Sidecar(path); err != nil {
		return nil, usageError(err)
	}
	if o.finish != nil {
		if part, ex.classes, err = learn.Corpus(ds); err != nil {
			return nil, usageError(err)
		}
	}
	of := func(p *dataset.Labelled) train.Data {
		return learn.Photos(p, ex.classes, o.t.Loss.Name, o.augment, feed)
	}
	ex.test = of(&ds.Test)
	if ex.train, ex.held, err = of(part).HoldOut(o.heldOut, o.t.Seed); err != nil {
		return nil, usageError(err)
	}
	return ex, nil
}

// arrays reads an archive of arrays. Where the target is class numbers, they become the targets of
// the loss. Each array has a row for each example. Those of float32 inputs are converted to it.
func (o *tuning) arrays(m *onnx.Model) (*examples, error) {
	t, err := npy.LoadArchive(o.data)
	if err != nil {
		return nil, usageError(err)
	}
	ex := &examples{}
	if ex.digest, err = models.DigestFile(o.data, math.MaxInt64); err != nil {
		return nil, err
	}
	target := t[train.TargetInput]
	if target == nil {
		return nil, usageErrorf("%s: it has the arrays %q; want %q beside the model's inputs",
			o.data, slices.Sorted(maps.Keys(t)), train.TargetInput)
	}
	for _, in := range m.Graph.Inputs {
		if t[in.Name] == nil {
			return nil, usageErrorf("%s: it has the arrays %q; the model's inputs are %s", o.data,
				slices.Sorted(maps.Keys(t)), describeValues(m.Graph.Inputs))
		}
		if have := t[in.Name]; in.DType == onnx.Float32 && have.DType != onnx.Float32 {
			t[in.Name] = float32s(have)
		}
	}
	if len(target.Shape) == 1 && o.t.Loss.Name != train.MSE && o.t.Loss.Name != train.Binary {
		labels := make([]int, target.Len())
		for i := range labels {
			v := target.At(i)
			if v < 0 || v > 1<<20 || v != math.Trunc(v) {
				return nil, usageErrorf("%s: target %d is %v; want a class, 0 to %d",
					o.data, i, v, 1<<20)
			}
			labels[i] = int(v)
		}
		most := 0
		for _, y := range labels {
			most = max(most, y)
		}
		if ex.classes = cmp.Or(o.classes, most+1); most >= ex.classes {
			return nil, usageErrorf("%s: a target is %d and --classes is %d", o.data,
				most, ex.classes)
		}
		t[train.TargetInput] = train.Target(labels, ex.classes, o.t.Loss.Name)
	} else {
		t[train.TargetInput] = float32s(target)
		if err := o.targetFits(m, target); err != nil {
			return nil, err
		}
	}
	given := map[string]*onnx.Tensor{train.TargetInput: t[train.TargetInput]}
	for _, in := range m.Graph.Inputs {
		given[in.Name] = t[in.Name]
	}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if given[name] == nil {
			ex.notes = append(ex.notes,
				fmt.Sprintf("the array %q is of no input, and is left out", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if err := o.checkRows(name, given[name]); err != nil {
			return nil, usageError(err)
		}
	}
	all, err := train.Rows(given)
	if err != nil {
		return nil, usageError(fmt.Errorf("%s: %w", o.data, err))
	}
	if ex.train, ex.held, err = all.HoldOut(o.heldOut, o.t.Seed); err != nil {
		return nil, usageError(err)
	}
	return ex, nil
}

// targetFits returns an error where the rows of a target that is no list of classes have not the
// shape of the output's. Contrastive labels have one number a row.
func (o *tuning) targetFits(m *onnx.Model, target *onnx.Tensor) error {
	if o.t.Loss.Name == train.Contrastive {
		if len(target.Shape) == 2 && target.Shape[1] == 1 {
			return nil
		}
		return usageErrorf("%s: %q is of shape %v; --loss %s wants class numbers of one axis",
			o.data, train.TargetInput, target.Shape, o.t.Loss.Name)
	}
	out, ok := m.Graph.Output(o.t.Output)
	if !ok || out.Shape == nil {
		return nil
	}
	fits := len(target.Shape) == len(out.Shape)
	for i := 1; fits && i < len(out.Shape); i++ {
		fits = !out.Shape[i].IsKnown() || out.Shape[i].Size == target.Shape[i]
	}
	want := "want numbers of the output's shape"
	switch {
	case fits:
		return nil
	case o.t.Loss.Name == train.CrossEntropy:
		want = "want class numbers of one axis, or probabilities of the output's shape"
	case len(target.Shape) == 1:
		want += "; target[:, None] of NumPy is a column"
	}
	return usageErrorf("%s: %q is of shape %v and output %q is %s; %s", o.data, train.TargetInput,
		target.Shape, out.Name, out.Type(), want)
}

// float32s converts a tensor.
func float32s(t *onnx.Tensor) *onnx.Tensor {
	out := onnx.ZerosF32(t.Shape...)
	for i := range out.F32() {
		out.F32()[i] = float32(t.At(i))
	}
	return out
}

// prepare gives the model its head, and chooses the trained weights and the method. A new head
// learns at ten times the rate of the others, unless a rate is given.
func (o *tuning) prepare(m *onnx.Model, ex *examples) (*onnx.Model, error) {
	out, ok := m.Graph.Output(o.t.Output)
	if !ok {
		return nil, fmt.Errorf("no output %q; its outputs are %s", o.t.Output,
			describeValues(m.Graph.Outputs))
	}
	m, head, err := o.withHead(m, out, ex)
	if err != nil {
		return nil, err
	}
	frozen, err := whole(o.freeze)
	if err != nil {
		return nil, fmt.Errorf("--freeze: %w", err)
	}
	o.t.Weights, o.t.Adapted = nil, nil
	kept := 0
	for _, w := range train.Weights(m.Graph, o.t.Output) {
		switch isHead := slices.Contains(head, w.Name); {
		case !isHead && frozen != nil && fitsAny(frozen, w):
			kept++
		case o.t.LoRA > 0 && !isHead:
			// Vectors, and matrices that the rank would not make smaller, stay as they are.
			n := m.Graph.Initializers[w.Name].Len()
			if len(w.Shape) > 1 && min(w.Shape[0], n/w.Shape[0]) > o.t.LoRA { // as AddLoRA chooses
				o.t.Adapted = append(o.t.Adapted, w.Name)
			}
		default:
			o.t.Weights = append(o.t.Weights, w.Name)
		}
	}
	if frozen != nil && kept == 0 {
		return nil, fmt.Errorf("--freeze %q fits no weight but the new head's, and no node that "+
			"reads one (--list shows them)", o.freeze)
	}
	if err := o.choose(m); err != nil {
		return nil, err
	}
	for _, name := range head {
		if _, given := o.t.Update.RateOf[name]; !given && o.rate == 0 {
			o.t.Update.RateOf[name] = 10
		}
	}
	untrained := func(name string, _ float64) bool { return !slices.Contains(o.t.Weights, name) }
	maps.DeleteFunc(o.t.Update.RateOf, untrained)
	return m, nil
}

// withHead gives the model a last layer of the data's classes where --head asks for it, and returns
// the layer's weights.
func (o *tuning) withHead(m *onnx.Model, out onnx.ValueInfo,
	ex *examples) (*onnx.Model, []string, error) {
	if !slices.Contains([]string{"auto", "keep", "new", "add"}, o.head) {
		return nil, nil, fmt.Errorf("--head is %q; allowed are auto, keep, new and add", o.head)
	}
	fits := len(out.Shape) == 2 && out.Shape[1].Size == ex.classes
	if ex.classes == 0 || o.t.Loss.Name == train.Contrastive || o.head == "auto" && fits {
		return m, nil, nil
	}
	if o.head == "keep" {
		open := out.Shape == nil || len(out.Shape) == 2 && !out.Shape[1].IsKnown()
		if !fits && !open {
			return nil, nil, fmt.Errorf("output %q is %s and the data has %d classes; --head new "+
				"gives it a last layer of %d", o.t.Output, out.Type(), ex.classes, ex.classes)
		}
		return m, nil, nil
	}
	m, head, err := train.NewHead(m, o.t.Output, ex.classes, o.head == "add", o.t.Seed)
	ex.notes = append(ex.notes, fmt.Sprintf("output %q is given a new last layer of %d "+
		"classes (--head)", o.t.Output, ex.classes))
	return m, head, err
}

// whole compiles an expression for whole names; nil for "".
func whole(s string) (*regexp.Regexp, error) {
	if s == "" {
		return nil, nil
	}
	return regexp.Compile("^(?:" + s + ")$")
}

// fitsAny reports whether an expression fits the name of a weight or of a node that reads it. Some
// exporters name weights by numbers where their nodes bear the names of layers.
func fitsAny(r *regexp.Regexp, w train.Weight) bool {
	return r.MatchString(w.Name) || slices.ContainsFunc(w.Nodes, r.MatchString)
}

// choose sets optimizer and learning rates. A weight learns at the rate of the step times its
// factor, 1 where no --rate-of fits.
func (o *tuning) choose(m *onnx.Model) error {
	o.t.Update = optim.Options{ClipNorm: o.clip, RateOf: map[string]float64{}}
	switch o.optimizer {
	case "adamw":
		o.t.Optimizer = optim.AdamW{WeightDecay: o.decay}
	case "sgd":
		o.t.Optimizer = optim.SGD{Momentum: o.momentum, WeightDecay: o.decay}
	default:
		return fmt.Errorf("--optimizer is %q; allowed are adamw and sgd", o.optimizer)
	}
	// The first that fits counts, and so is written last.
	for _, g := range slices.Backward(o.groups) {
		at := strings.LastIndex(g, "=")
		r, err := whole(g[:max(at, 0)])
		var factor float64
		if _, serr := fmt.Sscan(g[at+1:], &factor); err != nil || serr != nil || r == nil ||
			!(factor >= 0) {
			return fmt.Errorf("--rate-of is %q; want REGEXP=FACTOR, a factor of 0 and up", g)
		}
		fitted := false
		for _, w := range train.Weights(m.Graph, o.t.Output) {
			if fitsAny(r, w) {
				fitted, o.t.Update.RateOf[w.Name] = true, factor
			}
		}
		if !fitted {
			return fmt.Errorf("--rate-of %q fits no weight, and no node that reads one "+
				"(--list shows them)", g)
		}
	}
	return nil
}

// printWeights lists the weights.
func (o *tuning) printWeights(out io.Writer, m *onnx.Model) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "weight\tshape\ttrained\tread by")
	for _, x := range train.Weights(m.Graph, o.t.Output) {
		how := "no"
		if slices.Contains(o.t.Weights, x.Name) {
			how = "yes"
		} else if slices.Contains(o.t.Adapted, x.Name) {
			how = "low rank"
		}
		line(w, "%s\t%v\t%s\t%s\n", x.Name, x.Shape, how, strings.Join(x.Nodes, " "))
	}
	return w.Flush()
}

// report is the output of a training run.
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

// train trains the model and writes it. With N examples an epoch has floor(N/batch) steps, one at
// least. All that the result depends on is the identity of the run: a checkpoint of another one is
// not gone on from.
func (o *tuning) train(cmd *cobra.Command, m *onnx.Model, ex *examples, cfg settings.Engine) error {
	ctx := cmd.Context()
	if len(o.t.Weights) == 0 && o.t.LoRA == 0 {
		return usageErrorf("no weights are trained; freeze fewer, or give a model with " +
			"weights of float32")
	}
	batch, parts := o.t.Batch, o.t.Parts
	o.t.Batch = min(batch, ex.train.N)
	for o.t.Parts > 1 && o.t.Batch%o.t.Parts != 0 {
		o.t.Parts--
	}
	if o.t.Batch < batch || o.t.Parts < parts {
		fmt.Fprintf(cmd.ErrOrStderr(), "fmp onnx train: a step takes %d examples in %d parts, "+
			"not %d in %d: there are %d to train on, and the parts must divide a step's\n",
			o.t.Batch, o.t.Parts, batch, parts, ex.train.N)
	}
	steps := o.t.Epochs * max(1, ex.train.N/max(1, o.t.Batch))
	rate := cmp.Or(o.rate, 1e-4)
	if o.t.Rate = optim.WarmupCosine(rate, 0,
		int(o.warmup*float64(steps))); o.schedule == "constant" {
		o.t.Rate = optim.WarmupCosine(rate, rate, int(o.warmup*float64(steps)))
	} else if o.schedule != "cosine" {
		return usageErrorf("--schedule is %q; allowed are cosine and constant", o.schedule)
	}
	digest, err := models.Digest(m)
	if err != nil {
		return err
	}
	identity, err := json.Marshal([]any{digest, ex.digest, ex.side, o.t.Output, o.t.Loss,
		o.t.Weights, o.t.Adapted, o.t.LoRA, o.t.Optimizer, o.t.Update, rate, o.warmup, o.schedule,
		o.t.Epochs, o.t.Batch, o.t.Parts, o.t.Patience, o.t.Seed, o.heldOut, o.augment, o.x})
	if err != nil {
		return err
	}
	o.t.Run, o.t.Checkpoint, o.t.Log = "onnx train "+string(identity),
		o.out+".checkpoint", o.out+".jsonl"
	eng, err := openEngine(ctx, cfg, 1, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer eng.Close()
	report := tuningReport{File: o.out, Measure: "test images", Norms: norms(m)}
	measured := ex.test
	if measured.N == 0 {
		measured, report.Measure = ex.held, "held-out examples"
	}
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

// norms says how batch normalisations are handled.
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

// write writes the model and says how good it is.
func (o *tuning) write(cmd *cobra.Command, m *onnx.Model, ex *examples, r tuningReport) error {
	var err error
	if o.finish != nil {
		if m, err = o.finish(m); err != nil {
			return err
		}
	} else if len(ex.names) > 0 {
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

// check refuses settings that are out of range, and those that nothing would read.
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
// rounds.
func (o *tuning) checkRows(name string, t *onnx.Tensor) error {
	if t.F32() == nil || len(t.Shape) == 0 || t.Shape[0] == 0 {
		return nil
	}
	target, size := name == train.TargetInput, t.Len()/t.Shape[0]
	for row := range t.Shape[0] {
		sum, low, high := 0.0, math.Inf(1), math.Inf(-1)
		for _, v := range t.F32()[row*size : (row+1)*size] {
			sum, low, high = sum+float64(v), min(low, float64(v)), max(high, float64(v))
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

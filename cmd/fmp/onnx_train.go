package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/featurize/learn"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/optim"
	"fmp/onnx/train"
	"fmp/pipeline/option"
	"fmp/pipeline/settings"
)

// tuning is the input of fmp onnx train. The zero tuning has no defaults: bind sets them, or adapt
// of fmp train extractor. prepare fills in t's weights and method, and train its steps, rate and
// files.
type tuning struct {
	t                                      train.Tuning
	images, data, out, head, freeze, onBad string
	optimizer, schedule                    string
	// groups are REGEXP=FACTOR of the learning rate.
	groups  []string
	x       extractor.Options
	augment learn.Augment
	// rate is the highest one, 0 for the default. warmup and heldOut are shares: of the steps, and
	// of the examples. decay acts on matrices alone, and clip bounds the norm of a gradient, 0 for
	// none.
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

// newONNXTrainCommand declares fmp onnx train, whose run fmp train extractor --from shares. Files
// beside OUT are OUT.checkpoint, OUT.jsonl, OUT.svg and, of image models, OUT.yaml.
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
written. Where flags or a side-car file say how images are fed to MODEL, OUT.yaml says the same of
the model that is written. Batch normalisations stay as the exporter left them: in evaluation form
their statistics are kept, in training form they move and are written in evaluation form. Dropout in
training form is brought to evaluation form: nothing is dropped.

The run is saved every 30 seconds as OUT.checkpoint and goes on from there, to the bit, when the
same command is given again. A checkpoint of another engine, or of another version of the ONNX
Runtime, is refused. The log is OUT.jsonl, drawn in OUT.svg. The result depends on --parts and not
on the number of threads.`,
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

// bind declares the flags, whose values check bounds. A bad schedule, optimizer or head is refused
// later, by train, choose and withHead.
func (o *tuning) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.images, "images", "",
		"`FOLDER` of images, one folder a class, or a known data set")
	f.StringVar(&o.data, "data", "", "`FILE` of arrays (.npz)")
	outFlag(cmd, &o.out, "out", "", "model to write")
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

// flagNames are the flags of preprocessing in place of the settings that they stand for. Packages
// below name settings, as they are also called by commands with settings.
var flagNames = strings.NewReplacer("extractor.layout", "--layout", "extractor.mean", "--mean",
	"extractor.std", "--std", "extractor.preset", "--preset", "extractor.side", "--side")

// flagged is an error of an extractor that names flags. It unwraps to the error, so that exit codes
// stay.
type flagged struct{ error }

func (f flagged) Error() string { return flagNames.Replace(f.error.Error()) }

func (f flagged) Unwrap() error { return f.error }

// run loads the model, reads the examples, gives the model its head and trains it. All weights
// become float32 initializers first; inputs and outputs that change their type by it are told.
// --list ends before an engine is opened. The order is: flags, model, side-car, examples, head and
// method, and the training last. Nothing is written before the training has begun.
func (o *tuning) run(cmd *cobra.Command, path string, cfg settings.Engine) error {
	if err := o.check(cmd); err != nil {
		return err
	}
	m, manifest, err := models.Load(path)
	if err != nil {
		return usageError(err)
	}
	_, err = checkModel(m)
	// The copy keeps the file's element types, which trainable changes in m.
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
	// The head is known after the examples, which have the number of classes.
	m, err = o.prepare(m, ex)
	if err != nil {
		return usageError(fmt.Errorf("%s: %w", path, err))
	}
	if o.list {
		return o.printWeights(cmd.OutOrStdout(), m)
	}
	// Input 2 of Dropout is training_mode (ONNX operator set 12 and up).
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

// prepare gives the model its head, and chooses the trained weights and the method. A new head
// learns at ten times the rate of the others, unless a rate is given. LoRA takes a matrix [a, b]
// with min(a, b) above the rank, b of all axes but the first. Every weight is in one of four
// states: the head's, frozen, adapted by LoRA, or trained whole. With LoRA the vectors, biases
// among them, are not trained.
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
	// The head is made first, so that --freeze cannot keep a layer that did not exist in the file.
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
		// A factor of --rate-of for the head's own weight goes before the ten.
		if _, given := o.t.Update.RateOf[name]; !given && o.rate == 0 {
			o.t.Update.RateOf[name] = 10
		}
	}
	// Factors of frozen weights would be refused by the optimizer as names of nothing.
	untrained := func(name string, _ float64) bool { return !slices.Contains(o.t.Weights, name) }
	maps.DeleteFunc(o.t.Update.RateOf, untrained)
	return m, nil
}

// withHead gives the model a last layer of the data's classes where --head asks for it, and returns
// the layer's weights. auto gives a new layer where the output is not [batch, classes]; add puts
// one behind features. keep takes an output of open size on trust. The weights are nil where the
// model keeps its last layer.
func (o *tuning) withHead(m *onnx.Model, out onnx.ValueInfo,
	ex *examples) (*onnx.Model, []string, error) {
	if !slices.Contains([]string{"auto", "keep", "new", "add"}, o.head) {
		return nil, nil, fmt.Errorf("--head is %q; allowed are auto, keep, new and add", o.head)
	}
	fits := len(out.Shape) == 2 && out.Shape[1].Size == ex.classes
	// A contrastive loss works on features, and targets that are no classes have no layer of their
	// own.
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

// whole compiles an expression for whole names; nil for "". The group keeps an alternative such as
// a|b whole: ^a|b$ would fit every name that begins with a.
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
// factor, 1 where no --rate-of fits. Patterns must fit a weight or a node: one that fits none is
// misspelt. FACTOR 0 is allowed, and keeps a weight as it is while its gradient still counts in the
// norm.
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
		// The last sign parts the pair, as an expression may have one of its own.
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

// printWeights lists the weights. A weight that is neither trained nor adapted is "no": frozen, or
// a vector beside LoRA.
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

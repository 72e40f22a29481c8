package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/serde"
	"fmp/onnx/train"
	"fmp/pipeline/corpus"
	"fmp/pipeline/meta"
	"fmp/pipeline/meta/scale"
	"fmp/pipeline/open"
	"fmp/pipeline/option"
	"fmp/pipeline/posterior"
	"fmp/pipeline/sample"
	"fmp/pipeline/settings"
	"fmp/pipeline/task"
)

// newTrainCommand groups the trainings; each is of the settings that it reads, and of flags. Those
// in the list resumable say so when they are interrupted.
func newTrainCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "train",
		Short: "Train extractors, predictors and embeddings on the ONNX Runtime that everybody has",
		Long: `Train a model: a forward graph is turned into a gradient graph of ordinary ONNX operators, so that
the stock ONNX Runtime does the work. First an extractor, then the conjugate predictor behind it;
for classes that the corpus lacks the open predictor, for differential privacy the private one, and,
for the paper's own predictor of attention blocks, predictor and embedding.

A training that was stopped resumes when the same command is given again.`,
		Example: `  fmp train extractor --dataset mnist --dx 32 -o extractor.onnx
  fmp train conjugate --dataset mnist --extractor extractor.onnx -o conjugate.onnx
  fmp train predictor --dataset mnist --extractor extractor.onnx -o predictor.onnx
  fmp train embedding --dataset mnist --extractor extractor.onnx --predictor predictor.onnx \
    -o embedding.onnx`,
	}, newTrainExtractorCommand(), newTrainPatchesCommand(), newTrainConjugateCommand(),
		newTrainPrivateCommand(), newTrainOpenCommand(), newTrainPredictorCommand(),
		newTrainEmbeddingCommand())
}

// trainSettings are those of the trainings behind an extractor; each reads some of them. A command
// has flags for those that it reads, and files may hold all of them.
type trainSettings struct {
	Seed       uint64              `yaml:"seed" json:"seed" default:"1" doc:"seed that every random stream of the run is named under"`
	Dataset    settings.Dataset    `yaml:"dataset" json:"dataset"`
	Extractor  settings.Extractor  `yaml:"extractor" json:"extractor"`
	Federation settings.Federation `yaml:"federation" json:"federation"`
	Conjugate  settings.Conjugate  `yaml:"conjugate" json:"conjugate"`
	Predictor  settings.Predictor  `yaml:"predictor" json:"predictor"`
	Embedding  settings.Embedding  `yaml:"embedding" json:"embedding"`
	ERM        settings.ERM        `yaml:"erm" json:"erm"`
	Engine     settings.Engine     `yaml:"engine" json:"engine"`
	Tasks      settings.Tasks      `yaml:"tasks" json:"tasks"`
}

// FillDefaults sets defaults of the data set where no value was given.
func (c *trainSettings) FillDefaults() []string { return option.FillDefaults(c, c.Dataset.Name) }

// source is the data set of a training, behind its extractor. Shipped extractors are looked up
// under the data set's name.
// Threads are those of the settings, or else one a processor.
func source(d settings.Dataset, x settings.Extractor, e settings.Engine) corpus.Source {
	return corpus.Source{Dataset: d, Extractor: x, Shipped: d.Name,
		Threads: cmp.Or(e.Threads, runtime.GOMAXPROCS(0))}
}

// metaSettings are the settings that all trainings behind an extractor read. Those whose tasks have
// a number of clients, or of points a client, read federation.clients or federation.points besides.
// A dot at the end takes in the whole group.
var metaSettings = []string{"seed", "dataset.", "extractor.", "engine."}

// training is the start of a training: its corpus, and the description of the extractor behind it.
// Config.Corpus and Config.Validation share the memory of whole: none of the three is changed.
type training struct {
	meta.Config
	whole  *task.Bank // the corpus and the validation tasks' part in one
	behind models.Manifest
	report func(stage string, done, total int)
	// withheld returns all training images of further classes of the data set, behind the same
	// extractor.
	withheld func(classes string) (*task.Bank, error)
}

// metaFlags are the flags that the trainings of predictor and embedding share, and their settings.
// One value serves one command: bind ties the flags to its fields. train is set by the command, and
// called once by run.
type metaFlags struct {
	// from is the model to start from, "" for a new one; licence is stated in the manifest.
	out, from, licence string
	meta.Config
	settings trainSettings
	given    *resolver // the settings
	// train makes the model.
	train func(ctx context.Context, t *training) (*onnx.Model, error)
}

// bind gives a command the settings that it reads besides those of all trainings, and the flags of
// every training, bindOptimizer those of the ones whose schedule is the caller's choice. steps,
// batch and samples are the defaults of --steps, --batch and --noises. Loading, checking and saving
// are run's, so that each training only makes a model.
func (f *metaFlags) bind(cmd *cobra.Command, steps, batch, samples int, reads ...string) {
	f.settings = option.Default[trainSettings]()
	f.given = bindSettings(cmd, &f.settings, runAliases, append(reads, metaSettings...)...)
	cmd.Args, cmd.RunE = noArgs, func(cmd *cobra.Command, _ []string) error { return f.run(cmd) }
	fl := cmd.Flags()
	outFlag(cmd, &f.out, "model", "", "`FILE` to write; its log goes to FILE.jsonl, drawn in "+
		"FILE.svg, checkpoints to FILE.checkpoint (default DATASET-"+cmd.Name()+".onnx)")
	fl.StringVar(&f.licence, "licence", "", "licence to state in the model's manifest")
	fl.IntVar(&f.Steps, "steps", steps, "steps of training")
	fl.IntVar(&f.Batch, "batch", batch, "tasks a step")
	fl.IntVar(&f.Samples, "noises", samples, "base noises a task")
	fl.IntVar(&f.ValidateEvery, "validate-every", 100, "steps between validations")
	jsonFlag(cmd, "print what was made as JSON")
}

// bindOptimizer declares the flags of a training whose schedule is the caller's. A 0 that means
// none is turned into the trainings' own word for it (orNone). The average is m_t = ema m_(t-1) +
// (1 - ema) theta_t of the parameters theta after step t.
func (f *metaFlags) bindOptimizer(cmd *cobra.Command, rate float64) {
	fl := cmd.Flags()
	fl.StringVar(&f.from, "from", "",
		"ONNX `FILE` of "+cmd.Name()+" to start from; default a new one")
	fl.Float64Var(&f.Rate, "rate", rate, "peak learning rate of AdamW")
	fl.IntVar(&f.Warmup, "warmup", 30,
		"steps of rising rate, 0 for none; afterwards it falls along half a cosine")
	fl.Float64Var(&f.Clip, "clip", 1, "largest norm of a gradient; 0 for none")
	fl.Float64Var(&f.EMA, "ema", 0.99,
		"decay of the running average of the parameters that is saved; 0 saves the last ones")
}

// check refuses flags that no training can be made by. Comparisons are written so that NaN fails
// them. Of several flags that are wrong the first of the list is told.
func (f *metaFlags) check(cmd *cobra.Command) error {
	for _, n := range []struct {
		flag  string
		value int
	}{{"steps", f.Steps}, {"batch", f.Batch}, {"noises", f.Samples},
		{"validate-every", f.ValidateEvery}} {
		if n.value < 1 {
			return usageErrorf("--%s %d; allowed are numbers from 1", n.flag, n.value)
		}
	}
	if cmd.Flags().Changed("rate") && !(f.Rate > 0) {
		return usageErrorf("--rate %v; allowed are numbers above 0", f.Rate)
	}
	return nil
}

// orNone turns a 0, which the trainings take for their default, into one that means none. Other
// values stay.
func orNone[T int | float64](v *T) {
	if *v == 0 {
		*v = -1
	}
}

// trained is the output of the train commands.
type trained struct {
	Model  string `json:"model"`
	Digest string `json:"digest"`
	Log    string `json:"log"`
	// Validation has the scores of the last validation.
	Validation train.Metrics `json:"validation"`
}

// start loads the model to start from, or makes a new one. fresh is called without --from alone. A
// file that is no model, and sizes that a new model cannot have, are usage errors.
func (f *metaFlags) start(fresh func() (*onnx.Model, error)) (*onnx.Model, error) {
	if f.from == "" {
		m, err := fresh()
		return m, usageError(err)
	}
	m, _, err := models.Load(f.from)
	if err != nil {
		return nil, usageError(err)
	}
	return m, nil
}

// run prepares data and engine, lets train make the model, and saves it with its manifest, log and
// plot. The checkpoint goes last, once model, log and plot are there. The engine runs one thread an
// operator: parallel work is over tasks, and figures do not depend on the machine.
// The order is: flags, engine, features of the corpus, training, model, plot. An error of the
// training leaves its checkpoint and log, from which the same command goes on.
func (f *metaFlags) run(cmd *cobra.Command) error {
	cfg := &f.settings
	if err := f.check(cmd); err != nil {
		return err
	}
	orNone(&f.Warmup)
	orNone(&f.Clip)
	eng, err := openEngine(cmd.Context(), cfg.Engine, 1, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer eng.Close()
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.close()
	images, err := corpus.Read(cmd.Context(), source(cfg.Dataset, cfg.Extractor, cfg.Engine), eng,
		bar.report, nil)
	if err != nil {
		return usageError(err)
	}
	whole, err := images.Bank(images.Features.Splits.Corpus)
	if err != nil {
		return usageError(fmt.Errorf("corpus: %w", err))
	}
	if whole == nil {
		return usageErrorf("the data set has no corpus to train on; set " +
			"dataset.splits.corpus above 0")
	}
	// Features of the corpus have been taken, and the pixels are not needed again.
	images.Release()
	out := cmp.Or(f.out, strings.Map(fileRune, cfg.Dataset.Label())+"-"+cmd.Name()+".onnx")
	c := f.Config
	c.Engine, c.Threads = eng, cfg.Engine.Threads
	c.Threads = cmp.Or(c.Threads, runtime.GOMAXPROCS(0))
	if c.Corpus, c.Validation, err = meta.Split(whole); err != nil {
		return usageError(err)
	}
	c.Clients, c.Points = cfg.Federation.Clients, cfg.Federation.Points
	c.L2, c.Fresh, c.Seed, c.FixedLabels = cfg.ERM.L2, cfg.Predictor.Fresh, cfg.Seed,
		cfg.Tasks.Labels == "fixed"
	c.Log, c.Checkpoint = out+".jsonl", out+".checkpoint"
	// A checkpoint is gone on from only by a run of the same extractor, features and corpus;
	// package meta adds the settings.
	c.Run = fmt.Sprintf("extractor %s features %s corpus %v", images.Extractor.ModelDigest(),
		images.Features.Digest, images.Features.Splits.Corpus)
	res := trained{Model: out, Log: c.Log}
	c.Progress = func(t train.Progress) {
		// A problem, such as a checkpoint that could not be saved, does not end the training.
		if t.Problem != nil {
			bar.problem(t.Problem)
			return
		}
		stage := "training " + cmd.Name()
		bar.report(stage, t.Step, t.Steps)
		res.Validation = t.Validation
	}
	m, err := f.train(cmd.Context(),
		&training{c, whole, images.Behind(), bar.report, func(classes string) (*task.Bank, error) {
			return withheld(cmd.Context(), cfg, classes, images, eng, bar.report)
		}})
	if err != nil {
		return err
	}
	bar.close()
	if err := f.describe(m, images); err != nil {
		return err
	}
	if err := serde.Save(out, m); err != nil {
		return err
	}
	if res.Digest, err = models.Digest(m); err != nil {
		return err
	}
	if err := meta.DrawLog(c.Log, out+".svg"); err != nil {
		return err
	}
	if err := removeCheckpoint(c.Checkpoint); err != nil {
		return err
	}
	return f.print(cmd, res)
}

// withheld reads classes of the data set that the corpus lacks. They are standardised by the
// statistics of the corpus's own extractor part. Labels of the bank are its own, from 0 up.
func withheld(ctx context.Context, cfg *trainSettings, classes string, from *corpus.Images,
	eng engine.Engine, report func(stage string, done, total int)) (*task.Bank, error) {
	s := source(cfg.Dataset, cfg.Extractor, cfg.Engine)
	// All training images of these classes are the clients' part.
	s.Dataset.Classes, s.Dataset.Splits, s.Stats = classes, settings.Splits{Clients: 1},
		from.Features.Stats
	own, err := corpus.Read(ctx, s, eng, report, nil)
	if err != nil {
		return nil, usageError(err)
	}
	// The bank keeps its rows; pixels and features of the rest are dropped.
	defer own.Release()
	for _, name := range own.Set.Classes {
		if slices.Contains(from.Set.Classes, name) {
			return nil, usageErrorf("class %s of --unlearned-classes is one of the corpus's "+
				"(dataset.classes); give classes that it lacks", name)
		}
	}
	bank, err := own.Bank(own.Features.Splits.Clients)
	return bank, usageError(err)
}

// describe completes the manifest of a trained model. Paths are left out of the recorded command,
// as they tell of this machine.
func (f *metaFlags) describe(m *onnx.Model, images *corpus.Images) error {
	cfg := &f.settings
	man, err := models.ReadManifest(m)
	if err != nil {
		return err
	}
	man.Extractor, man.Classes, man.Licence, man.Seed = images.Extractor.ModelDigest(),
		images.Set.Classes, f.licence, cfg.Seed
	// Of the models that are made here a predictor alone states the penalty of heads.
	if man.Kind == models.KindPredictor {
		man.L2 = cfg.ERM.L2
	}
	man.TrainingData = fmt.Sprintf("%s, corpus part (images sha256 %s)", cfg.Dataset.Label(),
		images.Set.Digest)
	man.Command = f.given.recorded()
	return man.Write(m)
}

// print writes the files of a training and the figures of its last validation.
// Figures stand in the order of their names, with four significant digits.
func (f *metaFlags) print(cmd *cobra.Command, res trained) error {
	var scores []string
	for _, name := range slices.Sorted(maps.Keys(res.Validation)) {
		scores = append(scores, fmt.Sprintf("%s %.4g", name, res.Validation[name]))
	}
	return say(cmd, res, "model:      %s (sha256 %.12s)\nlog:        %s, drawn in %s.svg\n"+
		"validation: %s\n", res.Model, res.Digest, res.Log, res.Model, strings.Join(scores, ", "))
}

// newTrainConjugateCommand declares fmp train conjugate. Whether --images fit into a model's file
// is known before the training, and checked then.
func newTrainConjugateCommand() *cobra.Command {
	var f metaFlags
	var t meta.ConjugateConfig
	var images bool
	cmd := &cobra.Command{
		Use:   "conjugate",
		Short: "Train the conjugate predictor on tasks from the meta-training corpus",
		Long: `Train the conjugate predictor: coordinates of the features in which classes are round, the prior of
their means, the metric of the head, and a few scalars. They start from the moments of the corpus
part of a data set's features and are learned by gradients through the closed form, on the scores of
single held-out points of tasks and of ten at a time. Four phases: coordinates and scalars
(--steps); scalars again (2/5 of as many steps); those of the point head (2/5); those of the
intervals (1/2). About a minute. Where classes and coordinates are many, a task has some of the
classes, and a step fewer tasks and noises than --batch and --noises say, so that its time and
memory are bounded.

With --images the file holds the corpus's images too, as features of one byte a number. In a round
of the same class names they count as one more client's, the less the farther the clients' class
means lie from the corpus's. Where the corpus is nearly free of errors, as MNIST, clients whose
images are harder lose by it. No client and no classifier gets the images; whoever gets the file
does.

Behind a network that has not learned the classes, or with few images a feature, none of it is
needed: a server that takes part as a site of a round of moments has a lower NLL
(docs/extractors.md, Without a corpus).`,
		Example: `  fmp train conjugate --dataset cifar10 -o conjugate.onnx
  fmp train conjugate --dataset cifar100 --images -o conjugate.onnx
  fmp train conjugate --dataset mnist --extractor extractor.onnx --steps 600 -o conjugate.onnx`,
	}
	f.bind(cmd, 300, 4, 64, "federation.clients", "federation.points")
	cmd.Flags().Float64Var(&t.Shrinkage, "shrinkage", 0, "share, 0 to 1, of the covariance "+
		"within classes replaced by a multiple of the identity where metric and coordinates start")
	cmd.Flags().BoolVar(&t.FixedMetric, "fixed-metric", false,
		"leave coordinates and metric what the moments of the corpus say: learn the scalars alone")
	cmd.Flags().IntVar(&t.K, "coordinates", 0, "number k of coordinates; 0 means classes - 1")
	cmd.Flags().BoolVar(&images, "images", false,
		"keep the corpus's images in the file, for rounds of its class names")
	f.train = func(ctx context.Context, in *training) (*onnx.Model, error) {
		t.Config = in.Config
		if images {
			// Without --coordinates k is the number of classes less one, as many as class means can
			// span.
			if err := sample.ImagesFit(len(in.whole.Labels), cmp.Or(t.K, in.whole.C-1),
				in.whole.C); err != nil {
				return nil, usageError(fmt.Errorf("train conjugate: --images: %w", err))
			}
		}
		m, err := meta.TrainConjugate(ctx, t)
		if err != nil || !images {
			return m, err
		}
		// The images are those of the whole corpus, the validation rows among them.
		return models.WithImages(m, in.whole.Features, in.whole.Labels)
	}
	return cmd
}

// newTrainOpenCommand declares fmp train open. It trains the predictor, then the scale of its
// posterior, then the ends of its intervals, each by the one before.
func newTrainOpenCommand() *cobra.Command {
	var f metaFlags
	var t meta.OpenConfig
	var unlearned string
	cmd := &cobra.Command{
		Use:   "open",
		Short: "Train the open predictor, for tasks on classes that the corpus lacks",
		Long: `Train the predictor of tasks whose classes the corpus lacks, which is what a pretrained extractor
usually meets: moments of the corpus part of a data set's features, and 16 scalars. The scalars are
learned by leaving classes out: moments from half of the corpus's classes, tasks of 5 to 20 classes
from the other half. So is the share of the uncertainty of its own fit that a posterior sample has,
how far the best temperatures of tasks lie apart, which calibration points are weighed against, and
how far 90% intervals reach. It takes two minutes, and a corpus of 4 classes at least; more is
better.

The extractor should not have learned the classes of the corpus better than it will know those of
the tasks; if it has (our extractors learn from other images of the same classes), the result states
its probabilities with too much confidence. Intervals then get wider only; with --unlearned-classes
they are learned on classes that the extractor does not know, and get narrower, too.`,
		Example: `  fmp train open --dataset cifar100 --classes 0-39 \
    --extractor cifar100-0-39.onnx -o open.onnx
  fmp train open --dataset cifar100 --classes 0-29 --unlearned-classes 30-39 \
    --extractor cifar100-0-29.onnx -o open.onnx
  fmp train open --dataset mnist -o open.onnx`,
	}
	f.bind(cmd, 300, 4, 32, "federation.clients")
	cmd.Flags().IntVar(&t.Coordinates, "coordinates", open.MaxCoordinates,
		"most coordinates; features beyond are projected onto their principal directions")
	cmd.Flags().StringVar(&unlearned, "unlearned-classes", "",
		"`CLASSES` of the data set that neither extractor nor corpus has learned, for the widths "+
			"of intervals; default the corpus's")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if t.Coordinates < 1 {
			return usageErrorf("--coordinates %d; allowed are numbers from 1", t.Coordinates)
		}
		return f.run(cmd)
	}
	f.train = func(ctx context.Context, in *training) (*onnx.Model, error) {
		t.Config = in.Config
		// The eighth of the rows that meta.Split holds back is used too.
		t.Corpus = in.whole // validation is on classes left out
		var bank *task.Bank
		var err error
		if unlearned != "" {
			if bank, err = in.withheld(unlearned); err != nil {
				return nil, err
			}
		}
		m, err := meta.TrainOpen(ctx, t)
		if err != nil {
			return nil, err
		}
		return withScale(ctx, m, bank, in)
	}
	return cmd
}

// withScale returns an open predictor with the scale of its posterior, learned on the same corpus,
// and the ends of its intervals, learned on a bank of classes that the extractor has not learned
// or, where it is nil, on the corpus. The ends are learned with scale and deviation set. The result
// is a new model.
func withScale(ctx context.Context, m *onnx.Model, unlearned *task.Bank,
	in *training) (*onnx.Model, error) {
	p, err := open.FromModel(m)
	if err != nil {
		return nil, err
	}
	report := func(stage string) func(done, total int) {
		return func(done, total int) { in.report(stage, done, total) }
	}
	c := scale.Config{Corpus: in.whole, Clients: in.Clients, Threads: in.Threads, Seed: in.Seed,
		Level:    posterior.IntervalLevel,
		Progress: report("scale of the posterior")}
	if p.Scale, p.Deviation, err = scale.Learn(ctx, p, c); err != nil {
		return nil, err
	}
	c.Progress = report("ends of intervals")
	if p.Ends, err = scale.Ends(ctx, p, unlearned, c); err != nil {
		return nil, err
	}
	return p.Model()
}

// newTrainPrivateCommand declares fmp train private. Only a predictor with coordinates of its own
// does without a conjugate one.
func newTrainPrivateCommand() *cobra.Command {
	var f metaFlags
	var t meta.PrivateConfig
	cmd := &cobra.Command{
		Use:   "private",
		Short: "Train the private predictor, for rounds with differential privacy",
		Long: `Train the predictor of private rounds, in which class sums are released with noise: it has the
coordinates, prior and metric of a conjugate predictor (--set conjugate.model=FILE; default: the one
that comes with the program), the norm that clients clip their points to, and five scalars learned
on simulated private rounds of the corpus, from 5 to 100 clients and epsilon 0.5 to 16. About ten
seconds of two idle cores.

With --coordinates it is one for classes that the corpus lacks: no conjugate predictor, but so many
coordinates, those in which the corpus's classes differ most, and all scalars learned by leaving
classes out. Every coordinate more carries noise of its own.`,
		Example: `  fmp train private --dataset cifar10 -o private.onnx
  fmp train private --dataset cifar100 --classes 0-39 --extractor cifar100-0-39.onnx \
    --coordinates 12 -o private.onnx
  fmp train private --dataset mnist --extractor extractor.onnx \
    --set conjugate.model=conjugate.onnx -o private.onnx`,
	}
	f.bind(cmd, 400, 8, 32, "conjugate.model", "federation.points")
	cmd.Flags().IntVar(&t.Coordinates, "coordinates", 0, "coordinates of a predictor for classes "+
		"that the corpus lacks; 0: one for its classes, with the conjugate predictor's")
	f.train = func(ctx context.Context, in *training) (*onnx.Model, error) {
		// As many coordinates as features would be no choice of directions.
		if t.Coordinates < 0 || t.Coordinates >= in.Corpus.Dx {
			return nil, usageErrorf("train private: --coordinates %d; allowed are 0 to %d, one "+
				"less than the features", t.Coordinates, in.Corpus.Dx-1)
		}
		conjugate, err := in.conjugate(f.settings.Conjugate.Model, f.settings.Dataset.Name)
		if err != nil {
			return nil, usageError(err)
		}
		if conjugate == nil && t.Coordinates == 0 {
			return nil, usageErrorf("no conjugate predictor; fmp train conjugate makes one, " +
				"and --set conjugate.model=FILE names it")
		}
		t.Config, t.Conjugate = in.Config, conjugate
		return meta.TrainPrivate(ctx, t)
	}
	return cmd
}

// conjugate returns the conjugate predictor that a setting names; without one that fits, the
// moments of the corpus. With none it is nil. Moments alone give coordinates and metric, with
// scalars that nobody learned. The setting is a file, "default" or "untrained", as corpus.Model has
// it, or "none".
func (t *training) conjugate(setting, dataset string) (*onnx.Model, error) {
	if setting == "none" {
		return nil, nil
	}
	m, _, _, err := corpus.Model(models.KindConjugate, setting, dataset, t.behind)
	if err == nil && m == nil {
		m, err = meta.UntrainedConjugate(t.whole)
	}
	return m, err
}

// blockFlags declares the flags of attention blocks, which predictor and embedding share. 0 is
// turned into a size by package models.
func blockFlags(fl *pflag.FlagSet, dim, heads *int, published *bool) {
	fl.IntVar(dim, "dim", 0, "width of the blocks; 0 means dx + classes + 64")
	fl.IntVar(heads, "heads", 0, "attention heads of the published blocks; 0 means 4")
	fl.BoolVar(published, "published", false,
		"the published blocks: several heads, layer norm, no identity path")
}

// newTrainPredictorCommand declares fmp train predictor. Uploads are simulated by an embedding that
// is not trained, of the size that the settings name. Zero weights turn a term of the loss off
// (orNone), as a Config takes 0 for its default.
func newTrainPredictorCommand() *cobra.Command {
	var f metaFlags
	var pc models.PredictorConfig
	var t meta.PredictorConfig
	cmd := &cobra.Command{
		Use:   "predictor",
		Short: "Train the predictor of fresh points on tasks from the meta-training corpus",
		Long: `Train the predictor on tasks drawn from the corpus part of a data set's features: the score of the
classifiers fitted to a context and what is drawn for it, on held-out points; of those fitted to the
drawn points alone (--alone); and the distance between what is drawn for a context and for its
compression (--coupling).

Every task names its classes anew; --set tasks.labels=fixed keeps the names.`,
		Example: `  fmp train predictor --dataset cifar10 -o predictor.onnx
  fmp train predictor --steps 1000 --batch 8 --federation.points 40
  fmp train predictor --published`,
	}
	f.bind(cmd, 1500, 4, 2, "predictor.fresh", "erm.l2", "tasks.labels", "embedding.size",
		"federation.clients", "federation.points")
	f.bindOptimizer(cmd, 1e-3)
	fl := cmd.Flags()
	fl.Float64Var(&t.Joint, "joint", 1,
		"weight of the joint score of ten held-out points at a time; 0 for none")
	fl.Float64Var(&t.Alone, "alone", 0.3,
		"weight of the score of the drawn points alone; 0 for none")
	fl.Float64Var(&t.Local, "local", 0.5,
		"share of tasks whose context is one client's points; the others' is the pool")
	fl.Float64Var(&t.Coupling, "coupling", 1,
		"weight of the distance between draws for a context and for its compression; 0 for none")
	blockFlags(fl, &pc.Dim, &pc.Heads, &pc.Published)
	fl.IntVar(&pc.Latent, "latent", 0, "columns of noise that all points of one sample share; 0 "+
		"means noise of its own for every point")
	fl.IntVar(&pc.Hidden, "hidden", 0,
		"width of a two-layer feed-forward part in the blocks; 0 means one layer")
	fl.BoolVar(&pc.IgnoreMasses, "ignore-masses", false,
		"leave the masses of a context out, as published")
	f.train = func(ctx context.Context, in *training) (*onnx.Model, error) {
		m, err := f.start(func() (*onnx.Model, error) {
			// Sizes of a new model follow from the corpus; those of --from are its own.
			pc.Dx, pc.C, pc.Fresh = in.Corpus.Dx, in.Corpus.C, in.Fresh
			return models.NewPredictor(pc, in.Seed)
		})
		if err != nil {
			return nil, err
		}
		if t.Compressor, err = models.NewEmbedding(models.EmbeddingConfig{Dx: in.Corpus.Dx,
			C: in.Corpus.C, Size: f.settings.Embedding.Size},
			in.Seed); err != nil {
			return nil, err
		}
		t.Config = in.Config
		for _, weight := range []*float64{&t.Joint, &t.Alone, &t.Local, &t.Coupling} {
			orNone(weight)
		}
		return meta.TrainPredictor(ctx, m, t)
	}
	return cmd
}

// newTrainEmbeddingCommand declares fmp train embedding. Where no trained predictor fits, an
// untrained one takes its place. The predictor is frozen: the training changes the embedding alone.
func newTrainEmbeddingCommand() *cobra.Command {
	var f metaFlags
	var ec models.EmbeddingConfig
	var t meta.EmbeddingConfig
	cmd := &cobra.Command{
		Use:   "embedding",
		Short: "Train the embedding that makes uploads, behind a predictor",
		Long: `Train the embedding on tasks drawn from the corpus part of a data set's features, so that the
classifiers fitted to the clients' uploads, and what --predictor draws for them, are those that the
clients' own points would have given. The log's gap is their distance divided by the norm of the
latter.

--embedding.weights constant makes one whose points all weigh n/s.`,
		Example: `  fmp train embedding --dataset cifar10 --predictor predictor.onnx \
    -o embedding.onnx
  fmp train embedding --predictor predictor.onnx --embedding.size 20 --steps 3000
  fmp train embedding --predictor predictor.onnx --blocks 0 --hidden 0`,
	}
	f.bind(cmd, 2500, 4, 1, "predictor.", "erm.l2", "tasks.labels", "embedding.size",
		"embedding.weights", "federation.clients", "federation.points")
	f.bindOptimizer(cmd, 2e-3)
	fl := cmd.Flags()
	fl.BoolVar(&t.Relative, "relative", false, "divide each task's loss by the norm of its target")
	fl.Float64Var(&t.Score, "score", 2,
		"weight of the score on held-out points, beside the distance; 0 for none")
	blockFlags(fl, &ec.Dim, &ec.Heads, &ec.Published)
	fl.IntVar(&ec.Blocks, "blocks", 1, "set attention blocks before the pooling")
	fl.IntVar(&ec.Hidden, "hidden", 256,
		"width of a two-layer feed-forward part in the blocks; 0 means one layer")
	f.train = func(ctx context.Context, in *training) (*onnx.Model, error) {
		m, err := f.start(func() (*onnx.Model, error) {
			ec.Dx, ec.C, ec.Size = in.Corpus.Dx, in.Corpus.C, f.settings.Embedding.Size
			ec.ConstantWeights = f.settings.Embedding.Weights == "constant"
			return models.NewEmbedding(ec, in.Seed)
		})
		if err != nil {
			return nil, err
		}
		if t.Predictor, _, _, err = corpus.Model(models.KindPredictor, f.settings.Predictor.Model,
			f.settings.Dataset.Name, in.behind); err != nil {
			return nil, usageError(err)
		}
		if t.Predictor == nil {
			if t.Predictor, err = models.NewPredictor(models.PredictorConfig{Dx: in.Corpus.Dx,
				C: in.Corpus.C, Fresh: in.Fresh},
				in.Seed); err != nil {
				return nil, err
			}
		}
		t.Config = in.Config
		orNone(&t.Score)
		return meta.TrainEmbedding(ctx, m, t)
	}
	return cmd
}

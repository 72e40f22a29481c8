package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/serde"
	"fmp/onnx/train"
	"fmp/pipeline/corpus"
	"fmp/pipeline/meta"
	"fmp/pipeline/option"
	"fmp/pipeline/settings"
	"fmp/pipeline/task"
)

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
  fmp train embedding --dataset mnist --extractor extractor.onnx --predictor predictor.onnx -o embedding.onnx`,
	}, newTrainExtractorCommand(), newTrainPatchesCommand(), newTrainConjugateCommand(),
		newTrainPrivateCommand(), newTrainOpenCommand(), newTrainPredictorCommand(),
		newTrainEmbeddingCommand())
}

// trainSettings are those of the trainings behind an extractor; each reads some of them.
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

// source is the data set of a training, behind its extractor.
func source(d settings.Dataset, x settings.Extractor, e settings.Engine) corpus.Source {
	return corpus.Source{Dataset: d, Extractor: x, Shipped: d.Name,
		Threads: cmp.Or(e.Threads, runtime.GOMAXPROCS(0))}
}

// metaSettings are the settings that all trainings behind an extractor read. Those whose tasks have
// a number of clients, or of points a client, read federation.clients or federation.points besides.
var metaSettings = []string{"seed", "dataset.", "extractor.", "engine."}

// training is the start of a training: its corpus, and the description of the extractor behind it.
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
type metaFlags struct {
	out, from, licence string
	meta.Config
	settings trainSettings
	given    *resolver // the settings
	// train makes the model.
	train func(ctx context.Context, t *training) (*onnx.Model, error)
}

// bind gives a command the settings that it reads besides those of all trainings, and the flags of
// every training, bindOptimizer those of the ones whose schedule is the caller's choice.
func (f *metaFlags) bind(cmd *cobra.Command, steps, batch, samples int, reads ...string) {
	f.settings = option.Default[trainSettings]()
	f.given = bindSettings(cmd, &f.settings, runAliases, append(reads, metaSettings...)...)
	cmd.Args, cmd.RunE = noArgs, func(cmd *cobra.Command, _ []string) error { return f.run(cmd) }
	fl := cmd.Flags()
	kind := cmd.Name()
	fl.StringVarP(&f.out, "model", "o", "",
		"`FILE` to write; its log goes to FILE.jsonl, drawn in FILE.svg, checkpoints to "+
			"FILE.checkpoint (default DATASET-"+kind+".onnx)")
	outputs.Files(cmd.Flags(), "model")
	fl.StringVar(&f.licence, "licence", "", "licence to state in the model's manifest")
	fl.IntVar(&f.Steps, "steps", steps, "steps of training")
	fl.IntVar(&f.Batch, "batch", batch, "tasks a step")
	fl.IntVar(&f.Samples, "noises", samples, "base noises a task")
	fl.IntVar(&f.ValidateEvery, "validate-every", 100, "steps between validations")
	jsonFlag(cmd, "print what was made as JSON")
}

func (f *metaFlags) bindOptimizer(cmd *cobra.Command, rate float64) {
	fl := cmd.Flags()
	fl.StringVar(&f.from, "from", "", "ONNX `FILE` of "+cmd.Name()+" to start from; default a new one")
	fl.Float64Var(&f.Rate, "rate", rate, "peak learning rate of AdamW")
	fl.IntVar(&f.Warmup, "warmup", 30, "steps of rising rate, 0 for none; afterwards it falls along half a cosine")
	fl.Float64Var(&f.Clip, "clip", 1, "largest norm of a gradient; 0 for none")
	fl.Float64Var(&f.EMA, "ema", 0.99,
		"decay of the running average of the parameters that is saved; 0 saves the last ones")
}

// check refuses flags that no training can be made by.
func (f *metaFlags) check(cmd *cobra.Command) error {
	for name, n := range map[string]int{"steps": f.Steps, "batch": f.Batch, "noises": f.Samples,
		"validate-every": f.ValidateEvery} {
		if n < 1 {
			return usageErrorf("--%s %d; allowed are numbers from 1", name, n)
		}
	}
	if cmd.Flags().Changed("rate") && !(f.Rate > 0) {
		return usageErrorf("--rate %v; allowed are numbers above 0", f.Rate)
	}
	return nil
}

// orNone turns a 0, which the trainings take for their default, into one that means none.
func orNone[T int | float64](v *T) {
	if *v == 0 {
		*v = -1
	}
}

// trained is the output of the train commands.
type trained struct {
	Model      string        `json:"model"`
	Digest     string        `json:"digest"`
	Log        string        `json:"log"`
	Validation train.Metrics `json:"validation"`
}

// start loads the model to start from, or makes a new one.
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
// plot.
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
		return usageErrorf("the data set has no corpus to train on; set dataset.splits.corpus above 0")
	}
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
	c.Run = fmt.Sprintf("extractor %s features %s corpus %v", images.Extractor.ModelDigest(),
		images.Features.Digest, images.Features.Splits.Corpus)
	res := trained{Model: out, Log: c.Log}
	c.Progress = func(t train.Progress) {
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
	if err := os.Remove(c.Checkpoint); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the checkpoint of a training that is done: %w", err)
	}
	return f.print(cmd, res)
}

// withheld reads classes of the data set that the corpus lacks.
func withheld(ctx context.Context, cfg *trainSettings, classes string, from *corpus.Images,
	eng engine.Engine,
	report func(stage string, done, total int)) (*task.Bank, error) {
	s := source(cfg.Dataset, cfg.Extractor, cfg.Engine)
	s.Dataset.Classes, s.Dataset.Splits, s.Stats = classes, settings.Splits{Clients: 1},
		from.Features.Stats
	own, err := corpus.Read(ctx, s, eng, report, nil)
	if err != nil {
		return nil, usageError(err)
	}
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

// describe completes the manifest of a trained model.
func (f *metaFlags) describe(m *onnx.Model, images *corpus.Images) error {
	cfg := &f.settings
	man, err := models.ReadManifest(m)
	if err != nil {
		return err
	}
	man.Extractor, man.Classes, man.Licence, man.Seed = images.Extractor.ModelDigest(),
		images.Set.Classes, f.licence, cfg.Seed
	if man.Kind == models.KindPredictor {
		man.L2 = cfg.ERM.L2
	}
	man.TrainingData = fmt.Sprintf("%s, corpus part (images sha256 %s)", cfg.Dataset.Label(),
		images.Set.Digest)
	man.Command = f.given.recorded()
	return man.Write(m)
}

// print writes the files of a training and the figures of its last validation.
func (f *metaFlags) print(cmd *cobra.Command, res trained) error {
	var scores []string
	for _, name := range slices.Sorted(maps.Keys(res.Validation)) {
		scores = append(scores, fmt.Sprintf("%s %.4g", name, res.Validation[name]))
	}
	return say(cmd, res,
		"model:      %s (sha256 %.12s)\nlog:        %s, drawn in %s.svg\nvalidation: %s\n", res.Model,
		res.Digest, res.Log, res.Model, strings.Join(scores, ", "))
}

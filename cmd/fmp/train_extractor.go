package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fmp/assets"
	"fmp/cmd/internal/outputs"
	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/featurize/learn"
	"fmp/featurize/patches"
	"fmp/featurize/published"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort"
	"fmp/onnx/serde"
	"fmp/onnx/train"
	"fmp/pipeline/settings"
)

// learning is the input that fmp train extractor and fmp train patches share. data names the data
// set, its classes and its folder.
type learning struct {
	data                dataset.Options
	onBad, out, library string
	// parallel bounds parts or batches that run at once, and does not act on the result.
	parallel int
}

// bind declares the flags that both trainings share. classes and parallel complete the help of two.
func (l *learning) bind(cmd *cobra.Command, classes, parallel string) {
	f := cmd.Flags()
	f.StringVar(&l.data.Name, "dataset", "digits",
		"data set: "+strings.Join(dataset.Names(), ", ")+", or a folder")
	dirFlag(cmd, &l.data.Dir)
	onBadFlag(cmd, &l.onBad)
	f.StringVar(&l.data.Classes, "classes", "",
		"classes to keep: how many, or names, numbers and ranges (0,3,7-9); "+classes)
	outFlag(cmd, &l.out, "out", "", "model file to write")
	f.IntVar(&l.parallel, "parallel", 2,
		parallel+" that run at once; the result does not depend on it")
	f.StringVar(&l.library, "engine.library", "", "path of the ONNX Runtime's library")
	jsonFlag(cmd, "print JSON")
}

// engine opens an ONNX Runtime of one thread, as parts of a batch run at once instead; the caller
// closes it. Both trainings of an own network run on the ONNX Runtime alone.
func (l *learning) engine(ctx context.Context) (engine.Engine, error) {
	eng, err := ort.New(ort.Options{Threads: 1, Library: l.library})
	if err != nil {
		return nil, usageError(err)
	}
	return engine.Under(ctx, eng), nil
}

// extractorTraining is the input of fmp train extractor. widths are the channels of the stem and of
// each stage. tune is used with --from alone.
type extractorTraining struct {
	learning
	// aux is a second data set, learned beside the first. start and from are models to go on from:
	// one of this command, or another program's.
	aux, auxOut, auxClasses, start, from string
	dx                                   int
	widths                               []int
	// c has the values of flags; those that are not given are the data set's defaults.
	c    learn.Config
	tune tuning
}

// newTrainExtractorCommand declares fmp train extractor. Sizes and rates that are not given follow
// from the data set (learn.DefaultConfig). With --from it runs as fmp onnx train does, with a head
// that is taken off again.
func newTrainExtractorCommand() *cobra.Command {
	var o extractorTraining
	cmd := &cobra.Command{
		Use: "extractor",
		Short: "Train a residual network on a data set's extractor part and write its features " +
			"as an ONNX model",
		Long: `Train a small residual network to classify the extractor part of a data set (the first half of its
training images, and the classes that --classes leaves out) and write the model that maps images to
features of mean 0 and standard deviation 1. Test images are used for the printed accuracy alone. On
two cores MNIST takes a minute, CIFAR-10 about forty.

--exclude-classes keeps classes away altogether, for tasks on classes that the extractor has never
seen.

--start goes on from an extractor that this command made, for other data, say. --mirror exports a
model that takes the mean over an image and its mirror image.

--from adapts another's extractor instead: the whole of MODEL that its features need is trained to
classify the extractor part, by a linear head that is left out in the end. --lora R trains factors
of rank R beside each matrix, which costs the features the least of what they are good for
elsewhere. The model that is written is MODEL with other weights, and a side-car file says how
images are fed to it.

--aux names a second data set of images of the same size, whose extractor part and spare classes are
learned beside the first; --aux-out writes the same network with features standardised for that one.

The run is saved every 30 seconds beside the output, as OUT.checkpoint, and goes on from there when
the same command is given again; the log is OUT.jsonl. The result does not depend on the number of
threads.`,
		Example: `  fmp train extractor --dataset mnist --dx 32 --out mnist.onnx
  fmp train extractor --dataset cifar10 --aux cifar100 --out cifar10.onnx --aux-out cifar100.onnx
  fmp train extractor --dataset cifar100 --classes 20 --out cifar100.onnx
  fmp train extractor --from efficientnet-lite0 --lora 8 --dataset ./photos --epochs 2 \
    --out mine.onnx
  fmp train extractor --dataset cifar100 --classes 0-39 --exclude-classes 40-59 \
    --out cifar100-0-39.onnx`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.bind(cmd)
	return cmd
}

// Zero values mean the data set's defaults, so that given flags alone are taken over.
func (o *extractorTraining) bind(cmd *cobra.Command) {
	o.learning.bind(cmd, "the others are learned beside them; empty means all, and what suits "+
		"the data set: "+
		assets.BySet(func(s assets.DatasetDefaults) string { return cmp.Or(s.Classes, "all") }),
		"parts of a batch")
	f := cmd.Flags()
	f.StringVar(&o.data.Exclude, "exclude-classes", "",
		"classes to keep away from the training: names, numbers and ranges (40-59)")
	f.StringVar(&o.aux, "aux", "", "data set to learn beside the first")
	f.StringVar(&o.auxOut, "aux-out", "", "model file to write for the auxiliary data set")
	f.StringVar(&o.auxClasses, "aux-classes", "20", "of the auxiliary data set's classes, those "+
		"whose extractor part alone is used; the others are used wholly")
	outputs.Files(f, "aux-out")
	f.IntVar(&o.dx, "dx", 0, "number of features (default 64)")
	f.IntSliceVar(&o.widths, "widths", nil,
		"channels of the stem and of each stage (default by image size)")
	f.IntVar(&o.c.Epochs, "epochs", 0, "passes over the images (default by data set)")
	f.IntVar(&o.c.Batch, "batch", 0, "images of a step (default 128)")
	f.IntVar(&o.c.Shards, "shards", 0,
		"parts that a batch is cut into, each with batch statistics of its own (default 2)")
	f.Float64Var(&o.c.Rate, "rate", 0, "highest learning rate (default 0.2)")
	f.Float64Var(&o.c.WeightDecay, "weight-decay", 0, "weight decay (default by data set)")
	f.StringVar(&o.start, "start", "",
		"extractor of the same widths, made by this command, to go on from")
	f.StringVar(&o.from, "from", "",
		"`MODEL` to adapt: an ONNX image model, or a published extractor's name")
	f.IntVar(&o.tune.t.LoRA, "lora", 0,
		"with --from: rank of low-rank factors to train in place of matrices; 0 trains all weights")
	preprocessingFlags(cmd, &o.tune.x)
	f.BoolVar(&o.c.Network.Mirror, "mirror", false,
		"features are the mean over an image and its mirror image: better, at twice the cost")
	f.Float64Var(&o.c.Auxiliary, "aux-share", 0,
		"share of a batch that comes from the auxiliary data set (default 0.4)")
	f.IntVar(&o.c.Augment.Cutout, "cutout", 0,
		"side of the square that is blanked (default by data set)")
	f.Uint64Var(&o.c.Seed, "seed", 1, "seed of weights, order and augmentation")
}

// run trains a network of the command's own, or adapts another's (--from). Models are written once
// the training has ended, and the checkpoint is removed last. Flags are checked first, then data
// sets are read, and the engine is opened last.
func (o *extractorTraining) run(cmd *cobra.Command) error {
	if o.out == "" {
		return usageErrorf("--out is not given; name the model file to write")
	}
	if err := o.unread(cmd); err != nil {
		return err
	}
	ctx := cmd.Context()
	// A flag that is given as "" means all classes, also of a data set with a default.
	if !cmd.Flags().Changed("classes") {
		o.data.Classes = assets.DefaultsFor(o.data.Name).Classes
	}
	if o.from != "" {
		return o.adapt(cmd)
	}
	if err := noSidecar(o.out, o.auxOut); err != nil {
		return err
	}
	ds, err := loadForTraining(cmd, o.data, o.onBad)
	if err != nil {
		return err
	}
	var second *dataset.Dataset
	if o.aux != "" {
		if second, err = loadForTraining(cmd,
			dataset.Options{Name: o.aux, Dir: o.data.Dir, Classes: o.auxClasses},
			o.onBad); err != nil {
			return err
		}
	}
	// A dx of 0 is the default of 64.
	cfg := learn.DefaultConfig(ds, o.dx)
	override(cmd, &cfg, o.c, o.widths, second != nil)
	if o.start != "" {
		if cfg.Start, err = serde.Load(o.start); err != nil {
			return usageError(err)
		}
		if cfg.StartDigest, err = models.Digest(cfg.Start); err != nil {
			return err
		}
	}
	eng, err := o.engine(ctx)
	if err != nil {
		return err
	}
	defer eng.Close()
	p := newProgress(cmd.ErrOrStderr())
	checkpoint := o.out + ".checkpoint"
	began := time.Now()
	res, err := learn.Extractor(ctx, eng, ds, second, cfg, learn.Run{
		Threads: o.parallel, Checkpoint: checkpoint, Log: o.out + ".jsonl",
		Command:  commandLine(cmd, extractorFlags),
		Progress: p.training,
	})
	p.close()
	// Another network is the user's slip: widths and dx of the flags are not those of --start.
	if errors.Is(err, learn.ErrStart) {
		return usageError(fmt.Errorf(
			"--start %s: %w; give --dx and --widths of the training that made it", o.start, err))
	}
	if err != nil {
		return err
	}
	if err := serde.Save(o.out, res.Model); err != nil {
		return err
	}
	// Both models are one network, each standardised for its own data set.
	if o.auxOut != "" && res.Auxiliary != nil {
		if err := serde.Save(o.auxOut, res.Auxiliary); err != nil {
			return err
		}
	}
	if err := removeCheckpoint(checkpoint); err != nil {
		return err
	}
	return o.print(cmd, res, cfg, time.Since(began), ds, second)
}

// removeCheckpoint removes the checkpoint of a training that is done; a training too short to be
// saved has none. It would be gone on from by another run of the same command.
func removeCheckpoint(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the checkpoint of the finished run: %w", err)
	}
	return nil
}

// unread returns an error for a flag that a network of the command's own, or a training without an
// auxiliary data set, does not read. It looks at flags that were given, so that defaults trip
// nothing.
func (o *extractorTraining) unread(cmd *cobra.Command) error {
	if o.from == "" {
		for _, name := range []string{"lora", "preset", "mean", "std", "layout", "side"} {
			if cmd.Flags().Changed(name) {
				return usageErrorf("--%s goes with --from, and would be ignored here", name)
			}
		}
	}
	for _, name := range []string{"aux-out", "aux-classes", "aux-share"} {
		if cmd.Flags().Changed(name) && o.aux == "" {
			return usageErrorf("--%s is given without --aux; name the auxiliary data set", name)
		}
	}
	return nil
}

// print says how good the extractors are. Accuracies are of test images, which took no part in the
// training.
func (o *extractorTraining) print(cmd *cobra.Command, res *learn.Result, cfg learn.Config,
	took time.Duration, ds, second *dataset.Dataset) error {
	report := map[string]any{"file": o.out, "dataset": o.data.Name, "images": res.Images,
		"seconds": took.Seconds(), "config": cfg}
	text := fmt.Sprintf("%s: %s after %s on %d images\n", o.out, testAccuracy(ds, res.Accuracy),
		took.Round(time.Second), res.Images)
	if ds.Test.N > 0 {
		report["test_accuracy"] = res.Accuracy
	}
	if res.Auxiliary != nil {
		report["aux"], report["aux_file"] = o.aux, o.auxOut
		if second.Test.N > 0 {
			report["aux_test_accuracy"] = res.AuxiliaryAccuracy
		}
		text += fmt.Sprintf("auxiliary %s %s: %s\n", o.aux, o.auxOut,
			testAccuracy(second, res.AuxiliaryAccuracy))
	}
	return say(cmd, report, "%s", text)
}

// testAccuracy is an accuracy in words.
func testAccuracy(ds *dataset.Dataset, v float64) string {
	if ds.Test.N == 0 {
		return "no test images of its classes"
	}
	return fmt.Sprintf("test accuracy %.4f", v)
}

// override replaces the defaults by the flags' values. A flag that is given counts, also with the
// value 0. The number of stages follows the widths: the first is of the stem, and every other one
// is residual.
func override(cmd *cobra.Command, cfg *learn.Config, c learn.Config, widths []int, aux bool) {
	given(cmd, "epochs", &cfg.Epochs, c.Epochs)
	given(cmd, "batch", &cfg.Batch, c.Batch)
	given(cmd, "shards", &cfg.Shards, c.Shards)
	given(cmd, "rate", &cfg.Rate, c.Rate)
	given(cmd, "weight-decay", &cfg.WeightDecay, c.WeightDecay)
	given(cmd, "cutout", &cfg.Augment.Cutout, c.Augment.Cutout)
	if aux {
		cfg.Auxiliary = 0.4
		given(cmd, "aux-share", &cfg.Auxiliary, c.Auxiliary)
	}
	cfg.Seed = c.Seed
	cfg.Network.Mirror = c.Network.Mirror
	if len(widths) > 0 {
		cfg.Network.Widths = widths
		cfg.Network.Residual = slices.Repeat([]bool{true}, len(widths)-1)
	}
}

// given sets a number where its flag is given. T has the two kinds of number that flags hold here.
func given[T int | float64](cmd *cobra.Command, flag string, to *T, value T) {
	if cmd.Flags().Changed(flag) {
		*to = value
	}
}

// loadForTraining reads a data set, with progress and notes on standard error. It is called by its
// label from there on, which has no path. With --on-bad skip images that cannot be read are left
// out.
// A data set that cannot be read is a usage error.
func loadForTraining(cmd *cobra.Command, o dataset.Options,
	onBad string) (_ *dataset.Dataset, err error) {
	if o.Skip, err = skipBad(onBad); err != nil {
		return nil, err
	}
	p := newProgress(cmd.ErrOrStderr())
	o.Progress = func(done, total int) { p.report("reading "+o.Name, done, total) }
	ds, err := dataset.Load(cmd.Context(), o)
	p.close()
	if err != nil {
		return nil, usageError(err)
	}
	for _, n := range ds.Notes {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", o.Name, n)
	}
	ds.Name = settings.Dataset{Name: o.Name}.Label() // models state it
	return ds, nil
}

// extractorFlags are those that a command line of fmp train extractor is recorded with. Flags that
// leave the model as it is, such as --parallel, are none of them.
var extractorFlags = []string{"dataset", "classes", "exclude-classes", "aux", "aux-classes",
	"aux-share", "dx", "widths", "epochs", "batch", "shards", "rate", "weight-decay", "cutout",
	"start", "from", "lora", "mirror", "seed", "preset", "mean", "std", "layout", "side", "on-bad"}

// commandLine is the command as it was given, without paths of this machine, for manifests. It has
// those of the flags that were given, and some of them always. Flags come in the order of the list,
// whatever the order on the command line. A folder is recorded by its label, and a model by its
// file's name.
func commandLine(cmd *cobra.Command, flags []string, always ...string) string {
	parts := []string{cmd.CommandPath()}
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f != nil && (f.Changed || slices.Contains(always, name)) {
			switch value := flagText(f); name {
			case "mirror":
				parts = append(parts, "--mirror")
			case "dataset", "aux":
				parts = append(parts, "--"+name, settings.Dataset{Name: value}.Label())
			case "start", "from":
				parts = append(parts, "--"+name, filepath.Base(value))
			default:
				parts = append(parts, "--"+name, value)
			}
		}
	}
	return strings.Join(parts, " ")
}

// adapt trains another's extractor to tell the classes of a corpus apart, and writes it with its
// own last layers. The method is cross-entropy behind a linear head, by AdamW with a warm-up of a
// tenth and half a cosine. It fills in a tuning as fmp onnx train's flags would, and runs it.
// Without flags there are two epochs in batches of 32, and a weight decay of 0.01. A batch is cut
// into four parts whatever --parallel is, so that the result does not depend on it.
func (o *extractorTraining) adapt(cmd *cobra.Command) error {
	for _, name := range []string{"aux", "dx", "widths", "shards", "start", "mirror", "cutout"} {
		if cmd.Flags().Changed(name) {
			return usageErrorf("--%s does not go with --from, which keeps the "+
				"network as it is", name)
		}
	}
	path, err := published.Find(o.from)
	if err != nil {
		return usageError(err)
	}
	m, manifest, err := models.Load(path)
	if err == nil {
		err = trainable(m)
	}
	if err != nil {
		return usageError(err)
	}
	// Layers behind the features, such as the old classifier, take no part.
	body, value, err := extractor.Body(m, o.tune.x)
	if err != nil {
		return usageError(fmt.Errorf("%s: %w", path, err))
	}
	t := &o.tune
	t.t.Output, t.t.Loss.Name, t.t.Seed, t.t.Threads = value, train.CrossEntropy,
		o.c.Seed, o.parallel
	t.t.Epochs, t.t.Batch, t.t.Parts = cmp.Or(o.c.Epochs, 2), cmp.Or(o.c.Batch, 32), 4
	// A tenth of the images is held out, by which the best epoch is chosen.
	t.rate, t.warmup, t.decay, t.clip, t.heldOut = o.c.Rate, 0.1, cmp.Or(o.c.WeightDecay,
		0.01), 1, 0.1
	t.head, t.optimizer, t.schedule, t.augment.Flip = "add", "adamw", "cosine", true
	t.out, t.onBad = o.out, o.onBad
	if t.side, err = newSidecar(cmd.Flags(), path, o.out, manifest, t.x, true); err != nil {
		return err
	}
	// m has all of its layers: the weights that were trained are put back into it.
	t.finish = func(trained *onnx.Model) (*onnx.Model, error) {
		// Weights of MODEL's own names are taken: the head has others, and is left out.
		for name := range m.Graph.Initializers {
			if v := trained.Graph.Initializers[name]; v != nil {
				m.Graph.Initializers[name] = v
			}
		}
		f := manifest
		// adapted features are not standardised, and their kappa is unknown
		f.Kind, f.Kappa, f.KappaDeviation, f.Seed, f.Command = "", 0, 0, o.c.Seed,
			commandLine(cmd, extractorFlags)
		// A manifest without training data begins with the separator, which is cut off.
		f.TrainingData = strings.TrimPrefix(
			f.TrainingData+"; adapted to "+settings.Dataset{Name: o.data.Name}.Label(), "; ")
		if err := f.Write(m); err != nil {
			return nil, err
		}
		return m, nil
	}
	ex, err := t.photos(cmd, path, body, manifest, o.data)
	if err != nil {
		return err
	}
	// The head goes on body; m keeps its own layers.
	if body, err = t.prepare(body, ex); err != nil {
		return usageError(fmt.Errorf("%s: %w", path, err))
	}
	return t.train(cmd, body, ex, settings.Engine{Name: "auto", Library: o.library})
}

const trainPatchesHelp = `patches learns an extractor of one layer from the extractor part of a data
set (the first half of its training images): filters by clustering whitened patches, a threshold,
max pooling, and a projection onto the directions that separate the classes. It takes seconds, is
weaker than what fmp train extractor makes, and does not depend on the number of threads.`

// newTrainPatchesCommand declares fmp train patches. It keeps no checkpoint, as it takes seconds.
// Splits are the default ones, so that later commands of this data set keep clear of its part.
// The order is: flags, data set, its extractor part, engine, training, manifest, writing.
func newTrainPatchesCommand() *cobra.Command {
	var (
		l learning
		o patches.Options
	)
	cmd := &cobra.Command{
		Use: "patches",
		Short: "Learn a simple extractor in seconds, without gradients: filters by " +
			"clustering patches",
		Long: trainPatchesHelp,
		Example: `  fmp train patches --out extractor.onnx
  fmp train patches --dataset mnist --filters 128 --dx 32 --out mnist.onnx`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if l.out == "" {
				return usageErrorf("--out is not given; name the model file to write")
			}
			if err := noSidecar(l.out); err != nil {
				return err
			}
			ds, err := loadForTraining(cmd, l.data, l.onBad)
			if err != nil {
				return err
			}
			splits, err := ds.Splits(dataset.DefaultFractions)
			if err != nil {
				return usageError(err)
			}
			part, err := ds.Train.Range(splits.Extractor)
			if err != nil {
				return err
			}
			eng, err := l.engine(cmd.Context())
			if err != nil {
				return err
			}
			defer eng.Close()
			o.Threads = l.parallel
			p := newProgress(cmd.ErrOrStderr())
			o.Progress = func(done, total int) { p.report("filter responses", done, total) }
			start := time.Now()
			m, err := patches.Learn(cmd.Context(), eng, part, len(ds.Classes), o)
			p.close()
			if err != nil {
				return usageError(err)
			}
			// The output is [batch, dx].
			dx := m.Graph.Outputs[0].Shape[1].Size
			manifest := models.Manifest{
				Kind: models.KindExtractor, Dx: dx, Mean: []float32{0},
				Std: []float32{1}, Layout: "NCHW",
				Seed: o.Seed, Licence: "MIT",
				TrainingData: fmt.Sprintf("%s: training images 0 to %d", ds.Name,
					splits.Extractor.To-1),
				Command: commandLine(cmd, []string{"dataset", "classes", "filters", "side", "grid",
					"dx", "seed"}, "dataset", "seed"),
			}
			if err = manifest.Write(m); err == nil {
				err = serde.Save(l.out, m)
			}
			if err != nil {
				return err
			}
			return say(cmd, map[string]any{"file": l.out, "dataset": l.data.Name, "dx": dx,
				"seconds": time.Since(start).Seconds()},
				"%s: %d features, learned from %d images of %s in %s\n", l.out, dx, part.N,
				l.data.Name, time.Since(start).Round(time.Second))
		},
	}
	l.bind(cmd, "empty means all", "batches")
	f := cmd.Flags()
	f.IntVar(&o.Filters, "filters", 0, "number of filters (default 96)")
	f.IntVar(&o.Side, "side", 0, "side of a filter in pixels (default 7)")
	f.IntVar(&o.Grid, "grid", 0, "pooling windows along each axis (default 4)")
	f.IntVar(&o.Dx, "dx", 0, "number of features (default 12)")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the patches and of the clustering")
	return cmd
}

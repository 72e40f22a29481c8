package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/featurize/published"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/train"
	"fmp/pipeline/settings"
)

// adapt trains another's extractor to tell the classes of a corpus apart, and writes it with its
// own last layers.
func (o *extractorTraining) adapt(cmd *cobra.Command) error {
	for _, name := range []string{"aux", "dx", "widths", "shards", "start", "mirror", "cutout"} {
		if cmd.Flags().Changed(name) {
			return usageErrorf("--%s does not go with --from, which keeps the network as it is", name)
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
	body, value, err := extractor.Body(m, o.tune.x)
	if err != nil {
		return usageError(fmt.Errorf("%s: %w", path, err))
	}
	t := &o.tune
	t.t.Output, t.t.Loss.Name, t.t.Seed, t.t.Threads = value, train.CrossEntropy,
		o.c.Seed, o.parallel
	t.t.Epochs, t.t.Batch, t.t.Parts = cmp.Or(o.c.Epochs, 2), cmp.Or(o.c.Batch, 32), 4
	t.rate, t.warmup, t.decay, t.clip, t.heldOut = o.c.Rate, 0.1, cmp.Or(o.c.WeightDecay,
		0.01), 1, 0.1
	t.head, t.optimizer, t.schedule, t.augment.Flip = "add", "adamw", "cosine", true
	t.out, t.onBad = o.out, o.onBad
	t.finish = func(trained *onnx.Model) (*onnx.Model, error) {
		for name := range m.Graph.Initializers {
			if v := trained.Graph.Initializers[name]; v != nil {
				m.Graph.Initializers[name] = v
			}
		}
		f := manifest
		// features are no longer standardised
		f.Kind, f.Kappa, f.KappaDeviation, f.Seed, f.Command = "", 0, 0, o.c.Seed,
			commandLine(cmd, extractorFlags)
		f.TrainingData = strings.TrimPrefix(
			f.TrainingData+"; adapted to "+settings.Dataset{Name: o.name}.Label(), "; ")
		if err := f.Write(m); err != nil {
			return nil, err
		}
		return m, keepSidecar(path, o.out, manifest, t.x)
	}
	ex, err := t.photos(cmd, path, body, manifest,
		dataset.Options{Name: o.name, Dir: o.dir, Classes: o.classes, Exclude: o.exclude})
	if err != nil {
		return err
	}
	if body, err = t.prepare(body, ex); err != nil {
		return usageError(fmt.Errorf("%s: %w", path, err))
	}
	return t.train(cmd, body, ex, settings.Engine{Name: "auto", Library: o.library})
}

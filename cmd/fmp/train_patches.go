package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/featurize/dataset"
	"fmp/featurize/patches"
	"fmp/models"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort"
	"fmp/onnx/serde"
)

const trainPatchesHelp = `patches learns an extractor of one layer from the extractor part of a data
set (the first half of its training images): filters by clustering whitened patches, a threshold,
max pooling, and a projection onto the directions that separate the classes. It takes seconds, is
weaker than what fmp train extractor makes, and does not depend on the number of threads.`

func newTrainPatchesCommand() *cobra.Command {
	var (
		name, dir, out, library string
		classes, onBad          string
		o                       patches.Options
	)
	cmd := &cobra.Command{
		Use:   "patches",
		Short: "Learn a simple extractor in seconds, without gradients: filters by clustering patches",
		Long:  trainPatchesHelp,
		Example: `  fmp train patches --out extractor.onnx
  fmp train patches --dataset mnist --filters 128 --dx 32 --out mnist.onnx`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return usageErrorf("--out is not given; name the model file to write")
			}
			ds, err := loadForTraining(cmd, dataset.Options{Name: name, Dir: dir, Classes: classes}, onBad)
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
			eng, err := ort.New(ort.Options{Threads: 1, Library: library})
			if err != nil {
				return usageError(err)
			}
			defer eng.Close()
			eng = engine.Under(cmd.Context(), eng)
			p := newProgress(cmd.ErrOrStderr())
			o.Progress = func(done, total int) { p.report("filter responses", done, total) }
			start := time.Now()
			m, err := patches.Learn(cmd.Context(), eng, part, len(ds.Classes), o)
			p.close()
			if err != nil {
				return usageError(err)
			}
			dx := m.Graph.Outputs[0].Shape[1].Size
			manifest := models.Manifest{
				Kind: models.KindExtractor, Dx: dx, Mean: []float32{0}, Std: []float32{1}, Layout: "NCHW",
				Seed: o.Seed, Licence: "MIT",
				TrainingData: fmt.Sprintf("%s: training images 0 to %d", ds.Name, splits.Extractor.To-1),
				Command: commandLine(cmd,
					[]string{"dataset", "classes", "filters", "side", "grid", "dx", "seed"}, "dataset", "seed"),
			}
			if err = manifest.Write(m); err == nil {
				err = serde.Save(out, m)
			}
			if err != nil {
				return err
			}
			return say(cmd, map[string]any{"file": out, "dataset": name, "dx": dx, "seconds": time.Since(start).Seconds()},
				"%s: %d features, learned from %d images of %s in %s\n", out, dx, part.N, name,
				time.Since(start).Round(time.Second))
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "dataset", "digits",
		"data set: "+strings.Join(dataset.Names(), ", ")+", or a folder")
	dirFlag(cmd, &dir)
	onBadFlag(cmd, &onBad)
	f.StringVar(&classes, "classes", "",
		"classes to keep: how many, or names, numbers and ranges (0,3,7-9); empty means all")
	f.StringVarP(&out, "out", "o", "", "model file to write")
	outputs.Files(cmd.Flags(), "out")
	f.IntVar(&o.Filters, "filters", 0, "number of filters (default 96)")
	f.IntVar(&o.Side, "side", 0, "side of a filter in pixels (default 7)")
	f.IntVar(&o.Grid, "grid", 0, "pooling windows along each axis (default 4)")
	f.IntVar(&o.Dx, "dx", 0, "number of features (default 12)")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the patches and of the clustering")
	f.IntVar(&o.Threads, "parallel", 2, "batches that run at once; the result does not depend on it")
	f.StringVar(&library, "engine.library", "", "path of the ONNX Runtime's library")
	jsonFlag(cmd, "print JSON")
	return cmd
}

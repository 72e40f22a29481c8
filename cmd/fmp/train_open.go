package main

import (
	"context"

	"github.com/spf13/cobra"

	"fmp/onnx"
	"fmp/pipeline/meta"
	"fmp/pipeline/meta/scale"
	"fmp/pipeline/open"
	"fmp/pipeline/posterior"
	"fmp/pipeline/task"
)

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
		Example: `  fmp train open --dataset cifar100 --classes 0-39 --extractor cifar100-0-39.onnx -o open.onnx
  fmp train open --dataset cifar100 --classes 0-29 --unlearned-classes 30-39 --extractor cifar100-0-29.onnx -o open.onnx
  fmp train open --dataset mnist -o open.onnx`,
	}
	f.bind(cmd, 300, 4, 32, "federation.clients")
	cmd.Flags().IntVar(&t.Coordinates, "coordinates", open.MaxCoordinates,
		"most coordinates; features beyond are projected onto their principal directions")
	cmd.Flags().StringVar(&unlearned, "unlearned-classes", "",
		"`CLASSES` of the data set that neither extractor nor corpus has learned, for the widths of "+
			"intervals; default the corpus's")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if t.Coordinates < 1 {
			return usageErrorf("--coordinates %d; allowed are numbers from 1", t.Coordinates)
		}
		return f.run(cmd)
	}
	f.train = func(ctx context.Context, in *training) (*onnx.Model, error) {
		t.Config = in.Config
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
// or, where it is nil, on the corpus.
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

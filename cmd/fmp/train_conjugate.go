package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"fmp/models"
	"fmp/onnx"
	"fmp/pipeline/meta"
	"fmp/pipeline/sample"
)

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

With --images the file holds the corpus's images too, as features of one byte a number. In a round of
the same class names they count as one more client's, the less the farther the clients' class means
lie from the corpus's. Where the corpus is nearly free of errors, as MNIST, clients whose images are
harder lose by it. No client and no classifier gets the images; whoever gets the file does.

Behind a network that has not learned the classes, or with few images a feature, none of it is
needed: a server that takes part as a site of a round of moments has a lower NLL
(docs/extractors.md, Without a corpus).`,
		Example: `  fmp train conjugate --dataset cifar10 -o conjugate.onnx
  fmp train conjugate --dataset cifar100 --images -o conjugate.onnx
  fmp train conjugate --dataset mnist --extractor extractor.onnx --steps 600 -o conjugate.onnx`,
	}
	f.bind(cmd, 300, 4, 64, "federation.clients", "federation.points")
	cmd.Flags().Float64Var(&t.Shrinkage, "shrinkage", 0,
		"share, 0 to 1, of the covariance within classes replaced by a multiple of the identity where "+
			"metric and coordinates start")
	cmd.Flags().BoolVar(&t.FixedMetric, "fixed-metric", false,
		"leave coordinates and metric what the moments of the corpus say: learn the scalars alone")
	cmd.Flags().IntVar(&t.K, "coordinates", 0, "number k of coordinates; 0 means classes - 1")
	cmd.Flags().BoolVar(&images, "images", false,
		"keep the corpus's images in the file, for rounds of its class names")
	f.train = func(ctx context.Context, in *training) (*onnx.Model, error) {
		t.Config = in.Config
		if images {
			if err := sample.ImagesFit(len(in.whole.Labels), cmp.Or(t.K, in.whole.C-1), in.whole.C); err != nil {
				return nil, usageError(fmt.Errorf("train conjugate: --images: %w", err))
			}
		}
		m, err := meta.TrainConjugate(ctx, t)
		if err != nil || !images {
			return m, err
		}
		return models.WithImages(m, in.whole.Features, in.whole.Labels)
	}
	return cmd
}

package main

import (
	"context"

	"github.com/spf13/cobra"

	"fmp/models"
	"fmp/onnx"
	"fmp/pipeline/corpus"
	"fmp/pipeline/meta"
)

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
  fmp train private --dataset cifar100 --classes 0-39 --extractor cifar100-0-39.onnx --coordinates 12 -o private.onnx
  fmp train private --dataset mnist --extractor extractor.onnx --set conjugate.model=conjugate.onnx -o private.onnx`,
	}
	f.bind(cmd, 400, 8, 32, "conjugate.model", "federation.points")
	cmd.Flags().IntVar(&t.Coordinates, "coordinates", 0,
		"coordinates of a predictor for classes that the corpus lacks; 0: one for its classes, with "+
			"the conjugate predictor's")
	f.train = func(ctx context.Context, in *training) (*onnx.Model, error) {
		if t.Coordinates < 0 || t.Coordinates >= in.Corpus.Dx {
			return nil, usageErrorf(
				"train private: --coordinates %d; allowed are 0 to %d, one less than the features",
				t.Coordinates, in.Corpus.Dx-1)
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
// moments of the corpus. With none it is nil.
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

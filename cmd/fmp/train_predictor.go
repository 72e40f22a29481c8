package main

import (
	"context"

	"github.com/spf13/cobra"

	"fmp/models"
	"fmp/onnx"
	"fmp/pipeline/meta"
)

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
	fl.Float64Var(&t.Alone, "alone", 0.3, "weight of the score of the drawn points alone; 0 for none")
	fl.Float64Var(&t.Local, "local", 0.5,
		"share of tasks whose context is one client's points; the others' is the pool")
	fl.Float64Var(&t.Coupling, "coupling", 1,
		"weight of the distance between draws for a context and for its compression; 0 for none")
	fl.IntVar(&pc.Dim, "dim", 0, "width of the blocks; 0 means dx + classes + 64")
	fl.IntVar(&pc.Latent, "latent", 0, "columns of noise that all points of one sample share; 0 "+
		"means noise of its own for every point")
	fl.BoolVar(&pc.Published, "published", false,
		"the published blocks: several heads, layer norm, no identity path")
	fl.IntVar(&pc.Heads, "heads", 0, "attention heads of the published blocks; 0 means 4")
	fl.IntVar(&pc.Hidden, "hidden", 0,
		"width of a two-layer feed-forward part in the blocks; 0 means one layer")
	fl.BoolVar(&pc.IgnoreMasses, "ignore-masses", false,
		"leave the masses of a context out, as published")
	f.train = func(ctx context.Context, in *training) (*onnx.Model, error) {
		m, err := f.start(func() (*onnx.Model, error) {
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

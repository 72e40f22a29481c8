package main

import (
	"context"

	"github.com/spf13/cobra"

	"fmp/models"
	"fmp/onnx"
	"fmp/pipeline/corpus"
	"fmp/pipeline/meta"
)

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
		Example: `  fmp train embedding --dataset cifar10 --predictor predictor.onnx -o embedding.onnx
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
	fl.IntVar(&ec.Dim, "dim", 0, "width of the blocks; 0 means dx + classes + 64")
	fl.IntVar(&ec.Blocks, "blocks", 1, "set attention blocks before the pooling")
	fl.IntVar(&ec.Hidden, "hidden", 256,
		"width of a two-layer feed-forward part in the blocks; 0 means one layer")
	fl.BoolVar(&ec.Published, "published", false,
		"the published blocks: several heads, layer norm, no identity path")
	fl.IntVar(&ec.Heads, "heads", 0, "attention heads of the published blocks; 0 means 4")
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

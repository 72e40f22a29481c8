package pipeline_test

import (
	"context"
	"fmt"

	"fmp/assets"
	"fmp/featurize"
	"fmp/featurize/dataset"
	"fmp/featurize/digits"
	"fmp/featurize/extractor"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/serde"
	"fmp/pipeline/compress"
	"fmp/pipeline/erm"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/sample"
	"fmp/pipeline/task"
)

// From raw images to calibrated probabilities: features, clients, uploads, drawn points, heads,
// predictions.
func Example() {
	if err := federate(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 75 client images
	// 3 clients of 20 points; an upload is 10 points of total mass 20
	// 10 heads, a row a feature and one for the bias: true
	// right on most test images: true; calibration error below 0.2: true
}

func federate(ctx context.Context) error {
	eng, err := pure.New(engine.Options{}) // or ort.New: the ONNX Runtime
	if err != nil {
		return err
	}
	defer eng.Close()

	// Images to features. dataset.Load reads data sets from disk; extractor.Open takes an ONNX
	// file.
	drawn, err := digits.Draw(ctx, digits.Config{Variant: digits.Grey, Seed: 1, Train: 600, Test: 100})
	if err != nil {
		return err
	}
	ds := dataset.FromDrawn("digits", drawn)
	file, err := assets.Model("digits", models.KindExtractor)
	if err != nil {
		return err
	}
	model, err := serde.Unmarshal(file)
	if err != nil {
		return err
	}
	manifest, err := models.ReadManifest(model)
	if err != nil {
		return err
	}
	x, err := extractor.New(eng, model, manifest, extractor.Options{}, ds.Train.Images)
	if err != nil {
		return err
	}
	defer x.Close()
	f, err := featurize.Run(ctx, ds, x, featurize.Config{Cache: "none"})
	if err != nil {
		return err
	}
	private := f.Select(f.Splits.Clients)
	fmt.Printf("%d client images\n", private.N)

	// Features to clients: 3 of 20 points each, Dirichlet(0.5) over the classes.
	bank, err := task.NewBank(private.Features, f.Dx, private.Labels, len(f.Classes))
	if err != nil {
		return err
	}
	s := task.Sampler{Bank: bank, Points: 20, Alphas: []float64{0.5}, FixedLabels: true}
	t, err := s.Draw(rng.New(1, "task"), 3)
	if err != nil {
		return err
	}

	// On each client: its points to an upload. serde.Load reads a trained embedding; this one is
	// untrained.
	embedding, err := models.NewEmbedding(models.EmbeddingConfig{Dx: f.Dx, C: bank.C}, 1)
	if err != nil {
		return err
	}
	compressor, err := compress.New(eng, embedding)
	if err != nil {
		return err
	}
	defer compressor.Close()
	uploads, err := compressor.Compress(ctx, t.Clients)
	if err != nil {
		return err
	}
	fmt.Printf("%d clients of %d points; an upload is %d points of total mass %.0f\n",
		len(uploads), t.Clients[0].N, uploads[0].N, uploads[0].Mass())

	// On the server: pool the uploads and draw 10 sets of 100 unseen points.
	seen, err := point.Pool(uploads...)
	if err != nil {
		return err
	}
	net, err := models.NewPredictor(models.PredictorConfig{Dx: f.Dx, C: bank.C}, 1)
	if err != nil {
		return err
	}
	predictor, err := sample.New(eng, net)
	if err != nil {
		return err
	}
	defer predictor.Close()
	noise, err := predictor.Noise(rng.New(1, "noise"), 10, 100)
	if err != nil {
		return err
	}
	unseen, err := predictor.Draw(ctx, seen, noise, 10)
	if err != nil {
		return err
	}

	// One head a set: softmax regression on seen and unseen points, with an L2 penalty of 0.3.
	var heads []erm.Theta
	for _, u := range unseen {
		problem, err := erm.FromSets(0.3, seen, u)
		if err != nil {
			return err
		}
		fit, err := erm.Solve(ctx, problem, erm.Options{})
		if err != nil {
			return err
		}
		heads = append(heads, fit.Theta)
	}
	fmt.Printf("%d heads, a row a feature and one for the bias: %t\n", len(heads),
		heads[0].D == f.Dx+1)

	// The prediction is the mean of the heads' softmaxes.
	p, err := metric.Predict(ctx, heads, f.Test.Features, 0)
	if err != nil {
		return err
	}
	scores, err := metric.Score(p, f.Test.Labels)
	if err != nil {
		return err
	}
	fmt.Printf("right on most test images: %t; calibration error below 0.2: %t\n", scores.ACC > 0.5,
		scores.ECE < 0.2)
	return nil
}

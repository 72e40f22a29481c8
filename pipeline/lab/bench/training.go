package bench

import (
	"context"
	"time"

	"fmp/assets"
	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/featurize/learn"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/optim"
	"fmp/onnx/serde"
	"fmp/onnx/train"
	"fmp/pipeline/lab/internal/processor"
	"fmp/pipeline/meta"
	"fmp/pipeline/task"
)

// Sizes of the works on images.
const (
	side       = 32  // of CIFAR-10's images
	trainBatch = 128 // of a training step
	images     = 500 // images whose features are computed
	atOnce     = 250 // images of one call, of which images is a multiple
)

// pictures returns n images of random pixels, and the input tensor of an extractor with the given
// mean and standard deviation. Images are bytes [n, height, width, 3]; the tensor is (byte/255 -
// mean) / std as [n, 3, height, width]. Random pixels are as good as any: neither extractor's time
// depends on their values.
func pictures(n int, mean, std []float32) (*dataset.Images, *onnx.Tensor) {
	im := &dataset.Images{N: n, H: side, W: side, Ch: 3, Pix: make([]uint8, n*side*side*3)}
	fed := onnx.ZerosF32(n, 3, side, side)
	r := rng.New(1, "bench", "pictures")
	for i := range im.Pix {
		im.Pix[i] = uint8(r.IntN(256))
		at, c := i/3, i%3
		pixel := at % (side * side)
		fed.F32()[(at/(side*side)*3+c)*side*side+pixel] = (float32(im.Pix[i])/255 -
			mean[c]) / std[c]
	}
	return im, fed
}

// features measures CIFAR-10's extractor: from pixels in fmp, from the prepared input in the
// runtime. The runtime, and Python with it, get the same numbers as one tensor, in calls of the
// same size. The bare session tells how much of our time is the runtime's own.
func features(ctx context.Context, b *Bench) ([]Contender, error) {
	data, err := assets.Model("cifar10", models.KindExtractor)
	if err != nil {
		return nil, err
	}
	m, err := serde.Unmarshal(data)
	if err != nil {
		return nil, err
	}
	manifest, err := models.ReadManifest(m)
	if err != nil {
		return nil, err
	}
	im, fed := pictures(images, manifest.Mean, manifest.Std)
	x, err := extractor.New(b.Engine, m, manifest, extractor.Options{Batch: atOnce}, *im)
	if err != nil {
		return nil, err
	}
	ours := Timed("fmp, from pixels", func() error {
		_, err := x.Features(ctx, im, nil)
		return err
	})
	ours.Close = x.Close
	out := []Contender{ours}
	bare, err := b.Engine.Load(m)
	if err != nil {
		return out, err
	}
	c := Timed(b.Engine.Name()+", a bare session", func() error {
		for from := 0; from < images; from += atOnce {
			size := 3 * side * side
			part := onnx.NewTensor(fed.F32()[from*size:(from+atOnce)*size], atOnce, 3, side, side)
			if _, err := engine.Eval(bare,
				map[string]*onnx.Tensor{m.Graph.Inputs[0].Name: part}); err != nil {
				return err
			}
		}
		return nil
	})
	c.Close = bare.Close
	return b.with(ctx, append(out, c),
		map[string]*onnx.Tensor{"x": fed, "model": onnx.NewTensor(data, len(data)),
			"batch": onnx.NewTensor([]int64{atOnce})}, peer{"features", "onnxruntime from Python"})
}

// trainingStep measures a step of training CIFAR-10's extractor, by stochastic gradient descent
// with Nesterov momentum. Every step has the same batch, a rate of 0.01 and a gradient that is
// clipped at a norm of 5. It times a forward and a backward pass and an update, with the batch in
// memory. Peers train the same architecture from weights of their own.
func trainingStep(ctx context.Context, b *Bench) ([]Contender, error) {
	network := models.DefaultExtractor(3, side, side, dx)
	gradient, params, init, err := learn.Gradient(network, classes, 1)
	if err != nil {
		return nil, err
	}
	s, err := train.NewSplit(b.Engine, gradient, train.SplitOptions{
		Params: params, Optimizer: optim.SGD{Momentum: 0.9, Nesterov: true, WeightDecay: 1e-3},
		Update: optim.Options{ClipNorm: 5}, Init: init,
	})
	if err != nil {
		return nil, err
	}
	_, fed := pictures(trainBatch, []float32{0.5, 0.5, 0.5}, []float32{0.25, 0.25, 0.25})
	target := onnx.ZerosF32(trainBatch, classes)
	for i := range trainBatch {
		target.F32()[i*classes+i%classes] = 1
	}
	feeds := map[string]*onnx.Tensor{models.ImageInput: fed, models.TargetInput: target,
		models.AllowedInput: onnx.ZerosF32(trainBatch, classes)}
	t := 0
	ours := Timed("fmp, on "+b.Engine.Name(), func() error {
		if _, err := s.Accumulate(feeds); err != nil {
			return err
		}
		_, err := s.Update(t, 0.01, true)
		t++
		return err
	})
	ours.Close = s.Close
	labels := make([]int64, trainBatch)
	for i := range labels {
		labels[i] = int64(i % classes)
	}
	return b.with(ctx, []Contender{ours},
		map[string]*onnx.Tensor{"x": fed, "y": onnx.NewTensor(labels, trainBatch)},
		peer{"extractor", "PyTorch, NCHW"}, peer{"extractor:channels_last",
			"PyTorch, channels last"})
}

// taskBatch is the number of tasks of a step of meta-training. A step's time grows with it, since
// tasks are independent of each other.
const taskBatch = 8

// metaStep measures a step of meta-training: ours is train with c, of which the first step does not
// count. The figure is processor time from the end of the first step to that of the last, over
// their number. A run trains anew, on 6,000 points of ten Gaussian classes. The first step includes
// the building and loading of graphs, which a training pays once.
func metaStep(ctx context.Context, b *Bench, kind string, c meta.Config,
	run func(c meta.Config) error) ([]Contender, error) {
	const rows, steps = 6000, 4
	r := rng.New(1, "bench", "corpus")
	points := labelled(r, classMeans(r, dx, classes), rows, dx, classes)
	features, labels := points.Labelled()
	corpus, err := task.NewBank(features, dx, labels, classes)
	if err != nil {
		return nil, err
	}
	c.Engine, c.Corpus, c.Threads, c.L2, c.Batch, c.Steps = b.Engine, corpus, 1, penalty,
		taskBatch, steps+1
	ours := Contender{Name: "fmp, on " + b.Engine.Name(), Once: func() (time.Duration, error) {
		var first, last time.Duration
		c.Progress = func(p train.Progress) {
			if last = processor.Time(); p.Step == 1 {
				first = last
			}
		}
		err := run(c)
		return (last - first) / steps, err
	}}
	y := make([]int64, rows)
	for i, v := range labels {
		y[i] = int64(v)
	}
	return b.with(ctx, []Contender{ours},
		map[string]*onnx.Tensor{"x": onnx.NewTensor(features, rows, dx),
			"y": onnx.NewTensor(y, rows)},
		peer{kind, "PyTorch"})
}

// predictorStep measures a step of training the predictor by the score of held-out points, as in
// the paper: two draws of 100 points for the 200 of ten clients. Negative weights switch parts of
// the loss off that peers do not have.
func predictorStep(ctx context.Context, b *Bench) ([]Contender, error) {
	m, err := models.NewPredictor(models.PredictorConfig{Dx: dx, C: classes}, 1)
	if err != nil {
		return nil, err
	}
	return metaStep(ctx, b, "predictor", meta.Config{Samples: 2, Alphas: []float64{0}},
		func(c meta.Config) error {
			// 0 would be the default
			_, err := meta.TrainPredictor(ctx, m,
				meta.PredictorConfig{Config: c, Joint: -1, Coupling: -1, Local: 1e-9})
			return err
		})
}

// embeddingStep measures a step of training the embedding by the distance of the heads, as in the
// paper.
func embeddingStep(ctx context.Context, b *Bench) ([]Contender, error) {
	m, err := models.NewEmbedding(models.EmbeddingConfig{Dx: dx, C: classes}, 1)
	if err != nil {
		return nil, err
	}
	predictor, err := models.NewPredictor(models.PredictorConfig{Dx: dx, C: classes}, 1)
	if err != nil {
		return nil, err
	}
	return metaStep(ctx, b, "embedding", meta.Config{Samples: 1, Alphas: []float64{0}},
		func(c meta.Config) error {
			_, err := meta.TrainEmbedding(ctx, m,
				meta.EmbeddingConfig{Config: c, Predictor: predictor, Score: -1})
			return err
		})
}

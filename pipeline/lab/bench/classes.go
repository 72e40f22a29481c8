package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/serde"
	"fmp/pipeline/classify"
	"fmp/pipeline/compress"
	"fmp/pipeline/federate"
	"fmp/pipeline/meta"
	"fmp/pipeline/point"
	"fmp/pipeline/pool"
	"fmp/pipeline/task"
)

// Classes is a round from training to prediction on synthetic features of many classes. Its steps
// hand files on in Dir, so that each can be run, and its memory measured, in a process of its own.
// The steps run in the order Train, Upload, Pool, Predict, of one Classes or of equal ones. An
// error leaves the files of the steps before.
type Classes struct {
	Dir                   string
	C, Dx                 int
	Rows, Clients, Images int // of the corpus, of the round, and of the predictions
	Steps                 int // of the training's first phase; 0: 300
	Samples               int // of the posterior; 0: the default
	// Separation is the standard deviation of class means, in units of that of features within a
	// class; 0: 0.15.
	Separation float32
	Engine     engine.Engine
}

// file is the path of a file that steps hand on. The names are conjugate.onnx, client.onnx,
// 000.upload and on, and classifier.onnx.
func (c *Classes) file(name string) string { return filepath.Join(c.Dir, name) }

// draw returns labelled rows: classes in turn, Gaussian, with scales that decay over the features.
// Feature j of class c is (z + separation m_cj) (1 + j)^-0.3 with z and m from N(0, 1). Streams of
// a size have the same means, so that corpus, clients and test are of one task. Scales that decay
// give the covariance directions of unlike variance, as an extractor's features have. Every class
// has n / C rows, or one more.
func (c *Classes) draw(stream string, n int) ([]float32, []int) {
	means := make([]float32, c.C*c.Dx)
	rng.Normal(rng.New(1, "classes", c.C, c.Dx), means)
	out, labels := make([]float32, n*c.Dx), make([]int, n)
	r := rng.New(1, "classes", c.C, c.Dx, stream)
	rng.Normal(r, out)
	apart := cmp.Or(c.Separation, 0.15)
	scale := make([]float32, c.Dx)
	for j := range scale {
		scale[j] = float32(math.Pow(1+float64(j), -0.3))
	}
	for i, at := range r.Perm(n) {
		labels[i] = at % c.C
		row, mean := out[i*c.Dx:(i+1)*c.Dx], means[labels[i]*c.Dx:]
		for j := range row {
			row[j] = (row[j] + apart*mean[j]) * scale[j]
		}
	}
	return out, labels
}

// Train trains the conjugate predictor with the program's defaults, and writes it and the client's
// part of it.
func (c *Classes) Train(ctx context.Context) error {
	features, labels := c.draw("corpus", c.Rows)
	bank, err := task.NewBank(features, c.Dx, labels, c.C)
	if err != nil {
		return err
	}
	o := meta.ConjugateConfig{Config: meta.Config{Engine: c.Engine, Threads: 1, Corpus: bank,
		Steps: c.Steps, Seed: 1}}
	o.Steps = cmp.Or(o.Steps, 300)
	m, err := meta.TrainConjugate(ctx, o)
	if err != nil {
		return err
	}
	if err := serde.Save(c.file("conjugate.onnx"), m); err != nil {
		return err
	}
	e, err := models.ConjugateEmbedding(m, true)
	if err != nil {
		return err
	}
	return serde.Save(c.file("client.onnx"), e)
}

// Upload writes each client's class means in int8, and returns the largest number of bytes. Clients
// hold Rows / Clients rows each, in the order of the stream. Rows that do not divide by the number
// of clients are left out at the end. Files are readable by their owner alone.
func (c *Classes) Upload(ctx context.Context) (int, error) {
	m, f, err := models.Load(c.file("client.onnx"))
	if err != nil {
		return 0, err
	}
	client, err := compress.New(c.Engine, m)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	features, labels := c.draw("clients", c.Rows)
	each, most := c.Rows/c.Clients, 0
	for i := range c.Clients {
		set, err := point.FromLabelled(features[i*each*c.Dx:(i+1)*each*c.Dx], c.Dx,
			labels[i*each:(i+1)*each], c.C)
		if err != nil {
			return 0, err
		}
		made, err := client.Compress(ctx, []*point.Set{set})
		if err != nil {
			return 0, err
		}
		u := federate.Upload{Client: fmt.Sprintf("client %03d", i), Model: f.Digest, N: each,
			Points: made[0].Held(), Precision: federate.Int8}
		data, err := u.Encode()
		if err != nil {
			return 0, err
		}
		most = max(most, len(data))
		if err := os.WriteFile(c.file(fmt.Sprintf("%03d.upload", i)), data, 0o600); err != nil {
			return 0, err
		}
	}
	return most, nil
}

// Pool turns the uploads into a classifier of feature rows, and returns its size in bytes. A file
// that is no upload of the round is an error. The graph that clients ran is read again, as a server
// does that checks uploads against it. The first refused upload is the error.
func (c *Classes) Pool(ctx context.Context) (int, error) {
	graph, f, err := models.Load(c.file("client.onnx"))
	if err != nil {
		return 0, err
	}
	var paths []string
	for i := range c.Clients {
		paths = append(paths, c.file(fmt.Sprintf("%03d.upload", i)))
	}
	uploads, bad := pool.ReadUploads(paths, pool.Expect(f), nil, nil)
	if len(bad) > 0 {
		return 0, bad[0]
	}
	r, err := pool.New(uploads, graph, f,
		pool.Options{Predictor: c.file("conjugate.onnx"), Open: "none", Samples: c.Samples, Seed: 1,
			Threads: 1})
	if err != nil {
		return 0, err
	}
	p, err := r.Posterior(ctx, c.Engine)
	if err != nil {
		return 0, err
	}
	m, err := r.Classifier(ctx, p, true, false, "bench")
	if err != nil {
		return 0, err
	}
	data, err := serde.Marshal(m)
	if err != nil {
		return 0, err
	}
	return len(data), os.WriteFile(c.file("classifier.onnx"), data, 0o600)
}

// Predict classifies rows by the classifier, and returns their accuracy and negative
// log-likelihood. The NLL is in nats; a probability counts as 1e-30 at least. Test rows come from a
// stream of their own, with the means of the corpus.
func (c *Classes) Predict(ctx context.Context) (accuracy, nll float64, err error) {
	k, err := classify.OpenAt(c.Engine, c.file("classifier.onnx"), 0)
	if err != nil {
		return 0, 0, err
	}
	defer k.Close()
	features, labels := c.draw("test", c.Images)
	at := 0
	err = k.Rows(ctx, onnx.NewTensor(features, c.Images, c.Dx), nil,
		func(ps []classify.Prediction) error {
			for i := range ps {
				first, _ := ps[i].Top()
				if first == labels[at] {
					accuracy += 1 / float64(c.Images)
				}
				nll -= math.Log(max(float64(ps[i].Probabilities[labels[at]]), 1e-30)) /
					float64(c.Images)
				at++
			}
			return nil
		})
	return accuracy, nll, err
}

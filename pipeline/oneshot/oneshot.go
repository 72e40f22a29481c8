// Package oneshot is one round of one-shot federated learning as three functions: a client
// compresses its labelled images to an upload ([Compress]), a server aggregates uploads to a
// classifier ([Aggregate]), and who has the classifier predicts ([Predict]). Nothing is read from
// or written to files, and everything runs on the engine in Go alone. The programs do the same for
// folders of images, over HTTPS and with differential privacy (fmp-edge, fmp serve).
package oneshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/printable"
	"fmp/pipeline/client"
	"fmp/pipeline/federate"
	"fmp/pipeline/pool"
)

// Compress returns the upload of a client, one message: points and masses that stand for its
// labelled images. graph is the client graph of the round (fmp fuse, or package shipped); the
// client need not trust its maker ([client.New]). images are uint8 [n, height, width, channels] of
// the size that it says, labels the n classes from 0; equal images of one class count once. name is
// the client's, 1 to 128 bytes, another for every client; round is the round's number.
func Compress(ctx context.Context, graph *onnx.Model, name string, round uint64,
	images *onnx.Tensor, labels []int) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, fmt.Errorf("compress: client %s: %w", name, err)
	}
	f, err := clientGraph(graph)
	if err != nil {
		return nil, fmt.Errorf("compress: client graph: %w", err)
	}
	c, err := client.New(graph, f, 0)
	if err != nil {
		return nil, fmt.Errorf("compress: client graph: %w", err)
	}
	if want := []int{len(labels), c.Fit.H, c.Fit.W, c.Fit.Ch}; images.DType != onnx.Uint8 ||
		!slices.Equal(images.Shape, want) {
		return fail(fmt.Errorf("images are %v for %d labels; want uint8 %v", images, len(labels), want))
	}
	for i, y := range labels {
		if y < 0 || y >= f.C {
			return fail(fmt.Errorf("label %d of image %d; allowed are 0 to %d", y, i, f.C-1))
		}
	}
	set, n, _, err := c.Points(ctx, &pictures{pixels: images.U8(), labels: labels, size: c.Fit.Size()},
		client.Options{})
	if err != nil {
		return fail(err)
	}
	u := federate.Upload{Round: round, Client: name, Model: f.Digest, N: n, Points: set}
	data, err := u.Encode()
	if err != nil {
		return fail(err)
	}
	return data, nil
}

// pictures are labelled images in memory, as a source.
type pictures struct {
	pixels   []uint8
	labels   []int
	size, at int // bytes of an image; the next one
}

func (p *pictures) Len() int     { return len(p.labels) }
func (p *pictures) Close() error { return nil }

func (p *pictures) Next(_ context.Context, to []uint8) (imagefile.Item, error) {
	if p.at == len(p.labels) {
		return imagefile.Item{}, io.EOF
	}
	image := p.pixels[p.at*p.size:][:p.size]
	copy(to, image)
	p.at++
	return imagefile.Item{Name: strconv.Itoa(p.at - 1), Label: p.labels[p.at-1],
		Digest: sha256.Sum256(image)}, nil
}

// Aggregate returns the classifier of a round: images of the client graph's size in, class
// probabilities and their uncertainty out. Uploads come from others and are checked; all must be of
// one round and one client graph, each of another client. The zero options sample with the
// predictors that come with the program for the graph's extractor, and weigh each client by the
// probability that it is honest.
func Aggregate(ctx context.Context, graph *onnx.Model, uploads [][]byte,
	o pool.Options) (*onnx.Model, error) {
	f, err := clientGraph(graph)
	if err != nil {
		return nil, fmt.Errorf("aggregate: client graph: %w", err)
	}
	good, bad := pool.DecodeUploads(uploads, pool.Expect(f))
	if len(bad) > 0 {
		return nil, fmt.Errorf("aggregate: %w", printable.Errors(bad))
	}
	r, err := pool.New(good, graph, f, o)
	if err != nil {
		return nil, fmt.Errorf("aggregate: %w", err)
	}
	eng, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		return nil, fmt.Errorf("aggregate: %w", err)
	}
	defer eng.Close()
	p, err := r.Posterior(ctx, engine.Under(ctx, eng))
	if err != nil {
		return nil, fmt.Errorf("aggregate: %w", err)
	}
	m, err := r.Classifier(ctx, p, false, false, "")
	if err != nil {
		return nil, fmt.Errorf("aggregate: %w", err)
	}
	return m, nil
}

// Predict returns the class probabilities of images, float32 [n, classes], rows summing to 1: the
// posterior predictive, which is the mean over the posterior's heads. images are uint8 [n, height,
// width, channels] of the size that the classifier says.
func Predict(ctx context.Context, classifier *onnx.Model,
	images *onnx.Tensor) (*onnx.Tensor, error) {
	f, err := models.ReadManifest(classifier)
	if err != nil {
		return nil, fmt.Errorf("predict: classifier: %w", err)
	}
	if f.Kind != models.KindClassifier {
		return nil,
			fmt.Errorf("predict: the model is %q by its manifest; want a classifier, as Aggregate makes it",
				f.Kind)
	}
	out, err := run(ctx, classifier, map[string]*onnx.Tensor{"images": images}, "probabilities")
	if err != nil {
		return nil, fmt.Errorf("predict: %w", err)
	}
	return out["probabilities"], nil
}

// clientGraph returns the manifest of a client graph, with its digest.
func clientGraph(graph *onnx.Model) (models.Manifest, error) {
	f, err := models.ReadManifest(graph)
	if err != nil {
		return f, err
	}
	switch {
	case f.Kind != models.KindClient:
		return f, fmt.Errorf("the model is %q by its manifest; want one that fmp fuse writes", f.Kind)
	case f.Clip > 0:
		return f, errors.New("it is of rounds with differential privacy, which fmp-edge compress and " +
			"fmp pool run")
	}
	f.Digest, err = models.Digest(graph)
	return f, err
}

// run evaluates a model's outputs on the engine in Go.
func run(ctx context.Context, m *onnx.Model, feeds map[string]*onnx.Tensor,
	outputs ...string) (map[string]*onnx.Tensor, error) {
	eng, err := pure.New(engine.Options{})
	if err != nil {
		return nil, err
	}
	defer eng.Close()
	s, err := eng.Load(m)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return engine.Eval(s, feeds, outputs...)
}

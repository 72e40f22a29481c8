// Package oneshot is one round of one-shot federated learning as three functions: a client compresses its labelled images to an upload
// ([Compress]), a server aggregates uploads to a classifier ([Aggregate]), and who has the classifier predicts ([Predict]). Nothing is read
// from or written to files, and everything runs on the engine in Go alone. The programs do the same for folders of images, over HTTPS and
// with differential privacy (fmp-edge, fmp serve).
package oneshot

import (
	"context"
	"errors"
	"fmt"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/pipeline/federate"
	"fmp/pipeline/point"
	"fmp/pipeline/pool"
)

// Compress returns the upload of a client, one message: points and masses that stand for its labelled images. graph is the client graph of
// the round (fmp fuse, or package shipped), images uint8 [n, height, width, channels] of the size that it says, labels the n classes from 0.
// client is the client's name, 1 to 128 bytes, another for every client; round is the round's number.
func Compress(ctx context.Context, graph *onnx.Model, client string, round uint64, images *onnx.Tensor, labels []int) ([]byte, error) {
	f, err := clientGraph(graph)
	if err != nil {
		return nil, fmt.Errorf("compress: client graph: %w", err)
	}
	classes := make([]int64, len(labels))
	for i, y := range labels {
		if y < 0 || y >= f.C {
			return nil, fmt.Errorf("compress: client %s: label %d of image %d; allowed are 0 to %d", client, y, i, f.C-1)
		}
		classes[i] = int64(y)
	}
	out, err := run(ctx, graph, map[string]*onnx.Tensor{"images": images, "labels": onnx.NewTensor(classes, len(classes))}, "points", "masses")
	if err != nil {
		return nil, fmt.Errorf("compress: client %s: %w", client, err)
	}
	set := &point.Set{N: f.S, Dx: f.PointWidth(), C: f.C, Z: out["points"].F32(), W: out["masses"].F32()}
	if len(set.Z) != set.N*(set.Dx+set.C) || len(set.W) != set.N {
		return nil, fmt.Errorf("compress: client graph: it gives points %v and masses %v; its manifest says %d points of %d numbers and %d classes", out["points"], out["masses"], set.N, set.Dx, set.C)
	}
	if f.ClassMeans { // those of classes that the client lacks are not worth sending
		set = set.Held()
	}
	u := federate.Upload{Round: round, Client: client, Model: f.Digest, N: len(labels), Points: set}
	data, err := u.Encode()
	if err != nil {
		return nil, fmt.Errorf("compress: client %s: %w", client, err)
	}
	return data, nil
}

// Aggregate returns the classifier of a round: images of the client graph's size in, class probabilities and their uncertainty out. Uploads
// come from others and are checked; all must be of one round and one client graph, each of another client. The zero options sample with the
// predictors that come with the program for the graph's extractor, and weigh each client by the probability that it is honest.
func Aggregate(ctx context.Context, graph *onnx.Model, uploads [][]byte, o pool.Options) (*onnx.Model, error) {
	f, err := clientGraph(graph)
	if err != nil {
		return nil, fmt.Errorf("aggregate: client graph: %w", err)
	}
	good, bad := pool.DecodeUploads(uploads, federate.Expect{Model: f.Digest})
	if len(bad) > 0 {
		return nil, fmt.Errorf("aggregate: %w", errors.Join(bad...))
	}
	r, err := pool.New(good, graph, f, o)
	if err != nil {
		return nil, fmt.Errorf("aggregate: %w", err)
	}
	eng, err := pure.New(engine.Options{Threads: 1, Context: ctx})
	if err != nil {
		return nil, fmt.Errorf("aggregate: %w", err)
	}
	defer eng.Close()
	p, err := r.Posterior(ctx, eng)
	if err != nil {
		return nil, fmt.Errorf("aggregate: %w", err)
	}
	m, err := r.Classifier(ctx, p, false, false, "")
	if err != nil {
		return nil, fmt.Errorf("aggregate: %w", err)
	}
	return m, nil
}

// Predict returns the class probabilities of images, float32 [n, classes], rows summing to 1: the posterior predictive, which is the mean
// over the posterior's heads. images are uint8 [n, height, width, channels] of the size that the classifier says.
func Predict(ctx context.Context, classifier *onnx.Model, images *onnx.Tensor) (*onnx.Tensor, error) {
	f, err := models.ReadManifest(classifier)
	if err != nil {
		return nil, fmt.Errorf("predict: classifier: %w", err)
	}
	if f.Kind != models.KindClassifier {
		return nil, fmt.Errorf("predict: the model is %q by its manifest; want a classifier, as Aggregate makes it", f.Kind)
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
		return f, errors.New("it is of rounds with differential privacy, which fmp-edge compress and fmp pool run")
	}
	f.Digest, err = models.Digest(graph)
	return f, err
}

// run evaluates a model's outputs on the engine in Go.
func run(ctx context.Context, m *onnx.Model, feeds map[string]*onnx.Tensor, outputs ...string) (map[string]*onnx.Tensor, error) {
	eng, err := pure.New(engine.Options{Context: ctx})
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

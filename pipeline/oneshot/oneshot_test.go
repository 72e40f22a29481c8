package oneshot

import (
	"context"
	"errors"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/pipeline/pool"
	"fmp/pipeline/shipped"
)

// TestRefused: what does not fit is one error that says so, from whichever of the three verbs it
// reaches.
func TestRefused(t *testing.T) {
	load := func(kind string) (*onnx.Model, models.Manifest) {
		m, f := must.Get2(shipped.Load("digits", kind))(t)
		return m, f
	}
	graph, f := load(models.KindClient)
	embedding, _ := load(models.KindEmbedding)
	in, ok := graph.Graph.Input("images")
	if !ok {
		t.Fatal("the client graph has no images")
	}
	side := int(in.Shape[1].Size)
	images := onnx.NewTensor(make([]uint8, 2*side*side), 2, side, side, 1)
	upload := func(client string, labels ...int) []byte {
		return must.Get(Compress(t.Context(), graph, client, 7, images, labels))(t)
	}
	a, b := upload("a", 3, 4), upload("b", 3, 4)
	cut := a[:len(a)/2]
	compress := func(g *onnx.Model, client string, images *onnx.Tensor, labels ...int) error {
		_, err := Compress(t.Context(), g, client, 0, images, labels)
		return err
	}
	aggregate := func(g *onnx.Model, o pool.Options, uploads ...[]byte) error {
		_, err := Aggregate(t.Context(), g, uploads, o)
		return err
	}
	_, predicted := Predict(t.Context(), graph, images)
	for want, err := range map[string]error{
		"compress: client graph: the model is \"embedding\"":  compress(embedding, "a", images, 3, 4),
		"compress: client a: label 10 of image 1":             compress(graph, "a", images, 3, f.C),
		"compress: client a: ":                                compress(graph, "a", images, 3),
		"compress: client : ":                                 compress(graph, "", images, 3, 4),
		"aggregate: client graph: the model is \"embedding\"": aggregate(embedding, pool.Options{}, a),
		"aggregate: pool: no uploads":                         aggregate(graph, pool.Options{}),
		"aggregate: upload 1: ":                               aggregate(graph, pool.Options{}, a, cut),
		"both of client \"a\"":                                aggregate(graph, pool.Options{}, a, b, a),
		"no such file":                                        aggregate(graph, pool.Options{Predictor: "nowhere.onnx"}, a),
		"predict: the model is \"client\"":                    predicted,
	} {
		must.Fail(err)(t, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Aggregate(ctx, graph, [][]byte{a, b}, pool.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

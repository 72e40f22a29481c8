package corpus

import (
	"testing"

	"fmp/featurize/dataset"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/settings"
)

// TestReadFewTestImages: where a run uses few test images, the features of no others are computed.
func TestReadFewTestImages(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	ds := must.Get(dataset.Load(t.Context(), dataset.Options{Name: "digits"}))(t)
	cut := func(p *dataset.Labelled, n int) {
		p.N, p.Labels, p.Pix = n, p.Labels[:n], p.Pix[:n*p.H*p.W*p.Ch]
	}
	cut(&ds.Train, 60)
	cut(&ds.Test, 40)
	dir := t.TempDir()
	must.Do(t, dataset.WritePhotos(dir, ds))
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	defer eng.Close()
	s := Source{Dataset: settings.Dataset{Name: dir, Test: 7},
		Extractor: settings.Extractor{Model: "default"}, Shipped: "digits", Threads: 1}
	s.Dataset.Splits.Corpus, s.Dataset.Splits.Clients = 0.5, 0.5
	features := 0
	r := must.Get(Read(t.Context(), s, eng, func(stage string, _, total int) {
		if stage == "features" {
			features = total
		}
	}, nil))(t)
	if r.Features.Test.N != 7 || features != 67 {
		t.Errorf("%d test images and %d features computed; want 7 and 67", r.Features.Test.N, features)
	}
}

package corpus

import (
	"testing"

	"fmp/featurize/dataset"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/pipeline/settings"
)

// TestReadFewTestImages: where a run uses few test images, the features of no others are computed.
func TestReadFewTestImages(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	ds, err := dataset.Load(t.Context(), dataset.Options{Name: "digits"})
	if err != nil {
		t.Fatal(err)
	}
	cut := func(p *dataset.Labelled, n int) {
		p.N, p.Labels, p.Pix = n, p.Labels[:n], p.Pix[:n*p.H*p.W*p.Ch]
	}
	cut(&ds.Train, 60)
	cut(&ds.Test, 40)
	dir := t.TempDir()
	if err := dataset.WritePhotos(dir, ds); err != nil {
		t.Fatal(err)
	}
	eng, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	s := Source{Dataset: settings.Dataset{Name: dir, Test: 7},
		Extractor: settings.Extractor{Model: "default"}, Shipped: "digits", Threads: 1}
	s.Dataset.Splits.Corpus, s.Dataset.Splits.Clients = 0.5, 0.5
	features := 0
	r, err := Read(t.Context(), s, eng, func(stage string, _, total int) {
		if stage == "features" {
			features = total
		}
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Features.Test.N != 7 || features != 67 {
		t.Errorf("%d test images and %d features computed; want 7 and 67", r.Features.Test.N, features)
	}
}

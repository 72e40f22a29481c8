package corpus

import (
	"reflect"
	"slices"
	"testing"

	"fmp/featurize/dataset"
	"fmp/models"
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

// TestDescribe: what is told of the program's own digits without drawing any is what reading them
// tells; images of a named folder, or behind another extractor, are read.
func TestDescribe(t *testing.T) {
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	s := Source{Dataset: settings.Dataset{Name: "digits", Test: 10, Splits: settings.Splits{Extractor: .5, Clients: .5}},
		Extractor: settings.Extractor{Model: "default", Batch: 64}, Shipped: "digits", Threads: 1}
	got := must.Get(s.Describe(eng))(t)
	want := must.Get(Read(t.Context(), s, eng, func(string, int, int) {}, nil))(t)
	if !reflect.DeepEqual(got.Behind(), want.Behind()) || !slices.Equal(got.Set.Classes, want.Set.Classes) ||
		want.Features.Stats != nil {
		t.Errorf("described as %+v; read as %+v", got.Behind(), want.Behind())
	}
	g, pre := got.Extractor.Client(nil, nil)
	h, as := want.Extractor.Client(nil, nil)
	if must.Get(models.Digest(g))(t) != must.Get(models.Digest(h))(t) || !reflect.DeepEqual(pre, as) {
		t.Errorf("described images are fed as %+v; read ones as %+v", pre, as)
	}
	for _, change := range []func(*Source){func(s *Source) { s.Dataset.Dir = "." },
		func(s *Source) { s.Dataset.Classes = "0-4" }, func(s *Source) { s.Extractor.Model = "x.onnx" },
		func(s *Source) { s.Dataset.Name = "photos" }} {
		other := s
		change(&other)
		if got, err := other.Describe(eng); got != nil || err != nil {
			t.Errorf("%+v: described as %v, %v", other, got, err)
		}
	}
}

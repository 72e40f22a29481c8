package corpus

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fmp/featurize/dataset"
	"fmp/models"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/settings"
	"fmp/pipeline/shipped"
)

// TestModel: a setting names the shipped model, a file or none; one that does not fit is said, and
// is an error if somebody named it.
func TestModel(t *testing.T) {
	m, behind := must.Get2(shipped.Load("digits", models.KindConjugate))(t)
	file := filepath.Join(t.TempDir(), "conjugate.onnx")
	must.Do(t, serde.Save(file, m))
	other := behind
	other.Extractor = strings.Repeat("0", 64)
	for _, c := range []struct {
		name, kind, setting, dataset string
		behind                       models.Manifest
		found                        bool
		note, err                    string
	}{
		{"shipped", models.KindConjugate, "default", "digits", behind, true, "", ""},
		{"file", models.KindConjugate, file, "digits", behind, true, "", ""},
		{"untrained", models.KindConjugate, "untrained", "digits", behind, false, "", ""},
		{"none shipped", models.KindConjugate, "default", "photos", behind, false, "", ""},
		{"shipped behind another", models.KindConjugate, "default", "digits", other, false,
			"does not fit", ""},
		{"file behind another", models.KindConjugate, file, "digits", other, false, "",
			"setting conjugate.model: "},
		{"file of another kind", models.KindPredictor, file, "digits", behind, false, "",
			"want predictor"},
		{"no file", models.KindConjugate, "nowhere.onnx", "digits", behind, false, "", "nowhere.onnx"},
	} {
		m, f, note, err := Model(c.kind, c.setting, c.dataset, c.behind)
		if (m != nil) != c.found || c.found && f.Kind != c.kind || !strings.Contains(note, c.note) ||
			(note == "") != (c.note == "") {
			t.Errorf("%s: found %v, %q, note %q", c.name, m != nil, f.Kind, note)
		}
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v; want one that says %q", c.name, err, c.err)
		}
	}
}

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

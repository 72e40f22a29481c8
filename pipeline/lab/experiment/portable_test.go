package experiment

import (
	"path/filepath"
	"testing"

	"fmp/pipeline/settings"
)

func TestPortable(t *testing.T) {
	far := filepath.Join(t.TempDir(), "far")
	in := func(name string) string { return filepath.Join(far, name) }
	for _, c := range []struct{ given, model, dataset, folder, label string }{
		{"default", "default", "default", "default", "default"},
		{"", "", "", "", ""},
		{filepath.Join("sub", "x"), filepath.Join("sub", "x"), filepath.Join("sub", "x"),
			filepath.Join("sub", "x"), "x"},
		{in("x"), "x", "./x", "", "x"},
		{in("mnist"), "mnist", "./mnist", "", "mnist"},
		{filepath.Join("..", "x"), "x", "./x", "", "x"},
	} {
		p := Config{
			Dataset: settings.Dataset{Name: c.given, Dir: c.given},
			Engine:  settings.Engine{Library: c.given}, Output: Output{Dir: c.given},
			Extractor: settings.Extractor{Model: c.given},
			Predictor: settings.Predictor{Model: c.given},
			Embedding: settings.Embedding{Model: c.given},
			Privacy:   settings.Privacy{Model: c.given},
			Scores:    Scores{Other: []string{c.given}},
		}
		given := p
		label := p.Dataset.Label()
		p = p.Portable()
		if p.Extractor.Model != c.model || p.Predictor.Model != c.model ||
			p.Embedding.Model != c.model || p.Privacy.Model != c.model {
			t.Errorf("%q: models %q, %q, %q, %q; want %q", c.given, p.Extractor.Model, p.Predictor.Model,
				p.Embedding.Model, p.Privacy.Model, c.model)
		}
		if p.Scores.Other[0] != c.dataset || given.Scores.Other[0] != c.given {
			t.Errorf("%q: other images %q of %q; want %q", c.given, p.Scores.Other, given.Scores.Other, c.dataset)
		}
		for at, of := range map[string]Config{"there": given, "elsewhere": p} {
			if of = of.deciding(); of.Scores.Other[0] != c.label {
				t.Errorf("%q, %s: other images %q decide; want %q", c.given, at, of.Scores.Other, c.label)
			}
		}
		if p.Dataset.Name != c.dataset || label != c.label || p.Dataset.Label() != c.label {
			t.Errorf("%q: data set %q called %q; want %q called %q", c.given, p.Dataset.Name, label,
				c.dataset, c.label)
		}
		if p.Dataset.Dir != c.folder || p.Output.Dir != c.folder || p.Engine.Library != c.folder {
			t.Errorf("%q: folders %q, %q and library %q; want %q", c.given, p.Dataset.Dir, p.Output.Dir,
				p.Engine.Library, c.folder)
		}
		if again := p.Portable(); again.Dataset != p.Dataset ||
			again.Extractor.Model != p.Extractor.Model {
			t.Errorf("%q: not the same twice", c.given)
		}
	}
}

// TestFileNames: models that come with the program, or are left out, are no files; that of private
// rounds is named where there are such.
func TestFileNames(t *testing.T) {
	const file = "/far/mine.onnx"
	for _, x := range []struct {
		epsilon                   float64
		model, conjugate, private string
	}{{0, "default", "", ""}, {0, "untrained", "", ""}, {0, "none", "", ""}, {0, file, "mine.onnx", ""},
		{1, file, "mine.onnx", "mine.onnx"}, {1, "default", "", ""}} {
		c := Default()
		c.Privacy.Epsilon, c.Privacy.Model, c.Conjugate.Model = x.epsilon, x.model, x.model
		if got := c.fileNames(); got["conjugate"] != x.conjugate || got["private"] != x.private {
			t.Errorf("%g, %s: %v; want %q and %q", x.epsilon, x.model, got, x.conjugate, x.private)
		}
	}
}

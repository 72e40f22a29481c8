package experiment

import (
	"fmp/pipeline/settings"
	"path/filepath"
	"testing"
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
		}
		label := p.Dataset.Label()
		p = p.Portable()
		if p.Extractor.Model != c.model || p.Predictor.Model != c.model ||
			p.Embedding.Model != c.model {
			t.Errorf("%q: models %q, %q, %q; want %q", c.given, p.Extractor.Model, p.Predictor.Model,
				p.Embedding.Model, c.model)
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

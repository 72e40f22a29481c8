package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"fmp/onnx/must"
)

// TestFigures: the figures of the pages are what the kept results say.
func TestFigures(t *testing.T) {
	for _, f := range []struct{ name, from, kept string }{
		{"latent", "results", "results/latent.svg"}, {"rounds", "results", "results/pretrained.svg"},
		{"drift", "results/martingale", "results/martingale.svg"},
		{"merging", "results/merging.csv", "figures/merging.svg"},
	} {
		docs := func(path string) string { return filepath.Join("..", "..", path) }
		path := filepath.Join(t.TempDir(), "drawn.svg")
		must.Do(t, figures[f.name](docs(f.from), path))
		if !bytes.Equal(must.Get(os.ReadFile(path))(t), must.Get(os.ReadFile(docs(f.kept)))(t)) {
			t.Errorf("%s is not what the kept results say; run make figures", f.kept)
		}
	}
}

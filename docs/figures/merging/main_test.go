package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestFigure: the figure on the page of merging is what the kept table says.
func TestFigure(t *testing.T) {
	want, err := os.ReadFile("../merging.svg")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "merging.svg")
	if err := run("../../results/merging.csv", path); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/figures/merging.svg is not what docs/results/merging.csv says; run make "+
			"figures (%v)", err)
	}
}

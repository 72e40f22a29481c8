package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestFigure: the plot on the page of results is what the kept runs say.
func TestFigure(t *testing.T) {
	const root = "../../results"
	want, err := os.ReadFile(filepath.Join(root, "pretrained.svg"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "pretrained.svg")
	if err := run(root, path); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/results/pretrained.svg is not what the kept runs say; run make figures")
	}
}

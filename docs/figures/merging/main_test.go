package main

import (
	"testing"

	"fmp/docs/internal/panels/panelstest"
)

// TestFigure: the figure on the page of merging is what the kept table says.
func TestFigure(t *testing.T) {
	panelstest.Same(t, "../merging.svg", func(path string) error { return run("../../results/merging.csv", path) })
}

package main

import (
	"testing"

	"fmp/docs/internal/panels/panelstest"
)

// TestFigure: the plot on the page of results is what the kept runs say.
func TestFigure(t *testing.T) {
	panelstest.Same(t, "../../results/latent.svg", func(path string) error { return run("../../results", path) })
}

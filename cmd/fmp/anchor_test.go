package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"fmp/assets"
	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
)

// TestAnchorCommand: the shipped anchor of the drawn digits comes out of the command that its page
// names; what makes none is refused, and nothing is written.
func TestAnchorCommand(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "anchor.upload")
	ran(t, "anchor", "--dataset", "digits", "--seed", "1", "-o", out)
	got := decoded(t, out)
	want := must.Get(federate.Decode(must.Get(assets.Anchor("digits"))(t), federate.Expect{}))(t)
	if got.Model != want.Model || got.N != want.N || len(got.Points.Z) != len(want.Points.Z) {
		t.Fatalf("%d images in %d numbers; want %d and %d", got.N, len(got.Points.Z), want.N,
			len(want.Points.Z))
	}
	for i, v := range want.Points.Z {
		if math.Abs(float64(got.Points.Z[i]-v)) > 1e-4 { // processors round sums in other orders
			t.Fatalf("number %d is %v; the shipped anchor has %v", i, got.Points.Z[i], v)
		}
	}
	embedding := filepath.Join(dir, "embedding.onnx")
	must.Do(t, os.WriteFile(embedding, assetstest.Data(t, "digits", models.KindEmbedding), 0o600))
	none := filepath.Join(dir, "none.upload")
	for want, args := range map[string][]string{
		"--images 0":           {"--dataset", "digits", "--images", "0"},
		"makes no class means": {"--dataset", "digits", "--client-graph", embedding},
		"missing.onnx": {"--dataset", "digits", "--client-graph",
			filepath.Join(dir, "missing.onnx")},
	} {
		fails(t, want, append([]string{"anchor", "-o", none}, args...)...)
	}
	absent(t, none)
}

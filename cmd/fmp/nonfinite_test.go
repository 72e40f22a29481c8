package main

import (
	"path/filepath"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
)

// TestFeaturesThatAreNoNumbers: an extractor whose features are not finite, or so large that
// nothing can be computed with them, ends a run with one line that says so, and without a file of
// results.
func TestFeaturesThatAreNoNumbers(t *testing.T) {
	emptyCache(t)
	place := t.TempDir()
	data := filepath.Join(place, "photos")
	pictures(t, data)
	for name, f := range map[string]func(b *build.Builder, x build.Ref) build.Ref{
		"NaN": func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("Sqrt", []build.Ref{b.Op("Sub", []build.Ref{x, b.F32(0.4)})})
		},
		"infinite": func(b *build.Builder,
			x build.Ref) build.Ref {
			return b.Op("Exp", []build.Ref{b.Mul(x, b.F32(200))})
		},
		"ours, huge": func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("Exp", []build.Ref{b.Mul(x, b.F32(88))})
		},
		"ours, large": func(b *build.Builder, x build.Ref) build.Ref { return b.Mul(x, b.F32(1e20)) },
		"ours, 1e12":  func(b *build.Builder, x build.Ref) build.Ref { return b.Mul(x, b.F32(1e12)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := build.New(name)
			x := b.Input("image", onnx.Float32, "batch", 1, 28, 28)
			b.Output("features", f(b,
				b.Reshape(b.Op("AveragePool", []build.Ref{x}, onnx.IntsAttr("kernel_shape", 7, 7),
					onnx.IntsAttr("strides", 7, 7)), 0, 16)))
			m := must.Get(b.Model())(t)
			if strings.HasPrefix(name, "ours") {
				man := models.Manifest{Kind: models.KindExtractor, Dx: 16, Mean: []float32{0},
					Std: []float32{1}, Layout: "NCHW"}
				must.Do(t, man.Write(m))
			}
			path := saved(t)(m, nil)
			out := filepath.Join(t.TempDir(), "run")
			code, _, errs := runFMP(t, "run", "--dataset", data, "--dataset.splits.extractor", "0.3",
				"--dataset.splits.clients", "0.3", "--extractor", path, "--extractor.mean", "0",
				"--extractor.std", "1", "--seeds", "1", "--clients", "2", "--points", "6",
				"--samples", "3", "--fresh", "10", "--predictor", "untrained", "--embedding",
				"untrained", "--methods", "ANN,BNN,CBNN,FMP,FedCGS,LDA,GH-QDA", "--engine",
				"ort", "--out", out)
			last := errs[strings.LastIndex(strings.TrimRight(errs, "\n"), "\n")+1:]
			if code != exitUsage || !strings.HasPrefix(last, "fmp: ") ||
				!strings.Contains(last, "feature") {
				t.Errorf("exit code %d, said %q; want %d and a line about the features", code,
					errs, exitUsage)
			}
			absent(t, filepath.Join(out, "results.jsonl"))
		})
	}
}

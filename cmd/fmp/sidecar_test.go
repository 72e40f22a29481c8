package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"fmp/featurize/extractor"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
)

// TestSidecarKept: a model that is made of another takes images as that one does, by the other's
// side-car or by flags; without either nothing is written beside it, and the
// side-car of an earlier output does not stay.
func TestSidecarKept(t *testing.T) {
	t.Parallel()
	b := build.New("linear")
	x := b.Op("Flatten", []build.Ref{b.Input("x", onnx.Float32, "n", 1, 8, 8)})
	w := onnx.ZerosF32(64, 10)
	for i := range w.F32() {
		w.F32()[i] = float32(i%7) / 8
	}
	b.Output("y", b.Op("MatMul", []build.Ref{x, b.Param("w", w)}))
	model := saved(t)(b.Model())
	out, data := model+".out", filepath.Join(t.TempDir(), "rows.npz")
	archive(t, data, onnx.ZerosF32(20, 1, 8, 8), onnx.Vector(append(make([]int64, 19), 9)...))
	commands := map[string][]string{
		"half": {"onnx", "half", model, "--least", "1", "-o", out},
		"quantise": {"onnx", "quantise", model, "-o", out, "--images", "digits", "--weights-only", "8", "--least", "1",
			"--seconds", "0.01", "--calibrate", "4", "--test", "1"},
		"train": {"onnx", "train", model, "-o", out, "--images", "digits", "--epochs", "1", "--rate", "1e-9", "--lora", "1"},
		"train on arrays": {"onnx", "train", model, "-o", out, "--data", data, "--epochs", "1", "--rate", "1e-9",
			"--lora", "1"},
	}
	for _, c := range []struct {
		side  string
		more  []string
		want  float64 // the mean; 0: no side-car, or one without a mean
		stale string  // the side-car of an earlier output
	}{
		{"mean: [64]\nstd: [32]\nscale: 0-255\n", nil, 64, ""},
		{"", []string{"--mean", "0.5", "--std", "0.25"}, .5, ""},
		{"", nil, 0, ""},
		{"", nil, 0, "mean: [0.1]\nstd: [0.2]\n"},
	} {
		for name, args := range commands {
			if c.more != nil && (name == "half" || name == "train on arrays") ||
				c.stale != "" && name == "train on arrays" { // which is refused: see TestWrong
				continue
			}
			_ = os.Remove(model + ".yaml")
			_ = os.Remove(out + ".yaml")
			if c.side != "" {
				must.Do(t, os.WriteFile(model+".yaml", []byte(c.side), 0o600))
			}
			if c.stale != "" {
				must.Do(t, os.WriteFile(out+".yaml", []byte(c.stale), 0o600))
			}
			ran(t, append(args, c.more...)...)
			made, path, err := extractor.Sidecar(out)
			must.Do(t, err)
			if c.stale != "" {
				if path == "" || made.Mean != nil || made.Std != nil {
					t.Errorf("%s: the side-car %q of an earlier output stays: %+v", name, path, made)
				}
				continue
			}
			if c.want == 0 {
				if _, err := os.Stat(out + ".yaml"); path != "" || !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: a side-car %q of nothing", name, path)
				}
				continue
			}
			if len(made.Mean) != 1 {
				t.Errorf("%s: side-car %q says %+v", name, path, made)
				continue
			}
			if m := made.Mean[0]; m != c.want && m != c.want/255 {
				t.Errorf("%s: mean %v; want %v", name, m, c.want)
			}
		}
	}
}

package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/engine/ort"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/lab/experiment"
)

// pictures writes a folder of images by class, bright and dark ones, of two sizes and with a file
// that is none: every note that a folder can give.
func pictures(t *testing.T, dir string) {
	t.Helper()
	r := rng.New(9, "pictures")
	for class, base := range map[string]int{"bright": 160, "dark": 20} {
		must.Do(t, os.MkdirAll(filepath.Join(dir, class), 0o755))
		for i := range 60 {
			side := 28 + i%2
			im := image.NewGray(image.Rect(0, 0, side, side))
			for k := range im.Pix {
				im.SetGray(k%side, k/side, color.Gray{Y: uint8(base + r.IntN(80))})
			}
			var b bytes.Buffer
			must.Do(t, png.Encode(&b, im))
			must.Do(t, os.WriteFile(filepath.Join(dir, class, fmt.Sprintf("%d.png", i)), b.Bytes(),
				0o644))
		}
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "dark", "thumbs.db"), nil, 0o644))
}

func TestRunDirectoryNamesNoPlaceOfTheMachine(t *testing.T) {
	emptyCache(t)
	lib := os.Getenv(ort.LibraryEnv)
	place := t.TempDir()
	data, out := filepath.Join(place, "photos"), filepath.Join(place, "out")
	pictures(t, data)
	others := filepath.Join(place, "others")
	pictures(t, others)
	x := randomExtractor(t)
	must.Do(t, os.WriteFile(x+".yaml", []byte("mean: [0.5]\nstd: [0.5]\n"), 0o644))
	m := must.Get(models.NewPredictor(models.PredictorConfig{Dx: 256, C: 2}, 1))(t)
	predictor := filepath.Join(place, "mine.onnx")
	must.Do(t, serde.Save(predictor, m))
	args := []string{"--dataset", data, "--data-dir", place, "--scores.other", others, "--extractor", x,
		"--predictor", predictor, "--set", "engine.library=" + lib, "--clients", "2", "--points", "6", "--seeds", "1",
		"--samples", "2", "--fresh", "10", "--methods", "ANN,FMP", "--set", "protocol=tuned", "--set",
		"tuning.tasks=1", "--set", "tuning.points=10", "--set", "dataset.splits.extractor=0.3", "--set",
		"dataset.splits.clients=0.3"}
	stdout, _ := ran(t, append([]string{"run", "--out", out}, args...)...)
	if !strings.Contains(stdout, "photos has no train and test folders") {
		t.Errorf("the notes do not name the data set's folder: %s", stdout)
	}
	home := must.Get(os.UserHomeDir())(t)
	files := 0
	if err := filepath.WalkDir(out, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		for _, p := range []string{place, filepath.Dir(x), filepath.Dir(lib), os.Getenv("XDG_CACHE_HOME"),
			home + string(filepath.Separator)} {
			if at := bytes.Index(b, []byte(p)); at >= 0 {
				t.Errorf("%s names %s: ...%s...", path, p, b[max(0, at-60):min(len(b), at+len(p)+60)])
			}
		}
		return nil
	}); err != nil || files < 10 {
		t.Fatalf("%d files: %v", files, err)
	}
	was := must.Get(experiment.ReadManifest(out))(t)
	if was.Files["extractor"] != filepath.Base(x) || was.Files["predictor"] != "mine.onnx" ||
		len(was.Files) != 2 ||
		len(was.Models["predictor"]) != 64 {
		t.Errorf("models are %v, %v", was.Files, was.Models)
	}

	// The settings make the run again where the data are, with the files given.
	t.Chdir(place)
	again := answer[runOutput](t, "run", "--config", filepath.Join(out, experiment.ConfigFile),
		"--extractor", x, "--json", "--out", "again")
	if again.Identity != was.Identity {
		t.Errorf("the settings of the run directory made run %s; want %s", again.Identity, was.Identity)
	}
	a := must.Get(os.ReadFile(filepath.Join(out, experiment.ResultsFile)))(t)
	b, err := os.ReadFile(filepath.Join("again", experiment.ResultsFile))
	if err != nil || !bytes.Equal(a, b) {
		t.Errorf("results differ: %v", err)
	}
}

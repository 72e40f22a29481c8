package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/assets/assetstest"
	"fmp/cmd/internal/outputs/outputstest"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine/ort"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/federate"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/option"
	"fmp/pipeline/point"
)

// randomExtractor saves an extractor of 16 random 5x5 filters with stride 2, rectified and averaged
// over a 4 x 4 grid of windows: 256 features.
func randomExtractor(t *testing.T) string {
	t.Helper()
	w := onnx.ZerosF32(16, 1, 5, 5)
	rng.Normal(rng.New(5, "filters"), w.F32())
	b := build.New("random filters")
	x := b.Input("image", onnx.Float32, "batch", 1, 28, 28)
	h := b.Relu(b.Op("Conv", []build.Ref{x, b.Param("w", w)}, onnx.IntsAttr("strides", 2, 2)))
	h = b.Op("AveragePool", []build.Ref{h}, onnx.IntsAttr("kernel_shape", 3, 3),
		onnx.IntsAttr("strides", 3, 3))
	b.Output("features", b.Reshape(h, 0, 256))
	return saved(t)(b.Model())
}

// newFolder makes a folder and returns the paths of files in it.
func newFolder(t *testing.T) func(name string) string {
	t.Helper()
	dir := t.TempDir()
	return func(name string) string { return filepath.Join(dir, name) }
}

// saved writes a model to a file of its own.
func saved(t *testing.T) func(*onnx.Model, error) string {
	return func(m *onnx.Model, err error) string {
		t.Helper()
		must.Do(t, err)
		path := filepath.Join(t.TempDir(), "model.onnx")
		must.Do(t, serde.Save(path, m))
		return path
	}
}

// emptyCache gives the test a cache of its own, the library apart. It skips where there is no
// library.
func emptyCache(t *testing.T) {
	t.Helper()
	needRuntime(t)
	lib, _ := must.Get2(ort.FindLibrary(""))(t)
	t.Setenv(ort.LibraryEnv, lib)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
}

// smallRun is the arguments of a run on a few of the embedded digits.
func smallRun(t *testing.T, more ...string) []string {
	if !slices.Contains(more, "--methods") {
		more = append([]string{"--methods", "ANN,MP,CANN,CFMP,FMP,FedCGS,PRIOR"}, more...)
	}
	return append([]string{"run", "--extractor", randomExtractor(t), "--extractor.mean", "0",
		"--extractor.std", "1", "--dataset.test", "300", "--seeds", "2", "--clients", "4", "--samples",
		"4", "--fresh", "40", "--predictor", "untrained", "--embedding", "untrained", "--set",
		"posterior.bnn=laplace"}, more...)
}

func TestRunGivesTheSameBytesWithAnyNumberOfThreads(t *testing.T) {
	if testing.Short() {
		t.Skip("draws the embedded digits and runs twice: some seconds")
	}
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	emptyCache(t)
	for threads, dir := range map[string]string{"1": one, "2": two} {
		// The drawn images may be kept; extraction is part of the test.
		must.Do(t, os.RemoveAll(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "fmp", "features")))
		got := answer[runOutput](t, smallRun(t, "--threads", threads, "--out", dir, "--json",
			"--points", "60")...)
		if len(got.Tables) != 1 || len(got.Tables[0].Rows) != 7 {
			t.Fatalf("%d tables", len(got.Tables))
		}
		for _, r := range got.Tables[0].Rows {
			switch r.Method {
			case "PRIOR":
				if math.Abs(r.ACC.Mean-0.1) > 0.05 {
					t.Errorf("prior only: ACC %.3f; want chance, 0.10", r.ACC.Mean)
				}
			case "FMP", "MP", "ANN":
				if r.ACC.Mean < 0.3 {
					t.Errorf("%s: ACC %.3f; want far above chance", r.Method, r.ACC.Mean)
				}
			}
		}
	}
	for _, name := range []string{"results.jsonl", "results.csv", "table.md", "table.tex"} {
		if !bytes.Equal(read(t, filepath.Join(one, name)), read(t, filepath.Join(two, name))) {
			t.Errorf("%s differs between 1 and 2 threads", name)
		}
	}
}

// TestRunInOpenScope: tasks on classes that the corpus lacks are told from chance, settings are
// tuned on as many classes of the corpus, and the results say what the corpus was. Classes on both
// sides are refused.
func TestRunInOpenScope(t *testing.T) {
	if testing.Short() {
		t.Skip("draws the embedded digits: some seconds")
	}
	emptyCache(t)
	dir := filepath.Join(t.TempDir(), "run")
	args := smallRun(t, "--methods", "ANN,FedCGS", "--classes", "6-9", "--points", "20", "--protocol",
		"tuned", "--set", "tuning.points=100")
	got := answer[runOutput](t, append(args, "--set", "corpus.classes=0-4", "--out", dir,
		"--json")...)
	for _, r := range got.Tables[0].Rows {
		if r.ACC.Mean < 0.5 {
			t.Errorf("%s: ACC %.3f; want far above chance, 0.25", r.Method, r.ACC.Mean)
		}
	}
	m := must.Get(experiment.ReadManifest(dir))(t)
	if notes := strings.Join(m.Notes, " "); !strings.Contains(notes, "open scope") ||
		!strings.Contains(notes, "5 classes of digits") ||
		len(m.Data["corpus"]) != 64 {
		t.Errorf("notes %q, corpus %q", notes, m.Data["corpus"])
	}
	refused(t, exitUsage, "class 6 is among", append(args, "--set", "corpus.classes=0-6")...)
}

// TestRunRefusesBadInput: models and settings that do not fit the images, and images whose labels are none,
// are refused in one line, and nothing is written.
func TestRunRefusesBadInput(t *testing.T) {
	emptyCache(t)
	otherDx := saved(t)(models.NewPredictor(models.PredictorConfig{Dx: 64, C: 10}, 1))
	run := "run --extractor " + randomExtractor(t) + " --extractor.mean 0 --extractor.std 1 --clients 2 --points 5 " +
		"--methods ANN --out out --dataset "
	t.Chdir(t.TempDir())
	for _, folder := range []string{"good", "magic"} {
		ran(t, "data", "synth", "-o", folder, "--train", "80", "--test", "40")
	}
	const magic = "\x00\x00\x0d\x01\x00\x00\x00\x50" // of floats
	must.Do(t, os.WriteFile("magic/train-labels-idx1-ubyte", []byte(magic+strings.Repeat("\x00", 80)), 0o600))
	outputstest.CheckWrong(t, []outputstest.Wrong{{run + "./good --predictor " + otherDx, "dx 64"},
		{run + "./magic", "train-labels-idx1-ubyte"}, {strings.Replace(run, "--clients 2", "--clients 100", 1) + "./good",
			"100 clients"}}, everything(t))
}

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

// simulated makes uploads of class means of the digits' client graph, of the corpus's kind: beside
// images of another kind clients tell how much the corpus counts, and sums of clients do not.
type simulated struct {
	graph   *onnx.Model
	f       models.Manifest
	centres []float32
}

func newSimulated(t *testing.T) *simulated {
	t.Helper()
	s := &simulated{}
	s.graph, s.f = assetstest.Load(t, "digits", models.KindClient)
	cfg := option.Default[anchorSettings]()
	cfg.FillDefaults()
	u := must.Get(drawAnchor(t.Context(), cfg, "", mostAnchor))(t)
	s.centres = make([]float32, s.f.S*s.f.Dx)
	for i, y := range u.Points.Indices() {
		copy(s.centres[int(y)*s.f.Dx:], u.Points.Features(i))
	}
	return s
}

// upload returns the upload of one client, of two images a class, whose names are further classes
// by shift than the true ones.
func (s *simulated) upload(name string, shift int) ([]byte, error) {
	f := s.f
	set := &point.Set{N: f.S, Dx: f.Dx, C: f.C, Z: make([]float32, f.S*f.Dx), W: make([]float32, f.S),
		Y: make([]int32, f.S)}
	r := rng.New(1, name)
	for i := range set.Z {
		set.Z[i] = s.centres[i] + 0.1*float32(r.NormFloat64())
	}
	for c := range f.S {
		set.W[c], set.Y[c] = 2, int32((c+shift)%f.C)
	}
	return (&federate.Upload{Round: benchRound, Client: name, Model: f.Digest, N: 2 * f.S,
		Points: set}).Encode()
}

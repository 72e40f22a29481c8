package main

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fmp/cmd/internal/outputs/outputstest"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/pipeline/lab/experiment"
)

// exported makes a small run with splits, and returns the run directory, the folder of splits and
// their manifest.
func exported(t *testing.T) (run, splits string, m experiment.Splits) {
	t.Helper()
	emptyCache(t)
	run, splits = filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "splits")
	args := smallRun(t, "--points", "40", "--partition", "both", "--alpha", "0.1", "--methods", "ANN,MP,NCM", "--out",
		run, "--export-splits", splits)
	for range 2 { // the second time all of it is there
		ran(t, args...)
	}
	must.Do(t, json.Unmarshal(read(t, filepath.Join(splits, experiment.SplitsFile)), &m))
	return run, splits, m
}

// load reads an archive of the splits.
func load(t *testing.T, path ...string) map[string]*onnx.Tensor {
	t.Helper()
	return must.Get(npy.LoadArchive(filepath.Join(path...)))(t)
}

// classMeansOf returns the class means of rows; a class without rows has the mean of all.
func classMeansOf(a map[string]*onnx.Tensor, classes int) [][]float64 {
	x, y, dx := a["features"].F32(), a["labels"].I64(), a["features"].Shape[1]
	out, counts, all := make([][]float64, classes), make([]float64, classes), make([]float64, dx)
	for c := range out {
		out[c] = make([]float64, dx)
	}
	for i, c := range y {
		counts[c]++
		for j := range dx {
			out[c][j] += float64(x[i*dx+j])
			all[j] += float64(x[i*dx+j]) / float64(len(y))
		}
	}
	for c := range out {
		for j := range dx {
			if out[c][j] /= counts[c]; counts[c] == 0 {
				out[c][j] = all[j]
			}
		}
	}
	return out
}

// TestScoreTiesWithItsOwnNCM computes NCM from the splits alone, as heads and as probabilities, and
// in Python where that is at hand. Scored from outside, it has the figures of the program's own.
func TestScoreTiesWithItsOwnNCM(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a run: some seconds")
	}
	run, splits, m := exported(t)
	test := load(t, splits, "test.npz")
	if len(test) != 1 || test["features"] == nil {
		t.Fatalf("test.npz holds %d arrays; want features alone", len(test))
	}
	corpus := load(t, splits, "corpus.npz")
	classes, dx := len(m.Classes), m.Features
	within, mu := 0.0, classMeansOf(corpus, classes)
	for i, c := range corpus["labels"].I64() {
		for j, v := range corpus["features"].F32()[i*dx : (i+1)*dx] {
			within += (float64(v) - mu[c][j]) * (float64(v) - mu[c][j])
		}
	}
	variance := within / float64(len(corpus["labels"].I64())-classes) / float64(dx)
	heads, probabilities := map[string]*onnx.Tensor{}, map[string]*onnx.Tensor{}
	for _, task := range m.Tasks {
		w := make([]float64, (dx+1)*classes)
		for c, mean := range classMeansOf(load(t, splits, task.File), classes) {
			for j, v := range mean {
				w[j*classes+c] = v / variance
				w[dx*classes+c] -= v * v / variance / 2
			}
		}
		p := make([]float64, m.Test*classes)
		for i := range m.Test {
			row, sum := p[i*classes:(i+1)*classes], 0.0
			for c := range row {
				row[c] = w[dx*classes+c]
				for j, v := range test["features"].F32()[i*dx : (i+1)*dx] {
					row[c] += float64(v) * w[j*classes+c]
				}
			}
			top := math.Inf(-1)
			for _, v := range row {
				top = max(top, v)
			}
			for c := range row {
				row[c] = math.Exp(row[c] - top)
				sum += row[c]
			}
			for c := range row {
				row[c] /= sum
			}
		}
		heads[task.Name+"-heads"] = onnx.NewTensor(w, 1, dx+1, classes)
		probabilities[task.Name] = onnx.NewTensor(append(append([]float64{}, p...), p...), 2,
			m.Test, classes)
	}
	for name, arrays := range map[string]map[string]*onnx.Tensor{"by-heads": heads, "by-samples": probabilities} {
		scoreIn(t, run, name, arrays)
	}
	names := []string{"by-heads", "by-samples"}
	if err := exec.Command("python3", "-c", "import numpy").Run(); err != nil {
		t.Log("python3 with numpy is not at hand: examples/outside/ncm.py did not run")
	} else {
		file := filepath.Join(t.TempDir(), "ncm.npz")
		if out, err := exec.Command("python3", "../../examples/outside/ncm.py", splits,
			file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		ran(t, "score", file, "--run", run, "--name", "in-Python")
		names = append(names, "in-Python")
	}
	own := figuresOf(t, run, "NCM")
	for _, name := range names {
		got := figuresOf(t, run, name)
		for i := range own {
			if math.Abs(got[i]-own[i]) > 1e-6 {
				t.Errorf("%s: figure %d is %v, NCM's own %v", name, i, got[i], own[i])
			}
		}
	}
	if out, _ := ran(t, "results", "compare", run, "--method", "BY-heads"); !strings.Contains(out, "by-heads - NCM") {
		t.Errorf("compare printed %s", out)
	}
	for _, file := range []string{"table.md", "table.tex", "report.html"} {
		data, err := os.ReadFile(filepath.Join(run, file))
		if err != nil || !strings.Contains(string(data), "by-heads is a method from outside") {
			t.Errorf("%s does not state where the row by-heads is from (%v)", file, err)
		}
	}
}

// scoreIn writes predictions and scores them.
func scoreIn(t *testing.T, run, name string, arrays map[string]*onnx.Tensor) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".npz")
	must.Do(t, npy.SaveArchive(file, arrays))
	for range 2 { // the same again changes nothing
		ran(t, "score", file, "--run", run, "--name", name)
	}
}

// figuresOf returns the figures of a method in all tasks.
func figuresOf(t *testing.T, run, method string) []float64 {
	t.Helper()
	rs := must.Get(experiment.ReadResults(run))(t)
	var out []float64
	for _, r := range rs {
		if r.Method == method {
			out = append(out, r.ACC, r.ECE, r.NLL, r.Brier, r.Uncertainty.Joint.Near,
				r.Uncertainty.Joint.Random, r.Uncertainty.AURC, r.Uncertainty.ClassECE,
				r.Uncertainty.AdaptiveECE, r.Uncertainty.Entropy)
		}
	}
	if len(out) != 4*10 {
		t.Fatalf("%s has %d figures; want ten of each of four tasks", method, len(out))
	}
	return out
}

// TestExamplesFromOutside runs the examples in Python, where their libraries are at hand.
func TestExamplesFromOutside(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a run: some seconds")
	}
	needs := map[string]string{"logistic.py": "sklearn", "ensemble.py": "torch"}
	for example, library := range needs {
		if err := exec.Command("python3", "-c", "import numpy, "+library).Run(); err != nil {
			t.Logf("python3 with %s is not at hand: examples/outside/%s did not run (apt-get install "+
				"python3-%s)", library, example, library)
			delete(needs, example)
		}
	}
	if len(needs) == 0 {
		t.Skip("python3 with scikit-learn or PyTorch is not at hand")
	}
	run, splits, _ := exported(t)
	for example := range needs {
		file := filepath.Join(t.TempDir(), "p.npz")
		if out, err := exec.Command("python3", "../../examples/outside/"+example, splits,
			file).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", example, err, out)
		}
		ran(t, "score", file, "--run", run, "--name", example)
		chance, own := 0.1, figuresOf(t, run, example)
		if own[0] < 3*chance {
			t.Errorf("%s: accuracy %v, little above chance", example, own[0])
		}
	}
}

func TestScoreRefuses(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a run: some seconds")
	}
	run, _, m := exported(t)
	n, c := m.Test, len(m.Classes)
	whole := func(change func(p []float64, a map[string]*onnx.Tensor)) map[string]*onnx.Tensor {
		a := map[string]*onnx.Tensor{}
		for _, task := range m.Tasks {
			p := make([]float64, n*c)
			for i := range p {
				p[i] = 1 / float64(c)
			}
			a[task.Name] = onnx.NewTensor(p, n, c)
		}
		change(a[m.Tasks[1].Name].F64(), a)
		return a
	}
	second := m.Tasks[1].Name
	for want, change := range map[string]func(p []float64, a map[string]*onnx.Tensor){
		"none below 0": func(p []float64, _ map[string]*onnx.Tensor) { p[0], p[1] = -0.1, 0.3 },
		"not finite":   func(p []float64, _ map[string]*onnx.Tensor) { p[0] = math.NaN() },
		"sums to":      func(p []float64, _ map[string]*onnx.Tensor) { p[0] += 0.001 },
		"want one":     func(_ []float64, a map[string]*onnx.Tensor) { delete(a, second) },
		"of no task":   func(_ []float64, a map[string]*onnx.Tensor) { a["other"] = a[second] },
		"shape [1 10]": func(p []float64,
			a map[string]*onnx.Tensor) {
			a[second] = onnx.NewTensor(p[:c], 1, c)
		},
		"float32 or": func(_ []float64,
			a map[string]*onnx.Tensor) {
			a[second] = onnx.NewTensor(make([]int64, n*c), n, c)
		},
		"another run directory": func(_ []float64, a map[string]*onnx.Tensor) {
			a["test_sha256"] = onnx.Vector(make([]uint8, 32)...)
		},
		"the bias last": func(p []float64, a map[string]*onnx.Tensor) {
			delete(a, second)
			a[second+"-heads"] = onnx.NewTensor(p, n, c)
		},
	} {
		file := filepath.Join(t.TempDir(), "p.npz")
		must.Do(t, npy.SaveArchive(file, whole(change)))
		refused(t, exitUsage, want, "score", file, "--run", run, "--name", "x")
	}
	good := filepath.Join(t.TempDir(), "good.npz")
	must.Do(t, npy.SaveArchive(good, whole(func([]float64, map[string]*onnx.Tensor) {})))
	t.Chdir(run)
	score := "score " + good + " --run " + run + " "
	outputstest.CheckWrong(t, []outputstest.Wrong{{score + "--name ncm", "of this program"}, {score, "--name"},
		{score + "--name a|b", "want 1 to 40"}, {score + "--name x --group y", "--group is"}}, everything(t))
	absent(t, filepath.Join(run, experiment.OutsideFile))
	if out, _ := ran(t, "score", good, "--run", run, "--name", "x"); !strings.Contains(out, "nothing ties the order") {
		t.Errorf("no note on rows that nothing ties: %s", out)
	}
	other := filepath.Join(t.TempDir(), "other.npz")
	must.Do(t, npy.SaveArchive(other,
		whole(func(p []float64, _ map[string]*onnx.Tensor) { p[0], p[1] = 0.15, 0.05 })))
	outputstest.CheckWrong(t, []outputstest.Wrong{{"score " + other + " --run " + run + " --name x", "--replace"},
		{score + "--name x --group local", "--replace"}, {score + "--name x --upload-bytes 7", "--replace"},
		{score + "--name X", "in its case"}}, everything(t))
	ran(t, "score", other, "--run", run, "--name", "x", "--replace")
}

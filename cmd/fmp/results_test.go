package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fmp/cmd/internal/outputs/outputstest"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/report"
	"fmp/pipeline/lab/rival"
)

// madeUpRun is a finished run directory of two methods with given accuracies.
func madeUpRun(t *testing.T, dir string, l2 float64, acc map[string]float64) {
	t.Helper()
	c := experiment.Default()
	c.ERM.L2, c.Seeds, c.Methods = l2, 3, []string{"CANN", "FMP"}
	id := must.Get(experiment.Identity(c, nil, nil))(t)
	d := must.Get(experiment.Open(dir, c,
		experiment.Manifest{Identity: id, Sizes: map[string]int{"classes": 10}}))(t)
	cells := must.Get(experiment.Cells(&c))(t)
	for _, cell := range cells {
		r := experiment.Record{Cell: cell, Dataset: "digits", Group: "one-shot federated"}
		r.ACC = acc[cell.Method] + 0.01*float64(cell.Repeat)
		must.Do(t, d.Add(r, experiment.Took{}))
	}
	must.Get(d.Finish(cells))(t)
}

func TestResults(t *testing.T) {
	root := t.TempDir()
	a, b := filepath.Join(root, "a"), filepath.Join(root, "grid", "b")
	madeUpRun(t, a, 1, map[string]float64{"CANN": 0.5, "FMP": 0.8})
	madeUpRun(t, b, 2, map[string]float64{"CANN": 0.5, "FMP": 0.6})
	ok := func(args ...string) string {
		t.Helper()
		out, errs := ran(t, append([]string{"results"}, args...)...)
		if errs != "" {
			t.Fatalf("%q: %s", args, errs)
		}
		return out
	}
	line := regexp.MustCompile(
		`(?m)^\S+a +\d{4}-\d\d-\d\d  digits +shipped +CANN,FMP +homogeneous +shared +0\.8100 `)
	if out := ok("list", root); !line.MatchString(out) || !strings.Contains(out, "0.6100") ||
		strings.Contains(out, "cells done") {
		t.Errorf("list printed %s", out)
	}
	var listed []struct {
		Path, Dataset, Extractor string
		Date                     time.Time
		Methods                  []string
		Tables                   []report.Table
	}
	must.Do(t, json.Unmarshal([]byte(ok("list", root, "--json")), &listed))
	if len(listed) != 2 || listed[0].Path != a || listed[0].Extractor != "shipped" ||
		time.Since(listed[0].Date) > time.Hour ||
		!slices.Equal(listed[0].Methods, []string{"CANN", "FMP"}) || len(listed[0].Tables) != 1 {
		t.Errorf("list --json printed %+v", listed)
	}
	if out, errs := ran(t, "results", "list", root, "--dataset", "digitz"); strings.Contains(out, "0.8100") ||
		!strings.Contains(errs, "did you mean digits?") {
		t.Errorf("the filter let through %s and said %s", out, errs)
	}
	for _, args := range [][]string{{"list", root}, {"compare", a},
		{"export", a, "-o", filepath.Join(root, "filtered.md")}} {
		ok(append(args, "--partition", "homogeneous", "--protocol", "shared")...)
	}
	if shown := answer[runOutput](t, "results", "show", a, "--json"); len(shown.Tables) != 1 ||
		len(shown.Tables[0].Rows) != 2 {
		t.Errorf("show: %+v", shown)
	}
	if _, err := os.Stat(filepath.Join(a, "report.html")); err != nil {
		t.Error(err)
	}
	// The plots cannot be written, whoever runs the test.
	must.Do(t, errors.Join(os.RemoveAll(filepath.Join(a, "plots")),
		os.WriteFile(filepath.Join(a, "plots"), nil, 0o600)))
	if out, errs := ran(t, "results", "show", a); !strings.Contains(out, "FMP") ||
		!strings.HasPrefix(errs, "fmp: the report is as it was: ") {
		t.Errorf("show where nothing can be written: %s, %s", out, errs)
	}
	must.Do(t, os.Remove(filepath.Join(a, "plots")))
	if out := ok("compare", a); !strings.Contains(out, "FMP - CANN") ||
		!strings.Contains(out, "+0.3000 ") {
		t.Errorf("compare printed %s", out)
	}
	if out := ok("compare", a, b); !strings.Contains(out, "+0.2000 ") {
		t.Errorf("compare of two runs printed %s", out)
	}
	for _, ext := range []string{".csv", ".md", ".tex", ".parquet"} {
		p := filepath.Join(root, "out"+ext)
		ok("export", a, b, "-o", p)
		if st, err := os.Stat(p); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", ext, err)
		}
	}
	t.Chdir(root)
	const own = "the run's own file"
	outputstest.CheckWrong(t, []outputstest.Wrong{{"results show none", "none"},
		{"results show " + a + "a", "did you mean " + a}, {"results export " + a + "a -o x.csv", "did you mean " + a},
		{"results compare a --method MP", "CANN, FMP"}, {"results reproduced a", "2 arguments (KEPT and MADE)"},
		{"results reproduced a none", "none"},
		{"results compare a --method FPM", "the runs have CANN, FMP; did you mean FMP"},
		{"results compare a --partition homogenous", "did you mean homogeneous"},
		{"results list . --protocol tunde", "--protocol"}, {"results export a", "give --output, a file that ends in"},
		{"results export a -o grid/b/results.csv", own}, {"results export a -o a/table.md", own},
		{"results export a -o a/table.tex", own}, {"results export a -o table.doc", ".parquet"}}, everything(t))
}

// TestReproduced: figures are equal, close or changed, and a reason for changes is named.
func TestReproduced(t *testing.T) {
	t.Chdir(t.TempDir())
	madeUpRun(t, "kept", 1, map[string]float64{"CANN": 0.5, "FMP": 0.8})
	for _, c := range []struct {
		name string
		l2   float64
		fmp  float64 // accuracy of one of two methods, on each of three repeats
		more string  // a figure that no table shows, of all cells
		code int
		want []string
	}{
		{"equal", 1, 0.8, "", exitOK, []string{"of 6 cells 6 equal, 0 close, 0 changed"}},
		{"close", 1, 0.8 + 9e-7, "", exitOK, []string{"3 equal, 3 close, 0 changed"}},
		{"changed", 2, 0.8 + 2e-6, "", exitFailed, []string{"3 equal, 0 close, 3 changed",
			"homogeneous, repeat 2, shared, FMP: NLL 0.000000, was 0.000000 (acc)",
			"the runs differ: erm.l2 is 1 there and 2 here"}},
		{"beside the tables", 1, 0.8, `"diagnostics":{"kappa":1},`, exitFailed,
			[]string{"0 equal, 0 close, 6 changed", "(diagnostics.kappa)"}},
	} {
		madeUpRun(t, c.name, c.l2, map[string]float64{"CANN": 0.5, "FMP": c.fmp})
		lines := filepath.Join(c.name, experiment.ResultsFile)
		data := must.Get(os.ReadFile(lines))(t)
		data = bytes.ReplaceAll(data, []byte(`"upload_bytes"`), []byte(c.more+`"upload_bytes"`))
		must.Do(t, os.WriteFile(lines, data, 0o600))
		code, out, _ := runFMP(t, "results", "reproduced", "kept", c.name)
		if code != c.code || strings.Contains(out, "differ:") != (c.l2 == 2) {
			t.Errorf("%s: exit code %d: %s", c.name, code, out)
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in %s", c.name, w, out)
			}
		}
	}
	must.Fail(experiment.Reproduce("kept", "made", nil, nil))(t, "share no", "no cell of both")
}

// TestListPastOthers: a folder that holds another program's file is named, and the runs are listed.
// It is named too where no run has the name of a filter, which may be of the folder's run.
func TestListPastOthers(t *testing.T) {
	root := t.TempDir()
	madeUpRun(t, filepath.Join(root, "b"), 1, map[string]float64{"CANN": 0.5, "FMP": 0.8})
	other := filepath.Join(root, "a")
	must.Do(t, os.Mkdir(other, 0o755))
	must.Do(t, os.WriteFile(filepath.Join(other, "run.json"), []byte("[1,2]"), 0o600))
	for _, x := range []struct {
		flag, value, printed, said string
	}{
		{"--method", "FMP", "0.8100", ""}, {"--method", "FPM", "", "did you mean FMP"},
		{"--protocol", "tuned", "", "the runs have shared"},
		{"--partition", "dirichlet-1", "", "the runs have homogeneous"},
	} {
		var out, errs bytes.Buffer
		code := execute(t.Context(), []string{"results", "list", root, x.flag, x.value}, nil, &out, &errs)
		if code != exitUsage || !strings.Contains(out.String(), x.printed) ||
			!strings.Contains(errs.String(), x.said) || !strings.Contains(errs.String(), other+": run.json") {
			t.Errorf("%s %s: exit code %d, printed %s, said %s", x.flag, x.value, code, &out, &errs)
		}
	}
}

func TestGridListsItsRuns(t *testing.T) {
	p := filepath.Join(t.TempDir(), "l2.yaml")
	must.Do(t, os.WriteFile(p, []byte("vary:\n  erm.l2: [1, 3]\n  seeds: [2, 4]\n"), 0o644))
	out, _ := ran(t, "grid", p, "--dry-run")
	if strings.Count(out, "\n") != 4 ||
		!strings.Contains(out, filepath.Join("grids", "l2", "l2=3,seeds=2")) {
		t.Errorf("printed %q", out)
	}
	plan := answer[[]planned](t, "grid", p, "--dry-run", "--json")
	if len(plan) != 4 || plan[0].Cells == 0 || plan[0].Finished != 0 {
		t.Errorf("the plan as JSON: %+v", plan)
	}
	must.Do(t, os.WriteFile(p, []byte("vary:\n  erm.l3: [1]\n"), 0o644))
	refused(t, exitUsage, "erm.l3", "grid", p)
}

// TestResultsMethods: every method says what it does and what to cite, with the settings that are
// tuned for it; a name misspelt is an error that suggests another.
func TestResultsMethods(t *testing.T) {
	out, errs := ran(t, "results", "methods")
	if errs != "" {
		t.Errorf("said %s", errs)
	}
	for _, m := range rival.All() {
		i := m.Info()
		want := i.Name + " (" + string(i.Group) + "): " + i.Title + "\n    " + i.Cite + "\n"
		if i.Title == "" || i.Cite == "" || !strings.Contains(out, want) {
			t.Errorf("%s is not told with what it does and its source", i.Name)
		}
	}
	got := answer[[]described](t, "results", "methods", "gh-lda", "LDA", "--json")
	if len(got) != 2 || got[0].Name != "GH-LDA" || !strings.Contains(got[0].Cite, "2602.01186") ||
		len(got[0].Tuned) == 0 || len(got[0].Tuned[0].Values) < 2 || got[1].Corpus != "needs" {
		t.Errorf("described %+v", got)
	}
	refused(t, exitUsage, "GH-LDA", "results", "methods", "GH-LDB")
}

// TestRunsBesideEachOther compares, exports and draws kept runs that differ in one setting: its
// values stand in titles, names and a column.
func TestRunsBesideEachOther(t *testing.T) {
	t.Parallel()
	kept := filepath.Join("..", "..", "docs", "results")
	var runs []string
	for _, name := range []string{"default", "fresh-25", "fresh-400"} {
		runs = append(runs, filepath.Join(kept, "ablation", name))
	}
	at := func(args ...string) []string { return append(args, runs...) }
	out, _ := ran(t, at("results", "compare")...)
	if !strings.Contains(out, "FMP-ISAB - fresh = 25 ") || !strings.Contains(out, "99.17% for 6 differences") {
		t.Errorf("compare printed %s", out)
	}
	ran(t, at("results", "compare", "--correct", "none")...)
	dir := t.TempDir()
	for file, want := range map[string]string{"a.csv": ",origin,predictor.fresh\n",
		"a.tex": "fresh = 400, 10 repeats",
		"a.md":  "fresh = 25, 10 repeats"} {
		path, args := filepath.Join(dir, file), []string{"--columns", "NLL", "--rows", "FMP-ISAB"}
		if file == "a.csv" {
			args = nil
		}
		ran(t, at(append([]string{"results", "export", "-o", path}, args...)...)...)
		if data := read(t, path); !strings.Contains(string(data), want) {
			t.Errorf("export %s: %s; want %q in it", file, data, want)
		}
	}
	tuned := filepath.Join(dir, "tuned.md")
	ran(t, "results", "export", "-o", tuned, "--protocol", "tuned", "--columns", "raw NLL",
		filepath.Join(kept, "closed", "mnist"))
	if text := read(t, tuned); strings.Count(string(text), "| FMP-mean | 0.") != 2 {
		t.Errorf("the raw NLL of a tuned table:\n%s", text)
	}
	for _, file := range []string{"a.svg", "a.png"} {
		path := filepath.Join(dir, file)
		out, _ := ran(t, at("results", "plot", "-o", path, "--y", "ece")...)
		if len(read(t, path)) < 1000 || !strings.Contains(out, "ECE against predictor.fresh") {
			t.Errorf("plot printed %s", out)
		}
	}
	for want, args := range map[string][]string{
		"no setting": at("results", "plot", "-o", "a.svg", "--x", "predictor.fesh"),
		"no column":  at("results", "plot", "-o", "a.svg", "--y", "NNL"),
		"in other settings too: predictor.fresh;": at("results", "plot", "-o", "a.svg", "--x", "seed"),
		"differ in none": {"results", "plot", "-o", "a.svg", runs[0], runs[0]},
		"two runs":       {"results", "plot", "-o", "a.svg", "--x", "seed", runs[0], runs[0]},
		", dataset.name; name runs": {"results", "plot", "-o", "a.svg", "--x", "seeds",
			filepath.Join(kept, "figure2", "cifar10"), filepath.Join(kept, "figure2", "mnist")},
		".png or .svg": at("results", "plot", "-o", "a.pdf"),
		"no row":       at("results", "export", "-o", "a.tex", "--rows", "FMPP"),
		"--columns":    at("results", "export", "-o", filepath.Join(dir, "b.csv"), "--columns", "ACC"),
		"--rows":       at("results", "export", "-o", filepath.Join(dir, "a.Parquet"), "--rows", "FMP-ISAB"),
		"--method":     at("results", "compare", "--method", "NCM"),
		"--correct":    at("results", "compare", "--correct", "holm"),
	} {
		refused(t, exitUsage, want, args...)
	}
}

// TestApart: runs along a setting differ in nothing else, but for the models behind an extractor and the
// settings of a data set.
func TestApart(t *testing.T) {
	for _, c := range []struct{ keys, x, want string }{
		{"federation.points", "federation.points", ""},
		{"federation.points seed", "federation.points", "seed"},
		{"federation.points dataset.name", "federation.points", "dataset.name"},
		{"dataset.classes dataset.name seed", "dataset.name", "seed"},
		{"dataset.splits.corpus erm.l2 extractor.model extractor.size federation.points open.model predictor.fresh",
			"dataset.name", ""},
		{"dataset.test federation.clients seeds", "dataset.name", "dataset.test federation.clients seeds"},
		{"extractor.model predictor.model", "extractor.model", ""},
		{"extractor.model predictor.model seed", "extractor.model", "seed"},
		{"extractor.model predictor.model", "predictor.model", "extractor.model"},
	} {
		if got := strings.Join(apart(strings.Fields(c.keys), c.x), " "); got != c.want {
			t.Errorf("%s along %s: %q; want %q", c.keys, c.x, got, c.want)
		}
	}
}

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
		"and task " + second + " has heads": func(p []float64, a map[string]*onnx.Tensor) {
			delete(a, second)
			a[second+"-heads"] = onnx.NewTensor(p, n, c)
		},
		"the bias last": func(_ []float64, a map[string]*onnx.Tensor) {
			for _, task := range m.Tasks {
				a[task.Name+"-heads"] = a[task.Name]
				delete(a, task.Name)
			}
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

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fmp/cmd/internal/outputs/outputstest"
	"fmp/onnx/must"
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
		{"results compare a --method MP", "CANN, FMP"},
		{"results compare a --method FPM", "did you mean FMP"},
		{"results compare a --partition homogenous", "did you mean homogeneous"},
		{"results list . --protocol tunde", "--protocol"}, {"results export a", "--output"},
		{"results export a -o grid/b/results.csv", own}, {"results export a -o a/table.md", own},
		{"results export a -o a/table.tex", own}, {"results export a -o table.doc", ".parquet"}}, everything(t))
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
		".svg or":   at("results", "plot", "-o", "a.pdf"),
		"no row":    at("results", "export", "-o", "a.tex", "--rows", "FMPP"),
		"--columns": at("results", "export", "-o", filepath.Join(dir, "b.csv"), "--columns", "ACC"),
		"--rows":    at("results", "export", "-o", filepath.Join(dir, "a.Parquet"), "--rows", "FMP-ISAB"),
		"--method":  at("results", "compare", "--method", "NCM"),
		"--correct": at("results", "compare", "--correct", "holm"),
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
		{"dataset.classes dataset.name seed", "dataset.name", ""},
		{"extractor.model predictor.model", "extractor.model", ""},
		{"extractor.model predictor.model seed", "extractor.model", "seed"},
		{"extractor.model predictor.model", "predictor.model", "extractor.model"},
	} {
		if got := strings.Join(apart(strings.Fields(c.keys), c.x), " "); got != c.want {
			t.Errorf("%s along %s: %q; want %q", c.keys, c.x, got, c.want)
		}
	}
}

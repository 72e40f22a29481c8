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

	"fmp/onnx/must"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/report"
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
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"show", filepath.Join(root, "none")}, exitMissing, "none"},
		{[]string{"show", filepath.Join(root, "aa")}, exitMissing, "did you mean " + a},
		{[]string{"export", filepath.Join(root, "aa"), "-o", "x.csv"}, exitMissing,
			"did you mean " + a},
		{[]string{"compare", a, "--method", "MP"}, exitUsage, "CANN, FMP"},
		{[]string{"compare", a, "--method", "FPM"}, exitUsage, "did you mean FMP"},
		{[]string{"compare", a, "--partition", "homogenous"}, exitUsage, "did you mean homogeneous"},
		{[]string{"list", root, "--protocol", "tunde"}, exitUsage, "--protocol"},
		{[]string{"export", a}, exitUsage, "--output"},
		{[]string{"export", a, "-o", filepath.Join(b, "results.csv")}, exitUsage, "the run's own file"},
		{[]string{"export", a, "-o", filepath.Join(a, "table.md")}, exitUsage, "the run's own file"},
		{[]string{"export", a, "-o", filepath.Join(a, "table.tex")}, exitUsage, "the run's own file"},
		{[]string{"export", a, "-o", "table.doc"}, exitUsage, ".parquet"},
	} {
		refused(t, c.code, c.want, append([]string{"results"}, c.args...)...)
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

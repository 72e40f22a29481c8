package main

import (
	"path/filepath"
	"strings"
	"testing"
)

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

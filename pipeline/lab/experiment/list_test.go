package experiment

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestListFollowsLinks: a link to a run directory is a run, and hides none that come after it.
func TestListFollowsLinks(t *testing.T) {
	root, far := t.TempDir(), t.TempDir()
	started := func(path string) {
		d := must.Get(Open(path, small(), Manifest{Identity: "x"}))(t)
		must.Do(t, d.Close())
	}
	started(filepath.Join(far, "run"))
	started(filepath.Join(root, "c"))
	for name, to := range map[string]string{"a": filepath.Join(far, "run"), "b": far,
		"d": filepath.Join(far, "run", RunFile), "e": filepath.Join(far, "gone"),
		"f": "c", "0": "."} {
		must.Do(t, os.Symlink(to, filepath.Join(root, name)))
	}
	link := filepath.Join(t.TempDir(), "link")
	must.Do(t, os.Symlink(root, link))
	t.Chdir(filepath.Dir(root))
	for _, from := range []string{root, link, filepath.Base(root)} {
		var got []string
		for _, s := range must.Get(List(from))(t) {
			got = append(got, s.Path)
		}
		if want := []string{filepath.Join(from, "a"), filepath.Join(from, "c")}; !slices.Equal(got, want) {
			t.Errorf("%s: runs %v; want %v", from, got, want)
		}
	}
	t.Chdir(root)
	if got := must.Get(List("c"))(t); len(got) != 1 || got[0].Path != "c" {
		t.Errorf("the run itself: %v", got)
	}
}

// TestListPastOthers: a folder with another program's file, or with damaged settings, is named and
// hides no run.
func TestListPastOthers(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		must.Do(t, must.Get(Open(filepath.Join(root, name), small(), Manifest{Identity: "x"}))(t).Close())
	}
	for name, content := range map[string]string{"a/" + RunFile: "[1,2]", "b/config.yaml": "seeds: [\n"} {
		must.Do(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o600))
	}
	got, err := List(root)
	lines := strings.Split(err.Error(), "\n")
	for _, want := range []string{"looking for runs in " + root + ": run directory " + filepath.Join(root, "a") +
		": run.json: byte 1: the whole is of another kind: a JSON array; move the folder elsewhere, or run again",
		"looking for runs in " + root + ": run directory " + filepath.Join(root, "b") + ": config.yaml: "} {
		if !slices.ContainsFunc(lines, func(l string) bool {
			return strings.HasPrefix(l, want) && !strings.Contains(l, "experiment.")
		}) {
			t.Errorf("error is %v; want a line %q", err, want)
		}
	}
	if len(got) != 1 || got[0].Path != filepath.Join(root, "c") {
		t.Errorf("runs %+v", got)
	}
}

// TestListPastClosed: a folder that permissions close is named once, and nothing in it, while one
// whose run.json alone is closed is searched.
func TestListPastClosed(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a/in", "b/in", "c/in"} {
		must.Do(t, must.Get(Open(filepath.Join(root, name), small(), Manifest{Identity: "x"}))(t).Close())
	}
	must.Do(t, os.WriteFile(filepath.Join(root, "c", RunFile), nil, 0))
	for name, mode := range map[string]os.FileMode{"a": 0, "b": 0o400} {
		must.Do(t, os.Chmod(filepath.Join(root, name), mode))
		t.Cleanup(func() { must.Do(t, os.Chmod(filepath.Join(root, name), 0o700)) })
	}
	if _, err := os.ReadDir(filepath.Join(root, "a")); err == nil {
		t.Skip("permissions close no folder to this user")
	}
	got, err := List(root)
	if n := strings.Count(fmt.Sprint(err), "looking for"); n != 3 || len(got) != 1 ||
		got[0].Path != filepath.Join(root, "c", "in") {
		t.Errorf("%d lines, of 3 folders: %v; runs %+v", n, err, got)
	}
}

// TestDamagedResults: records that a finished run lacks are missed, unless they are of methods that
// an earlier version did not have.
func TestDamagedResults(t *testing.T) {
	c := small()
	c.Federation.Partition, c.Methods = "homogeneous", []string{"ann", "FMP"}
	record := func(repeat int, method string) Record {
		r := Record{Cell: Cell{"homogeneous", repeat, c.Protocol, method}}
		if method == "MINE" {
			r.Origin, r.Group = "a.npz", "baseline"
		}
		return r
	}
	first, all := []Record{record(0, "ANN"), record(0, "FMP")}, []Record{record(1, "ANN"), record(1, "FMP")}
	all = append(slices.Clone(first), all...)
	for _, k := range []struct {
		name         string
		methods, ran []string
		results, own []Record
		cut          string
		cells        int
		err          string
	}{
		{"whole", c.Methods, nil, all, nil, "", 4, ""},
		{"cut", c.Methods, nil, all[:3], nil, ResultsFile, 4, "2 records are whole, 2 or more are missing"},
		{"a line", c.Methods, nil, all[:3], nil, "", 4, "3 records are whole, 1 or more are missing"},
		{"a repeat", c.Methods, nil, first, nil, "", 4, "damaged"},
		{"a method", c.Methods, nil, []Record{all[0], all[2]}, nil, "", 4, "damaged"},
		{"empty", c.Methods, nil, nil, nil, "", 4, "0 records are whole"},
		{"empty, of all methods", nil, nil, nil, nil, "", 0, "damaged"},
		{"of an earlier version", nil, nil, all, nil, "", 4, ""},
		{"cut, of an earlier version", nil, nil, append(slices.Clone(all), record(0, "CANN")), nil,
			ResultsFile, 0, "damaged"},
		{"a line, of an earlier version", nil, nil, all[:3], nil, "", 4, "damaged"},
		{"of all methods", nil, []string{"ANN", "FMP"}, all, nil, "", 4, ""},
		{"a method of all", nil, []string{"ANN", "FMP", "CANN"}, all, nil, "", 6, "4 records are whole, 2 or more"},
		{"from outside", c.Methods, nil, all, []Record{record(0, "MINE"), record(1, "MINE")}, "", 4, ""},
		{"from outside, cut", c.Methods, nil, all, []Record{record(0, "MINE"), record(1, "MINE")}, OutsideFile, -1,
			"remove it"},
		{"from outside, a repeat", c.Methods, nil, all, []Record{record(0, "MINE")}, "", 4,
			"lacks homogeneous, repeat 1, shared, MINE"},
		{"a line twice", c.Methods, nil, append(slices.Clone(all), all[1]), nil, "", -1,
			"results.jsonl: line 5 is a second record of homogeneous, repeat 0, shared, FMP"},
		{"from outside, a line twice", c.Methods, nil, all, []Record{record(0, "MINE"), record(0, "MINE")}, "", -1,
			"outside.jsonl: line 2 is a second record"},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		c.Methods = k.methods
		must.Do(t, must.Get(Open(dir, c, Manifest{Identity: "x", Methods: k.ran}))(t).Close())
		for name, rs := range map[string][]Record{ResultsFile: k.results, OutsideFile: k.own} {
			b := must.Get(encodeRecords(rs))(t)
			if name == k.cut {
				b = b[:len(b)-9]
			}
			must.Do(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		}
		rs, err := ReadResults(dir)
		if k.err == "" {
			if err != nil || len(rs) != len(k.results)+len(k.own) {
				t.Errorf("%s: %d records, %v", k.name, len(rs), err)
			}
		} else {
			must.Fail(rs, err)(t, k.err, k.name)
		}
		s, err := Summarise(dir)
		if k.cells < 0 {
			must.Fail(s, err)(t, k.err, k.name)
			continue
		}
		want := k.cells
		if want == 0 {
			want = len(must.Get(Cells(&c))(t))
		}
		if must.Do(t, err); s.Cells != want || (s.Finished < s.Cells) != (k.err != "" && k.own == nil) {
			t.Errorf("%s: %d of %d cells are done; want %d cells", k.name, s.Finished, s.Cells, want)
		}
	}
}

// TestFiguresInRange: figures that no predictions have are refused, wherever in a record they stand.
func TestFiguresInRange(t *testing.T) {
	for figures, want := range map[string]string{
		`"acc":1,"brier":2,"nll":-1e-12,"value":-3,"diagnostics":{"x":-5}`: "",
		`"acc":7.5`:          "line 1, , repeat 0, , FMP: acc is 7.5; want 0 to 1",
		`"acc":-0.5`:         "acc is -0.5",
		`"brier":2.5`:        "0 to 2",
		`"nll":-1`:           "nll is -1; want 0 or more",
		`"upload_bytes":-8`:  "upload_bytes",
		`"hindsight_nll":-1`: "hindsight_nll",
		`"coverage":{"top":0.5,"classes":0.5,"near":1.5}`:              "coverage_near is 1.5",
		`"uncertainty":{"aurc":3}`:                                     "aurc is 3",
		`"uncertainty":{"joint_nll":{"near":-1,"random":1}}`:           "joint_nll_near",
		`"membership_auc":2`:                                           "membership_auc",
		`"shifted":[{"name":"a","acc":0.5},{"name":"b","acc":2}]`:      "acc is 2",
		`"shifted":[{"name":"a","auroc_entropy":2}]`:                   "auroc_entropy",
		`"by_samples":[{"samples":1,"ece":2}]`:                         "ece is 2",
		`"absent":{"classes":1,"points":5,"nll":-2}`:                   "nll is -2",
		`"curve":[{"count":1,"confidence":0.5,"accuracy":4},{},{},{}]`: "accuracy is 4",
	} {
		rs, err := parseRecords([]byte(`{"method":"FMP",` + figures + "}\n"))
		if want == "" {
			must.Do(t, err)
			continue
		}
		must.Fail(rs, err)(t, want, figures)
	}
}

// TestMethodsOfARun: a finished run says which methods it has, and all of these have to be there. One
// of an earlier version has them as soon as it is finished again.
func TestMethodsOfARun(t *testing.T) {
	c := small()
	c.Federation.Partition, c.Protocol = "homogeneous", "shared"
	for name, was := range map[string][]string{
		"a new run":                 nil,
		"with the same methods":     {"ANN", "FMP"},
		"of a method that is there": {"ANN"},
		"of one that is gone":       {"GONE", "ANN", "FMP"},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		d := must.Get(Open(dir, c, Manifest{Identity: "x", Classes: []string{"cat"}, Methods: was}))(t)
		var cells []Cell
		for repeat := range c.Seeds {
			for _, m := range []string{"ANN", "FMP"} {
				cells = append(cells, Cell{"homogeneous", repeat, c.Protocol, m})
				must.Do(t, d.Add(Record{Cell: cells[len(cells)-1]}, Took{}))
			}
		}
		must.Get(d.Finish(cells))(t)
		must.Do(t, d.Close())
		m := must.Get(ReadManifest(dir))(t)
		if !slices.Equal(m.Methods, []string{"ANN", "FMP"}) || m.Identity != "x" || len(m.Classes) != 1 {
			t.Errorf("%s: run.json is %+v", name, m)
		}
		must.Get(ReadResults(dir))(t)
		path := filepath.Join(dir, ResultsFile)
		first := bytes.SplitAfter(must.Get(os.ReadFile(path))(t), []byte("\n"))
		must.Do(t, os.WriteFile(path, slices.Concat(first[0], first[2]), 0o600))
		must.Fail(ReadResults(dir))(t, "damaged", name)
	}
}

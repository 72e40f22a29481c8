//go:build cgo && linux

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/tally"
)

// site is a folder with the library, the programs, a classifier, a client graph and images.
type site struct {
	*testing.T
	dir string
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

func (s *site) run(program string, args ...string) []byte {
	s.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = s.dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "FMP_") }),
		"XDG_CONFIG_HOME="+s.path("config"), "LD_LIBRARY_PATH="+s.dir,
		"PYTHONPATH="+s.path("site-packages"))
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		s.Fatalf("%s %v: %v\n%s%s", program, args, err, out, log.String())
	}
	return out
}

func (s *site) read(name string) []byte {
	s.Helper()
	return must.Get(os.ReadFile(s.path(name)))(s)
}

// newSite builds library and programs, and plays a round of one client.
func newSite(t *testing.T) *site {
	s := &site{t, t.TempDir()}
	for _, build := range [][]string{{"-o", s.path("libfmp.so"), "-buildmode=c-shared", "fmp/cmd/libfmp"},
		{"-o", s.path("fmp-edge"), "fmp/cmd/fmp-edge"}, {"-o", s.path("fmp"), "fmp/cmd/fmp"},
		{"-o", s.path("wheel"), "fmp/cmd/libfmp/wheel"}} {
		if out, err := exec.Command("go",
			append([]string{"build", "-buildvcs=false"}, build...)...).CombinedOutput(); err != nil {
			t.Fatalf("go build %v: %v\n%s", build, err, out)
		}
	}
	s.run(s.path("fmp"), "data", "synth", "-o", "photos", "--photos", "--train", "60", "--test", "60")
	s.run(s.path("fmp"), "fuse", "--dataset", "digits", "-o", "client.onnx")
	s.run(s.path("fmp-edge"), "key", "--client", "site", "site.key")
	s.run(s.path("fmp-edge"), "compress", "--model", "client.onnx", "--client", "site", "--round", "3",
		"-o", "edge.upload", "photos/train")
	s.run(s.path("fmp"), "pool", "edge.upload", "--client-graph", "client.onnx", "-o",
		"classifier.onnx")
	files, err := filepath.Glob(s.path("photos/train/*/*"))
	if err != nil || len(files) != 60 {
		t.Fatalf("%d images, %v", len(files), err)
	}
	var list strings.Builder
	for _, f := range files { // by class, as fmp-edge reads them
		fmt.Fprintf(&list, "%s %s\n", f, filepath.Base(filepath.Dir(f)))
	}
	must.Do(t, os.WriteFile(s.path("images.txt"), []byte(list.String()), 0o600))
	s.run(s.path("fmp-edge"), "evaluate", "--model", "classifier.onnx", "--key", "site.key", "--round",
		"3", "--output", "edge.evaluation.json", "photos/train")
	return s
}

// TestSettings: settings that fmp-edge refuses are refused before an image is read.
func TestSettings(t *testing.T) {
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for name, c := range map[string]struct {
		of   interface{ check() error }
		want string // of the error
	}{
		"defaults":           {&evaluation{}, ""},
		"a server":           {&evaluation{least: 2, server: key}, ""},
		"a low bound":        {&evaluation{least: 1}, "least is 1; allowed are 2 to 1000"},
		"a bound below 0":    {&evaluation{least: -1}, "least is -1"},
		"a high bound":       {&evaluation{least: 1001}, "least is 1001"},
		"noise":              {&evaluation{epsilon: 1, delta: 1e-5}, ""},
		"noise, and a bound": {&evaluation{epsilon: 1, delta: 1e-5, least: 10}, "least is of reports without noise"},
		"no noise":           {&evaluation{delta: 1e-5}, ""},
		"delta alone":        {&evaluation{delta: 5}, "delta is 5, which is of reports with noise"},
		"no delta":           {&evaluation{delta: math.NaN()}, "delta is NaN"},
		"no base64":          {&evaluation{server: "zz"}, `server is "zz"`},
		"half a key":         {&evaluation{server: key[:24]}, "no base64 of 32 bytes"},
		"an upload":          {&upload{name: "site", atLeast: 5}, ""},
		"no name":            {&upload{}, "name"},
		"classes of -3":      {&upload{name: "site", atLeast: -3}, "at_least is -3; allowed are 0 to 20000"},
		"classes of 20,001":  {&upload{name: "site", atLeast: 20_001}, "at_least is 20001"},
	} {
		err := c.of.check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
	if e := (&evaluation{}); e.check() != nil || e.least != tally.Least {
		t.Errorf("the default of the least count is %d", e.least)
	}
}

// TestFromC compiles a program in C against fmp.h: uploads and counts have the bytes of fmp-edge's,
// predictions its numbers from any thread, and each input that is refused is an error with a
// message.
func TestFromC(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the library and the programs")
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler here")
	}
	s := newSite(t)
	source := must.Get(filepath.Abs("testdata/main.c"))(t)
	s.run(cc, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o", "main", source, "-L.",
		"-lfmp", "-lpthread")
	s.run(s.path("main"), "classifier.onnx", "client.onnx", "site.key", ".")
	for mine, edge := range map[string]string{"c.upload": "edge.upload",
		"c.evaluation.json": "edge.evaluation.json"} {
		if !bytes.Equal(s.read(mine), s.read(edge)) {
			t.Errorf("%s is not %s", mine, edge)
		}
	}
	want := s.predictions()
	for i, line := range strings.Fields(string(s.read("predictions.txt"))) {
		if p, err := strconv.ParseFloat(line, 64); err != nil || math.Abs(p-want[i]) > 1e-6 {
			t.Fatalf("probability %d is %s, %v; fmp-edge says %v", i, line, err, want[i])
		}
	}
	t.Run("Python", s.python)
}

// predictions are the probabilities of fmp-edge, image after image.
func (s *site) predictions() (want []float64) {
	var edge struct {
		Predictions []struct {
			Probabilities []float64 `json:"probabilities"`
		} `json:"predictions"`
	}
	must.Do(s, json.Unmarshal(s.run(s.path("fmp-edge"), "predict", "--model", "classifier.onnx",
		"photos/train", "--json"), &edge))
	for _, p := range edge.Predictions {
		want = append(want, p.Probabilities...)
	}
	if len(want) != 600 {
		s.Fatalf("%d probabilities", len(want))
	}
	return want
}

// python installs the wheel, where pip is there, and runs the same through it.
func (s *site) python(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	s = &site{t, s.dir}
	code := must.Get(filepath.Abs("python"))(t)
	for _, name := range []string{"LICENSE", "THIRD_PARTY.md"} { // make lib copies them
		must.Do(t, os.WriteFile(s.path(name), must.Get(os.ReadFile(filepath.Join("../..", name)))(t), 0o600))
	}
	wheel := filepath.Base(strings.TrimSpace(string(s.run(s.path("wheel"), "libfmp.so", code, "."))))
	s.run(python, "-m", "zipfile", "-e", wheel, "site-packages")
	for _, name := range []string{"LICENSE", "THIRD_PARTY.md"} {
		if held := must.Get(filepath.Glob(s.path("site-packages/*.dist-info/licenses/" + name)))(t); len(held) != 1 {
			t.Errorf("the wheel does not hold %s", name)
		}
	}
	if err := exec.Command(python, "-m", "pip", "--version").Run(); err == nil {
		s.run(python, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", "--target",
			s.path("installed"), wheel)
		s.read("installed/fmp/libfmp.so")
	}
	s.run(python, "-c", `
import os
import fmp
lines = [line.rsplit(" ", 1) for line in open("images.txt")]
paths, labels = [p for p, _ in lines], [y.strip() for _, y in lines]
with fmp.Classifier("classifier.onnx") as c, fmp.Client("client.onnx") as g:
    some = c.predict([paths[0], open(paths[1], "rb").read()])
    want = [float(line) for line in open("predictions.txt")][:20]
    assert max(abs(a - b) for a, b in zip(want, some[0].probabilities + some[1].probabilities)) < 1e-6
    assert some[0].name in c.names and some[0].low[0] <= some[0].high[0] and some[0].classes is None
    assert g.compress(paths, labels, "site", round=3) == open("edge.upload", "rb").read()
    assert c.evaluate(paths, labels, "site.key", round=3) == open("edge.evaluation.json", "rb").read()
    child = os.fork()
    if child == 0:
        try:
            c.predict(paths[:1])
        except fmp.Error as e:
            c.close()
            os._exit(0 if "spawn" in str(e) else 2)
        os._exit(3)
    assert os.waitpid(child, 0)[1] == 0, "a call after fork()"
    for refused, kind in [(lambda: c.predict(["images.txt"]), fmp.Error), (lambda: c.predict([]), fmp.Error),
                          (lambda: c.predict("images.txt"), TypeError), (lambda: c.predict([1]), TypeError), (lambda: fmp.Classifier("client.onnx"), fmp.Error),
                          (lambda: g.compress(paths, ["ten"] * 60, "site"), ValueError),
                          (lambda: g.compress(paths, [2**32] + labels[1:], "site"), ValueError),
                          (lambda: g.compress(paths, [.9] + labels[1:], "site"), TypeError),
                          (lambda: g.compress(paths, labels, "a\0b"), ValueError),
                          (lambda: g.compress(paths, labels, "site", round=2**64 + 3), ValueError),
                          (lambda: g.compress(paths, labels, "site", round=3.0), TypeError),
                          (lambda: g.compress(paths, labels, "site", precision="float8"), fmp.Error),
                          (lambda: g.compress(paths, labels, "site", at_least=-3), ValueError),
                          (lambda: g.compress(paths, labels, "site", at_least=13), fmp.Error),
                          (lambda: g.compress(["images.txt"], labels[:1], "site"), fmp.Error),
                          (lambda: c.evaluate(paths, labels, "site.key", least=2**32 + 10), ValueError),
                          (lambda: c.evaluate(paths, labels, "site.key", least=-1), ValueError),
                          (lambda: c.evaluate(paths, labels, "site.key", server="zz"), fmp.Error),
                          (lambda: c.evaluate(paths, labels, open("site.key").read()), ValueError),
                          (lambda: fmp.Classifier("classifier.onnx\0"), ValueError)]:
        try:
            refused()
        except kind as e:
            assert str(e) and "PRIVATE" not in str(e) and "--" not in str(e).replace("(commands: --on-bad skip)", ""), e
        else:
            raise AssertionError("taken")
for closed in (lambda: c.predict(paths), lambda: g.compress(paths, labels, "site")):
    try:
        closed()
    except fmp.Error as e:
        assert "not open" in str(e)
    else:
        raise AssertionError("closed")
assert fmp.version()
`)
}

// TestFolders: classes come in the order of fmp-edge's folders, whatever numbers they have.
func TestFolders(t *testing.T) {
	for _, c := range []struct {
		of   models.Manifest
		want []string
	}{
		{models.Manifest{C: 3, Classes: []string{"plane", "Müll", "cat"}},
			[]string{"000002 label 0", "000000 label 1", "000001 label 2"}},
		{models.Manifest{C: 11}, []string{"000000 label 0", "000001 label 1", "000003 label 2"}}, // 10 lies before 2
	} {
		if got := foldersOf(c.of)[:3]; !slices.Equal(got, c.want) {
			t.Errorf("%v: %v; want %v", c.of.Classes, got, c.want)
		}
	}
}

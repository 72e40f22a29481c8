package main

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine/ort"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/onnx/regularfile"
)

// needRuntime skips where the ONNX Runtime is not installed.
func needRuntime(t *testing.T) {
	t.Helper()
	if _, err := ort.New(ort.Options{}); errors.Is(err, ort.ErrNoLibrary) {
		t.Skipf("needs the ONNX Runtime: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
}

// addModel saves a model with the outputs "sum/ab" (a + b) and "../twice" (2 a).
func addModel(t *testing.T) string {
	t.Helper()
	b := build.New("add")
	x, y := b.Input("a", onnx.Float32, "n", 2), b.Input("b", onnx.Float32, "n", 2)
	b.Output("sum/ab", b.Add(x, y))
	b.Output("../twice", b.Add(x, x))
	return saved(t)(b.Model())
}

func saveTensor(t *testing.T, name string, x *onnx.Tensor) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if strings.HasSuffix(name, ".pb") {
		must.Do(t, savePB(p, "x", x))
	} else {
		must.Do(t, npy.Save(p, x))
	}
	return p
}

func TestONNXRun(t *testing.T) {
	needRuntime(t)
	model := addModel(t)
	a := saveTensor(t, "a.npy", onnx.NewTensor([]float32{1, 2, 3, 4}, 2, 2))
	b := saveTensor(t, "b.pb", onnx.NewTensor([]float32{10, 20, 30, 40}, 2, 2))
	want := map[string]*onnx.Tensor{"sum/ab": onnx.NewTensor([]float32{11, 22, 33, 44}, 2, 2),
		"../twice": onnx.NewTensor([]float32{2, 4, 6, 8}, 2, 2)}
	for _, format := range []string{"npy", "pb"} {
		dir := filepath.Join(t.TempDir(), "results")
		written := answer[[]writtenTensor](t, "onnx", "run", model, "--input", "a="+a, "--input",
			"b="+b, "--out", dir, "--format", format, "--json", "--engine", "ort")
		for _, w := range written {
			if filepath.Dir(w.File) != dir {
				t.Errorf("output %q went to %s, outside %s", w.Name, w.File, dir)
			}
			got := must.Get(loadTensor(w.File))(t)
			if d := cmp.Diff(want[w.Name], got); d != "" {
				t.Errorf("%s (-want +got):\n%s", w.Name, d)
			}
		}
		if len(written) != 2 {
			t.Errorf("%d outputs were written, want 2", len(written))
		}
		if es, _ := os.ReadDir(dir); len(es) != 2 {
			t.Errorf("%s holds %d entries, want 2", dir, len(es))
		}
	}
	refused(t, exitFailed, "writing outputs", "onnx", "run", model, "--input", "a="+a, "--input", "b="+b, "--out",
		writeFile(t, "file", ""))
}

// TestONNXRunOverItsInput: no output takes the place of a file that is read.
func TestONNXRunOverItsInput(t *testing.T) {
	lora := filepath.Join("..", "..", "onnx", "serde", "testdata", "lora.onnx")
	for _, c := range []struct{ name, file, from string }{
		{"--input", "y.npy", ""}, {"--input", "y.pb", ""}, {"--adapter", "y.npy", lora + "_adapter"},
		{"MODEL", "y.npy", lora},
	} {
		dir := t.TempDir()
		path, x := filepath.Join(dir, c.file), onnx.NewTensor([]float32{0, 1, 2, 3}, 1, 4)
		input, model, more := "x="+saveTensor(t, "x.npy", x), lora, []string(nil)
		if c.from != "" {
			must.Do(t, os.WriteFile(path, must.Get(os.ReadFile(c.from))(t), 0o600))
		} else {
			must.Do(t, os.Link(saveTensor(t, c.file, x), path))
		}
		switch c.name {
		case "--input":
			input = "x=" + path
		case "MODEL":
			model = path
		default:
			more = []string{c.name, path}
		}
		before := must.Get(os.ReadFile(path))(t)
		args := append([]string{"onnx", "run", model, "--input", input, "--engine", "pure", "--format",
			filepath.Ext(c.file)[1:]}, more...)
		refused(t, exitUsage, regularfile.ErrOutput.Error()+"\n", append(args, "--out", dir)...)
		if !slices.Equal(must.Get(os.ReadFile(path))(t), before) {
			t.Errorf("%s: the file has changed", c.name)
		}
		ran(t, append(args, "--out", t.TempDir())...)
	}
}

// A full disk gives one error, and neither an output nor a piece of one.
func TestONNXRunOnAFullDisk(t *testing.T) {
	needRuntime(t)
	disk := tinyDisk(t, 64<<10)
	model := addModel(t)
	// 40 kB: the first output fits, the second does not
	big := saveTensor(t, "big.npy", onnx.ZerosF32(5000, 2))
	dir := filepath.Join(disk, "results")
	refused(t, exitFailed, "no space left", "onnx", "run", model, "--input", "a="+big, "--input",
		"b="+big, "--out", dir)
	if es, _ := os.ReadDir(disk); len(es) != 0 {
		t.Errorf("something was left behind: %v", es)
	}
}

func TestFileNameStaysInItsFolder(t *testing.T) {
	taken := map[string]bool{}
	for _, c := range []struct{ name, want string }{
		{"y", "y.npy"}, {"Y", "Y.2.npy"}, {"../../etc/passwd", "__.._etc_passwd.npy"},
		{"a/b", "a_b.npy"},
		{"a\\b", "a_b.2.npy"}, {"", "_.npy"},
		{".hidden", "_hidden.npy"},
		{"-rf", "_rf.npy"}, {"con:\x00\n", "con___.npy"},
	} {
		if got := fileName(c.name, ".npy", taken); filepath.Base(got) != got ||
			(c.want != "" && got != c.want) {
			t.Errorf("fileName(%q) = %q, want %q", c.name, got, c.want)
		}
	}
	if got := fileName(strings.Repeat("x", 5000), ".npy", taken); len(got) > 200 {
		t.Errorf("a long name became one of %d bytes", len(got))
	}
}

func TestONNXBench(t *testing.T) {
	needRuntime(t)
	r := answer[benchReport](t, "onnx", "bench", addModel(t), "--batch", "4", "--seconds", "0.02",
		"--json", "--engine", "ort")
	if len(r.Results) != 1 || r.Results[0].Runs < 3 ||
		!(r.Results[0].Min <= r.Results[0].Median && r.Results[0].Median <= r.Results[0].P90) ||
		r.Inputs["a"] != "float32[4 2]" {
		t.Errorf("reported %+v", r)
	}
}

// TestONNXBenchItems: items are those that one call has, and a --batch that no input takes is refused.
func TestONNXBenchItems(t *testing.T) {
	b := build.New("fixed")
	b.Output("y", b.Relu(b.Input("x", onnx.Float32, 32, 3)))
	fixed, open := saved(t)(b.Model()), addModel(t)
	two := saveTensor(t, "two.npy", onnx.ZerosF32(2, 2))
	given := []string{"--input", "a=" + two, "--input", "b=" + two}
	for _, c := range []struct {
		model string
		args  []string
		want  int // 0: refused
	}{
		{fixed, nil, 32},
		{fixed, []string{"--batch", "64"}, 0},
		{open, []string{"--batch", "4"}, 4},
		{open, nil, 1},
		{open, []string{"--dim", "n=5"}, 5},
		{open, []string{"--dim", "n=5", "--batch", "4"}, 0},
		{open, given, 2},
		{open, append(given, "--batch", "4"), 0},
	} {
		args := append([]string{"onnx", "bench", c.model, "--engine", "pure", "--seconds", ".01", "--json"},
			c.args...)
		if c.want == 0 {
			refused(t, exitUsage, "no input that is drawn leaves its first axis open", args...)
			continue
		}
		r := answer[benchReport](t, args...)
		if rate := float64(c.want) / r.Results[0].Mean * 1000; r.Batch != c.want ||
			math.Abs(r.Results[0].Throughput/rate-1) > 1e-9 {
			t.Errorf("%v: %+v, want %d items", c.args, r, c.want)
		}
	}
}

func TestInterruptedCommand(t *testing.T) {
	needRuntime(t)
	stopped, stop := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, stop)
	var out, errs strings.Builder
	code := execute(stopped,
		[]string{"onnx", "bench", addModel(t), "--seconds", "600", "--engine", "ort"},
		strings.NewReader(""), &out, &errs)
	if code != exitInterrupted || errs.String() != "fmp: interrupted\n" || out.String() != "" {
		t.Errorf("exit code %d, said %q and %q", code, out.String(), errs.String())
	}
}

// An adapter gives optional inputs their values; onnxruntime 1.32 gives these numbers by its own
// API.
func TestONNXRunAdapter(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join("..", "..", "onnx", "serde", "testdata", "lora.onnx")
	x := filepath.Join(dir, "x.npy")
	must.Do(t, npy.Save(x, onnx.NewTensor([]float32{0, 1, 2, 3}, 1, 4)))
	for adapter, want := range map[string]float32{model + "_adapter": -.3224386, "": -1.0833644} {
		args := []string{"onnx", "run", model, "--input", "x=" + x, "--out", dir, "--engine",
			"pure"}
		if adapter != "" {
			args = append(args, "--adapter", adapter)
		}
		ran(t, args...)
		y := must.Get(npy.Load(filepath.Join(dir, "y.npy")))(t)
		if d := y.F32()[0] - want; d > 1e-5 || d < -1e-5 {
			t.Errorf("--adapter %q: %v, want %v", adapter, y.F32()[0], want)
		}
	}
	refused(t, exitUsage, "it is no adapter", "onnx", "run", model, "--input", "x="+x, "--out", dir,
		"--adapter", model)
}

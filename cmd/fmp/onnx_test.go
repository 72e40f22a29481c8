package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine/ort"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/onnx/quantise"
	"fmp/onnx/regularfile"
	"fmp/onnx/serde"
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

// TestPutAll: where one file cannot be in its place, those before it are as they were.
func TestPutAll(t *testing.T) {
	dir, tmp := t.TempDir(), t.TempDir()
	var written []writtenTensor
	for _, name := range []string{"new", "old", "folder", "last"} {
		must.Do(t, os.WriteFile(filepath.Join(tmp, name), []byte(name), 0o600))
		written = append(written, writtenTensor{Name: name, File: filepath.Join(dir, name)})
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "old"), []byte("before"), 0o600))
	inside := filepath.Join(dir, "folder", "inside")
	must.Do(t, os.MkdirAll(inside, 0o700))
	must.Fail(putAll(tmp, written))(t, filepath.Join(dir, "folder")+": it is a folder; none is written")
	absent(t, filepath.Join(dir, "new"))
	absent(t, filepath.Join(dir, "last"))
	if old := must.Get(os.ReadFile(filepath.Join(dir, "old")))(t); string(old) != "before" {
		t.Errorf("the old file holds %q", old)
	}
	must.Get(os.Stat(inside))(t)
}

// TestForgedNames: names of a model begin no line of a listing.
func TestForgedNames(t *testing.T) {
	const forged = "\nforged\tyes"
	b := build.New("graph" + forged)
	x := b.Input("x", onnx.Float32, "n"+forged, 2)
	b.Output("y"+forged, b.MatMul(x, b.Param("w"+forged, onnx.ZerosF32(2, 2))))
	m := must.Get(b.Model())(t)
	m.Producer, m.Metadata["key"+forged] = "producer"+forged, "value"
	m.Graph.Nodes[0].Name = "node" + forged
	model, data := saved(t)(m, nil), filepath.Join(t.TempDir(), "rows.npz")
	archive(t, data, onnx.ZerosF32(4, 2), onnx.ZerosF32(4, 2))
	in := saveTensor(t, "x.npy", onnx.ZerosF32(4, 2))
	for _, args := range []string{"inspect", "run --engine pure --input x=" + in + " --out " + t.TempDir(),
		"train --list --loss mse --data " + data, "grad --wrt x -o " + model + ".grad"} {
		words := strings.Fields("onnx " + args)
		out, _ := ran(t, append(words, model)...)
		if !strings.Contains(out, "forged") || strings.Contains(out, "\nforged") {
			t.Errorf("%s printed\n%s", words[1], out)
		}
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

// TestONNXBenchItems: items are those that one call has, times are of three calls or more, and a --batch
// that no input takes is refused.
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
		one := r.Results[0]
		if rate := float64(c.want) / one.Mean * 1000; r.Batch != c.want || len(r.Inputs) == 0 ||
			math.Abs(one.Throughput/rate-1) > 1e-9 {
			t.Errorf("%v: %+v, want %d items", c.args, r, c.want)
		}
		if shape, ok := r.Inputs["x"]; ok && shape != "float32[32 3]" {
			t.Errorf("%v: its input is %q", c.args, shape)
		}
		if one.Runs < 3 || !(one.Min <= one.Median && one.Median <= one.P90) {
			t.Errorf("%v: %+v", c.args, one)
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

func writeModel(t *testing.T, spoil func(m *onnx.Model)) string {
	t.Helper()
	b := build.New("linear")
	x := b.Input("x", onnx.Float32, "batch", 3)
	b.Output("y", b.Relu(b.MatMul(x, b.Param("w", onnx.ZerosF32(3, 2)))))
	m := must.Get(b.Model())(t)
	spoil(m)
	return saved(t)(m, nil)
}

func TestONNXInspect(t *testing.T) {
	path := writeModel(t, func(m *onnx.Model) { m.Metadata["dx"] = "2"; m.Graph.Outputs[0].Shape = nil })
	r := answer[inspection](t, "onnx", "inspect", path, "--json", "--dim", "batch=5")
	if r.Parameters != 6 || r.FLOPs != 2*5*3*2 || r.Operators["MatMul"] != 1 || r.Check != "ok" ||
		r.Metadata["dx"] != "2" {
		t.Errorf("got %+v", r)
	}
	if len(r.Outputs) != 1 || strings.Join(r.Outputs[0].Shape, ",") != "batch,2" {
		t.Errorf("outputs are %+v", r.Outputs)
	}
	if r.Engines["pure"] != "yes" || r.Engines["ort"] == "" || r.Differentiation != "yes" {
		t.Errorf("engines %v, grad %q", r.Engines, r.Differentiation)
	}
	text, _ := ran(t, "onnx", "inspect", path)
	for _, want := range []string{"x  float32 [batch, 3]", "y  float32 [batch, 2]", "6 (24 bytes)",
		"batch=1", "dx = 2", "MatMul"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestONNXInspectSaysWhatCannotBeDone(t *testing.T) {
	r := answer[inspection](t, "onnx", "inspect",
		writeModel(t, func(m *onnx.Model) { m.Graph.Nodes[1].Op = "Nonsense" }), "--json")
	if !strings.Contains(r.Engines["pure"], "Nonsense") ||
		!strings.Contains(r.Differentiation, "Nonsense") ||
		strings.Join(r.Uncounted, "") != "Nonsense" {
		t.Errorf("got %+v", r)
	}
	r = answer[inspection](t, "onnx", "inspect", writeModel(t, func(m *onnx.Model) {
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			m.Graph.Nodes = append(m.Graph.Nodes, &onnx.Node{Name: name, Op: "Nonsense", Inputs: []string{"x"},
				Outputs: []string{name}})
		}
	}), "--json")
	if pure := r.Engines["pure"]; !strings.HasSuffix(pure, "; and 2 more") ||
		!strings.Contains(pure, `"c"`) || strings.Contains(pure, `"d"`) {
		t.Errorf("engine pure: %s", pure)
	}
}

func TestONNXHalf(t *testing.T) {
	model := writeModel(t, func(*onnx.Model) {})
	out := filepath.Join(t.TempDir(), "half.onnx")
	refused(t, exitUsage, "nothing was written", "onnx", "half", model, "-o", out)
	absent(t, out)
	if said, _ := ran(t, "onnx", "half", model, "-o", out, "--least", "1"); !strings.Contains(said, "1 tensors") {
		t.Errorf("printed %s", said)
	}
	m := must.Get(serde.Load(out))(t)
	if w := m.Graph.Initializers["w/half"]; w == nil || w.DType != onnx.Float16 {
		t.Errorf("the weight is %v", w)
	}
	if before := must.Get(serde.Load(model))(t).Graph.Values; len(m.Graph.Values) != len(before) {
		t.Errorf("the file states %v, and MODEL %v", m.Graph.Values, before)
	}
}

// TestONNXCheckExitCodes: a wrong model is told by node and operator, in lines and as JSON, and apart from
// one with parts that are not known here.
func TestONNXCheckExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(m *onnx.Model)
		code  int
		says  string
	}{
		"sound":          {func(*onnx.Model) {}, exitOK, "is sound"},
		"the newest set": {func(m *onnx.Model) { m.Opsets[""] = onnx.MaxOpset }, exitOK, "is sound"},
		"a name from nowhere": {func(m *onnx.Model) { m.Graph.Nodes[0].Inputs[1] = "v" }, exitUsage,
			`(MatMul): it reads "v"`},
		"sizes that differ": {func(m *onnx.Model) { m.Graph.Initializers["w"] = onnx.ZerosF32(4, 2) }, exitUsage,
			"inner sizes 3 and 4 differ"},
		"heads of Attention": {func(m *onnx.Model) {
			n := m.Graph.Nodes[0]
			n.Op, m.Opsets[""] = "Attention", onnx.MaxOpset
			n.Inputs = []string{"x", "x", "x"}
			n.Attrs = []onnx.Attr{onnx.IntAttr("q_num_heads", 0), onnx.IntAttr("kv_num_heads", 1)}
		}, exitUsage, "q_num_heads holds 0"},
		"a misspelt operator": {func(m *onnx.Model) { m.Graph.Nodes[0].Op = "MatMull" }, exitUsage,
			"did you mean MatMul"},
		"a newer set": {func(m *onnx.Model) { m.Opsets[""] = onnx.MaxOpset + 1 }, exitUnknown,
			"operator set version"},
		"a newer file format": {func(m *onnx.Model) { m.IR = onnx.MaxIR + 1 },
			exitUnknown, "IR version"},
		"a foreign domain": {func(m *onnx.Model) {
			m.Graph.Nodes[0].Domain, m.Opsets["their.own"] = "their.own", 1
		}, exitUnknown, "their.own"},
		"a misspelt operator of another domain": {func(m *onnx.Model) {
			m.Graph.Nodes[0].Domain, m.Graph.Nodes[0].Op, m.Opsets["ai.onnx.ml"] = "ai.onnx.ml",
				"Scalar", 3
		}, exitUsage, "did you mean Scaler"},
	} {
		t.Run(name, func(t *testing.T) {
			model := writeModel(t, c.spoil)
			code, out, errs := runFMP(t, "onnx", "check", model)
			if code != c.code || !strings.Contains(out+errs, c.says) {
				t.Errorf("exit code %d, %q and %q, want %d and %q", code, out, errs, c.code, c.says)
			}
			var r struct {
				OK    bool
				Error string
			}
			code, out, _ = runFMP(t, "onnx", "check", model, "--json")
			if err := json.Unmarshal([]byte(out), &r); err != nil || code != c.code || r.OK != (code == exitOK) ||
				!r.OK && !strings.Contains(r.Error, c.says) {
				t.Errorf("JSON is %s (%v), exit code %d", out, err, code)
			}
		})
	}
}

func TestONNXGradCommand(t *testing.T) {
	dir := t.TempDir()
	b := build.New("square")
	x := b.Input("x", onnx.Float32, "n")
	b.Output("y", b.Mul(x, x))
	in, out := saved(t)(b.Model()), filepath.Join(dir, "g.onnx")
	ran(t, "onnx", "grad", in, "--output", "y", "--wrt", "x", "-o", out)
	g := must.Get(serde.Load(out))(t)
	if _, ok := g.Graph.Input("grad_y"); !ok {
		t.Error("the gradient model has no input grad_y")
	}
	if _, ok := g.Graph.Output("grad_x"); !ok {
		t.Error("the gradient model has no output grad_x")
	}
}

// backendTest lays out a test of y = x + 1 with the given expected output for x = 1.
func backendTest(t *testing.T, want float32) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "plus")
	set := filepath.Join(dir, "test_data_set_0")
	must.Do(t, os.MkdirAll(set, 0o777))
	b := build.New("plus")
	b.Output("y", b.Add(b.Input("x", onnx.Float32, "n"), b.F32(1)))
	m := must.Get(b.Model())(t)
	must.Do(t, serde.Save(filepath.Join(dir, "model.onnx"), m))
	must.Do(t, savePB(filepath.Join(set, "input_0.pb"), "x", onnx.Vector[float32](1)))
	must.Do(t, savePB(filepath.Join(set, "output_0.pb"), "y", onnx.Vector(want)))
	return dir
}

func TestONNXTest(t *testing.T) {
	table := filepath.Join(t.TempDir(), "docs", "operators.md")
	reports := answer[[]testReport](t, "onnx", "test", backendTest(t, 2), "--engine", "pure",
		"--json", "--table", table)
	if len(reports) != 1 || reports[0].Engine != "pure" || reports[0].Passed != 1 ||
		reports[0].Failed != 0 {
		t.Errorf("report %+v", reports)
	}
	text := must.Get(os.ReadFile(table))(t)
	if !strings.Contains(string(text), "| Add | yes | 1-6, 7-28 | yes | 1 | 0 | 0 |") {
		t.Errorf("the table lacks Add:\n%s", text)
	}
	code, out, _ := runFMP(t, "onnx", "test", backendTest(t, 3), "--engine", "pure")
	if code != exitFailed || !strings.Contains(out, "failed: plus") {
		t.Errorf("a wrong output gave exit code %d and %q", code, out)
	}
	refused(t, exitMissing, "", "onnx", "test", filepath.Join(t.TempDir(), "gone"))
	for _, args := range [][]string{{t.TempDir()}, {backendTest(t, 2), "--relative", "-1"},
		{backendTest(t, 2), "--engine", "abacus"}} {
		refused(t, exitUsage, "", append([]string{"onnx", "test"}, args...)...)
	}
}

// TestONNXQuantise quantises a shipped extractor in all forms, and says what it lost.
func TestONNXQuantise(t *testing.T) {
	model := filepath.Join("..", "..", "assets", "models", "digits", "extractor.onnx")
	dir := t.TempDir()
	args := func(out string, more ...string) []string {
		return append([]string{"onnx", "quantise", model, "--images", "digits", "-o",
			filepath.Join(dir, out), "--seconds", "0.01", "--calibrate", "16", "--test",
			"20", "--json"}, more...)
	}
	for _, c := range []struct {
		name string
		more []string
		loss quantise.Loss
	}{
		{"static", nil, .02},
		{"seven", []string{"--weight-bits", "7"}, .03},
		{"percentile", []string{"--method", "percentile", "--percentile", "99.9"}, .02},
		{"eight", []string{"--weights-only", "8"}, .005},
		{"four", []string{"--weights-only", "4"}, .3},
	} {
		r := answer[quantisedReport](t, args(c.name+".onnx", c.more...)...)
		if r.Test.Images != 20 || !(r.Test.Loss < c.loss) || r.Test.Loss == 0 ||
			r.Bytes >= r.BytesBefore || len(r.Speed) != 2 ||
			r.Speed[0].After == 0 {
			t.Errorf("%s: %+v %+v", c.name, r, r.Test)
		}
		if st, err := os.Stat(r.File); err != nil || st.Size() != r.Bytes {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := serde.Load(r.File); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	refused(t, exitUsage, "quantised already", "onnx", "quantise", filepath.Join(dir, "static.onnx"), "--images",
		"digits", "-o", filepath.Join(dir, "no.onnx"))
	absent(t, filepath.Join(dir, "no.onnx"))
}

// TestONNXQuantiseBatch: a model of a fixed batch is told its accuracy, and so is one of none.
func TestONNXQuantiseBatch(t *testing.T) {
	t.Parallel()
	for _, batch := range []any{"n", 4} {
		none := 0
		for class := range 10 {
			b := build.New("says one class")
			bias := onnx.ZerosF32(10)
			bias.F32()[class] = 1
			x := b.Op("Flatten", []build.Ref{b.Input("x", onnx.Float32, batch, 1, 8, 8)})
			b.Output("y", b.Op("Gemm", []build.Ref{x, b.Param("w", onnx.ZerosF32(64, 10)), b.Param("b", bias)}))
			model := saved(t)(b.Model())
			r := answer[quantisedReport](t, "onnx", "quantise", model, "--images", "digits", "-o", model+".out",
				"--preset", "0-1", "--seconds", "0.01", "--calibrate", "4", "--test", "1", "--weights-only",
				"8", "--least", "1", "--json")
			if r.Test.Accuracy == nil || r.Test.AccBefore == nil || *r.Test.Accuracy != *r.Test.AccBefore {
				t.Fatalf("batch %v: %+v", batch, r.Test)
			}
			none += int(indicator(*r.Test.AccBefore == 0))
		}
		if none != 9 {
			t.Errorf("batch %v: %d of 10 classes are wrong, want 9", batch, none)
		}
	}
}

// TestONNXQuantiseKinds: a model of fmp that is no extractor is refused before an image is read.
func TestONNXQuantiseKinds(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.onnx")
	classifier := filepath.Join(t.TempDir(), "classifier.onnx")
	pooledFrom(t, "digits-color", classifier, "--samples", "3")
	for kind, model := range map[string]string{
		models.KindClassifier: classifier,
		models.KindClient:     shippedFile(t, models.KindClient),
		models.KindPredictor:  shippedFile(t, models.KindPredictor),
	} {
		for _, more := range [][]string{nil, {"--weights-only", "8"}} {
			refused(t, exitUsage, `of kind "`+kind+`", which is not quantised: quantise its extractor`,
				append([]string{"onnx", "quantise", model, "--images", "/nowhere", "-o", out}, more...)...)
		}
	}
}

// TestONNXQuantiseOutputs: none of several outputs has to be the features, and half precision is
// quantised as float32.
func TestONNXQuantiseOutputs(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]onnx.DType{"float32": onnx.Float32, "half": onnx.Float16} {
		b := build.New("two")
		v := b.Input("x", d, "n", 1, 8, 8)
		w := must.Get(onnx.Zeros(d, 2, 1, 3, 3))(t)
		for i := range w.Len() {
			switch bits := w.Data.(type) {
			case []float32:
				bits[i] = float32(i) / 8
			case []uint16:
				bits[i] = onnx.Float32ToFloat16(float32(i) / 8)
			}
		}
		v = b.Op("Conv", []build.Ref{v, b.Param("w", w)})
		b.Output("a", v)
		b.Output("b", b.Relu(v))
		model := saved(t)(b.Model())
		out, said := ran(t, "onnx", "quantise", model, "--images", "digits", "-o", model+".out",
			"--preset", "0-1", "--seconds", "0.01", "--calibrate", "4", "--test", "1", "--json")
		var r quantisedReport
		if must.Do(t, json.Unmarshal([]byte(out), &r)); r.Static == nil || r.Static.Layers != 1 {
			t.Errorf("%s: %+v", name, r.Static)
		}
		if strings.Contains(said, `output "b" is of float32, and was of float16`) != (d == onnx.Float16) {
			t.Errorf("%s: said is %q", name, said)
		}
	}
}

// TestONNXQuantiseLabels: models are compared by their first output of float32, wherever it stands.
func TestONNXQuantiseLabels(t *testing.T) {
	t.Parallel()
	for _, labels := range []bool{false, true} {
		b := build.New("labels first")
		x := b.Op("Flatten", []build.Ref{b.Input("x", onnx.Float32, "n", 1, 8, 8)})
		w := onnx.ZerosF32(64, 10)
		for i := range w.F32() {
			w.F32()[i] = float32(i%7) / 7
		}
		y := b.MatMul(x, b.Param("w", w))
		b.Output("label", b.Op("ArgMax", []build.Ref{y}, onnx.IntAttr("axis", 1)))
		if !labels {
			b.Output("scores", y)
		}
		model := saved(t)(b.Model())
		args := []string{"onnx", "quantise", model, "--images", "digits", "-o", model + ".out", "--preset", "0-1",
			"--seconds", "0.01", "--calibrate", "4", "--test", "2", "--weights-only", "8", "--least", "1", "--json"}
		if labels {
			refused(t, exitUsage, "no output is of float32", args...)
		} else if r := answer[quantisedReport](t, args...); !(r.Test.Loss < .01) || r.Test.Accuracy == nil {
			t.Errorf("%+v", r.Test)
		}
	}
}

// TestONNXQuantiseInfinite: a model that is finite and breaks down in few bits has an infinite loss,
// and one of no finite number has none. Both are said, and JSON has null for them.
func TestONNXQuantiseInfinite(t *testing.T) {
	t.Parallel()
	for loss, tiny := range map[string]float32{"loss +Inf": 1e-6, "loss not known": 0} {
		b := build.New("reciprocals")
		x := b.Op("Flatten", []build.Ref{b.Input("x", onnx.Float32, "n", 1, 8, 8)})
		w, mask := onnx.ZerosF32(64, 10), onnx.ZerosF32(64)
		for i := range w.F32() {
			w.F32()[i] = tiny * float32(1+i%10)
			mask.F32()[i/10] = 1
			if row := i / 10; row%32 == 0 { // of a masked pixel: its weights only set the scale
				w.F32()[i], mask.F32()[row] = 1, 0
			}
		}
		x = b.Mul(b.Add(x, b.Param("one", onnx.Vector[float32](1))), b.Param("mask", mask))
		b.Output("y", b.Op("Reciprocal", []build.Ref{b.MatMul(x, b.Param("w", w))}))
		model := saved(t)(b.Model())
		args := []string{"onnx", "quantise", model, "--images", "digits", "-o", model + ".out", "--preset", "0-1",
			"--seconds", "0.01", "--calibrate", "4", "--test", "2", "--weights-only", "8", "--least", "1"}
		out, said := ran(t, args...)
		if !strings.Contains(out, loss) || !strings.Contains(said, "the loss ") {
			t.Errorf("%s: printed %s, said %s", loss, out, said)
		}
		out, _ = ran(t, append(args, "--json")...)
		var r struct{ Test map[string]any }
		must.Do(t, json.Unmarshal([]byte(out), &r))
		if l, told := r.Test["loss"]; !told || l != nil {
			t.Errorf("%s: JSON has %v", loss, r.Test)
		}
	}
}

// TestSizes: the files of external data count.
func TestSizes(t *testing.T) {
	dir := t.TempDir()
	w := onnx.ZerosF32(1 << 14)
	w.External = &onnx.External{Location: "m.data", Folder: dir}
	b := build.New("m")
	b.Output("y", b.Add(b.Input("x", onnx.Float32, 1<<14), b.Param("w", w)))
	data, _ := must.Get2(serde.Refer(must.Get(b.Model())(t)))(t)
	model, made := filepath.Join(dir, "m.onnx"), filepath.Join(dir, "made.onnx")
	for name, bytes := range map[string][]byte{model: data, made: nil,
		filepath.Join(dir, "m.data"): make([]byte, 64)} {
		must.Do(t, os.WriteFile(name, bytes, 0o600))
	}
	before, after := must.Get2(sizes(model, made))(t)
	if before != int64(len(data))+64 || after != 0 {
		t.Errorf("%d and %d bytes; want %d and 0", before, after, len(data)+64)
	}
}

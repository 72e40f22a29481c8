package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

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

func TestONNXCheck(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.onnx")
	must.Do(t, os.WriteFile(text, []byte("no model"), 0o644))
	for name, tc := range map[string]struct{ path, want string }{
		"a name from nowhere": {writeModel(t, func(m *onnx.Model) { m.Graph.Nodes[0].Inputs[1] = "v" }),
			`(MatMul): it reads "v"`},
		"sizes that differ": {writeModel(t,
			func(m *onnx.Model) { m.Graph.Initializers["w"] = onnx.ZerosF32(4, 2) }),
			"inner sizes 3 and 4 differ"},
		"no model": {text, "not an ONNX model"},
	} {
		refused(t, exitUsage, tc.want, "onnx", "check", tc.path)
		code, out, _ := runFMP(t, "onnx", "check", tc.path, "--json")
		var r struct {
			OK    bool
			Error string
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.OK || !strings.Contains(r.Error, tc.want) ||
			code != exitUsage {
			t.Errorf("%s: JSON is %s (%v), exit code %d", name, out, err, code)
		}
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
}

// A model that uses what is not known here is told apart from a wrong one.
func TestONNXCheckExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(m *onnx.Model)
		code  int
		says  string
	}{
		"sound":          {func(*onnx.Model) {}, exitOK, "is sound"},
		"the newest set": {func(m *onnx.Model) { m.Opsets[""] = onnx.MaxOpset }, exitOK, "is sound"},
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
			code, out, errs := runFMP(t, "onnx", "check", writeModel(t, c.spoil))
			if code != c.code || !strings.Contains(out+errs, c.says) {
				t.Errorf("exit code %d, %q and %q, want %d and %q", code, out, errs, c.code, c.says)
			}
		})
	}
}

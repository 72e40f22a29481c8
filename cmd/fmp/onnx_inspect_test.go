package main

import (
	"bytes"
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

func onnxCommand(args ...string) (string, error) {
	root := newRootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"onnx"}, args...))
	err := root.Execute()
	return out.String(), err
}

func writeModel(t *testing.T, spoil func(m *onnx.Model)) string {
	t.Helper()
	b := build.New("linear")
	x := b.Input("x", onnx.Float32, "batch", 3)
	b.Output("y", b.Relu(b.MatMul(x, b.Param("w", onnx.ZerosF32(3, 2)))))
	m := must.Get(b.Model())(t)
	spoil(m)
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Do(t, serde.Save(path, m))
	return path
}

func TestONNXInspect(t *testing.T) {
	path := writeModel(t, func(m *onnx.Model) { m.Metadata["dx"] = "2"; m.Graph.Outputs[0].Shape = nil })
	out := must.Get(onnxCommand("inspect", path, "--json", "--dim", "batch=5"))(t)
	var r inspection
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
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
	text := must.Get(onnxCommand("inspect", path))(t)
	for _, want := range []string{"x  float32 [batch, 3]", "y  float32 [batch, 2]", "6 (24 bytes)",
		"batch=1", "dx = 2", "MatMul"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestONNXInspectSaysWhatCannotBeDone(t *testing.T) {
	out := must.Get(onnxCommand("inspect",
		writeModel(t, func(m *onnx.Model) { m.Graph.Nodes[1].Op = "Nonsense" }), "--json"))(t)
	var r inspection
	must.Do(t, json.Unmarshal([]byte(out), &r))
	if !strings.Contains(r.Engines["pure"], "Nonsense") ||
		!strings.Contains(r.Differentiation, "Nonsense") ||
		strings.Join(r.Uncounted, "") != "Nonsense" {
		t.Errorf("got %+v", r)
	}
}

func TestONNXCheck(t *testing.T) {
	if out, err := onnxCommand("check", writeModel(t, func(*onnx.Model) {})); err != nil ||
		!strings.Contains(out, "is sound") {
		t.Errorf("%s, %v", out, err)
	}
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
		_, err := onnxCommand("check", tc.path)
		if err == nil || !strings.Contains(err.Error(), tc.want) || exitCode(err) != exitUsage {
			t.Errorf("%s: error is %v with code %d", name, err, exitCode(err))
		}
		out, err := onnxCommand("check", tc.path, "--json")
		var r struct {
			OK    bool
			Error string
		}
		if uerr := json.Unmarshal([]byte(out), &r); uerr != nil || r.OK ||
			!strings.Contains(r.Error, tc.want) || exitCode(err) != exitUsage {
			t.Errorf("%s: JSON is %s (%v), error %v", name, out, uerr, err)
		}
	}
}

func TestONNXHalf(t *testing.T) {
	model := writeModel(t, func(*onnx.Model) {})
	out := filepath.Join(t.TempDir(), "half.onnx")
	if _, err := onnxCommand("half", model, "-o", out); err == nil ||
		!strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("a model without large weights: %v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a file was written all the same")
	}
	said, err := onnxCommand("half", model, "-o", out, "--least", "1")
	if err != nil || !strings.Contains(said, "1 tensors") {
		t.Fatal(said, err)
	}
	m := must.Get(serde.Load(out))(t)
	if w := m.Graph.Initializers["w/half"]; w == nil || w.DType != onnx.Float16 {
		t.Errorf("the weight is %v", w)
	}
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

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

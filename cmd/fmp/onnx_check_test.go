package main

import (
	"strings"
	"testing"

	"fmp/onnx"
)

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

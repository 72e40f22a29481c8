package main

import (
	"encoding/json"
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/lab/rival"
)

// TestResultsMethods: every method says what it does and what to cite, with the settings that are
// tuned for it; a name misspelt is an error that suggests another.
func TestResultsMethods(t *testing.T) {
	code, out, errs := runFMP(t, "results", "methods")
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, m := range rival.All() {
		i := m.Info()
		want := i.Name + " (" + string(i.Group) + "): " + i.Title + "\n    " + i.Cite + "\n"
		if i.Title == "" || i.Cite == "" || !strings.Contains(out, want) {
			t.Errorf("%s is not told with what it does and its source", i.Name)
		}
	}
	code, out, _ = runFMP(t, "results", "methods", "gh-lda", "LDA", "--json")
	var got []described
	must.Do(t, json.Unmarshal([]byte(out), &got))
	if code != exitOK || len(got) != 2 || got[0].Name != "GH-LDA" || !strings.Contains(got[0].Cite, "2602.01186") ||
		len(got[0].Tuned) == 0 || len(got[0].Tuned[0].Values) < 2 || got[1].Corpus != "needs" {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, _, errs = runFMP(t, "results", "methods", "GH-LDB"); code != exitUsage || !strings.Contains(errs, "GH-LDA") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

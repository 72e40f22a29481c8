package main

import (
	"strings"
	"testing"

	"fmp/pipeline/lab/rival"
)

// TestResultsMethods: every method says what it does and what to cite, with the settings that are
// tuned for it; a name misspelt is an error that suggests another.
func TestResultsMethods(t *testing.T) {
	out, errs := ran(t, "results", "methods")
	if errs != "" {
		t.Errorf("said %s", errs)
	}
	for _, m := range rival.All() {
		i := m.Info()
		want := i.Name + " (" + string(i.Group) + "): " + i.Title + "\n    " + i.Cite + "\n"
		if i.Title == "" || i.Cite == "" || !strings.Contains(out, want) {
			t.Errorf("%s is not told with what it does and its source", i.Name)
		}
	}
	got := answer[[]described](t, "results", "methods", "gh-lda", "LDA", "--json")
	if len(got) != 2 || got[0].Name != "GH-LDA" || !strings.Contains(got[0].Cite, "2602.01186") ||
		len(got[0].Tuned) == 0 || len(got[0].Tuned[0].Values) < 2 || got[1].Corpus != "needs" {
		t.Errorf("described %+v", got)
	}
	refused(t, exitUsage, "GH-LDA", "results", "methods", "GH-LDB")
}

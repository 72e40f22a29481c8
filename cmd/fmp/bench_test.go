package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestBench measures the shipped models for a moment: every one on both engines, the ratio that of the medians.
func TestBench(t *testing.T) {
	needRuntime(t)
	code, out, errs := runFMP(t, "bench", "--seconds", "0.01", "--threads", "1", "--json")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var got []benchedModel
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, m := range got {
		kinds = append(kinds, m.Kind)
		if len(m.Results) != 2 || m.Results[0].Engine != "ort" || m.Results[1].Engine != "pure" {
			t.Fatalf("%s was measured as %+v", m.Kind, m.Results)
		}
		if want := m.Results[1].Median / m.Results[0].Median; m.Ratio["pure"] != want || want <= 0 {
			t.Errorf("%s: ratio %v, want %v", m.Kind, m.Ratio["pure"], want)
		}
	}
	if s := strings.Join(kinds, " "); s != "extractor embedding predictor client" {
		t.Errorf("measured were %s", s)
	}
	if code, _, errs := runFMP(t, "bench", "--dataset", t.TempDir()); code != exitMissing || !strings.Contains(errs, "comes with the program") {
		t.Errorf("a data set without models: exit code %d: %s", code, errs)
	}
}

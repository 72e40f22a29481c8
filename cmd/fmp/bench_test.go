package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestBench measures the shipped models for a moment: every one on both engines, the ratio that of
// the medians.
func TestBench(t *testing.T) {
	needRuntime(t)
	code, out, errs := runFMP(t, "bench", "--seconds", "0.01", "--threads", "1", "--json")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var got []benchedModel
	must.Do(t, json.Unmarshal([]byte(out), &got))
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
	if code, _, errs := runFMP(t, "bench", "--dataset", t.TempDir()); code != exitMissing ||
		!strings.Contains(errs, "comes with the program") {
		t.Errorf("a data set without models: exit code %d: %s", code, errs)
	}
}

// TestBenchPeers measures one row, of which who is not there is said to be not at hand.
func TestBenchPeers(t *testing.T) {
	needRuntime(t)
	peers := t.TempDir()
	code, out, errs := runFMP(t, "bench", "peers", "--only", "product", "--peers", peers)
	if code != exitOK || !strings.Contains(out, "gonum") ||
		!regexp.MustCompile(`numpy +not at hand`).MatchString(out) {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	code, out, errs = runFMP(t, "bench", "peers", "--only", "product", "--peers", peers, "--json")
	var got peersReport
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
		t.Fatalf("exit code %d: %v: %s", code, err, errs)
	}
	if r := got.Works[0].Results; len(got.Works) != 1 || len(r) != 3 || !r[2].Missing ||
		r[1].Missing || !(r[1].Ratio.Median > 0) {
		t.Errorf("measured were %+v", got.Works)
	}
	if code, _, errs := runFMP(t, "bench", "peers", "--only", "nothing"); code != exitUsage ||
		!strings.Contains(errs, "no row has it") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

package main

import (
	"regexp"
	"strings"
	"testing"
)

// TestBench measures the shipped models for a moment: every one on both engines, the ratio that of
// the medians.
func TestBench(t *testing.T) {
	needRuntime(t)
	got := answer[[]benchedModel](t, "bench", "--seconds", "0.01", "--threads", "1", "--json")
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
	refused(t, exitMissing, "comes with the program", "bench", "--dataset", t.TempDir())
}

// TestBenchPeers measures one row, of which who is not there is said to be not at hand.
func TestBenchPeers(t *testing.T) {
	needRuntime(t)
	peers := t.TempDir()
	out, _ := ran(t, "bench", "peers", "--only", "product", "--peers", peers)
	if !strings.Contains(out, "gonum") || !regexp.MustCompile(`numpy +not at hand`).MatchString(out) {
		t.Errorf("printed %s", out)
	}
	got := answer[peersReport](t, "bench", "peers", "--only", "product", "--peers", peers, "--json")
	if r := got.Works[0].Results; len(got.Works) != 1 || len(r) != 3 || !r[2].Missing ||
		r[1].Missing || !(r[1].Ratio.Median > 0) {
		t.Errorf("measured were %+v", got.Works)
	}
	refused(t, exitUsage, "no row has it", "bench", "peers", "--only", "nothing")
}

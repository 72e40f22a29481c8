package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/lab/experiment"
)

// TestAudit: the audit of a private run finds members of class means and proves less than the run
// states; the classifier that the run keeps says what was spent.
func TestAudit(t *testing.T) {
	if testing.Short() {
		t.Skip("a run on the digits")
	}
	emptyCache(t)
	dir := filepath.Join(t.TempDir(), "run")
	ran(t, "run", "--dataset.test", "1000", "--seeds", "1", "--clients", "8", "--points", "10",
		"--methods", "FMP,FMP-DP", "--privacy.epsilon", "8", "--scores.coverage=false", "--out", dir,
		"--keep-models")
	refused(t, exitMissing, "", "audit", filepath.Dir(dir))
	_, f := must.Get2(models.Load(filepath.Join(dir, "models", "homogeneous-shared-FMP-DP.onnx")))(t)
	if o, err := models.ReadOrigin(f); err != nil ||
		!strings.Contains(string(o.Private), `"epsilon":8`) {
		t.Errorf("origin %+v, %v", o, err)
	}
	out := answer[[]audited](t, "audit", dir, "--rounds", "5", "--json")
	a := out[0]
	if len(a.Parts) == 0 || a.Parts[0].AUC < 0.7 || a.Private == nil || a.Private.AUC < 0.55 ||
		a.Private.AUC > 0.95 {
		t.Fatalf("audit %+v", a)
	}
	if v := a.Private; !(v.Epsilon < 8) || v.Canaries != 8*20*5 || v.AUC > v.TheoryAUC+0.05 {
		t.Errorf("private %+v", v)
	}
	m := must.Get(experiment.ReadManifest(dir))(t)
	file := filepath.Join(dir, experiment.RunFile)
	changed := strings.Replace(string(must.Get(os.ReadFile(file))(t)), m.Data["images"], "another", 1)
	must.Do(t, os.WriteFile(file, []byte(changed), 0o600))
	refused(t, exitUsage, ": images;", "audit", dir, "--rounds", "1")
}

// TestSameSources: a run is attacked behind its own images and models alone; of the program's own
// models only those that decide the release must be the run's.
func TestSameSources(t *testing.T) {
	for _, k := range []struct {
		name, changed, file, refused, noted string
	}{
		{name: "nothing changed"},
		{name: "another data set", changed: "images", refused: "images"},
		{name: "another corpus", changed: "corpus", refused: "corpus"},
		{name: "the program's extractor", changed: "extractor", refused: "extractor"},
		{name: "the program's private model", changed: "private", refused: "private"},
		{name: "the program's open model", changed: "open", noted: "open"},
		{name: "an open model of one's own", changed: "open", file: "open", refused: "open"},
	} {
		manifest := func(changed string) *experiment.Manifest {
			m := &experiment.Manifest{Data: map[string]string{}, Models: map[string]string{}, Files: map[string]string{}}
			m.Data["images"], m.Data["corpus"], m.Data["features"] = "i", "c", "f"+changed
			m.Models["extractor"], m.Models["private"], m.Models["open"] = "e", "p", "o"
			for _, of := range []map[string]string{m.Data, m.Models} {
				if _, ok := of[changed]; ok {
					of[changed] = "another"
				}
			}
			if k.file != "" {
				m.Files[k.file] = k.file + ".onnx"
			}
			return m
		}
		own, err := sameSources("run", manifest(""), manifest(k.changed))
		if (err != nil) != (k.refused != "") || err != nil && !strings.Contains(err.Error(), ": "+k.refused+";") ||
			strings.Join(own, " ") != k.noted {
			t.Errorf("%s: notes %q, error %v", k.name, own, err)
		}
	}
}

// TestAuditServer: no client graph that a malicious server makes proves more than the round states,
// or tells of an image by absence; those that must be refused are.
func TestAuditServer(t *testing.T) {
	if testing.Short() {
		t.Skip("a run on the digits")
	}
	emptyCache(t)
	dir := filepath.Join(t.TempDir(), "run")
	ran(t, "run", "--dataset.test", "200", "--seeds", "1", "--clients", "2", "--points", "10", "--methods",
		"FMP,FMP-DP", "--privacy.epsilon", "2", "--privacy.noise", "local", "--scores.coverage=false", "--out", dir)
	out := answer[[]audited](t, "audit", dir, "--rounds", "20", "--json")
	refused := 0
	for _, c := range out[0].Server {
		if c.Refused != "" {
			refused++
			continue
		}
		if c.Moved > 1 || c.Epsilon > 2 || c.AUC > c.TheoryAUC+0.03 || c.Releases != 1000 {
			t.Errorf("%+v", c)
		}
	}
	if len(out[0].Server) != 7 || refused != 3 {
		t.Errorf("%d attacks, %d refused: %+v", len(out[0].Server), refused, out[0].Server)
	}
	if best := out[0].Server[1]; best.Moved < 0.95 || best.AUC < best.TheoryAUC-0.05 {
		t.Errorf("the strongest attack that is allowed shows little: %+v", best)
	}
}

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

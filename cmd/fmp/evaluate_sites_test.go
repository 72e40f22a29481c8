package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/federate/wire"
	sites "fmp/pipeline/tally/pooled"
)

// TestCrossSite: sites score the served classifier on their own images and send signed counts; the
// server's report, that of the files, and the model card say the same, and a report that was
// changed is refused.
func TestCrossSite(t *testing.T) {
	f := newFederation(t, 3, "deadline: 2100-01-01T00:00:00Z\n")
	f.serve()
	f.joins(f.names...)
	f.write("classifier.onnx", f.published(1))
	classifier := f.path("classifier.onnx")
	var reports []string
	for i, name := range f.names {
		images := f.path("site-" + name)
		f.fmp("data", "synth", "-o", images, "--photos", "--train", "10", "--test", "60", "--seed",
			fmt.Sprint(i+1))
		reports = append(reports, "--pool", f.path(name+".json"))
		noise := []string{"--least", "2"}
		if i == 2 {
			noise = []string{"--epsilon", "4", "--ledger", f.path("spent.jsonl")}
		}
		code, out := f.edge(append([]string{"evaluate", "--model", classifier, "--key",
			f.path("keys/" + name + ".key"), "--report-to", "http://" + f.address, "--output",
			f.path(name + ".json"), filepath.Join(images, "test")}, noise...)...)
		if code != 0 || !strings.Contains(out, "round 7 has these counts") ||
			!strings.Contains(out, "images") {
			t.Fatalf("%s: exit code %d: %s", name, code, out)
		}
	}
	_, served := f.get(wire.RoundPath(7) + "/evaluation")
	f.write("pooled.json", served)
	var want sites.Result
	if err := json.Unmarshal(served, &want); err != nil || len(want.Sites) != 3 ||
		want.Sites[2].Sigma == 0 || want.Accuracy.Sites != 3 {
		t.Fatalf("%s: %v", served, err)
	}
	roster := []string{"--roster", f.path("roster.txt")}
	pool := func(args ...string) string {
		return f.fmp(append([]string{"evaluate", classifier, "--engine.name", "pure"}, args...)...)
	}
	var got struct{ Sites sites.Result }
	must.Do(t, json.Unmarshal([]byte(pool(append(append(reports, roster...), "--json")...)), &got))
	a, _ := json.Marshal(got.Sites)
	if b, _ := json.Marshal(want); !bytes.Equal(a, b) {
		t.Errorf("of files\n%s\nand of the server\n%s", a, b)
	}
	for _, args := range [][]string{append(reports, roster...), {"--pooled", f.path("pooled.json")}} {
		text := pool(append(args, "--card", f.path("card.md"))...)
		card := string(read(t, f.path("card.md")))
		for _, part := range []string{"c000", "I²", "Cochran's Q", "a further site"} {
			if !strings.Contains(text, part) || !strings.Contains(card, part) {
				t.Errorf("text or card lacks %q:\n%s\n%s", part, text, card)
			}
		}
	}
	f.write("changed.json", bytes.Replace(read(t, f.path("c000.json")), []byte(`"round": 7`),
		[]byte(`"round": 8`), 1))
	for want, args := range map[string][]string{
		"go together":        {classifier, "--pool", f.path("c000.json")},
		"key that signed it": append([]string{classifier, "--pool", f.path("changed.json")}, roster...),
		"two reports": append([]string{classifier, "--pool", f.path("c000.json"), "--pool",
			f.path("c000.json")}, roster...),
		"both say": append([]string{classifier, "--pool", f.path("c000.json"), "--pooled",
			f.path("pooled.json")}, roster...),
		"no pooled report": {classifier, "--pooled", f.path("c000.json")},
		"--report shows": {classifier, "--pooled", f.path("pooled.json"), "--report",
			f.path("page.html")},
		"a CLASSIFIER IMAGES": {classifier},
	} {
		refused(t, exitUsage, want, append([]string{"evaluate"}, args...)...)
	}
}

// TestEvaluateNoImages: without IMAGES flags of images are refused, and so is a pooled report that
// no reports give.
func TestEvaluateNoImages(t *testing.T) {
	dir := t.TempDir()
	classifier, pooled := filepath.Join(dir, "c.onnx"), filepath.Join(dir, "pooled.json")
	pooledFrom(t, "digits-color", classifier, "--samples", "3")
	r := sites.Result{Classifier: models.DigestBytes(read(t, classifier)), Images: 10,
		Sites: []sites.Site{{Name: "a", Images: 10}}}
	for _, c := range []struct {
		class int
		code  int
		want  string
		args  []string
	}{
		{0, exitOK, "", nil},
		{-1, exitUsage, "class -1 with", nil},
		{10, exitUsage, "class 10 with", nil},
		{0, exitUsage, "--level goes with IMAGES", []string{"--level", "0.95"}},
		{0, exitUsage, "--by-client goes with IMAGES", []string{"--by-client"}},
		{0, exitUsage, "--labels goes with IMAGES", []string{"--labels", "l.csv"}},
		{0, exitUsage, "--skip goes with IMAGES", []string{"--skip", "3"}},
		{0, exitUsage, "--count goes with IMAGES", []string{"--count", "3"}},
		{0, exitUsage, "--max-pixels goes with IMAGES", []string{"--max-pixels", "99"}},
		{0, exitUsage, "--on-bad goes with IMAGES", []string{"--on-bad", "skip"}},
		{0, exitUsage, "--class-numbers goes with IMAGES", []string{"--class-numbers"}},
	} {
		r.ByClass = []sites.Class{{Class: c.class, Sites: 1, Images: 10}}
		must.Do(t, os.WriteFile(pooled, must.Get(json.Marshal(r))(t), 0o600))
		refused(t, c.code, c.want, append([]string{"evaluate", classifier, "--pooled", pooled},
			c.args...)...)
	}
}

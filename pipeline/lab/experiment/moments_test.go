package experiment

import (
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/moments"
	"fmp/pipeline/open"
)

// TestWithoutAConjugatePredictor: one that was refused leaves FMP the open one, and the run says
// so.
func TestWithoutAConjugatePredictor(t *testing.T) {
	for _, setting := range []string{"none", "default"} {
		p := &Prepared{Tools: Tools{Open: &open.Predictor{}}}
		c := small()
		c.Conjugate.Model = setting
		must.Do(t, p.withoutPredictor(&c, "no predictor"))
		notes := strings.Join(p.Manifest.Notes, "\n")
		if got, want := strings.Contains(notes, "open.model"), setting == "none"; got != want {
			t.Errorf("conjugate.model %s: notes are %q; want the open predictor named: %v",
				setting, notes, want)
		}
	}
}

// TestWithoutACorpus: without a corpus and a predictor FMP reads moments, and is no worse than
// nearly as good as a fit to all rows; methods that want a corpus or a predictor are left out and
// named.
func TestWithoutACorpus(t *testing.T) {
	d := clusters(t, 3, 12, 600, 400)
	d.Corpus = nil
	p := &Prepared{Data: d}
	c := small()
	c.Dataset.Splits.Corpus = 0
	must.Do(t, p.withoutPredictor(&c, "no predictor"))
	for _, m := range rival.All() {
		i := m.Info()
		want := i.Name == "FMP" || !i.Conjugate && !i.NeedsCorpus && !i.Private
		if slices.Contains(c.Methods, i.Name) != want {
			t.Errorf("%s is run: %v, want %v", i.Name, !want, want)
		}
		named := strings.Contains(p.Manifest.Notes[0], " "+i.Name+",") ||
			strings.HasSuffix(p.Manifest.Notes[0], " "+i.Name)
		if named != (i.NeedsCorpus || i.Conjugate && i.Name != "FMP") {
			t.Errorf("%s is named as left out: %v (%s)", i.Name, named, p.Manifest.Notes[0])
		}
	}
	k := Tools{Compressor: classMeans{}, Drawer: bootstrap{}, Embedded: p.Tools.Embedded,
		Calibration: moments.MaxCalibration}
	rows := make([][]int, 4)
	for i := range 320 {
		rows[i%4] = append(rows[i%4], i)
	}
	task := must.Get(k.task(t.Context(), c, d.Clients.Clients(rows), "test", 1, nil))(t)
	nll := map[string]float64{}
	for _, name := range []string{"FMP", "ANN"} {
		m := must.Get(rival.Lookup(name))(t)
		r := must.Get(m.Run(t.Context(), task, rival.DefaultSettings()))(t)
		if (r.Diagnostics["moments"] == 1) != (name == "FMP") {
			t.Errorf("%s: diagnostics %v", name, r.Diagnostics)
		}
		nll[name] = must.Get(score.Evaluate(t.Context(), r, d.Test, d.TestLabels, 1))(t).NLL
	}
	if !(nll["FMP"] < nll["ANN"]+0.1) {
		t.Errorf("NLL %v", nll)
	}
}

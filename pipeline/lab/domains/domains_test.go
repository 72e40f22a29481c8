package domains

import (
	"slices"
	"testing"

	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/task"
)

// TestRun: on drawn digits with corruptions as domains, FMP that knows client effects is below FMP
// that takes clients for alike in NLL, a rival centred by client below the same as it is, and a
// method of single clients is scored too.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("trains nothing, but featurizes and scores thousands of images")
	}
	cfg := experiment.Default()
	cfg.Methods, cfg.Scores.Domains, cfg.Scores.Images, cfg.Seeds = []string{"FMP"},
		Families[0].Domains(), 500, 1
	eng := must.Get(pure.New(engine.Options{}))(t)
	defer eng.Close()
	p := must.Get(experiment.Prepare(t.Context(), cfg, eng, nil, nil))(t)
	defer p.Close()
	rounds := experiment.Rounds{Points: 20, Repeats: 1, Samples: 20, Seed: 3}
	rows := must.Get(Run(t.Context(), p,
		Options{Rounds: rounds, Family: Families[0], Rivals: []string{"FedCGS"}}))(t)
	of := map[string]Row{}
	for _, r := range rows {
		of[r.Name] = r
		t.Logf("%s: %+v %+v", r.Name, r.Known, r.Unknown)
	}
	if len(of) != 13 {
		t.Fatalf("%d rows; want 10 of FMP and 3 of FedCGS", len(of))
	}
	if a, b := of["FedCGS, aligned by SLOT-Align"], of["FedCGS"]; !(a.Unknown.NLL < b.Unknown.NLL) ||
		!(a.Strength > 0) || b.Strength != 0 {
		t.Errorf("FedCGS is at %+v of an unknown kind, at %+v aligned by %v", b.Unknown,
			a.Unknown, a.Strength)
	}
	for _, c := range []struct{ below, above string }{
		{"FMP, for its client", "FMP, all clients alike"},
		{"FMP, for its client, adapted", "FMP, for its client"},
		{"FMP, a client to come", "FMP, all clients alike"},
		{"FMP, closed scope, for its client", "FMP, closed scope, all clients alike"},
	} {
		if a, b := of[c.below].Known, of[c.above].Known; !(a.NLL < b.NLL) || a.ACC < b.ACC-0.02 {
			t.Errorf("%s is at %+v, %s at %+v", c.below, a, c.above, b)
		}
	}
	if a, b := of["FMP, a client to come, adapted"].Unknown,
		of["FMP, a client to come"].Unknown; !(a.NLL < b.NLL) {
		t.Errorf("adapted to images without labels, FMP is at %+v of an unknown kind, and at %+v before",
			a, b)
	}
	if a, b := of["FedCGS, each client centred"].Unknown, of["FedCGS"].Unknown; !(a.NLL < b.NLL) {
		t.Errorf("FedCGS is at %+v of an unknown kind, at %+v centred", b, a)
	}
	p.Tools.Conjugate, p.Tools.Open, p.Tools.Calibration = nil, nil, 10
	p.Config.Extractor.Kappa = []float64{0.85, 0.25} // without it one posterior reads clients that are alike
	p.Tools.Embedded = must.Get(posterior.NewEmbedded(p.Data.Clients.Dx, nil, nil, nil))(t)
	rows = must.Get(Run(t.Context(), p, Options{Rounds: rounds, Family: Families[0]}))(t)
	moments := map[string]Row{}
	for _, r := range rows {
		moments[r.Name] = r
		t.Logf("moments, %s: %+v %+v", r.Name, r.Known, r.Unknown)
	}
	if a, b := moments["FMP, for its client"].Known,
		moments["FMP, all clients alike"].Known; len(moments) != 5 || !(a.NLL < b.NLL) {
		t.Errorf("%d rows of moments; for its client %+v, all alike %+v", len(moments), a, b)
	}
	if of["FMP, for its client"].Unknown != nil || of["FMP, a client to come"].Unknown == nil {
		t.Error("a classifier for a client of the round is scored on a kind that no client has, or one " +
			"for a client to come is not")
	}
}

// TestCentred: a centred client's features have mean 0, and the client is as it was.
func TestCentred(t *testing.T) {
	s := point.New(3, 2, 2)
	for i := range s.N {
		copy(s.Row(i), []float32{float32(i), 10, 1, 0})
	}
	c := centredSet(s)
	for i := range s.N {
		want := []float32{float32(i - 1), 0, 1, 0}
		if row := c.Row(i); !slices.EqualFunc(row, want, func(a, b float32) bool { return max(a-b, b-a) < 1e-5 }) ||
			s.Row(i)[1] != 10 {
			t.Errorf("row %d is %v of %v; want %v", i, row, s.Row(i), want)
		}
	}
}

// TestFewImages: a domain of too few images for its two halves is refused by name.
func TestFewImages(t *testing.T) {
	p := &experiment.Prepared{Data: &experiment.Data{Clients: &task.Bank{Dx: 1}}}
	p.Tools.Embedded = must.Get(posterior.NewEmbedded(1, nil, nil, nil))(t)
	p.Data.Shifts = []score.Shift{{Name: "rotation", Labels: make([]int, 2*Unlabelled-1)}}
	must.Fail(Run(t.Context(), p, Options{Family: Families[0]}))(t,
		"rotation: test images: 99; want 100 or more", "99 images")
}

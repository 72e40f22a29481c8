package experiment

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/featurize/dataset"
	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/meta"
	"fmp/pipeline/moments"
	"fmp/pipeline/open"
	"fmp/pipeline/posterior"
	"fmp/pipeline/task"
)

// TestCalibrated: in the protocol calibrated rivals choose by the very images that FMP's clients
// send as calibration points, which take no part in what they are fitted to, and FMP chooses
// nothing; hindsight is a bound.
func TestCalibrated(t *testing.T) {
	d := clusters(t, 3, 12, 600, 400)
	d.Corpus = nil
	at := must.Get(posterior.NewEmbedded(12, nil, nil, nil))(t)
	c := small()
	c.Dataset.Splits.Corpus, c.Protocol, c.Methods = 0, protocolCalibrated,
		[]string{"FMP", "ANN", "FedCGS"}
	c.Federation.Points, c.Scores.Coverage, c.Scores.Hindsight = 25, false, true
	k := Tools{Compressor: classMeans{}, Drawer: bootstrap{}, Embedded: at, Calibration: moments.MaxCalibration}
	r := &running{Config: c, data: d, tools: k, inner: 1}
	rows, _ := must.Get2(c.draw(d.Clients, Partition{}, 0))(t)
	clients, stream := d.Clients.Clients(rows), Partition{}.stream(0)
	got := must.Get(r.calibrate(t.Context(), clients, stream))(t)
	sent := must.Get(k.Moments(t.Context(), clients, stream))(t)
	var points []float32
	var labels []int
	left := 0
	for m, u := range sent {
		points, labels = append(points, u.Within.Calibration...), append(labels, u.Within.Labels...)
		left += clients[m].N - len(u.Within.Labels)
	}
	for i := range points {
		points[i] *= float32(math.Sqrt(12))
	}
	slices.Sort(points)
	slices.Sort(got.held.Features)
	if len(labels) != 20 || !slices.Equal(labels, got.held.Labels) ||
		!slices.Equal(points, got.held.Features) {
		t.Errorf("rivals choose by %d points, and FMP's clients send %d, or others",
			len(got.held.Labels), len(labels))
	}
	n := 0
	for _, set := range got.held.Task.Clients() {
		n += set.N
	}
	if n != left {
		t.Errorf("%d images are fitted to while choosing; want %d", n, left)
	}
	dir := must.Get(Open(filepath.Join(t.TempDir(), "run"), c, Manifest{}))(t)
	records := must.Get(Run(t.Context(), c, d, k, dir, nil))(t)
	if len(records) != 2*2*3 {
		t.Fatalf("%d records", len(records))
	}
	ann := must.Get(rival.Lookup("ANN"))(t).Info()
	between := false // a value that the grid does not have
	for _, x := range records {
		between = between || x.Method == ann.Name && !slices.Contains(ann.Grid, x.Value)
		if x.Protocol != protocolCalibrated || x.Hindsight == nil || *x.Hindsight > x.NLL ||
			(x.Temperature == 0) != (x.Method == "FMP") {
			t.Errorf("%s: %+v", x.Cell, x.Hindsight)
		}
	}
	if got.held.Errs != 1 || !between {
		t.Errorf("%v points are taken to err; settings are of the grid alone: %v", got.held.Errs, !between)
	}
	c.FillDefaults()
	must.Get(inspect(t.Context(),
		&Prepared{Config: c, Manifest: Manifest{Classes: []string{"a", "b", "c"}}, Data: d, Tools: k,
			Images: &dataset.Images{N: 400, H: 1, W: 1, Ch: 1, Pix: make([]byte, 400)}},
		1))(t)
}

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

// TestFewImagesOfTheCorpus: behind a corpus of too few images of each class FMP-one is left out and
// named, and refused where it was asked for.
func TestFewImagesOfTheCorpus(t *testing.T) {
	for name, x := range map[string]struct {
		images  int
		methods []string
		one     bool // is run
	}{
		"few":          {19 * 3, nil, false},
		"enough":       {20 * 3, nil, true},
		"enough asked": {20 * 3, []string{"FMP-one"}, true},
		"not asked":    {19 * 3, []string{"FMP", "NCM"}, false},
	} {
		d := clusters(t, 3, 12, x.images, 40)
		p := &Prepared{Config: small(), Data: d}
		c := &p.Config
		c.Methods = x.methods
		c.FillDefaults()
		was := must.Get(c.methods())(t)
		k := must.Get(meta.UntrainedConjugate(d.Corpus))(t)
		m := must.Get(p.withImages(k, d.Corpus))(t)
		rows, _ := must.Get2(models.Images(m))(t)
		now := must.Get(c.methods())(t)
		one := slices.ContainsFunc(now, func(m rival.Method) bool { return m.Info().Name == "FMP-one" })
		left := x.methods == nil && !x.one
		if one != x.one || (len(rows) > 0) != (d.Corpus.Len() >= 60) || (len(p.Manifest.Notes) == 1) != left ||
			(len(was) == len(now)+1) != left {
			t.Errorf("%s: %d of %d methods, FMP-one %v, %d numbers, notes %v", name, len(now), len(was), one, len(rows),
				p.Manifest.Notes)
		}
		if name == "few" {
			c.Methods = []string{"fmp-one"}
			must.Fail(p.withImages(k, d.Corpus))(t, "leave the method out", "FMP-one asked for")
		}
	}
}

// TestWithNames: methods that name a task's classes by the corpus's are left out of a run of all
// methods, with a note, where these are too few, and refused where they were asked for.
func TestWithNames(t *testing.T) {
	bank := func(classes int) *task.Bank { return clusters(t, classes, 6, 60, 40).Corpus }
	named := []string{"Corpus", "FMP-named"}
	for name, x := range map[string]struct {
		protocol       string
		tasks, corpus  int
		closed, tuning bool
		methods        []string
		left, err      string
	}{
		"few where tuned": {"both", 4, 6, false, false, nil, "2 are known where settings are tuned", ""},
		"few, asked": {"tuned", 4, 6, false, false, []string{"ann", "corpus"}, "",
			"Corpus: 4 classes are named by those of the corpus, and 2 are known"},
		"few, not asked":        {"both", 4, 6, false, false, []string{"ANN"}, "", ""},
		"not tuned":             {"shared", 4, 6, false, false, nil, "", ""},
		"fewer than the tasks":  {"shared", 4, 3, false, false, nil, "3 are known", ""},
		"all where one is left": {"both", 4, 5, false, false, nil, "", ""},
		"enough":                {"both", 4, 8, false, false, nil, "", ""},
		"closed scope":          {"both", 4, 4, true, false, nil, "", ""},
		"tuned on others":       {"both", 4, 6, false, true, nil, "", ""},
	} {
		c := small()
		c.Protocol, c.Methods = x.protocol, x.methods
		if !x.closed {
			c.Corpus.Classes = "4-9"
		}
		p := &Prepared{Config: c, Data: &Data{Clients: bank(x.tasks), Corpus: bank(x.corpus)}}
		if x.tuning {
			p.Data.Tuning = bank(4)
		}
		was := must.Get(c.methods())(t)
		err := p.withNames(x.methods != nil)
		if x.err != "" {
			must.Fail(err)(t, x.err, name)
			continue
		}
		must.Do(t, err)
		now := must.Get(p.Config.methods())(t)
		notes := strings.Join(p.Manifest.Notes, "\n")
		has := slices.ContainsFunc(now, func(m rival.Method) bool { return slices.Contains(named, m.Info().Name) })
		if left := x.left != ""; has != (x.methods == nil && !left) || left && len(now) != len(was)-2 ||
			!left && (len(p.Config.Methods) != len(x.methods) || notes != "") ||
			left && !strings.Contains(notes, "left out are Corpus and FMP-named: 4 classes") ||
			!strings.Contains(notes, x.left) {
			t.Errorf("%s: %d methods of %d, notes %q", name, len(now), len(was), notes)
		}
	}
	must.Do(t, (&Prepared{Data: &Data{Clients: bank(4)}}).withNames(false))
}

// TestOneSample: a method that wants more samples is left out of a run of all methods, with a note, and
// refused where it was asked for.
func TestOneSample(t *testing.T) {
	is := func(m rival.Method) bool { return m.Info().Name == "CFMP" }
	for name, x := range map[string]struct {
		samples     int
		methods     []string
		run, refuse bool
	}{
		"one":        {1, nil, false, false},
		"two":        {2, nil, true, false},
		"one, asked": {1, []string{"FMP", "CFMP"}, false, true},
		"two, asked": {2, []string{"CFMP"}, true, false},
		"not asked":  {1, []string{"FMP", "MP"}, false, false},
	} {
		c := small()
		c.Posterior.Samples, c.Methods = x.samples, x.methods
		all, err := c.methods()
		if refused := err != nil && strings.Contains(err.Error(), "posterior.samples is 1"); refused != x.refuse ||
			slices.ContainsFunc(all, is) != x.run {
			t.Errorf("%s: %d methods, %v", name, len(all), err)
		}
		if notes := c.leftOut(); (len(notes) == 1) != (name == "one") {
			t.Errorf("%s: notes are %q", name, notes)
		}
		p := &Prepared{Data: clusters(t, 3, 12, 60, 40)}
		must.Do(t, p.withoutPredictor(&c, "no predictor"))
		if got := slices.Contains(c.Methods, "CFMP"); got != (x.run || x.refuse) {
			t.Errorf("%s: without a predictor CFMP is run: %v", name, got)
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
		test := &score.Test{Features: d.Test, Labels: d.TestLabels}
		nll[name] = must.Get(test.Score(t.Context(), nil, r, 1))(t).Scores.NLL
	}
	if !(nll["FMP"] < nll["ANN"]+0.1) {
		t.Errorf("NLL %v", nll)
	}
}

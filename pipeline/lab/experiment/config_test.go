package experiment

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fmp/onnx/must"
	"fmp/pipeline/option"
	"fmp/pipeline/pool"
	"fmp/pipeline/posterior"
	"fmp/pipeline/settings"
)

func TestValidateNamesKeyValueAndWhatIsAllowed(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*Config)
		want   string // words, each behind the other with a stroke between
	}{
		"too many seeds":    {func(c *Config) { c.Seeds = 2000 }, "seeds|2000|1 to 1000"},
		"no seeds":          {func(c *Config) { c.Seeds = 0 }, "seeds is 0"},
		"no data set":       {func(c *Config) { c.Dataset.Name = "" }, "dataset.name|digits"},
		"overlapping parts": {func(c *Config) { c.Dataset.Splits.Clients = 0.5 }, "dataset.splits|at most 1"},
		"one class":         {func(c *Config) { c.Dataset.Classes = "1" }, "dataset.classes is 1|2 to 10000"},
		"zero std": {func(c *Config) {
			c.Extractor.Mean, c.Extractor.Std = []float64{0}, []float64{0}
		}, "extractor.std"},
		"mean alone": {func(c *Config) {
			c.Extractor.Mean = []float64{0}
		}, "extractor.mean and extractor.std"},
		"NaN penalty":   {func(c *Config) { c.ERM.L2 = math.NaN() }, "erm.l2|NaN"},
		"alpha of zero": {func(c *Config) { c.Federation.Alpha = []float64{0} }, "federation.alpha is 0"},
		"alpha twice":   {func(c *Config) { c.Federation.Alpha = []float64{1, 1} }, "federation.alpha"},
		"no alpha": {func(c *Config) {
			c.Federation.Partition, c.Federation.Alpha = "both", nil
		}, "federation.alpha"},
		"tuned without corpus": {func(c *Config) {
			c.Protocol, c.Dataset.Splits.Corpus = "tuned", 0
		}, "protocol|corpus"},
		"the tasks' folder as another": {func(c *Config) {
			c.Dataset.Name, c.Scores.Other = ".", []string{"./"}
		}, "scores.other"},
		"two folders of one name": {func(c *Config) {
			c.Scores.Other = []string{"a/d", "b/d"}
		}, "scores.other"},
		"other folder twice": {func(c *Config) { c.Scores.Other = []string{".", "./"} }, "scores.other"},
		"calibration points in closed scope": {func(c *Config) {
			c.Posterior.Calibrate = 5
		}, "posterior.calibrate is 5|closed scope"},
		"tuned calibration points": {func(c *Config) {
			c.Posterior.Calibrate, c.Corpus.Dataset, c.Protocol = 5, "mnist", "tuned"
		}, "posterior.calibrate"},
		"two mistakes": {func(c *Config) { c.Seeds, c.Protocol = 0, "x" }, "seeds|protocol"},
	} {
		c := Default()
		x.change(&c)
		err := c.Validate()
		for word := range strings.SplitSeq(x.want, "|") {
			must.Fail(err)(t, word, name)
		}
	}
}

// TestOpenScopeBySpelling: the tasks' classes are none of the corpus's, however its folder is spelt.
func TestOpenScopeBySpelling(t *testing.T) {
	for _, x := range []struct {
		tasks, corpus string
		classes       []string
		ok            bool
	}{
		{".", "./", []string{"a", "b"}, false}, {"./", ".", []string{"b"}, false},
		{".", "./", []string{"c"}, true}, {".", "..", []string{"a"}, true},
	} {
		c := Default()
		c.Dataset.Name, c.Corpus.Dataset = x.tasks, x.corpus
		if err := c.checkClasses([]string{"a", "b"}, x.classes); (err == nil) != x.ok {
			t.Errorf("%s and %s of classes %v: %v", x.tasks, x.corpus, x.classes, err)
		}
	}
}

func TestFillDefaults(t *testing.T) {
	for _, x := range []struct {
		dataset       string
		l2            float64
		points, fresh int
		classes       string
	}{{"digits", 1, 20, 100, ""}, {"mnist", 0.1, 35, 100, ""}, {"cifar10", 7, 10, 100, ""},
		{"cifar100", 7, 40, 200, "20"}, {"/my/images", 3, 20, 100, ""}} {
		c := Default()
		c.Dataset.Name = x.dataset
		if keys := c.FillDefaults(); len(keys) < 3 || c.Dataset.Classes != x.classes ||
			c.ERM.L2 != x.l2 || c.Federation.Points != x.points ||
			c.Predictor.Fresh != x.fresh {
			t.Errorf("%s: %v set to %g, %d and %d; want %g, %d and %d", x.dataset, keys, c.ERM.L2,
				c.Federation.Points, c.Predictor.Fresh, x.l2, x.points, x.fresh)
		}
		if keys := c.FillDefaults(); keys != nil {
			t.Errorf("%s: a second call changed %v", x.dataset, keys)
		}
	}
	c := Default()
	c.ERM.L2, c.Federation.Points, c.Predictor.Fresh = 7, 8, 9
	if keys := c.FillDefaults(); keys != nil || c.ERM.L2 != 7 || c.Federation.Points != 8 ||
		c.Predictor.Fresh != 9 {
		t.Errorf("settings that were given changed: %v", keys)
	}
}

// TestDefaultsOfARound: a run samples and fits as a round does where nobody says otherwise.
func TestDefaultsOfARound(t *testing.T) {
	c := Default()
	if c.Conjugate.Samples != pool.ConjugateSamples || c.Posterior.Samples != pool.DrawnSamples ||
		c.ERM.Tolerance != pool.Tolerance ||
		c.Seed != pool.Seed {
		t.Errorf("a run has %d and %d samples and tolerance %v; a round %d, %d and %v",
			c.Conjugate.Samples, c.Posterior.Samples, c.ERM.Tolerance, pool.ConjugateSamples,
			pool.DrawnSamples, pool.Tolerance)
	}
}

// Every setting has a key of its own, a meaning without gaps, and a default that is allowed, and
// text and check of what is allowed agree.
func TestSettingsAreStated(t *testing.T) {
	c := Default()
	seen := map[string]bool{}
	for _, s := range option.List(&c) {
		if seen[s.Key] || strings.HasSuffix(s.Key, ".") || s.Doc == "" ||
			strings.ContainsAny(s.Doc, "{}") {
			t.Errorf("%s: %q", s.Key, s.Doc)
		}
		seen[s.Key] = true
		if errs := s.Check(); len(errs) > 0 {
			t.Errorf("a default is not allowed: %v", errs)
		}
		for _, name := range s.Choices() {
			if !strings.Contains(s.Allowed(), name) {
				t.Errorf("%s may be %s, and says %s", s.Key, name, s.Allowed())
			}
		}
	}
	if len(seen) < 40 {
		t.Errorf("%d settings", len(seen))
	}
}

// TestMethodsInAnyCase: a method in another case is the same, given twice and in a run's identity.
func TestMethodsInAnyCase(t *testing.T) {
	for _, k := range []struct {
		given []string
		same  []string // of the same run; none: refused
	}{
		{[]string{"ncm", "fMp"}, []string{"NCM", "FMP"}},
		{[]string{"fmp", "FMP"}, nil},
		{[]string{"FMP", "FMP"}, nil},
		{[]string{"FMP", ""}, nil},
	} {
		c, same := Default(), Default()
		c.Methods, same.Methods = slices.Clone(k.given), k.same
		err := c.Validate()
		if (err == nil) != (k.same != nil) || err != nil && !strings.Contains(err.Error(), "different names") {
			t.Errorf("%q: %v", k.given, err)
		}
		if err != nil {
			continue
		}
		given := c.Methods
		c.FillDefaults()
		same.FillDefaults()
		if must.Get(Identity(c, nil, nil))(t) != must.Get(Identity(same, nil, nil))(t) ||
			!slices.Equal(given, k.given) {
			t.Errorf("%q is another run than %q: %q", k.given, k.same, c.Methods)
		}
	}
}

// TestParseConfig: settings that a run of an earlier version lacks are the defaults, and others as they
// stand there, zeros and empty lists among them.
func TestParseConfig(t *testing.T) {
	every := Default()
	every.Federation.Clients = 3
	for text, want := range map[string]func(*Config){
		"federation: {clients: 3}":                                func(*Config) {},
		"federation: {clients: 3, calibration: 0}":                func(c *Config) { c.Federation.Calibration = 0 },
		"federation: {clients: 3, alpha: []}":                     func(c *Config) { c.Federation.Alpha = nil },
		"federation: {clients: 3, alpha: [5]}":                    func(c *Config) { c.Federation.Alpha = []float64{5} },
		"{federation: {clients: 3}, scores: {coverage: false}}":   func(c *Config) { c.Scores.Coverage = false },
		"{federation: {clients: 3}, scores: {other: [], seed: 1}": nil,
	} {
		got, err := ParseConfig([]byte(text))
		if want == nil {
			if err == nil {
				t.Errorf("%s: no error", text)
			}
			continue
		}
		c := every
		want(&c)
		if d := cmp.Diff(c, got, cmpopts.EquateEmpty()); err != nil || d != "" {
			t.Errorf("%s: %v, %s", text, err, d)
		}
	}
}

// TestUnread: settings of moments, and the protocol calibrated, are refused where no client sends any,
// and those of a mode that the run is not in are named.
func TestUnread(t *testing.T) {
	for _, k := range []struct {
		want   string
		change func(*Config)
	}{
		{"", func(*Config) {}},
		{"setting federation.calibration is 3; allowed is 10 where", func(c *Config) { c.Federation.Calibration = 3 }},
		{"setting extractor.kappa is [0.7 0.1]; allowed is nothing where", func(c *Config) {
			c.Extractor.Kappa = []float64{.7, .1}
		}},
		{"pass --set conjugate.model=none --set open.model=none", func(c *Config) {
			c.Protocol, c.Dataset.Splits.Corpus = protocolCalibrated, 0
		}},
	} {
		p := &Prepared{Config: Default()}
		k.change(&p.Config)
		if got := fmt.Sprint(p.checkUnread()); got != "<nil>" && k.want == "" || !strings.Contains(got, k.want) {
			t.Errorf("%v; want %q", got, k.want)
		}
		p.Tools.Embedded = &posterior.Embedded{}
		must.Do(t, p.checkUnread())
	}
	for want, change := range map[string]func(*Config){
		"":                                    func(c *Config) { c.Federation.Clients, c.Conjugate.Model = 3, "mine.onnx" },
		"tuning (the protocol is shared)":     func(c *Config) { c.Tuning.Points = 50 },
		"scores.images (there are no":         func(c *Config) { c.Scores.Images = 50 },
		"federation.alpha (the partition":     func(c *Config) { c.Federation.Alpha = []float64{3} },
		"privacy (privacy.epsilon is 0)":      func(c *Config) { c.Privacy.Unit = "client" },
		"conjugate.model (the corpus lacks t": func(c *Config) { c.Conjugate.Model, c.Corpus.Dataset = "mine.onnx", "mnist" },
	} {
		c := Default()
		change(&c)
		if got := c.unread(); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q; want %q", got, want)
		}
		c.Protocol, c.Scores.Other, c.Privacy.Epsilon, c.Corpus.Dataset = "tuned", []string{"noise"}, 1, ""
		if c.Federation.Partition = "both"; c.unread() != "" {
			t.Errorf("%q where all are read", c.unread())
		}
	}
}

// TestDifferencesOfSettings: a setting that a file leaves out has its default, and one that a run does
// not read for another that is named is left out.
func TestDifferencesOfSettings(t *testing.T) {
	both := func(c *Config) { c.Federation.Partition, c.Federation.Alpha = "both", []float64{0.1} }
	for want, change := range map[string][2]func(*Config){
		"scores.hindsight is its default there and true here": {func(*Config) {},
			func(c *Config) { c.Scores.Hindsight = true }},
		"scores.hindsight is true there and its default here": {
			func(c *Config) { c.Scores.Hindsight = true }, func(*Config) {}},
		"federation.partition is both there and homogeneous here": {both,
			func(c *Config) { c.Federation.Partition = "homogeneous" }},
		"federation.alpha is [0.1] there and [0.5] here": {both,
			func(c *Config) { both(c); c.Federation.Alpha = []float64{0.5} }},
	} {
		dir, was, is := t.TempDir(), Default(), Default()
		change[0](&was)
		change[1](&is)
		must.Do(t, must.Get(Open(dir, was, Manifest{Identity: "x"}))(t).Close())
		if got := differences(dir, &Manifest{}, is, Manifest{}); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}

// TestSharing: repeats that share more than half of their images, and not all, are noted. One repeat
// shares none.
func TestSharing(t *testing.T) {
	for _, c := range []struct{ repeats, held, want int }{
		{5, 200, 0}, {5, 1000, 0}, {5, 1001, 1}, {5, 1980, 1}, {5, 2000, 0}, {2, 1980, 1}, {1, 1980, 0},
	} {
		if got := sharing(c.repeats, c.held, 2000); len(got) != c.want {
			t.Errorf("%d repeats with %d of 2000: %q", c.repeats, c.held, got)
		}
	}
}

// TestBrief: a setting is named by as much of its key as tells it from all others, and not where it
// is empty.
func TestBrief(t *testing.T) {
	for _, k := range []struct {
		keys, values []string
		want         string
	}{
		{[]string{"dataset.classes", "erm.l2", "predictor.fresh"}, []string{"", "3", "100"}, "l2 = 3, fresh = 100"},
		{[]string{"conjugate.samples"}, []string{"5"}, "conjugate.samples = 5"},
		{[]string{"dataset.splits.clients", "federation.clients"}, []string{".1", "5"},
			"splits.clients = .1, federation.clients = 5"},
		{[]string{"extractor.model", "seed"}, []string{"a.onnx", "2"}, "extractor.model = a.onnx, seed = 2"},
	} {
		if got := Brief(k.keys, k.values); got != k.want {
			t.Errorf("%q; want %q", got, k.want)
		}
	}
}

// TestGridNames: folders of a grid are named by the last part of each key, and by more where two
// have the same.
func TestGridNames(t *testing.T) {
	for keys, want := range map[string]string{
		"posterior.samples": "samples=5", "erm.l2 posterior.samples": "l2=5,samples=5",
		"conjugate.samples dataset.splits.test posterior.samples": "conjugate.samples=5,test=5,posterior.samples=5",
	} {
		g := Grid{Settings: map[string]any{}, Vary: map[string][]any{}}
		for _, k := range strings.Fields(keys) {
			g.Vary[k] = []any{5}
			if k == "dataset.splits.test" {
				g.Vary[k] = []any{0.5}
			}
		}
		runs := must.Get(g.Runs())(t)
		if got := strings.ReplaceAll(runs[0].Name, "0.5", "5"); got != want {
			t.Errorf("%s: %q; want %q", keys, got, want)
		}
	}
}

func TestPortable(t *testing.T) {
	far := filepath.Join(t.TempDir(), "far")
	in := func(name string) string { return filepath.Join(far, name) }
	for _, c := range []struct{ given, model, dataset, folder, label string }{
		{"default", "default", "default", "default", "default"},
		{"", "", "", "", ""},
		{filepath.Join("sub", "x"), filepath.Join("sub", "x"), filepath.Join("sub", "x"),
			filepath.Join("sub", "x"), "x"},
		{in("x"), "x", "./x", "", "x"},
		{in("mnist"), "mnist", "./mnist", "", "mnist"},
		{filepath.Join("..", "x"), "x", "./x", "", "x"},
	} {
		p := Config{
			Dataset: settings.Dataset{Name: c.given, Dir: c.given},
			Engine:  settings.Engine{Library: c.given}, Output: Output{Dir: c.given},
			Extractor: settings.Extractor{Model: c.given},
			Predictor: settings.Predictor{Model: c.given},
			Embedding: settings.Embedding{Model: c.given},
			Privacy:   settings.Privacy{Model: c.given},
			Scores:    Scores{Other: []string{c.given}},
		}
		given := p
		label := p.Dataset.Label()
		p = p.Portable()
		if p.Extractor.Model != c.model || p.Predictor.Model != c.model ||
			p.Embedding.Model != c.model || p.Privacy.Model != c.model {
			t.Errorf("%q: models %q, %q, %q, %q; want %q", c.given, p.Extractor.Model, p.Predictor.Model,
				p.Embedding.Model, p.Privacy.Model, c.model)
		}
		if p.Scores.Other[0] != c.dataset || given.Scores.Other[0] != c.given {
			t.Errorf("%q: other images %q of %q; want %q", c.given, p.Scores.Other, given.Scores.Other, c.dataset)
		}
		for at, of := range map[string]Config{"there": given, "elsewhere": p} {
			if of = of.deciding(); of.Scores.Other[0] != c.label {
				t.Errorf("%q, %s: other images %q decide; want %q", c.given, at, of.Scores.Other, c.label)
			}
		}
		if p.Dataset.Name != c.dataset || label != c.label || p.Dataset.Label() != c.label {
			t.Errorf("%q: data set %q called %q; want %q called %q", c.given, p.Dataset.Name, label,
				c.dataset, c.label)
		}
		if p.Dataset.Dir != c.folder || p.Output.Dir != c.folder || p.Engine.Library != c.folder {
			t.Errorf("%q: folders %q, %q and library %q; want %q", c.given, p.Dataset.Dir, p.Output.Dir,
				p.Engine.Library, c.folder)
		}
		if again := p.Portable(); again.Dataset != p.Dataset ||
			again.Extractor.Model != p.Extractor.Model {
			t.Errorf("%q: not the same twice", c.given)
		}
	}
}

// TestFileNames: models that come with the program, or are left out, are no files; that of private
// rounds is named where there are such.
func TestFileNames(t *testing.T) {
	const file = "/far/mine.onnx"
	for _, x := range []struct {
		epsilon                   float64
		model, conjugate, private string
	}{{0, "default", "", ""}, {0, "untrained", "", ""}, {0, "none", "", ""}, {0, file, "mine.onnx", ""},
		{1, file, "mine.onnx", "mine.onnx"}, {1, "default", "", ""}} {
		c := Default()
		c.Privacy.Epsilon, c.Privacy.Model, c.Conjugate.Model = x.epsilon, x.model, x.model
		if got := c.fileNames(); got["conjugate"] != x.conjugate || got["private"] != x.private {
			t.Errorf("%g, %s: %v; want %q and %q", x.epsilon, x.model, got, x.conjugate, x.private)
		}
	}
}

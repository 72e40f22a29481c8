package experiment

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fmp/onnx/must"
	"fmp/pipeline/option"
	"fmp/pipeline/posterior"
)

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

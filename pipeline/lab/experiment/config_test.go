package experiment

import (
	"math"
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/pool"
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

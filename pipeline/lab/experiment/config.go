// Package experiment runs the comparison of methods: it reads a configuration and writes a
// directory of results. Images become feature rows, clients are drawn from them, every method
// predicts the test images, and each cell (one method on one task) becomes one record of scores.
// The same configuration and seed give the same bytes.
package experiment

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fmp/featurize/dataset"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/option"
	"fmp/pipeline/settings"
)

// Config holds every setting of a run; package option defines its tags.
type Config struct {
	Seed       uint64              `yaml:"seed" json:"seed" default:"1" doc:"seed that every random stream of the run is named under"`
	Seeds      int                 `yaml:"seeds" json:"seeds" default:"5" allowed:"1..1000" doc:"number of repeats, each with clients of its own"`
	Dataset    settings.Dataset    `yaml:"dataset" json:"dataset"`
	Corpus     Corpus              `yaml:"corpus" json:"corpus"`
	Extractor  settings.Extractor  `yaml:"extractor" json:"extractor"`
	Federation settings.Federation `yaml:"federation" json:"federation"`
	Conjugate  settings.Conjugate  `yaml:"conjugate" json:"conjugate"`
	Predictor  settings.Predictor  `yaml:"predictor" json:"predictor"`
	Embedding  settings.Embedding  `yaml:"embedding" json:"embedding"`
	Open       settings.OpenModel  `yaml:"open" json:"open"`
	Privacy    settings.Privacy    `yaml:"privacy" json:"privacy,omitzero"`
	ERM        settings.ERM        `yaml:"erm" json:"erm"`
	Posterior  Posterior           `yaml:"posterior" json:"posterior"`
	Protocol   string              `yaml:"protocol" json:"protocol" default:"shared" allowed:"shared|tuned|both|calibrated" doc:"one L2 for all methods; or each method's own setting and temperature chosen on the corpus by NLL (tuned); or, without a corpus, by the calibration points that clients of FMP send, of features as these embed them (calibrated)"`
	Methods    []string            `yaml:"methods,flow" json:"methods" default:"" allowed:"@methods" check:"no" doc:"methods to run, in the order of the table; empty means all"`
	Engine     settings.Engine     `yaml:"engine" json:"engine"`
	Tasks      settings.Tasks      `yaml:"tasks" json:"tasks"`
	Tuning     Tuning              `yaml:"tuning" json:"tuning"`
	Scores     Scores              `yaml:"scores" json:"scores"`
	Output     Output              `yaml:"output" json:"output"`
}

// Corpus names the images that the server has: those that trained the extractor and form the
// meta-training corpus. By default they are of the tasks' classes (closed scope). If another data
// set or other classes are named here, the tasks' classes are ones that the server has never seen
// (open scope): dataset.splits.extractor and .corpus then split the data named here, and all
// training images of the tasks' data set belong to its clients.
type Corpus struct {
	Dataset string `yaml:"dataset" json:"dataset" default:"" doc:"data set of extractor and corpus where it is not the tasks': tasks are then of classes that the server has not seen"`
	Classes string `yaml:"classes" json:"classes" default:"" doc:"classes of extractor and corpus where they are not the tasks', as in dataset.classes; empty means all, or dataset.classes where corpus.dataset is empty too"`
}

// Default returns the configuration of a run on the embedded digits.
func Default() Config { return option.Default[Config]() }

// Lists holds the names of the methods, which are looked up ignoring case, and of the data sets.
func (*Config) Lists() map[string]func() []string {
	return map[string]func() []string{"methods": rival.Names, "datasets": dataset.Names}
}

// OpenScope reports whether the server's corpus has another data set or other classes than the
// tasks.
func (c *Config) OpenScope() bool { return c.Corpus != Corpus{} }

// corpus returns the data set of the server's corpus.
func (c *Config) corpus() settings.Dataset {
	d := c.Dataset
	if c.OpenScope() {
		d.Classes, d.Splits.Test = c.Corpus.Classes, 0
		if c.Corpus.Dataset != "" {
			d.Name = c.Corpus.Dataset
		}
	}
	return d
}

// TaskSplits returns the parts of the tasks' data set; in open scope all training images are the
// clients'.
func (c *Config) TaskSplits() settings.Splits {
	s := c.Dataset.Splits
	if c.OpenScope() {
		s.Extractor, s.Corpus, s.Clients = 0, 0, 1
	}
	return s
}

// sameSet reports whether a data set of that name is the tasks'.
func (c *Config) sameSet(name string) bool {
	return dataset.Same(c.Dataset.Name, name, c.Dataset.Dir)
}

// Posterior sets how the posterior is sampled.
type Posterior struct {
	Samples   int    `yaml:"samples" json:"samples" default:"20" allowed:"1..10000" doc:"number S of posterior samples"`
	BNN       string `yaml:"bnn" json:"bnn" default:"hmc" allowed:"hmc|laplace" doc:"sampler of the Gaussian-prior posteriors"`
	Scope     string `yaml:"scope" json:"scope" default:"auto" allowed:"auto|closed|open" doc:"form of FMP: closed (the corpus has the tasks' classes), open (it lacks them), or auto: open where the uploads lie outside what the corpus's classes span"`
	Calibrate int    `yaml:"calibrate,omitempty" json:"calibrate,omitempty" default:"0" allowed:"0..1000" doc:"open scope: further images of each client, its calibration points, by which FMP chooses temperature and penalty; class means do not have them"`
	Consensus string `yaml:"consensus" json:"consensus" default:"diagonal" allowed:"diagonal|full" doc:"precision of the consensus methods; full is shrunk"`
}

// Scores sets the measurements beyond those on the test images.
type Scores struct {
	Coverage    bool     `yaml:"coverage" json:"coverage" default:"true" doc:"hold 90% intervals against what all rows of corpus and clients' part would give"`
	Hindsight   bool     `yaml:"hindsight,omitempty" json:"hindsight,omitempty" default:"false" doc:"tune every method on the scored images themselves as well, a task at a time: a bound of what its settings could have given, and a column beside NLL"`
	Other       []string `yaml:"other,flow" json:"other" default:"" allowed:"@datasets|inverted|noise|FOLDER" doc:"images of none of the classes that predictions are told apart from: other data sets' test images, inverted (the test images with black and white exchanged), noise (uniform pixels)"`
	Corruptions bool     `yaml:"corruptions" json:"corruptions" default:"false" doc:"score spoiled test images: eight corruptions, five severities"`
	Images      int      `yaml:"images" json:"images" default:"1000" allowed:"10..100000" doc:"other images, and spoiled ones of a kind and severity, at most"`
	// Domains are labelled images of other domains that the run asks for, in place of all
	// corruptions; no setting.
	Domains []Domain `yaml:"-" json:"domains,omitempty"`
}

// Tuning sets how the tuned protocol chooses: for each partition and method, the value of the
// method's grid with the lowest mean NLL over tasks drawn from the corpus, or from classes that
// neither the corpus nor the tasks have.
type Tuning struct {
	Tasks   int    `yaml:"tasks" json:"tasks" default:"4" allowed:"1..100" doc:"corpus tasks that the tuned protocol scores every value on"`
	Points  int    `yaml:"points" json:"points" default:"500" allowed:"10..100000" doc:"held-out corpus images of one tuning task"`
	Classes string `yaml:"classes,omitempty" json:"classes,omitempty" default:"" doc:"open scope: classes of the corpus's data set that tuning tasks are drawn from, as in dataset.classes; neither the corpus's nor the tasks', so that the extractor has not learned them either; empty means the corpus's own classes, left out of it in turn"`
}

// Output sets where results are written.
type Output struct {
	Dir string `yaml:"dir" json:"dir" default:"" doc:"run directory; empty means runs/DATASET-DIGEST, which the settings decide"`
}

// FillDefaults replaces the settings left at 0 by values that suit the data set
// ([assets.DatasetDefaults]), dataset.classes only in closed scope, and returns the keys that it
// set. Methods get their own names, as those in another case are the same run.
func (c *Config) FillDefaults() []string {
	c.Methods = slices.Clone(c.Methods)
	for i, name := range c.Methods {
		if m, err := rival.Lookup(name); err == nil {
			c.Methods[i] = m.Info().Name
		}
	}
	if c.OpenScope() {
		return option.FillDefaults(c, c.Dataset.Name, "dataset.classes")
	}
	return option.FillDefaults(c, c.Dataset.Name)
}

// Validate checks every setting, by its tags and together with the others. It returns all
// violations, joined, or nil. It reads no file: models and data are checked as they are loaded.
func (c *Config) Validate() error {
	errs := option.Check(c)
	fail := func(key string, value any, allowed, next string) {
		errs = append(errs, option.Violation(key, value, allowed, next))
	}
	// A list of classes is checked as the data are read; a number of them can be checked here.
	for key, v := range map[string]string{"dataset.classes": c.Dataset.Classes,
		"corpus.classes": c.Corpus.Classes} {
		if n, err := strconv.Atoi(v); err == nil && n != 0 && (n < 2 || n > dataset.MaxClasses) {
			fail(key, n, fmt.Sprintf("2 to %d", dataset.MaxClasses),
				fmt.Sprintf("pass --set %s=N in that range", key))
		}
	}
	s := c.Dataset.Splits
	if sum := s.Extractor + s.Corpus + s.Clients; sum > 1+1e-9 {
		fail("dataset.splits", fmt.Sprintf("%g + %g + %g = %g", s.Extractor, s.Corpus,
			s.Clients, sum), "a sum of at most 1", "make a part smaller: the parts are disjoint")
	}
	if len(c.Extractor.Mean) != len(c.Extractor.Std) {
		fail("extractor.mean and extractor.std",
			fmt.Sprintf("%v and %v", c.Extractor.Mean, c.Extractor.Std),
			"both empty, or one number a channel in each", "give both")
	}
	if c.Federation.Partition != "homogeneous" && len(c.Federation.Alpha) == 0 {
		fail("federation.alpha", "[]", "one number or more", "pass --alpha 0.1, say")
	}
	for i, a := range c.Federation.Alpha {
		if slices.Contains(c.Federation.Alpha[:i], a) {
			fail("federation.alpha", c.Federation.Alpha, "different numbers", "give each once")
		}
	}
	c.checkScope(fail)
	for i, m := range c.Methods {
		again := func(other string) bool { return strings.EqualFold(other, m) }
		if m == "" || slices.ContainsFunc(c.Methods[:i], again) {
			fail("methods", c.Methods, "different names", "give each once")
		}
	}
	for i, name := range c.Scores.Other {
		again := func(s string) bool {
			return label(s) == label(name) || dataset.Same(s, name, c.Dataset.Dir)
		}
		if name == "" || c.sameSet(name) || slices.ContainsFunc(c.Scores.Other[:i], again) {
			fail("scores.other", c.Scores.Other,
				"other data sets of different names, inverted and noise, each once",
				"give others, or none")
		}
	}
	return errors.Join(errs...)
}

// checkScope fails for settings that do not go with the scope or the protocol of a run.
func (c *Config) checkScope(fail func(key string, value any, allowed, next string)) {
	if c.Tuning.Classes != "" && !c.OpenScope() {
		fail("tuning.classes", c.Tuning.Classes, "open scope (corpus.dataset or corpus.classes)",
			"leave it empty: in closed scope tuning tasks are of the corpus's classes")
	}
	if (c.Protocol == "tuned" || c.Protocol == "both") && c.Dataset.Splits.Corpus == 0 {
		fail("protocol", c.Protocol, "shared or calibrated where dataset.splits.corpus is 0",
			"give the corpus a part: tuning needs it")
	}
	if c.Federation.Calibration == 0 && c.Protocol == protocolCalibrated {
		fail("federation.calibration", 0, "1 to 10 with the protocol calibrated",
			"rivals choose by these points; protocol shared does without")
	}
	if c.Posterior.Calibrate > 0 && (c.Protocol != "shared" || !c.OpenScope()) {
		fail("posterior.calibrate", c.Posterior.Calibrate,
			"0 with another protocol than shared, and in closed scope",
			"calibration points choose the temperature themselves, where the corpus "+
				"lacks the classes")
	}
}

// Partition is one way to spread classes over clients.
type Partition struct {
	// Alpha is the concentration of the Dirichlet distribution of each client's class proportions;
	// 0 means homogeneous: uniform proportions everywhere.
	Alpha float64
}

// Name returns "homogeneous" or "dirichlet-ALPHA", the partition's name in results files.
func (p Partition) Name() string {
	if p.Alpha == 0 {
		return "homogeneous"
	}
	return fmt.Sprintf("dirichlet-%g", p.Alpha)
}

// stream names the random numbers of the task of a partition and a repeat. Tasks of different
// streams can run in any order.
func (p Partition) stream(repeat int) string { return fmt.Sprintf("%s/%d", p.Name(), repeat) }

// Partitions returns the partitions that the settings ask for.
func (c *Config) Partitions() []Partition {
	var ps []Partition
	if c.Federation.Partition != "dirichlet" {
		ps = append(ps, Partition{})
	}
	if c.Federation.Partition != "homogeneous" {
		for _, a := range c.Federation.Alpha {
			ps = append(ps, Partition{Alpha: a})
		}
	}
	return ps
}

// Protocols returns the protocols that the settings ask for.
func (c *Config) Protocols() []string {
	if c.Protocol == "both" {
		return []string{"shared", "tuned"}
	}
	return []string{c.Protocol}
}

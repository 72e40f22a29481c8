// Package experiment runs the comparison of methods: a configuration in, a directory of results out.
// Images become feature rows, clients are drawn from them, every method answers the test images, and
// each answer becomes one line of figures. The same configuration and seed give the same bytes.
package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"fmp/featurize/extractor"
	"fmp/featurize/imagefile"
	"fmp/onnx/suggest"
)

// Config holds every setting of a run. The names in the tags are the keys of the settings file, of
// --set key=value and (upper case, dots as underscores) of the FMP_* environment. [Default] gives the
// defaults that the comments state; [Config.Validate] checks the ranges.
type Config struct {
	// Seed is the seed of the first repeat; repeat r uses streams of (Seed, r). Default 1.
	Seed uint64 `mapstructure:"seed" yaml:"seed" json:"seed" doc:"seed that every random stream of the run is named under"`
	// Seeds is the number of repeats, 1 to 1000. Default 5.
	Seeds      int        `mapstructure:"seeds" yaml:"seeds" json:"seeds" doc:"number of repeats, each with clients of its own"`
	Dataset    Dataset    `mapstructure:"dataset" yaml:"dataset" json:"dataset"`
	Corpus     Corpus     `mapstructure:"corpus" yaml:"corpus" json:"corpus"`
	Extractor  Extractor  `mapstructure:"extractor" yaml:"extractor" json:"extractor"`
	Federation Federation `mapstructure:"federation" yaml:"federation" json:"federation"`
	Conjugate  Conjugate  `mapstructure:"conjugate" yaml:"conjugate" json:"conjugate"`
	Predictor  Predictor  `mapstructure:"predictor" yaml:"predictor" json:"predictor"`
	Embedding  Embedding  `mapstructure:"embedding" yaml:"embedding" json:"embedding"`
	Open       OpenModel  `mapstructure:"open" yaml:"open" json:"open"`
	ERM        ERM        `mapstructure:"erm" yaml:"erm" json:"erm"`
	Posterior  Posterior  `mapstructure:"posterior" yaml:"posterior" json:"posterior"`
	// Protocol says whose hyper-parameters the methods use: shared (one L2 for all, heads as they come), tuned (each
	// method's own and a temperature, chosen on the meta-training corpus by NLL), or both. Default shared.
	Protocol string `mapstructure:"protocol" yaml:"protocol" json:"protocol" doc:"shared, tuned or both: one L2 for all methods, or each method's own setting and temperature chosen on the corpus"`
	// Methods are names of the registry in pipeline/posterior, in the order of the table; empty means all.
	Methods []string `mapstructure:"methods" yaml:"methods,flow" json:"methods" doc:"methods to run, of LANN, LBNN, LMP, ANN, BNN, MP, CANN, CBNN, CFMP, FMP, FMP-mean, FMP-ISAB, NCM, LDA, PLDA, Regression, FedCGS, GH-LDA, GH-QDA, Fed3R, FedPFT, PredBayes, PRIOR, Corpus and FMP-named; empty means all"`
	Engine  Engine   `mapstructure:"engine" yaml:"engine" json:"engine"`
	Tasks   Tasks    `mapstructure:"tasks" yaml:"tasks" json:"tasks"`
	Tuning  Tuning   `mapstructure:"tuning" yaml:"tuning" json:"tuning"`
	Scores  Scores   `mapstructure:"scores" yaml:"scores" json:"scores"`
	Output  Output   `mapstructure:"output" yaml:"output" json:"output"`
}

// Dataset says which images.
type Dataset struct {
	// Name is digits (the embedded ones, default), digits-color, mnist, cifar10, cifar100, the name of a folder in
	// the data folder, or the path of a folder (see fmp/featurize/dataset).
	Name string `mapstructure:"name" yaml:"name" json:"name" doc:"digits, digits-color, mnist, cifar10, cifar100, or a folder of images by class"`
	// Dir is the data folder; "" means $FMP_DATA, then the cache.
	Dir string `mapstructure:"dir" yaml:"dir" json:"dir" doc:"data folder; empty means $FMP_DATA, then the cache"`
	// Classes says which classes to keep: how many (the first ones), or a list of names, numbers from 0 and ranges
	// ("cat,dog", "0,3,7-9"); "" (default) means all, and 20 for cifar100.
	Classes string `mapstructure:"classes" yaml:"classes" json:"classes" doc:"classes to keep: how many, or names, numbers and ranges (0,3,7-9); empty means all, and 20 for cifar100"`
	// Bad is fail (default) or skip: what to do about images of a folder that cannot be read. All are named either way.
	Bad string `mapstructure:"bad" yaml:"bad" json:"bad,omitempty" doc:"fail or skip: what to do about images of a folder that cannot be read; all are named"`
	// Splits cuts the training images into disjoint parts.
	Splits Splits `mapstructure:"splits" yaml:"splits" json:"splits"`
	// Test is the most test images used, the first ones of the file; 0 means all. Default 0.
	Test int `mapstructure:"test" yaml:"test" json:"test" doc:"most test images used; 0 means all"`
}

// Corpus says whose images the server has: those that trained the extractor and make the meta-training corpus.
// By default they are of the classes of the tasks (closed scope). Where another data set or other classes are named here,
// the tasks are of classes that the server has never seen (open scope): dataset.splits.extractor and .corpus then cut
// the data named here, and all training images of the tasks' data set are its clients'.
type Corpus struct {
	// Dataset is the name of a data set as in dataset.name; "" (default) means that one.
	Dataset string `mapstructure:"dataset" yaml:"dataset" json:"dataset" doc:"data set of extractor and corpus where it is not the tasks': tasks are then of classes that the server has not seen"`
	// Classes are those of the corpus, as in dataset.classes; "" (default) means all, or dataset.classes where
	// Dataset is empty.
	Classes string `mapstructure:"classes" yaml:"classes" json:"classes" doc:"classes of extractor and corpus where they are not the tasks', as in dataset.classes"`
}

// OpenScope says whether the server's corpus is of another data set or of other classes than the tasks.
func (c *Config) OpenScope() bool { return c.Corpus != Corpus{} }

// corpus is the data set of the server's corpus.
func (c *Config) corpus() Dataset {
	d := c.Dataset
	if c.OpenScope() {
		d.Classes, d.Splits.Test = c.Corpus.Classes, 0
		if c.Corpus.Dataset != "" {
			d.Name = c.Corpus.Dataset
		}
	}
	return d
}

// Splits are the fractions of the training images, in the order of the file: the extractor's part, then
// the meta-training corpus, then the new tasks' clients. Defaults 0.5, 0.375, 0.125; their sum is at most 1.
type Splits struct {
	Extractor float64 `mapstructure:"extractor" yaml:"extractor" json:"extractor" doc:"fraction of the training images that trains the extractor"`
	Corpus    float64 `mapstructure:"corpus" yaml:"corpus" json:"corpus" doc:"fraction that makes meta-training tasks and tunes settings"`
	Clients   float64 `mapstructure:"clients" yaml:"clients" json:"clients" doc:"fraction that new tasks' clients draw from"`
	// Test is the share of the training images, the last ones of each class, that are scored in place of test images
	// for classes that have none; the other parts are of what is left. Default 0.
	Test float64 `mapstructure:"test" yaml:"test" json:"test" doc:"fraction of the training images that is scored where a class has no test images; the others are fractions of the rest"`
}

// Extractor says how images become feature rows.
type Extractor struct {
	// Model is a file, or default: the shipped asset of the data set.
	Model string `mapstructure:"model" yaml:"model" json:"model" doc:"ONNX file of the extractor, or default for the shipped one"`
	// Batch is the number of images of one call, 1 to 65536. Default 256.
	Batch int `mapstructure:"batch" yaml:"batch" json:"batch" doc:"images of one extractor call"`
	// Mean and Std, one a channel, apply to pixels scaled to [0, 1]; empty means the model's manifest.
	Mean []float64 `mapstructure:"mean" yaml:"mean,flow" json:"mean" doc:"mean of each channel, pixels in [0, 1]; empty means the manifest's"`
	Std  []float64 `mapstructure:"std" yaml:"std,flow" json:"std" doc:"standard deviation of each channel; empty means the manifest's"`
	// Preset names the preprocessing of a family of models; it fills in mean, std, scale and channels.
	Preset string `mapstructure:"preset" yaml:"preset,omitempty" json:"preset,omitempty" doc:"preprocessing of a family of models: imagenet, clip, caffe, 0-1, -1-1 or 0-255"`
	// Scale is 0-1 or 0-255; empty means 0-1.
	Scale string `mapstructure:"scale" yaml:"scale,omitempty" json:"scale,omitempty" doc:"0-1 or 0-255: pixels that mean and std belong to; empty means 0-1"`
	// Channels is rgb or bgr; empty means rgb.
	Channels string `mapstructure:"channels" yaml:"channels,omitempty" json:"channels,omitempty" doc:"rgb or bgr: the order that the model takes; empty means rgb"`
	// Resize is stretch, crop or pad; empty means stretch.
	Resize string `mapstructure:"resize" yaml:"resize,omitempty" json:"resize,omitempty" doc:"stretch, crop or pad: how images of another shape are brought to the model's; empty means stretch"`
	// Layout is auto (default: read from the model's input), nchw or nhwc.
	Layout string `mapstructure:"layout" yaml:"layout" json:"layout" doc:"auto, nchw or nhwc"`
	// Output names the output that holds the features; "" means the only or clearly right one.
	Output string `mapstructure:"output" yaml:"output" json:"output" doc:"output that holds the features; empty where it is clear"`
}

// Federation says who the clients are.
type Federation struct {
	// Clients is M, 1 to 10000. Default 10.
	Clients int `mapstructure:"clients" yaml:"clients" json:"clients" doc:"number of clients M"`
	// Points is n, the images of one client, 1 to 100000; 0 (default) means what suits the data set (see Suit).
	Points int `mapstructure:"points" yaml:"points" json:"points" doc:"images n that one client holds; 0 means 35 for mnist, 10 for cifar10, 40 for cifar100 and 20 for others"`
	// Partition is homogeneous (default), dirichlet, or both.
	Partition string `mapstructure:"partition" yaml:"partition" json:"partition" doc:"homogeneous, dirichlet or both"`
	// Alpha are the concentrations of the Dirichlet partitions, each 0.001 to 1000. Default 0.1, 0.5, 1, 5.
	Alpha []float64 `mapstructure:"alpha" yaml:"alpha,flow" json:"alpha" doc:"concentrations of the Dirichlet partitions"`
}

// Conjugate is the conjugate predictor, behind FMP and FMP-mean.
type Conjugate struct {
	// Model is a file; default: the shipped asset of the data set, else untrained; untrained: the moments of the corpus;
	// or none, which leaves its methods out.
	Model string `mapstructure:"model" yaml:"model" json:"model" doc:"ONNX file of the conjugate predictor, default, untrained (the moments of the corpus), or none"`
	// Samples is FMP's S, 1 to 10000. Default 100: they cost no fits.
	Samples int `mapstructure:"samples" yaml:"samples" json:"samples" doc:"number S of FMP's posterior samples, which cost no fits"`
	// Latent is shared (default): one for all points of a sample; or none: FMP is one head, that of its posterior means.
	Latent string `mapstructure:"latent" yaml:"latent" json:"latent" doc:"shared, or none: FMP is the one head of its posterior means, for what the latent is worth"`
}

// Predictor draws new points for the letter's martingale posteriors, MP, LMP, CFMP and FMP-ISAB.
type Predictor struct {
	// Model is a file; default: the shipped asset of the data set, else untrained; or untrained.
	Model string `mapstructure:"model" yaml:"model" json:"model" doc:"ONNX file of the predictor, default, or untrained"`
	// Fresh is n', the number of drawn points, 1 to 100000; 0 (default) means what suits the data set (see Suit).
	Fresh int `mapstructure:"fresh" yaml:"fresh" json:"fresh" doc:"number n' of points drawn for one posterior sample; 0 means 200 for cifar100 and 100 for others"`
}

// Embedding compresses a client.
type Embedding struct {
	// Model is a file; default: the shipped asset of the data set, else untrained; or untrained.
	Model string `mapstructure:"model" yaml:"model" json:"model" doc:"ONNX file of the embedding, default, or untrained"`
	// Size is s, the points of an upload, up to 10000; 0 (default) means the model file's, and the number of
	// classes where it is untrained. A model file's own size must agree.
	Size int `mapstructure:"size" yaml:"size" json:"size" doc:"number s of points in an upload; 0 means the model's own, or one a class"`
	// Weights is masses (default: each seed's share of the points) or constant (n/s).
	Weights string `mapstructure:"weights" yaml:"weights" json:"weights" doc:"masses or constant: what weight an uploaded point carries"`
}

// OpenModel is the predictor of tasks on classes that the corpus lacks.
type OpenModel struct {
	// Model is a file; default: the shipped asset of the corpus's data set, else untrained; or untrained: the moments of the corpus,
	// with scalars as training starts with; or none.
	Model string `mapstructure:"model" yaml:"model" json:"model" doc:"ONNX file of the open predictor, default, untrained, or none"`
}

// ERM is the fit of the head.
type ERM struct {
	// L2 is lambda of the sum-form objective, 1e-6 to 1e6; 0 (default) means what suits the data set (see Suit).
	L2 float64 `mapstructure:"l2" yaml:"l2" json:"l2" doc:"L2 penalty of the head (sum form); 0 means 0.1 for mnist, 1 for digits, 7 for cifar, 3 for others"`
	// Tolerance is the gradient norm, relative to that at zero, at which Newton stops, 1e-12 to 1e-2. Default 1e-8: no figure of a run then moves by 1e-6.
	Tolerance float64 `mapstructure:"tolerance" yaml:"tolerance" json:"tolerance" doc:"relative gradient norm at which the fit stops"`
}

// Posterior is how the posterior is sampled.
type Posterior struct {
	// Samples is S, 1 to 10000. Default 20.
	Samples int `mapstructure:"samples" yaml:"samples" json:"samples" doc:"number S of posterior samples"`
	// BNN is hmc (default) or laplace.
	BNN string `mapstructure:"bnn" yaml:"bnn" json:"bnn" doc:"hmc or laplace: sampler of the Gaussian-prior posteriors"`
	// Scope is auto (default: FMP takes its open form where the uploads lie outside what the corpus's classes span), closed or open.
	Scope string `mapstructure:"scope" yaml:"scope" json:"scope" doc:"form of FMP: closed (the corpus has the tasks' classes), open (it lacks them), or auto: as the uploads say"`
	// Consensus is diagonal (default) or full (shrunk covariance).
	Consensus string `mapstructure:"consensus" yaml:"consensus" json:"consensus" doc:"diagonal or full: precision of the consensus methods"`
}

// Scores are measurements beside those of the test images.
type Scores struct {
	// Coverage holds the posteriors' 90% intervals against what all rows of corpus and clients' part would give. Default
	// true.
	Coverage bool `mapstructure:"coverage" yaml:"coverage" json:"coverage" doc:"hold 90% intervals against the limit of infinite data"`
	// Other are images that show none of the classes: names of data sets (their test images), inverted (the test images with
	// black and white exchanged), noise (uniform pixels). Default none.
	Other []string `mapstructure:"other" yaml:"other,flow" json:"other" doc:"images of none of the classes that predictions are told apart from: data sets, inverted, noise"`
	// Corruptions spoils the test images in eight ways and five severities each (see fmp/featurize/corrupt). Default false.
	Corruptions bool `mapstructure:"corruptions" yaml:"corruptions" json:"corruptions" doc:"score spoiled test images: eight corruptions, five severities"`
	// Images is how many images of each kind there are at most, 10 to 100000. Default 1000.
	Images int `mapstructure:"images" yaml:"images" json:"images" doc:"other images, and spoiled ones of a kind and severity, at most"`
}

// Engine is what executes models.
type Engine struct {
	// Name is auto (default: ort where its library is found, else pure), ort or pure.
	Name string `mapstructure:"name" yaml:"name" json:"name" doc:"auto, ort or pure"`
	// Provider is the ONNX Runtime's execution provider: cpu (default), cuda, coreml or dml.
	Provider string `mapstructure:"provider" yaml:"provider" json:"provider" doc:"execution provider of the ONNX Runtime: cpu, cuda, coreml or dml"`
	// Threads is how many threads the run uses, 0 to 1024; 0 (default) means one a core. No figure depends on it.
	Threads int `mapstructure:"threads" yaml:"threads" json:"threads" doc:"threads; 0 means one a core; no figure depends on it"`
	// Library is the ONNX Runtime's shared library; "" searches.
	Library string `mapstructure:"library" yaml:"library" json:"library" doc:"path of the ONNX Runtime library; empty searches"`
}

// Tasks is the meta-training's choice of tasks.
type Tasks struct {
	// Labels is permuted (default: every task names its classes differently) or fixed.
	Labels string `mapstructure:"labels" yaml:"labels" json:"labels" doc:"permuted or fixed names of classes in meta-training tasks"`
}

// Tuning is how the tuned protocol chooses: for each partition and method, the value of the method's grid
// with the lowest mean NLL over tasks drawn from the corpus.
type Tuning struct {
	// Tasks is the number of tasks, 1 to 100. Default 4.
	Tasks int `mapstructure:"tasks" yaml:"tasks" json:"tasks" doc:"corpus tasks that the tuned protocol scores every value on"`
	// Points is the held-out corpus images that score a task, 10 to 100000. Default 500.
	Points int `mapstructure:"points" yaml:"points" json:"points" doc:"held-out corpus images of one tuning task"`
}

// Output is where results go.
type Output struct {
	// Dir is the run directory; "" means runs/NAME-DIGEST, which the settings decide.
	Dir string `mapstructure:"dir" yaml:"dir" json:"dir" doc:"run directory; empty means runs/DATASET-DIGEST"`
}

// Default is the configuration of a run on the embedded digits.
func Default() Config {
	return Config{
		Seed: 1, Seeds: 5,
		Dataset:    Dataset{Name: "digits", Bad: "fail", Splits: Splits{Extractor: 0.5, Corpus: 0.375, Clients: 0.125}},
		Extractor:  Extractor{Model: "default", Batch: 256, Mean: []float64{}, Std: []float64{}, Layout: "auto"},
		Federation: Federation{Clients: 10, Partition: "homogeneous", Alpha: []float64{0.1, 0.5, 1, 5}},
		Conjugate:  Conjugate{Model: "default", Samples: 100, Latent: "shared"},
		Predictor:  Predictor{Model: "default"},
		Embedding:  Embedding{Model: "default", Weights: "masses"},
		Open:       OpenModel{Model: "default"},
		ERM:        ERM{Tolerance: 1e-8},
		Posterior:  Posterior{Samples: 20, BNN: "hmc", Consensus: "diagonal", Scope: "auto"},
		Protocol:   "shared",
		Methods:    []string{},
		Engine:     Engine{Name: "auto", Provider: "cpu"},
		Tasks:      Tasks{Labels: "permuted"},
		Tuning:     Tuning{Tasks: 4, Points: 500},
		Scores:     Scores{Coverage: true, Other: []string{}, Images: 1000},
	}
}

// Suit gives the settings that were left at 0 the values that suit the data set, those that its shipped
// predictor and embedding were trained for, and returns their keys: erm.l2 (0.1 for MNIST, 1 for the digits, 7 for
// CIFAR, else 3: about where the meta-training corpus is most likely to the methods that see all points, ANN, BNN,
// MP and FMP), dataset.classes (20 for CIFAR-100 in closed scope), federation.points (10 for CIFAR-10, 35 for MNIST, 40 for CIFAR-100, else 20) and
// predictor.fresh (200 for CIFAR-100, else 100).
func (c *Config) Suit() []string {
	l2, points, fresh := 3.0, 20, 100
	// The points of the letter's data sets are those with which a client alone, behind our extractors, is about as accurate
	// as in the letter's Table I, which does not say its sizes.
	switch c.Dataset.Name {
	case "digits", "digits-color":
		l2 = 1
	case "mnist":
		l2, points = 0.1, 35
	case "cifar10":
		l2, points = 7, 10
	case "cifar100":
		l2, points, fresh = 7, 40, 200
	}
	var keys []string
	if c.Dataset.Name == "cifar100" && c.Dataset.Classes == "" && !c.OpenScope() {
		c.Dataset.Classes, keys = "20", append(keys, "dataset.classes")
	}
	if c.ERM.L2 == 0 {
		c.ERM.L2, keys = l2, append(keys, "erm.l2")
	}
	if c.Federation.Points == 0 {
		c.Federation.Points, keys = points, append(keys, "federation.points")
	}
	if c.Predictor.Fresh == 0 {
		c.Predictor.Fresh, keys = fresh, append(keys, "predictor.fresh")
	}
	return keys
}

// Validate checks every setting's range and returns all violations, joined, or nil.
func (c *Config) Validate() error {
	var errs []error
	fail := func(key string, value any, allowed, next string) {
		errs = append(errs, fmt.Errorf("setting %s is %v; allowed is %s: %s", key, value, allowed, next))
	}
	integer := func(key string, v, lo, hi int) {
		if v < lo || v > hi {
			fail(key, v, fmt.Sprintf("%d to %d", lo, hi), fmt.Sprintf("pass --set %s=N in that range", key))
		}
	}
	real := func(key string, v, lo, hi float64) {
		if math.IsNaN(v) || v < lo || v > hi {
			fail(key, v, fmt.Sprintf("%g to %g", lo, hi), fmt.Sprintf("pass --set %s=X in that range", key))
		}
	}
	choice := func(key, v string, options ...string) {
		if !slices.Contains(options, v) {
			likely := cmp.Or(suggest.Nearest(v, options), options[0])
			fail(key, fmt.Sprintf("%q", v), strings.Join(options, ", "), fmt.Sprintf("pass --set %s=%s, say", key, likely))
		}
	}
	given := func(key, v, example string) {
		if v == "" {
			fail(key, `""`, "a file or a name", fmt.Sprintf("pass --set %s=%s, say", key, example))
		}
	}
	integer("seeds", c.Seeds, 1, 1000)
	given("dataset.name", c.Dataset.Name, "digits")
	for key, v := range map[string]string{"dataset.classes": c.Dataset.Classes, "corpus.classes": c.Corpus.Classes} {
		if n, err := strconv.Atoi(v); err == nil && n != 0 {
			integer(key, n, 2, 10_000)
		}
	}
	choice("dataset.bad", c.Dataset.Bad, "fail", "skip")
	integer("dataset.test", c.Dataset.Test, 0, 10_000_000)
	s := c.Dataset.Splits
	real("dataset.splits.extractor", s.Extractor, 0, 0.99)
	real("dataset.splits.corpus", s.Corpus, 0, 0.99)
	real("dataset.splits.clients", s.Clients, 0.001, 1)
	real("dataset.splits.test", s.Test, 0, 0.99)
	if sum := s.Extractor + s.Corpus + s.Clients; sum > 1+1e-9 {
		fail("dataset.splits", fmt.Sprintf("%g + %g + %g = %g", s.Extractor, s.Corpus, s.Clients, sum), "a sum of at most 1", "make a part smaller: the parts are disjoint")
	}
	given("extractor.model", c.Extractor.Model, "default")
	integer("extractor.batch", c.Extractor.Batch, 1, 65536)
	for _, k := range []struct {
		key, value string
		allowed    []string
	}{
		{"extractor.preset", c.Extractor.Preset, extractor.PresetNames()},
		{"extractor.scale", c.Extractor.Scale, []string{extractor.Scale1, extractor.Scale255}},
		{"extractor.channels", c.Extractor.Channels, []string{extractor.RGB, extractor.BGR}},
		{"extractor.resize", c.Extractor.Resize, []string{string(imagefile.Stretch), string(imagefile.Crop), string(imagefile.Pad)}},
	} {
		if k.value != "" {
			choice(k.key, k.value, k.allowed...)
		}
	}
	choice("extractor.layout", c.Extractor.Layout, "auto", "nchw", "nhwc")
	if len(c.Extractor.Mean) != len(c.Extractor.Std) {
		fail("extractor.mean and extractor.std", fmt.Sprintf("%v and %v", c.Extractor.Mean, c.Extractor.Std), "both empty, or one number a channel in each", "give both")
	}
	for _, v := range c.Extractor.Mean {
		real("extractor.mean", v, -1e6, 1e6)
	}
	for _, v := range c.Extractor.Std {
		real("extractor.std", v, 1e-6, 1e6)
	}
	integer("federation.clients", c.Federation.Clients, 1, 10_000)
	integer("federation.points", c.Federation.Points, 0, 100_000)
	choice("federation.partition", c.Federation.Partition, "homogeneous", "dirichlet", "both")
	if c.Federation.Partition != "homogeneous" && len(c.Federation.Alpha) == 0 {
		fail("federation.alpha", "[]", "one number or more", "pass --alpha 0.1, say")
	}
	for i, a := range c.Federation.Alpha {
		real("federation.alpha", a, 1e-3, 1e3)
		if slices.Contains(c.Federation.Alpha[:i], a) {
			fail("federation.alpha", c.Federation.Alpha, "different numbers", "give each once")
		}
	}
	given("conjugate.model", c.Conjugate.Model, "untrained")
	integer("conjugate.samples", c.Conjugate.Samples, 1, 10_000)
	choice("conjugate.latent", c.Conjugate.Latent, "shared", "none")
	given("predictor.model", c.Predictor.Model, "untrained")
	integer("predictor.fresh", c.Predictor.Fresh, 0, 100_000)
	given("open.model", c.Open.Model, "untrained")
	given("embedding.model", c.Embedding.Model, "untrained")
	integer("embedding.size", c.Embedding.Size, 0, 10_000)
	choice("embedding.weights", c.Embedding.Weights, "masses", "constant")
	if c.ERM.L2 != 0 {
		real("erm.l2", c.ERM.L2, 1e-6, 1e6)
	}
	real("erm.tolerance", c.ERM.Tolerance, 1e-12, 1e-2)
	integer("posterior.samples", c.Posterior.Samples, 1, 10_000)
	choice("posterior.bnn", c.Posterior.BNN, "hmc", "laplace")
	choice("posterior.scope", c.Posterior.Scope, "auto", "closed", "open")
	choice("posterior.consensus", c.Posterior.Consensus, "diagonal", "full")
	choice("protocol", c.Protocol, "shared", "tuned", "both")
	if c.Protocol != "shared" && s.Corpus == 0 {
		fail("protocol", c.Protocol, "shared where dataset.splits.corpus is 0", "give the corpus a part: tuning needs it")
	}
	for i, m := range c.Methods {
		if m == "" || slices.Contains(c.Methods[:i], m) {
			fail("methods", c.Methods, "different names", "give each once")
		}
	}
	choice("engine.name", c.Engine.Name, "auto", "ort", "pure")
	choice("engine.provider", c.Engine.Provider, "cpu", "cuda", "coreml", "dml")
	integer("engine.threads", c.Engine.Threads, 0, 1024)
	choice("tasks.labels", c.Tasks.Labels, "permuted", "fixed")
	for i, name := range c.Scores.Other {
		if name == "" || name == c.Dataset.Name || slices.Contains(c.Scores.Other[:i], name) {
			fail("scores.other", c.Scores.Other, "names of other data sets, inverted and noise, each once", "give others, or none")
		}
	}
	if len(c.Scores.Other) > 0 || c.Scores.Corruptions {
		integer("scores.images", c.Scores.Images, 10, 100_000)
	}
	integer("tuning.tasks", c.Tuning.Tasks, 1, 100)
	integer("tuning.points", c.Tuning.Points, 10, 100_000)
	return errors.Join(errs...)
}

// Partition is one way to spread classes over clients.
type Partition struct {
	// Alpha is the concentration of the Dirichlet distribution of each client's class proportions; 0 means
	// homogeneous: uniform proportions everywhere.
	Alpha float64
}

// Name is "homogeneous" or "dirichlet-ALPHA": how results files call the partition.
func (p Partition) Name() string {
	if p.Alpha == 0 {
		return "homogeneous"
	}
	return fmt.Sprintf("dirichlet-%g", p.Alpha)
}

// Partitions lists the partitions that the settings ask for.
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

// Protocols lists the protocols that the settings ask for.
func (c *Config) Protocols() []string {
	if c.Protocol == "both" {
		return []string{"shared", "tuned"}
	}
	return []string{c.Protocol}
}

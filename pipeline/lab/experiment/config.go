// Package experiment runs the comparison of methods: it reads a configuration and writes a directory of results.
// Images become feature rows, clients are drawn from them, every method predicts the test images, and
// each cell (one method on one task) becomes one record of scores. The same configuration and seed give the same bytes.
package experiment

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"fmp/assets"
	"fmp/featurize/dataset"
	"fmp/pipeline/privacy"
)

// Config holds every setting of a run. Its tags describe each setting once; defaults, checks, flags, shell completion, `fmp config`
// and docs/settings.md are derived from them:
//
//	yaml, json  the key, in a settings file and as dotted path in --set KEY=VALUE, flags and FMP_* variables
//	default     the default value
//	allowed     the allowed values, for a list those of each element: alternatives separated by |, each a name, a range LOW..HIGH,
//	            a word in capitals for any text, or @LIST for the names of a list; without the tag, any value
//	doc         the description; {what} in it is replaced by the values that suit each data set
type Config struct {
	Seed       uint64     `yaml:"seed" json:"seed" default:"1" doc:"seed that every random stream of the run is named under"`
	Seeds      int        `yaml:"seeds" json:"seeds" default:"5" allowed:"1..1000" doc:"number of repeats, each with clients of its own"`
	Dataset    Dataset    `yaml:"dataset" json:"dataset"`
	Corpus     Corpus     `yaml:"corpus" json:"corpus"`
	Extractor  Extractor  `yaml:"extractor" json:"extractor"`
	Federation Federation `yaml:"federation" json:"federation"`
	Conjugate  Conjugate  `yaml:"conjugate" json:"conjugate"`
	Predictor  Predictor  `yaml:"predictor" json:"predictor"`
	Embedding  Embedding  `yaml:"embedding" json:"embedding"`
	Open       OpenModel  `yaml:"open" json:"open"`
	Privacy    Privacy    `yaml:"privacy" json:"privacy,omitzero"`
	ERM        ERM        `yaml:"erm" json:"erm"`
	Posterior  Posterior  `yaml:"posterior" json:"posterior"`
	Protocol   string     `yaml:"protocol" json:"protocol" default:"shared" allowed:"shared|tuned|both" doc:"one L2 for all methods, or each method's own setting and temperature chosen on the corpus by NLL"`
	Methods    []string   `yaml:"methods,flow" json:"methods" default:"" allowed:"@methods" doc:"methods to run, in the order of the table; empty means all"`
	Engine     Engine     `yaml:"engine" json:"engine"`
	Tasks      Tasks      `yaml:"tasks" json:"tasks"`
	Tuning     Tuning     `yaml:"tuning" json:"tuning"`
	Scores     Scores     `yaml:"scores" json:"scores"`
	Output     Output     `yaml:"output" json:"output"`
}

// Dataset names the tasks' images and how they are split.
type Dataset struct {
	Name    string `yaml:"name" json:"name" default:"digits" allowed:"@datasets|FOLDER" doc:"images: a data set, the name of a folder in the data folder, or the path of a folder of images by class"`
	Dir     string `yaml:"dir" json:"dir" default:"" doc:"data folder; empty means $FMP_DATA, then the cache"`
	Classes string `yaml:"classes" json:"classes" default:"" doc:"classes to keep: how many, or names, numbers from 0 and ranges (0,3,7-9); empty means {classes}"`
	Bad     string `yaml:"bad" json:"bad,omitempty" default:"fail" allowed:"fail|skip" doc:"what to do about images of a folder that cannot be read; all are named"`
	// Splits cuts the training images into disjoint parts.
	Splits Splits `yaml:"splits" json:"splits"`
	Test   int    `yaml:"test" json:"test" default:"0" allowed:"0..10000000" doc:"most test images used, the first ones of the file; 0 means all"`
}

// Corpus names the images that the server has: those that trained the extractor and form the meta-training corpus.
// By default they are of the tasks' classes (closed scope). If another data set or other classes are named here,
// the tasks' classes are ones that the server has never seen (open scope): dataset.splits.extractor and .corpus then split
// the data named here, and all training images of the tasks' data set belong to its clients.
type Corpus struct {
	Dataset string `yaml:"dataset" json:"dataset" default:"" doc:"data set of extractor and corpus where it is not the tasks': tasks are then of classes that the server has not seen"`
	Classes string `yaml:"classes" json:"classes" default:"" doc:"classes of extractor and corpus where they are not the tasks', as in dataset.classes; empty means all, or dataset.classes where corpus.dataset is empty too"`
}

// OpenScope reports whether the server's corpus has another data set or other classes than the tasks.
func (c *Config) OpenScope() bool { return c.Corpus != Corpus{} }

// corpus returns the data set of the server's corpus.
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

// Splits are fractions of the training images, in the order of the file; extractor, corpus and clients sum to at most 1.
type Splits struct {
	Extractor float64 `yaml:"extractor" json:"extractor" default:"0.5" allowed:"0..0.99" doc:"fraction of the training images that trains the extractor"`
	Corpus    float64 `yaml:"corpus" json:"corpus" default:"0.375" allowed:"0..0.99" doc:"fraction that makes meta-training tasks and tunes settings"`
	Clients   float64 `yaml:"clients" json:"clients" default:"0.125" allowed:"0.001..1" doc:"fraction that new tasks' clients draw from"`
	Test      float64 `yaml:"test" json:"test" default:"0" allowed:"0..0.99" doc:"fraction of the training images, the last ones of each class, that is scored where a class has no test images; the others are fractions of the rest"`
}

// Extractor sets how images become feature rows.
type Extractor struct {
	Model    string    `yaml:"model" json:"model" default:"default" allowed:"default|FILE" doc:"ONNX file of the extractor; default: the shipped one of the data set"`
	Batch    int       `yaml:"batch" json:"batch" default:"256" allowed:"1..65536" doc:"images of one extractor call"`
	Mean     []float64 `yaml:"mean,flow" json:"mean" default:"" allowed:"-1e6..1e6" doc:"mean of each channel, pixels in [0, 1]; empty means the manifest's"`
	Std      []float64 `yaml:"std,flow" json:"std" default:"" allowed:"1e-6..1e6" doc:"standard deviation of each channel; empty means the manifest's"`
	Preset   string    `yaml:"preset,omitempty" json:"preset,omitempty" default:"" allowed:"|@presets" doc:"preprocessing of a family of models: fills in mean, std, scale and channels"`
	Scale    string    `yaml:"scale,omitempty" json:"scale,omitempty" default:"" allowed:"|0-1|0-255" doc:"pixels that mean and std belong to; empty means 0-1"`
	Channels string    `yaml:"channels,omitempty" json:"channels,omitempty" default:"" allowed:"|rgb|bgr" doc:"order of channels that the model takes; empty means rgb"`
	Resize   string    `yaml:"resize,omitempty" json:"resize,omitempty" default:"" allowed:"|stretch|crop|pad" doc:"how images of another shape are brought to the model's; empty means stretch"`
	Layout   string    `yaml:"layout" json:"layout" default:"auto" allowed:"auto|nchw|nhwc" doc:"layout of the model's input; auto reads it from its shape"`
	Output   string    `yaml:"output" json:"output" default:"" doc:"output that holds the features; empty where it is clear"`
}

// Federation sets how many clients there are and what each holds.
type Federation struct {
	Clients   int       `yaml:"clients" json:"clients" default:"10" allowed:"1..10000" doc:"number of clients M"`
	Points    int       `yaml:"points" json:"points" default:"0" allowed:"0..100000" doc:"images n that one client holds; 0 means {points}"`
	Partition string    `yaml:"partition" json:"partition" default:"homogeneous" allowed:"homogeneous|dirichlet|both" doc:"how classes are spread over clients"`
	Alpha     []float64 `yaml:"alpha,flow" json:"alpha" default:"0.1, 0.5, 1, 5" allowed:"0.001..1000" doc:"concentrations of the Dirichlet partitions"`
}

// Conjugate sets the conjugate predictor, used by FMP and FMP-mean.
type Conjugate struct {
	Model   string `yaml:"model" json:"model" default:"default" allowed:"default|untrained|none|FILE" doc:"ONNX file of the conjugate predictor; default: the shipped one, else untrained: the moments of the corpus; none leaves its methods out"`
	Samples int    `yaml:"samples" json:"samples" default:"100" allowed:"1..10000" doc:"number S of FMP's posterior samples, which cost a fit each in open scope alone"`
	Latent  string `yaml:"latent" json:"latent" default:"shared" allowed:"shared|none" doc:"latent of a sample: one for all its points, or none: FMP is the one head of its posterior means, for what the latent is worth"`
}

// Predictor sets the model that draws new points for the letter's martingale posteriors: MP, LMP, CFMP and FMP-ISAB.
type Predictor struct {
	Model string `yaml:"model" json:"model" default:"default" allowed:"default|untrained|FILE" doc:"ONNX file of the predictor; default: the shipped one, else untrained"`
	Fresh int    `yaml:"fresh" json:"fresh" default:"0" allowed:"0..100000" doc:"number n' of points drawn for one posterior sample; 0 means {fresh}"`
}

// Embedding sets the model that compresses a client's points.
type Embedding struct {
	Model   string `yaml:"model" json:"model" default:"default" allowed:"default|untrained|FILE" doc:"ONNX file of the embedding; default: the shipped one, else untrained"`
	Size    int    `yaml:"size" json:"size" default:"0" allowed:"0..10000" doc:"number s of points in an upload, that of the model file where there is one; 0 means the model's own, or one a class"`
	Weights string `yaml:"weights" json:"weights" default:"masses" allowed:"masses|constant" doc:"what weight an uploaded point carries: its share of the points, or n/s"`
}

// OpenModel sets the predictor for tasks on classes that the corpus lacks.
type OpenModel struct {
	Model string `yaml:"model" json:"model" default:"default" allowed:"default|untrained|none|FILE" doc:"ONNX file of the open predictor; default: the shipped one of the corpus's data set, else untrained: the moments of the corpus, and scalars as training starts with"`
}

// Privacy is the privacy budget of private rounds. Its methods, FMP-DP, FMP-DP-plugin and FedPFT-DP, run if Epsilon is above 0.
type Privacy struct {
	Epsilon  float64 `yaml:"epsilon" json:"epsilon" default:"0" allowed:"0|0.01..20" doc:"epsilon of private rounds: what one unit can change, as a log likelihood ratio; 0 for none"`
	Delta    float64 `yaml:"delta" json:"delta" default:"1e-5" allowed:"1e-12..1e-2" doc:"delta of private rounds: the probability with which epsilon does not hold"`
	Unit     string  `yaml:"unit" json:"unit" default:"example" allowed:"example|client" doc:"what is protected: one image, or all of a client's"`
	Relation string  `yaml:"relation" json:"relation" default:"add-remove" allowed:"add-remove|replace-one" doc:"how data that are to look alike differ"`
	Noise    string  `yaml:"noise" json:"noise" default:"trusted" allowed:"trusted|two-servers|local" doc:"who adds the noise: the server once, each of two servers, or every client"`
	Model    string  `yaml:"model" json:"model" default:"default" allowed:"default|FILE" doc:"ONNX file of the private predictor; default: the shipped one of the corpus's data set"`
}

// budget returns the budget for clients with the given number of points; nil without private rounds.
func (p *Privacy) budget(points int) *privacy.Budget {
	if p.Epsilon == 0 {
		return nil
	}
	return &privacy.Budget{Epsilon: p.Epsilon, Delta: p.Delta, Unit: p.Unit, Relation: p.Relation, Noise: p.Noise, Points: points}
}

// ERM sets the fit of the head.
type ERM struct {
	L2 float64 `yaml:"l2" json:"l2" default:"0" allowed:"0|1e-6..1e6" doc:"L2 penalty of the head (sum form); 0 means {l2}"`
	// With the default no figure of a run moves by 1e-6.
	Tolerance float64 `yaml:"tolerance" json:"tolerance" default:"1e-8" allowed:"1e-12..0.01" doc:"gradient norm, relative to that at zero, at which the fit stops"`
}

// Posterior sets how the posterior is sampled.
type Posterior struct {
	Samples   int    `yaml:"samples" json:"samples" default:"20" allowed:"1..10000" doc:"number S of posterior samples"`
	BNN       string `yaml:"bnn" json:"bnn" default:"hmc" allowed:"hmc|laplace" doc:"sampler of the Gaussian-prior posteriors"`
	Scope     string `yaml:"scope" json:"scope" default:"auto" allowed:"auto|closed|open" doc:"form of FMP: closed (the corpus has the tasks' classes), open (it lacks them), or auto: open where the uploads lie outside what the corpus's classes span"`
	Consensus string `yaml:"consensus" json:"consensus" default:"diagonal" allowed:"diagonal|full" doc:"precision of the consensus methods; full is shrunk"`
}

// Scores sets the measurements beyond those on the test images.
type Scores struct {
	Coverage    bool     `yaml:"coverage" json:"coverage" default:"true" doc:"hold 90% intervals against what all rows of corpus and clients' part would give"`
	Other       []string `yaml:"other,flow" json:"other" default:"" allowed:"@datasets|inverted|noise|FOLDER" doc:"images of none of the classes that predictions are told apart from: other data sets' test images, inverted (the test images with black and white exchanged), noise (uniform pixels)"`
	Corruptions bool     `yaml:"corruptions" json:"corruptions" default:"false" doc:"score spoiled test images: eight corruptions, five severities"`
	Images      int      `yaml:"images" json:"images" default:"1000" allowed:"10..100000" doc:"other images, and spoiled ones of a kind and severity, at most"`
}

// Engine sets what executes the models.
type Engine struct {
	Name     string `yaml:"name" json:"name" default:"auto" allowed:"auto|ort|pure" doc:"engine of the models: the ONNX Runtime, or Go alone; auto: ort where its library is found"`
	Provider string `yaml:"provider" json:"provider" default:"cpu" allowed:"cpu|cuda|coreml|dml" doc:"execution provider of the ONNX Runtime"`
	Threads  int    `yaml:"threads" json:"threads" default:"0" allowed:"0..1024" doc:"threads; 0 means one a core; no figure depends on it"`
	Library  string `yaml:"library" json:"library" default:"" doc:"path of the ONNX Runtime library; empty searches"`
}

// Tasks sets how meta-training draws its tasks.
type Tasks struct {
	Labels string `yaml:"labels" json:"labels" default:"permuted" allowed:"permuted|fixed" doc:"names of classes in meta-training tasks: another permutation for each task, or always the same"`
}

// Tuning sets how the tuned protocol chooses: for each partition and method, the value of the method's grid
// with the lowest mean NLL over tasks drawn from the corpus.
type Tuning struct {
	Tasks  int `yaml:"tasks" json:"tasks" default:"4" allowed:"1..100" doc:"corpus tasks that the tuned protocol scores every value on"`
	Points int `yaml:"points" json:"points" default:"500" allowed:"10..100000" doc:"held-out corpus images of one tuning task"`
}

// Output sets where results are written.
type Output struct {
	Dir string `yaml:"dir" json:"dir" default:"" doc:"run directory; empty means runs/DATASET-DIGEST, which the settings decide"`
}

// Suit replaces the settings left at 0 by values that suit the data set ([assets.Suits]), dataset.classes only in closed
// scope, and returns the keys that it set.
func (c *Config) Suit() []string {
	suits := assets.SuitsOf(c.Dataset.Name)
	var keys []string
	if c.Dataset.Classes == "" && suits.Classes != "" && !c.OpenScope() {
		c.Dataset.Classes, keys = suits.Classes, append(keys, "dataset.classes")
	}
	if c.ERM.L2 == 0 {
		c.ERM.L2, keys = suits.L2, append(keys, "erm.l2")
	}
	if c.Federation.Points == 0 {
		c.Federation.Points, keys = suits.Points, append(keys, "federation.points")
	}
	if c.Predictor.Fresh == 0 {
		c.Predictor.Fresh, keys = suits.Fresh, append(keys, "predictor.fresh")
	}
	return keys
}

// Validate checks every setting, by its tags and together with the others. It returns all violations, joined, or nil.
func (c *Config) Validate() error {
	var errs []error
	for _, s := range c.Settings() {
		errs = append(errs, s.check()...)
	}
	fail := func(key string, value any, allowed, next string) {
		errs = append(errs, violation(key, value, allowed, next))
	}
	for key, v := range map[string]string{"dataset.classes": c.Dataset.Classes, "corpus.classes": c.Corpus.Classes} {
		if n, err := strconv.Atoi(v); err == nil && n != 0 && (n < 2 || n > dataset.MaxClasses) {
			fail(key, n, fmt.Sprintf("2 to %d", dataset.MaxClasses), fmt.Sprintf("pass --set %s=N in that range", key))
		}
	}
	s := c.Dataset.Splits
	if sum := s.Extractor + s.Corpus + s.Clients; sum > 1+1e-9 {
		fail("dataset.splits", fmt.Sprintf("%g + %g + %g = %g", s.Extractor, s.Corpus, s.Clients, sum), "a sum of at most 1", "make a part smaller: the parts are disjoint")
	}
	if len(c.Extractor.Mean) != len(c.Extractor.Std) {
		fail("extractor.mean and extractor.std", fmt.Sprintf("%v and %v", c.Extractor.Mean, c.Extractor.Std), "both empty, or one number a channel in each", "give both")
	}
	if c.Federation.Partition != "homogeneous" && len(c.Federation.Alpha) == 0 {
		fail("federation.alpha", "[]", "one number or more", "pass --alpha 0.1, say")
	}
	for i, a := range c.Federation.Alpha {
		if slices.Contains(c.Federation.Alpha[:i], a) {
			fail("federation.alpha", c.Federation.Alpha, "different numbers", "give each once")
		}
	}
	if c.Protocol != "shared" && s.Corpus == 0 {
		fail("protocol", c.Protocol, "shared where dataset.splits.corpus is 0", "give the corpus a part: tuning needs it")
	}
	for i, m := range c.Methods {
		if m == "" || slices.Contains(c.Methods[:i], m) {
			fail("methods", c.Methods, "different names", "give each once")
		}
	}
	for i, name := range c.Scores.Other {
		if name == "" || name == c.Dataset.Name || slices.Contains(c.Scores.Other[:i], name) {
			fail("scores.other", c.Scores.Other, "names of other data sets, inverted and noise, each once", "give others, or none")
		}
	}
	return errors.Join(errs...)
}

// Partition is one way to spread classes over clients.
type Partition struct {
	// Alpha is the concentration of the Dirichlet distribution of each client's class proportions; 0 means
	// homogeneous: uniform proportions everywhere.
	Alpha float64
}

// Name returns "homogeneous" or "dirichlet-ALPHA", the partition's name in results files.
func (p Partition) Name() string {
	if p.Alpha == 0 {
		return "homogeneous"
	}
	return fmt.Sprintf("dirichlet-%g", p.Alpha)
}

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

// Package settings has the groups of settings that several commands read; package option reads
// their tags.
package settings

import (
	"fmt"
	"path/filepath"
	"strings"

	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/featurize/imagefile"
	"fmp/pipeline/option"
	"fmp/pipeline/privacy"
)

// Dataset names the tasks' images and how they are split.
type Dataset struct {
	Name    string `yaml:"name" json:"name" default:"digits" allowed:"@datasets|FOLDER" doc:"images: a data set, the name of a folder in the data folder, or the path of a folder of images by class"`
	Dir     string `yaml:"dir" json:"dir" default:"" doc:"data folder; empty means $FMP_DATA, then the cache"`
	Classes string `yaml:"classes" json:"classes" default:"" doc:"classes to keep: how many, or names, numbers and ranges (0,3,7-9), from 0 or those that folders are called by; empty means {classes}"`
	Bad     string `yaml:"bad" json:"bad,omitempty" default:"fail" allowed:"fail|skip" doc:"what to do about images of a folder that cannot be read; all are named"`
	// Splits cuts the training images into disjoint parts.
	Splits Splits `yaml:"splits" json:"splits"`
	Test   int    `yaml:"test" json:"test" default:"0" allowed:"0..10000000" doc:"most test images used, the first ones of the file, which may be easier or harder than all; 0 means all"`
}

// Lists names the data sets.
func (*Dataset) Lists() map[string]func() []string {
	return map[string]func() []string{"datasets": dataset.Names}
}

// Label returns the data set's name as used in results: for a folder its base name.
func (d Dataset) Label() string {
	if !strings.ContainsAny(d.Name, `/\`) {
		return d.Name
	}
	if abs, err := filepath.Abs(d.Name); err == nil {
		return filepath.Base(abs)
	}
	return filepath.Base(d.Name)
}

// Splits are fractions of the training images, in the order of the file; extractor, corpus and
// clients sum to at most 1.
type Splits struct {
	Extractor float64 `yaml:"extractor" json:"extractor" default:"0.5" allowed:"0..0.99" doc:"fraction of the training images that trains the extractor"`
	Corpus    float64 `yaml:"corpus" json:"corpus" default:"0.375" allowed:"0..0.99" doc:"fraction that makes meta-training tasks and tunes settings"`
	Clients   float64 `yaml:"clients" json:"clients" default:"0.125" allowed:"0.001..1" doc:"fraction that new tasks' clients draw from"`
	Test      float64 `yaml:"test" json:"test" default:"0" allowed:"0..0.99" doc:"fraction of the training images, the last ones of each class, that is scored where a class has no test images; the others are fractions of the rest"`
}

// Extractor sets how images become feature rows.
type Extractor struct {
	Model    string    `yaml:"model" json:"model" default:"default" allowed:"default|FILE" doc:"ONNX file of the extractor; default: the shipped one of the data set"`
	Batch    int       `yaml:"batch" json:"batch" default:"0" allowed:"0..65536" doc:"images of one extractor call; 0 means as many as about 512 MB hold, 256 at most"`
	Mean     []float64 `yaml:"mean,flow" json:"mean" default:"" allowed:"-1e6..1e6" doc:"mean of each channel, pixels in [0, 1]; empty means the manifest's"`
	Std      []float64 `yaml:"std,flow" json:"std" default:"" allowed:"1e-6..1e6" doc:"standard deviation of each channel; empty means the manifest's"`
	Preset   string    `yaml:"preset,omitempty" json:"preset,omitempty" default:"" allowed:"|@presets" doc:"preprocessing of a family of models: fills in mean, std, scale, channels and resize"`
	Scale    string    `yaml:"scale,omitempty" json:"scale,omitempty" default:"" allowed:"|0-1|0-255" doc:"pixels that mean and std belong to; empty means 0-1"`
	Channels string    `yaml:"channels,omitempty" json:"channels,omitempty" default:"" allowed:"|rgb|bgr" doc:"order of channels that the model takes; empty means rgb"`
	Resize   string    `yaml:"resize,omitempty" json:"resize,omitempty" default:"" allowed:"|stretch|crop|crop:SHARE|pad" check:"no" doc:"how images are brought to the model's shape; crop takes the largest central part, and crop:0.875 that share of it, also of images of that shape; empty means the preset's, or stretch"`
	Layout   string    `yaml:"layout" json:"layout" default:"auto" allowed:"auto|nchw|nhwc" doc:"layout of the model's input; auto reads it from its shape"`
	Output   string    `yaml:"output" json:"output" default:"" doc:"output, or value or layer inside the model, that gives the features; empty where it is clear"`
	Kappa    []float64 `yaml:"kappa,flow" json:"kappa,omitempty" default:"" allowed:"1e-3..100" doc:"uploads of moments: temperature in units of the classes' separation, which belongs to the extractor, and the standard deviation of its logarithm (fmp fuse learns both from labelled images); empty means that nothing is known"`
}

// Lists names the families of models.
func (*Extractor) Lists() map[string]func() []string {
	return map[string]func() []string{"presets": extractor.PresetNames}
}

// CheckGroup returns an error unless kappa is empty, or a median and a deviation, and resize is a
// way to resize.
func (x Extractor) CheckGroup() error {
	if n := len(x.Kappa); n != 0 && n != 2 {
		return option.Violation("extractor.kappa", x.Kappa, "a median and a deviation, or nothing",
			"pass --kappa 0.7,0.15, say")
	}
	if _, err := imagefile.ParseResize(x.Resize); err != nil {
		return fmt.Errorf("setting extractor.%w: pass --resize crop:0.9, say", err)
	}
	return nil
}

// Federation sets the number of clients and the partition of the images.
type Federation struct {
	Clients int `yaml:"clients" json:"clients" default:"10" allowed:"1..10000" doc:"number of clients M"`
	Points  int `yaml:"points" json:"points" default:"0" allowed:"0..100000" doc:"images n that one client holds; 0 means {points}"`
	// Calibration is that of clients that send moments.
	Calibration int       `yaml:"calibration" json:"calibration" default:"10" allowed:"0..10" doc:"calibration points of each client that sends moments, at most a fifth of its images; clients of fmp pool send none unless they are asked"`
	Partition   string    `yaml:"partition" json:"partition" default:"homogeneous" allowed:"homogeneous|dirichlet|both" doc:"how classes are spread over clients"`
	Alpha       []float64 `yaml:"alpha,flow" json:"alpha" default:"0.1, 0.5, 1, 5" allowed:"0.001..1000" doc:"concentrations of the Dirichlet partitions"`
}

// Conjugate sets the conjugate predictor, used by FMP and FMP-mean.
type Conjugate struct {
	Model   string `yaml:"model" json:"model" default:"default" allowed:"default|untrained|none|FILE" doc:"ONNX file of the conjugate predictor; default: the shipped one, else untrained: the moments of the corpus; none leaves its methods out"`
	Samples int    `yaml:"samples" json:"samples" default:"100" allowed:"1..10000" doc:"number S of FMP's posterior samples, which cost a fit each in open scope alone"`
	Latent  string `yaml:"latent" json:"latent" default:"shared" allowed:"shared|none" doc:"latent of a sample: one for all its points, or none: FMP is the one head of its posterior means, for what the latent is worth"`
}

// Predictor sets the model that draws new points for the paper's martingale posteriors: MP, LMP,
// CFMP and FMP-ISAB.
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

// Privacy is the privacy budget of private rounds. Its methods, FMP-DP, FMP-DP-plugin and
// FedPFT-DP, run if Epsilon is above 0.
type Privacy struct {
	Epsilon  float64 `yaml:"epsilon" json:"epsilon" default:"0" allowed:"0|0.01..20" doc:"epsilon of private rounds: what one unit can change, as a log likelihood ratio; 0 for none"`
	Delta    float64 `yaml:"delta" json:"delta" default:"1e-5" allowed:"1e-12..1e-2" doc:"delta of private rounds: the probability with which epsilon does not hold"`
	Unit     string  `yaml:"unit" json:"unit" default:"example" allowed:"example|client" doc:"what is protected: one image, or all of a client's"`
	Relation string  `yaml:"relation" json:"relation" default:"add-remove" allowed:"add-remove|replace-one" doc:"how data that are to look alike differ"`
	Noise    string  `yaml:"noise" json:"noise" default:"trusted" allowed:"trusted|two-servers|local" doc:"who adds the noise: the server once, each of two servers, or every client"`
	Model    string  `yaml:"model" json:"model" default:"default" allowed:"default|FILE" doc:"ONNX file of the private predictor; default: the shipped one of the corpus's data set"`
}

// Budget returns the budget for clients with the given number of points; nil without private
// rounds.
func (p *Privacy) Budget(points int) *privacy.Budget {
	if p.Epsilon == 0 {
		return nil
	}
	return &privacy.Budget{Epsilon: p.Epsilon, Delta: p.Delta, Unit: p.Unit, Relation: p.Relation,
		Noise: p.Noise, Points: points}
}

// ERM sets the fit of the head.
type ERM struct {
	L2 float64 `yaml:"l2" json:"l2" default:"0" allowed:"0|1e-6..1e6" doc:"L2 penalty of the head (sum form); 0 means {l2}"`
	// With the default no figure of a run moves by 1e-6.
	Tolerance float64 `yaml:"tolerance" json:"tolerance" default:"1e-8" allowed:"1e-12..0.01" doc:"gradient norm, relative to that at zero, at which the fit stops"`
}

// Engine sets the engine that executes the models.
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

package extractor

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fmp/featurize/imagefile"
	"fmp/featurize/yamlfile"
	"fmp/models"
	"fmp/onnx/regularfile"
)

// DefaultBatch is the most images per call unless the options or the model say otherwise.
const DefaultBatch = 256

// Memory of activations: bytes a pixel of the input (EfficientNet-Lite0 took 3.1 GB for 256 images
// of 224 x 224), and of all images of a call at most.
const (
	pixelMemory = 240
	batchMemory = 512 << 20
)

// batchOf returns the number of images of a size whose activations fit the memory of a call.
func batchOf(h, w int) int { return max(1, min(DefaultBatch, batchMemory/(pixelMemory*h*w))) }

// Options say how images are fed to a third-party model. Zero fields are taken from the side-car
// file (see [Sidecar]), then from the model's manifest, then from the model's own inputs and
// outputs.
type Options struct {
	// Batch is the number of images per call, 1 to 65536 (0: as many as 512 MB hold,
	// [DefaultBatch] at most); a model with a fixed batch uses its own. Any other is tried on two
	// images at once when it is loaded, small ones where it takes any size.
	Batch int `yaml:"batch"`
	// Mean and Std, one number per channel of the model's input or one for all, apply to pixels
	// scaled to 0..1: the model is fed (pixel/255 - mean) / std. Default 0 and 1; for -1 to 1 set
	// mean 0.5 and std 0.5.
	Mean []float64 `yaml:"mean"`
	Std  []float64 `yaml:"std"`
	// Scale is the range of pixels that Mean and Std apply to, "0-1" (default) or "0-255"; without
	// them, the range that the model is fed.
	Scale string `yaml:"scale"`
	// Channels is "rgb" (default) or "bgr", for a model that takes blue first. Mean and Std are in
	// the model's order.
	Channels string `yaml:"channels"`
	// Resize is how images are brought to the model's shape: "stretch" (default), "crop", a share
	// of it ("crop:0.875", also of images of that shape) or "pad".
	Resize string `yaml:"resize"`
	// Preset names the preprocessing of a family of models ([Presets]); it supplies those
	// of Mean, Std, Scale, Channels and Resize that are not set. A Scale without Mean
	// and Std must be its own.
	Preset string `yaml:"preset"`
	// Layout is "NCHW", "NHWC", or "" or "auto" to read it from the input's shape. Case does not
	// matter.
	Layout string `yaml:"layout"`
	// Input names the input that takes the images; needed only by models with several.
	Input string `yaml:"input"`
	// Output names the value that holds the features: an output, or any value inside the graph.
	Output string `yaml:"output"`
	// Side is the height and width of the model's input where the model leaves them open; 0 takes
	// the images as they are.
	Side int `yaml:"side"`
	// Threads is the number of batches in flight (default 1); the features do not depend on it.
	Threads int `yaml:"-"`
}

// sevenEighths is the central part of images that the ImageNet evaluations of these families take:
// 224 of 256 pixels.
const sevenEighths = string(imagefile.Crop) + ":0.875"

// Means and standard deviations of pixels of 0 to 1 that several families share.
var (
	imageNet = Options{Mean: []float64{0.485, 0.456, 0.406}, Std: []float64{0.229, 0.224, 0.225}}
	halves   = Options{Mean: []float64{0.5}, Std: []float64{0.5}}
	caffe    = Options{Mean: []float64{103.939, 116.779, 123.68}, Std: []float64{1},
		Scale: Scale255, Channels: BGR}
)

// resized returns a preprocessing with a way to resize.
func (o Options) resized(how string) Options {
	o.Resize = how
	return o
}

// Presets are the preprocessings of well-known families of models, by name. Those of a library
// resize as its evaluation does; the others leave that open.
var Presets = map[string]Options{
	"imagenet": imageNet,
	// torchvision.transforms._presets.ImageClassification: 256, then 224
	"torchvision": imageNet.resized(sevenEighths),
	// timm.data.constants: IMAGENET_DEFAULT_MEAN and _STD, DEFAULT_CROP_PCT
	"timm":           imageNet.resized(sevenEighths),
	"timm-inception": halves.resized(sevenEighths), // IMAGENET_INCEPTION_MEAN and _STD
	// dinov2.data.transforms.make_classification_eval_transform
	"dinov2": imageNet.resized(sevenEighths),
	// OpenAI's CLIP and its kin: clip._transform
	"clip": {Mean: []float64{0.48145466, 0.4578275, 0.40821073},
		Std:    []float64{0.26862954, 0.26130258, 0.27577711},
		Resize: string(imagefile.Crop)},
	// (x - 127) / 128, EfficientNet-Lite in TensorFlow (efficientnet/lite: MEAN_RGB, STDDEV_RGB,
	// CROP_PADDING 32)
	"efficientnet-lite": {Mean: []float64{127}, Std: []float64{128}, Scale: Scale255,
		Resize: sevenEighths},
	"caffe": caffe,
	// Modes of keras.applications.imagenet_utils.preprocess_input, whose images are stretched
	"keras-caffe": caffe.resized(string(imagefile.Stretch)), // VGG, ResNet
	// MobileNet, Inception, Xception, ResNetV2
	"keras-tf":    halves.resized(string(imagefile.Stretch)),
	"keras-torch": imageNet.resized(string(imagefile.Stretch)), // DenseNet
	"0-1":         {Mean: []float64{0}, Std: []float64{1}},
	"-1-1":        halves,
	"0-255":       {Mean: []float64{0}, Std: []float64{1}, Scale: Scale255},
}

// PresetNames lists the names of [Presets] in alphabetical order.
func PresetNames() []string { return slices.Sorted(maps.Keys(Presets)) }

// Values of Scale and Channels.
const (
	Scale1   = "0-1"
	Scale255 = "0-255"
	RGB      = "rgb"
	BGR      = "bgr"
)

// settle returns o over the given options, of which the first wins, and over its preset. Mean and
// Std are converted to pixels of 0 to 1. Those of a preset are in its own order of channels.
func (o Options) settle(under ...Options) (Options, error) {
	for _, b := range under {
		var err error
		if o, err = o.over(b); err != nil {
			return o, err
		}
	}
	if err := o.check(); err != nil {
		return o, err
	}
	if o.Preset != "" {
		p := Presets[o.Preset]
		if order := cmp.Or(p.Channels, RGB); cmp.Or(o.Channels, order) != order {
			p.Mean, p.Std = slices.Clone(p.Mean), slices.Clone(p.Std)
			slices.Reverse(p.Mean)
			slices.Reverse(p.Std)
		}
		var err error
		if o, err = o.figures(p); err != nil {
			return o, fmt.Errorf("extractor.preset %s: %w", o.Preset, err)
		}
		o.Channels = cmp.Or(o.Channels, p.Channels)
		o.Resize = cmp.Or(o.Resize, p.Resize)
	}
	if (o.Mean == nil) != (o.Std == nil) {
		return o, fmt.Errorf("extractor.mean is %v and extractor.std %v: one without the other "+
			"feeds the model otherwise than it was trained; give both", o.Mean, o.Std)
	}
	if o.Scale != Scale255 {
		return o, o.ofUnit()
	}
	// (pixel - m) / s is (pixel/255 - m/255) / (s/255).
	over := func(v []float64, def float64) []float64 {
		if v == nil {
			v = []float64{def}
		}
		out := make([]float64, len(v))
		for i := range v {
			out[i] = v[i] / 255
		}
		return out
	}
	o.Mean, o.Std, o.Scale = over(o.Mean, 0), over(o.Std, 1), Scale1
	return o, nil
}

// ofUnit returns an error for a mean or std that is not of pixels of 0 to 1.
func (o Options) ofUnit() error {
	for i, of := range [][]float64{o.Mean, o.Std} {
		name := []string{"mean", "std"}[i]
		if v := slices.Max(append(of[:len(of):len(of)], 0)); v > 1 {
			return fmt.Errorf("extractor.%s holds %v, and pixels are scaled to 0 to 1: for a %s "+
				"of pixels of 0 to 255 add extractor.scale 0-255, or divide mean and std by 255",
				name, v, name)
		}
	}
	return nil
}

// maxSidecar bounds a side-car file: 64 KiB.
const maxSidecar = 64 << 10

// Sidecar reads the options in the file beside a model: model.onnx.yaml, or model.yaml, a YAML
// mapping with the keys mean, std, scale, channels, resize, preset, layout, input, output, side and
// batch. Without such a file the options are zero and the path is empty.
func Sidecar(model string) (Options, string, error) {
	for _, p := range []string{model + ".yaml",
		strings.TrimSuffix(model, filepath.Ext(model)) + ".yaml"} {
		data, err := regularfile.ReadFile(p, maxSidecar)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return Options{}, p, fmt.Errorf("side-car: %w", err)
		}
		o, err := parseSidecar(data)
		if err != nil {
			return Options{}, p, fmt.Errorf("side-car %s: %w", p, err)
		}
		return o, p, nil
	}
	return Options{}, "", nil
}

// NewSidecar returns the side-car file of a model that takes images as the model at path does with
// o. Figures are written in full, of pixels of 0 to 1, without a preset.
func NewSidecar(path string, f models.Manifest, o Options) ([]byte, error) {
	side, _, err := Sidecar(path)
	if err != nil {
		return nil, err
	}
	if o, err = o.settle(side, fromManifest(f)); err != nil {
		return nil, err
	}
	keys := map[string]any{}
	for k, v := range map[string]string{"channels": o.Channels, "resize": o.Resize,
		"layout": o.Layout, "input": o.Input, "output": o.Output} {
		if v != "" {
			keys[k] = v
		}
	}
	for k, v := range map[string][]float64{"mean": o.Mean, "std": o.Std} {
		if v != nil {
			keys[k] = v
		}
	}
	if o.Side > 0 {
		keys["side"] = o.Side
	}
	return json.Marshal(keys) // which is YAML too
}

// parseSidecar reads a side-car file, which may come from anywhere. An empty one has no options.
func parseSidecar(data []byte) (Options, error) {
	var o Options
	if len(data) > maxSidecar {
		return o, fmt.Errorf("more than %d bytes", maxSidecar)
	}
	if err := yamlfile.Decode(data, &o); err != nil && !errors.Is(err, io.EOF) {
		return Options{}, fmt.Errorf("%w; allowed keys are mean, std, scale, channels, resize, "+
			"preset, layout, input, output, side and batch", err)
	}
	return o, o.check()
}

// over returns o with the fields that it leaves open taken from b.
func (o Options) over(b Options) (Options, error) {
	o.Batch = cmp.Or(o.Batch, b.Batch)
	if o.Preset == "" { // which supplies mean and std before b does
		var err error
		if o, err = o.figures(b); err != nil {
			return o, err
		}
		if o.Mean == nil || o.Std == nil {
			o.Preset = b.Preset
		}
	}
	o.Channels = cmp.Or(o.Channels, b.Channels)
	o.Resize = cmp.Or(o.Resize, b.Resize)
	if o.Layout == "" || strings.EqualFold(o.Layout, "auto") {
		o.Layout = b.Layout
	}
	o.Input = cmp.Or(o.Input, b.Input)
	o.Output = cmp.Or(o.Output, b.Output)
	o.Side = cmp.Or(o.Side, b.Side)
	return o, nil
}

// figures returns o with mean and std, where it leaves them open, taken from b in o's scale.
// A scale alone that is not b's is an error: it would feed b's model otherwise than it was
// trained. So is a mean or std alone without a scale beside b's of 0 to 255: the number
// does not tell its own scale.
func (o Options) figures(b Options) (Options, error) {
	scale := cmp.Or(b.Scale, Scale1)
	switch own := cmp.Or(o.Scale, Scale1); {
	case o.Mean == nil && o.Std == nil:
		if o.Scale != "" && o.Scale != scale && (b.Mean != nil || b.Std != nil) {
			return o, fmt.Errorf("extractor.scale is %s, beside mean %v and std %v of "+
				"scale %s: leave it out, or give extractor.mean and extractor.std with it", o.Scale,
				b.Mean, b.Std, scale)
		}
		o.Scale = cmp.Or(o.Scale, b.Scale)
	case own != scale && o.Scale == "" &&
		(o.Mean == nil && b.Mean != nil || o.Std == nil && b.Std != nil):
		return o, fmt.Errorf("extractor.mean is %v and extractor.std %v, beside mean %v and "+
			"std %v of scale %s: add extractor.scale, %s or %s, of the one that is given", o.Mean,
			o.Std, b.Mean, b.Std, scale, Scale1, Scale255)
	case own != scale:
		by := 255.
		if own == Scale1 {
			by = 1. / 255
		}
		b.Mean, b.Std = scaled(b.Mean, by), scaled(b.Std, by)
	}
	if o.Mean == nil {
		o.Mean = b.Mean
	}
	if o.Std == nil {
		o.Std = b.Std
	}
	return o, nil
}

// scaled returns v times by; nil where v is.
func scaled(v []float64, by float64) []float64 {
	v = slices.Clone(v)
	for i := range v {
		v[i] *= by
	}
	return v
}

// fromManifest returns the options that a model's own manifest states.
func fromManifest(f models.Manifest) Options {
	o := Options{Layout: f.Layout, Resize: f.Resize}
	for _, v := range f.Mean {
		o.Mean = append(o.Mean, float64(v))
	}
	for _, v := range f.Std {
		o.Std = append(o.Std, float64(v))
	}
	return o
}

// check returns an error for an option that is out of its bounds.
func (o Options) check() error {
	if o.Batch < 0 || o.Batch > 65536 {
		return fmt.Errorf("extractor.batch is %d; allowed are 1 to 65536, or 0 for as many as 512 MB hold", o.Batch)
	}
	if o.Side < 0 || o.Side > maxInputSide {
		return fmt.Errorf("side is %d; allowed are 1 to %d, or 0 for none", o.Side, maxInputSide)
	}
	switch strings.ToUpper(o.Layout) {
	case "", "AUTO", "NCHW", "NHWC":
	default:
		return fmt.Errorf("extractor.layout is %q; allowed are auto, nchw and nhwc", o.Layout)
	}
	if _, err := imagefile.ParseResize(o.Resize); err != nil {
		return fmt.Errorf("extractor.%w", err)
	}
	for _, k := range []struct {
		name, value string
		allowed     []string
	}{{"scale", o.Scale, []string{Scale1, Scale255}}, {"channels", o.Channels, []string{RGB, BGR}},
		{"preset", o.Preset, PresetNames()}} {
		if k.value != "" && !slices.Contains(k.allowed, k.value) {
			return fmt.Errorf("extractor.%s is %q; allowed are %s", k.name, k.value,
				strings.Join(k.allowed, ", "))
		}
	}
	for _, l := range []struct {
		name string
		v    []float64
	}{{"mean", o.Mean}, {"std", o.Std}} {
		if n := len(l.v); n != 0 && n != 1 && n != 3 {
			return fmt.Errorf("extractor.%s has %d numbers; give one, or one for each "+
				"channel (1 or 3)", l.name, n)
		}
		for _, v := range l.v {
			if math.IsNaN(v) || math.IsInf(v, 0) || math.Abs(v) > 1e6 ||
				(l.name == "std" && v < 1e-6) {
				return fmt.Errorf("extractor.%s holds %v; allowed are numbers up to 1e6 in size, "+
					"for std at least 1e-6", l.name, v)
			}
		}
	}
	return nil
}

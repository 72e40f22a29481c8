// Package learn trains feature extractors: a small residual network (models.Extractor) learns to
// classify the extractor part of a data set, on any engine, and is exported as an ONNX model of its
// features.
package learn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/grad"
	"fmp/onnx/optim"
	"fmp/onnx/pass"
	"fmp/onnx/train"
)

// ErrStart means that the model to start from has another network than the one to be trained. A
// caller may then train from the start, or choose another model.
var ErrStart = errors.New("the model to start from does not fit")

// Config holds all settings that determine the result of a training run.
type Config struct {
	// All fields that have JSON names are stated in the model's manifest.
	Network models.Extractor `json:"network"`
	// Epochs is the number of passes over the extractor part, Batch the images per step, an even
	// number that Shards divides.
	Epochs int `json:"epochs"`
	Batch  int `json:"batch"`
	// Shards is the number of parts of a batch that run at once, each with its own batch
	// statistics. It, and not the number of threads, determines the order of summation, so that
	// results are the same on any machine.
	Shards int `json:"shards"`
	// Rate is the highest learning rate, reached after Warmup epochs; it then falls to 0 along half
	// a cosine.
	Rate        float64 `json:"rate"`
	Warmup      float64 `json:"warmup"`
	Momentum    float64 `json:"momentum"`
	WeightDecay float64 `json:"weight_decay"`
	// Smoothing is the share of a label's probability that is spread over all classes (Szegedy et
	// al. 2016).
	Smoothing float64 `json:"smoothing"`
	Augment   Augment `json:"augment"`
	// Start, if not nil, is an extractor of the same network that the training continues from;
	// StartDigest identifies it.
	Start       *onnx.Model `json:"-"`
	StartDigest string      `json:"start,omitempty"`
	// Auxiliary is the share of every batch taken from the auxiliary data.
	Auxiliary float64           `json:"auxiliary"`
	Fractions dataset.Fractions `json:"fractions"`
	Seed      uint64            `json:"seed"`
}

// DefaultConfig returns settings that were found to work for a data set of this kind on two cores.
// dx is the number of features, 0 for 64. Grey images, as digits, take a tenth of the epochs, fewer
// augmentations and less decay.
func DefaultConfig(ds *dataset.Dataset, dx int) Config {
	dx = cmp.Or(dx, 64)
	c := Config{
		Network: models.DefaultExtractor(ds.Train.Ch, ds.Train.H, ds.Train.W, dx),
		Epochs:  40, Batch: 128, Shards: 2, Rate: 0.2, Warmup: 3, Momentum: 0.9,
		WeightDecay: 1e-3, Smoothing: 0.1,
		Augment:   Augment{Flip: true, Shift: 4, Cutout: 8},
		Fractions: dataset.DefaultFractions, Seed: 1,
	}
	if ds.Train.Ch == 1 {
		c.Epochs, c.Warmup, c.WeightDecay = 4, 0.5, 5e-4
		c.Augment = Augment{Shift: 2}
	}
	return c
}

// check returns an error for a setting that is out of its bounds. The network checks its own. It is
// called before any image is read. NaN is refused, as comparisons with it are false.
func (c Config) check() error {
	switch {
	case c.Epochs < 1 || c.Epochs > 100000:
		return fmt.Errorf("epochs is %d; allowed are 1 to 100000", c.Epochs)
	case c.Shards < 1 || c.Batch < 2*c.Shards || c.Batch > 65536 || c.Batch%c.Shards != 0:
		return fmt.Errorf("batch is %d with %d shards; allowed are batches up to 65536 that the "+
			"shards divide into parts of 2 images or more", c.Batch, c.Shards)
	case !(c.Rate > 0) || !(c.Warmup >= 0):
		return fmt.Errorf("rate is %v and warmup %v; want a rate above 0 and a warmup of 0 "+
			"epochs or more", c.Rate, c.Warmup)
	case !(c.Smoothing >= 0 && c.Smoothing < 1):
		return fmt.Errorf("smoothing is %v; allowed are 0 to less than 1", c.Smoothing)
	case !(c.Auxiliary >= 0 && c.Auxiliary < 1):
		return fmt.Errorf("auxiliary is %v; allowed are 0 to less than 1", c.Auxiliary)
	case c.fromAuxiliary() == c.Batch:
		return fmt.Errorf("auxiliary is %v, which is all of a batch of %d images; lower it",
			c.Auxiliary, c.Batch)
	case c.Augment.Shift < 0 || c.Augment.Cutout < 0 || c.Augment.Shift > c.Network.Width ||
		c.Augment.Cutout > c.Network.Width:
		return fmt.Errorf("shift is %d and cutout %d; allowed are 0 to the image's width, %d",
			c.Augment.Shift, c.Augment.Cutout, c.Network.Width)
	}
	return nil
}

// fromAuxiliary returns the number of auxiliary images in a batch. It is rounded, so that a small
// share of a small batch may be 0.
func (c Config) fromAuxiliary() int { return int(math.Round(c.Auxiliary * float64(c.Batch))) }

// Run holds the settings of a training run that do not affect its result: files, threads and
// progress. Two runs that differ in these alone give the same models, byte for byte, but for
// Command.
type Run struct {
	Threads    int    // shards run at once; default 1
	Checkpoint string // file; "" keeps none
	Log        string // file of JSON Lines; "" keeps none
	Command    string // for the manifest
	Progress   func(train.Progress)
}

// Result is the outcome of a training run. Both extractors share all weights but those of the
// standardisation.
type Result struct {
	Model     *onnx.Model // image to features, with its manifest
	Accuracy  float64     // of its own linear head on the test images; NaN where there are none
	Images    int         // number of distinct training images of the data set itself
	Auxiliary *onnx.Model // the same for the auxiliary data set; nil where there was none
	// AuxiliaryAccuracy is that of the auxiliary data set's own head on its test images.
	AuxiliaryAccuracy float64
}

// source is a set of images with classes of its own. Labels are places in the joint head, from 0 to
// the number of all classes less 1.
type source struct {
	images   *dataset.Images
	labels   []int // of the joint head
	from, to int   // the joint head's classes that its images may have
}

// sources returns the extractor part of ds and, where there is auxiliary data, all that it offers:
// its own extractor part and its spare classes. ds may have spare classes too.
// The joint head has the classes of ds, its spare ones, and then the same of aux. The images of the
// extractor parts are copied, and those of spare classes shared.
func sources(ds *dataset.Dataset, aux *dataset.Dataset,
	f dataset.Fractions) (main, other []source, classes int, err error) {
	// first is the joint head's number of the first class of d.
	cut := func(d *dataset.Dataset, first int) ([]source, int, error) {
		splits, err := d.Splits(f)
		if err != nil {
			return nil, 0, err
		}
		to := first + len(d.Classes) + len(d.ExtraClasses)
		part, err := d.Train.Select(splits.Extractor.Indices())
		if err != nil {
			return nil, 0, err
		}
		shift := func(labels []int) []int {
			out := make([]int, len(labels))
			for i, y := range labels {
				out[i] = first + y
			}
			return out
		}
		// Spare classes are a source of their own: all their images may be learned from.
		out := []source{{part,
			shift(d.Train.Labels[splits.Extractor.From:splits.Extractor.To]), first, to}}
		if d.Extra.N > 0 {
			out = append(out, source{&d.Extra.Images, shift(d.Extra.Labels), first, to})
		}
		return out, to, nil
	}
	if main, classes, err = cut(ds, 0); err != nil {
		return nil, nil, 0, err
	}
	if aux != nil {
		if aux.Train.H != ds.Train.H || aux.Train.W != ds.Train.W || aux.Train.Ch != ds.Train.Ch {
			return nil, nil, 0, fmt.Errorf("auxiliary images of %dx%dx%d beside images of "+
				"%dx%dx%d; they must be alike", aux.Train.H, aux.Train.W, aux.Train.Ch, ds.Train.H,
				ds.Train.W, ds.Train.Ch)
		}
		if other, classes, err = cut(aux, classes); err != nil {
			return nil, nil, 0, err
		}
	}
	return main, other, classes, nil
}

// Corpus returns the images that an extractor may learn from, the extractor part of ds and the
// classes that were not chosen, and the number of classes of their labels. It uses the default
// fractions. Pixels are copied.
func Corpus(ds *dataset.Dataset) (*dataset.Labelled, int, error) {
	from, _, classes, err := sources(ds, nil, dataset.DefaultFractions)
	if err != nil {
		return nil, 0, err
	}
	out := &dataset.Labelled{Images: *from[0].images, Labels: from[0].labels}
	for _, s := range from[1:] {
		out.Pix, out.Labels, out.N = slices.Concat(out.Pix, s.images.Pix),
			slices.Concat(out.Labels, s.labels), out.N+s.images.N
	}
	return out, classes, nil
}

// pool combines a list of sources into one. Image i is counted through all of them in turn. Sources
// are in a fixed order, so that i means the same image in each run.
type pool struct {
	sources []source
	n       int
}

// newPool counts the images of sources.
func newPool(s []source) pool {
	p := pool{sources: s}
	for _, x := range s {
		p.n += x.images.N
	}
	return p
}

// at returns the source of image i, and its place there. It takes O(sources) steps, of which there
// are two at most. i must be below n.
func (p pool) at(i int) (source, int) {
	for _, s := range p.sources {
		if i < s.images.N {
			return s, i
		}
		i -= s.images.N
	}
	return source{}, 0
}

// order enumerates a pool's images without end, in a new order every epoch. An epoch's order is a
// permutation drawn from the seed, the name and the epoch's number. It is remembered until another
// epoch is asked for. Epochs may be asked for in any order, as a resumed run begins in the middle.
// It is not safe for several goroutines.
type order struct {
	n     int
	seed  uint64
	name  string
	epoch int
	perm  []int
}

// at returns the k-th image, counted over all epochs.
func (o *order) at(k int) int {
	if e := k / o.n; o.perm == nil || e != o.epoch {
		o.epoch, o.perm = e, rng.New(o.seed, "extractor", "order", o.name, e).Perm(o.n)
	}
	return o.perm[k%o.n]
}

// notAllowed is added to the logits of classes that an image cannot have. Its exponential is 0 in
// float32. It is finite, where an infinity would give NaN as 0 times it in the gradient.
const notAllowed = -1e4

// Gradient returns a model of a network's training loss over classes and of its gradient with
// respect to params. init holds the initial values, drawn from seed, of the parameters, and the
// statistics of the normalisations. The parameters are inputs of the model. The gradient's outputs
// are the loss and one tensor for each parameter, named with [optim.GradPrefix].
func Gradient(network models.Extractor, classes int,
	seed uint64) (gradient *onnx.Model, params []string, init map[string]*onnx.Tensor, err error) {
	loss, err := network.Loss(classes, seed)
	if err != nil {
		return nil, nil, nil, err
	}
	params = models.Parameters(loss)
	init = network.Statistics()
	for _, p := range params {
		init[p] = loss.Graph.Initializers[p]
	}
	gradient, err = grad.Build(loss, grad.Options{
		Outputs: []string{models.LossOutput}, WRT: params, KeepOutputs: true, ParamsAsInputs: true,
		UnitCotangent: true, Prefix: optim.GradPrefix,
	})
	return gradient, params, init, err
}

// Extractor trains an extractor on the extractor part of ds. aux, where not nil and
// Config.Auxiliary is more than 0, adds its own extractor part and spare classes: an image is
// classified among the classes of its own data set only. Test images are used only for the
// accuracies in Result. Each step is one of stochastic gradient descent with Nesterov's momentum on
// the mean loss of the shards. The gradient's norm is bounded by 5. The last batch of an epoch is
// whole: images that do not fill one wait for the next epoch's order. Steps: check, divide the
// images, build the gradient, train, export. An error of ctx leaves the checkpoint, from which the
// same call goes on. The result does not depend on run.Threads.
func Extractor(ctx context.Context, eng engine.Engine, ds, aux *dataset.Dataset, c Config,
	run Run) (*Result, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("training an extractor: %w", err)
	}
	if c.Auxiliary == 0 {
		aux = nil
	}
	if aux == nil {
		c.Auxiliary = 0
	}
	mainSources, auxSources, classes, err := sources(ds, aux, c.Fractions)
	if err != nil {
		return nil, fmt.Errorf("training an extractor: %w", err)
	}
	main, other := newPool(mainSources), newPool(auxSources)
	// A batch has the same numbers of images from either pool at every step.
	fromMain := c.Batch - c.fromAuxiliary()
	if main.n < fromMain {
		return nil, fmt.Errorf("training an extractor: the extractor part holds %d images and a "+
			"batch wants %d; lower the batch", main.n, fromMain)
	}
	// Spare classes and test images have no part in the statistics.
	mean, std := pixelStatistics(mainSources[0].images)
	t := &trainer{c: c, main: main, other: other, fromMain: fromMain, classes: classes,
		scale: extractor.Scaled(mean, std), eng: eng}

	gradient, params, init, err := Gradient(c.Network, classes, c.Seed)
	if err != nil {
		return nil, err
	}
	data := describe(ds, aux, main.n, other.n)
	if c.Start != nil {
		trained, err := c.begin(init)
		if err != nil {
			return nil, fmt.Errorf("training an extractor: %w: %w", ErrStart, err)
		}
		data += "; begun from an extractor trained on " + trained
	}
	sgd := optim.SGD{Momentum: c.Momentum, Nesterov: true, WeightDecay: c.WeightDecay}
	split, err := train.NewSplit(eng, gradient,
		train.SplitOptions{Params: params, Optimizer: sgd, Update: optim.Options{ClipNorm: 5},
			Init: init, Threads: run.Threads})
	if err != nil {
		return nil, err
	}
	defer split.Close()
	digests := ds.Digest
	if aux != nil {
		digests += " " + aux.Digest
	}
	if err := t.train(ctx, split, digests, run); err != nil {
		return nil, fmt.Errorf("training an extractor: %w", err)
	}

	identity, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("training an extractor: %w", err)
	}
	t.state = split.State()
	t.manifest = models.Manifest{
		Kind: models.KindExtractor, Dx: c.Network.Dx, Mean: mean, Std: std,
		Layout: "NCHW", Seed: c.Seed,
		Config:  string(identity),
		Command: run.Command, Licence: "MIT", TrainingData: data,
	}
	res := &Result{Images: main.n}
	if res.Model, res.Accuracy, err = t.export(ctx, ds, mainSources[0]); err != nil {
		return nil, err
	}
	if aux != nil {
		if res.Auxiliary, res.AuxiliaryAccuracy, err = t.export(ctx, aux,
			auxSources[0]); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// begin replaces the initial values by those of Start and returns the data that Start was trained
// on. Weights that are stored in half precision are widened first. An extractor of another network
// is an error.
func (c *Config) begin(init map[string]*onnx.Tensor) (data string, err error) {
	whole := onnx.Clone(c.Start)
	pass.RestoreHalf(whole)
	values, err := c.Network.Values(whole)
	if err != nil {
		return "", err
	}
	maps.Copy(init, values)
	man, err := models.ReadManifest(c.Start)
	return man.TrainingData, err
}

// train takes all steps, two batches ahead of the network. The loss that is reported is the mean of
// the shards'.
func (t *trainer) train(ctx context.Context, split *train.Split, digests string, run Run) error {
	// A checkpoint goes on only under the same settings and data.
	same := t.c
	// changes the exported model, not the training: a run may continue with it or without
	same.Network.Mirror = false
	trained, err := json.Marshal(same)
	if err != nil {
		return err
	}
	// Images that do not fill a batch are left out of the epoch.
	perEpoch := t.main.n / t.fromMain
	steps := t.c.Epochs * perEpoch
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	var next func(int) ([]map[string]*onnx.Tensor, error)
	loop := train.Loop{
		Steps: steps, Rate: optim.WarmupCosine(t.c.Rate, 0, int(t.c.Warmup*float64(perEpoch))),
		Model:      split,
		Run:        fmt.Sprintf("extractor %s %s", digests, trained),
		Checkpoint: run.Checkpoint, Log: run.Log,
		LogEvery: max(1, perEpoch/10),
		Progress: run.Progress,
		Step: func(_ context.Context, step int, rate float64) (train.Metrics, error) {
			// A checkpoint says which step is first.
			if next == nil {
				next = train.Prefetch(inner, step, steps, 2, t.batch)
			}
			shards, err := next(step)
			if err != nil {
				return nil, err
			}
			outs, err := split.Accumulate(shards...)
			if err != nil {
				return nil, err
			}
			m := train.Metrics{}
			for _, o := range outs {
				m["loss"] += float64(o[models.LossOutput].F32()[0]) / float64(len(outs))
			}
			m["gradient norm"], err = split.Update(step, rate, true)
			return m, err
		},
	}
	return loop.Train(ctx)
}

// describe says for the manifest which images were learned from: n of ds, and m of aux.
func describe(ds, aux *dataset.Dataset, n, m int) string {
	s := fmt.Sprintf("%s: %d training images of the extractor part", ds.Name, n)
	if len(ds.ExtraClasses) > 0 {
		s += " and of spare classes"
	}
	if aux != nil {
		s += fmt.Sprintf("; %s: %d", aux.Name, m)
	}
	return s
}

// trainer makes batches and, after the last step, the models. It is used by one goroutine at a
// time: train.Prefetch makes one batch after another.
type trainer struct {
	c           Config
	eng         engine.Engine
	main, other pool
	fromMain    int
	classes     int
	scale       [][256]float32 // the number of each pixel of a channel
	orders      [2]*order
	// After training: the parameters, and the manifest without the data set's own fields.
	state    map[string]*onnx.Tensor
	manifest models.Manifest
}

// batch makes the shards of step t, the same ones on every call. A shard is image [n, Ch, H, W],
// target [n, classes] and allowed [n, classes], with n images of the batch. Random numbers are
// drawn in the order of the shards. Images come from the pool in the order of the epoch. Auxiliary
// images have epochs of their own, as their number is another. allowed has 0 for classes that
// compete, and notAllowed for others.
func (t *trainer) batch(step int) ([]map[string]*onnx.Tensor, error) {
	if t.orders[0] == nil {
		t.orders = [2]*order{{n: t.main.n, seed: t.c.Seed, name: "main"},
			{n: t.other.n, seed: t.c.Seed, name: "auxiliary"}}
	}
	n, net := t.c.Batch/t.c.Shards, t.c.Network
	size := net.Channels * net.Height * net.Width
	fromAux := t.c.Batch - t.fromMain
	perEpoch := t.main.n / t.fromMain
	r := rng.New(t.c.Seed, "extractor", "augment", step)
	shards := make([]map[string]*onnx.Tensor, t.c.Shards)
	for s := range shards {
		image, target, allowed := onnx.ZerosF32(n, net.Channels, net.Height, net.Width),
			onnx.ZerosF32(n, t.classes), onnx.ZerosF32(n, t.classes)
		for i := range n {
			// Images of either pool are spread evenly over the shards.
			k := i*t.c.Shards + s
			var src source
			var at int
			if k < t.fromMain {
				// An epoch has whole batches only; the next one has a new order.
				epoch, in := step/perEpoch, step%perEpoch
				src, at = t.main.at(t.orders[0].at(epoch*t.main.n + in*t.fromMain + k))
			} else {
				src, at = t.other.at(t.orders[1].at(step*fromAux + k - t.fromMain))
			}
			t.c.Augment.put(image.F32()[i*size:(i+1)*size], src.images, at, t.scale, r)
			// row and may are the target and the allowed classes of this image.
			row, may := target.F32()[i*t.classes:(i+1)*t.classes],
				allowed.F32()[i*t.classes:(i+1)*t.classes]
			// With smoothing s over the K classes of its data set, a target is s / K for each, and
			// 1-s more for the label.
			spread := float32(t.c.Smoothing / float64(src.to-src.from))
			for y := range row {
				if y >= src.from && y < src.to {
					row[y] = spread
				} else {
					may[y] = notAllowed
				}
			}
			row[src.labels[at]] += float32(1 - t.c.Smoothing)
		}
		shards[s] = map[string]*onnx.Tensor{models.ImageInput: image, models.TargetInput: target,
			models.AllowedInput: allowed}
	}
	return shards, nil
}

// export returns the trained extractor as a model of a data set's features, and its accuracy on
// that data set's test images. first is the data set's extractor part. The other data set's classes
// are not in the manifest.
func (t *trainer) export(ctx context.Context, ds *dataset.Dataset,
	first source) (*onnx.Model, float64, error) {
	manifest := t.manifest
	manifest.Classes, manifest.C = ds.Classes, len(ds.Classes)
	right, err := t.accuracy(ctx, manifest, first.from, ds)
	if err != nil {
		return nil, 0, err
	}
	m, err := t.finish(ctx, manifest, first.images)
	return m, right, err
}

// accuracy returns the share of test images whose class the trained head ranks first among the data
// set's own, which start at first. The head is dropped from the exported model: the accuracy tells
// whether the training worked.
func (t *trainer) accuracy(ctx context.Context, manifest models.Manifest, first int,
	ds *dataset.Dataset) (float64, error) {
	m, err := t.c.Network.Model(t.state, t.classes)
	if err != nil {
		return 0, err
	}
	if ds.Test.N == 0 {
		return math.NaN(), nil
	}
	// Only the classes of the data set compete, though the head has those of the other as well.
	// A manifest's dx is checked against the outputs by [extractor.New].
	manifest.Dx = 0 // the logits are taken for the features here
	x, err := extractor.New(t.eng, m, manifest,
		extractor.Options{Output: models.LogitsOutput, Threads: 2}, ds.Test.Images)
	if err != nil {
		return 0, err
	}
	defer x.Close()
	logits, err := x.Features(ctx, &ds.Test.Images, nil)
	if err != nil {
		return 0, err
	}
	right := 0
	for i, y := range ds.Test.Labels {
		if row := logits[i*t.classes+first:][:len(ds.Classes)]; slices.Index(row,
			slices.Max(row)) == y {
			right++
		}
	}
	return float64(right) / float64(len(ds.Test.Labels)), nil
}

// finish makes the exported model: features standardised over the extractor part, images unchanged.
// Mean and deviation are those of the population, in float64. It takes one pass over the part's
// images.
func (t *trainer) finish(ctx context.Context, manifest models.Manifest,
	part *dataset.Images) (*onnx.Model, error) {
	m, err := t.c.Network.Model(t.state, 0)
	if err != nil {
		return nil, err
	}
	x, err := extractor.New(t.eng, m, manifest, extractor.Options{Threads: 2}, *part)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	rows, err := x.Features(ctx, part, nil)
	if err != nil {
		return nil, err
	}
	dx := t.c.Network.Dx
	mean, std := make([]float64, dx), make([]float64, dx)
	n := float64(part.N)
	// Two passes, mean first: a difference of large sums would lose digits.
	for i, v := range rows {
		mean[i%dx] += float64(v) / n
	}
	for i, v := range rows {
		d := float64(v) - mean[i%dx]
		std[i%dx] += d * d / n
	}
	for k := range std {
		std[k] = math.Sqrt(std[k])
	}
	if err := models.SetStandardization(m, mean, std); err != nil {
		return nil, err
	}
	return m, manifest.Write(m)
}

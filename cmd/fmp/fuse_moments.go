package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"gonum.org/v1/gonum/mat"

	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/cost"
	"fmp/onnx/engine"
	"fmp/pipeline/corpus"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/federate"
	"fmp/pipeline/meta"
	"fmp/pipeline/moments"
	"fmp/pipeline/posterior"
	"fmp/pipeline/task"
)

// byteSize is a flag: a number of bytes, with k or m for 2^10 or 2^20 of them. It is between 1 and
// maxBytes. It implements pflag.Value, and its zero value is no size that a flag takes.
type byteSize int

// maxBytes bounds the upload of a client of moments. It is far above the default of 2 MiB. Of ten
// classes 2 MiB hold some 2000 coordinates, as the scatter grows with their square.
const maxBytes = 16 << 20

// String is the number of bytes without a unit, which Set reads again to the same size.
func (b *byteSize) String() string { return strconv.Itoa(int(*b)) }
func (b *byteSize) Type() string   { return "bytes" }

// Set reads a size such as 64k, 256k or 2m. The number is compared with maxBytes over the unit, as
// the product could overflow. k is 2^10 and m 2^20, in either case.
func (b *byteSize) Set(s string) error {
	// At most one of the two suffixes fits, so that the order of the map does not matter.
	unit := 1
	number := strings.ToLower(s)
	for suffix, u := range map[string]int{"k": 1 << 10, "m": 1 << 20} {
		if rest, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = rest, u
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > maxBytes/unit {
		return fmt.Errorf("%q; allowed are 1k to 16m", s)
	}
	*b = byteSize(n * unit)
	return nil
}

// momentsFlags are the flags of fmp fuse for uploads of moments. learn is settled after the flags
// are read: images are named, and no kappa is.
type momentsFlags struct {
	bytes byteSize
	learn bool // kappa from the data set
}

// width returns the largest number of coordinates whose upload in int8 keeps to the bytes, of dx
// and of those that servers take at most. The upload holds the upper triangle of the scatter with
// its scales, and class means with 16 bytes each for scale, mass and number of the class.
// Calibration points in float16 and names come on top. With C classes and at most M calibration
// points, k coordinates take
//
//	k(k+1)/2 + 4k + C(k + 16) + 2M(k + 1) + 1024
//
// bytes. This grows with k, so that the first k that fits from above is the largest. Less than 2
// coordinates are an error, which says how many bytes 2 would take. The search costs O(dx).
func (f momentsFlags) width(dx, classes int) (int, error) {
	// In bytes: names and headers of the message, a float32 a coordinate, and numbers beside a
	// class mean.
	const fixed, scale, mean = 1 << 10, 4, 16
	size := func(k int) int {
		return k*(k+1)/2 + scale*k + classes*(k+mean) + 2*moments.MaxCalibration*(k+1) + fixed
	}
	if dx < 2 {
		return 0, usageErrorf("--extractor: it gives %d feature, and moments are of 2 or more", dx)
	}
	// A bisection would do, and 4096 steps of integers cost microseconds.
	for k := min(dx, federate.MaxMoments); k >= 2; k-- {
		if size(k) <= int(f.bytes) {
			return k, nil
		}
	}
	return 0, usageErrorf("--bytes %d are too few for %d classes; give %d or more",
		f.bytes, classes, size(2))
}

// basis returns k directions of an extractor's features: those in which the classes of its last
// linear layer lie furthest apart or, where it has none, random ones. They are [dx, k] and
// orthonormal. The layer's weights [classes, dx] are read from the extractor's file, whose last
// layers the client graph lacks. A layer of less than 3 classes is not read. The rows of the layer,
// less their mean, span the directions in which its classes differ. Two classes differ in one
// direction alone, which is the reason for 3. A layer is found by running parts of the file, which
// somebody else made: its work and memory are bounded by cost.Foreign.
//
// Random directions are announced on stderr. Equal seeds give equal bases. An interrupt while the
// layer is looked for is told apart from a layer that is not there. Weights that are not finite are
// refused: they would make every direction NaN.
func basis(cmd *cobra.Command, eng engine.Engine, cfg *fuseSettings, x *extractor.Extractor,
	k int) (*onnx.Tensor, error) {
	whole, _, err := models.Load(cfg.Extractor.Model)
	if err != nil {
		return nil, usageError(err)
	}
	// It names the value of the features, by which the layer that reads them is found.
	_, pre := x.Client(nil, nil)
	w := models.LastLayer(cost.Bounded(engine.Under(cmd.Context(), eng), cost.Foreign),
		whole, pre.Output, x.Dx())
	if err := cmd.Context().Err(); err != nil {
		return nil, err
	}
	if w == nil || w.Shape[0] < 3 {
		remark(cmd, []string{fmt.Sprintf("no layer of 3 classes or more reads the features, so "+
			"that the %d directions are random", k)})
		return discriminant.RandomBasis(x.Dx(), k, cfg.Seed), nil
	}
	weights := mat.NewDense(w.Shape[0], w.Shape[1], nil)
	for i, v := range w.F32() {
		if v := float64(v); math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, usageErrorf("extractor %s: its last layer holds %v; want finite numbers",
				cfg.Extractor.Model, v)
		}
		weights.RawMatrix().Data[i] = float64(v)
	}
	return discriminant.HeadBasis(weights, k, cfg.Seed), nil
}

// momentsClient makes the client graph of uploads of moments: it needs no image; where the data set
// has some, they tell kappa. The seed acts on the graph where there is a basis or a kappa that is
// learned, and is recorded then alone. Images of an unknown height and width are refused, since the
// graph is made for one size. The order is: the extractor and the size of its images, the number k
// of coordinates, the basis, kappa, the graph. Features are rows of dx numbers, which the embedding
// maps to k coordinates (package models, MomentsEmbedding).
//
// A kappa that a setting gives comes before one that images tell, which is not learned then.
// Without either the manifest has 0, which stands for nothing known. Statistics of features are not
// part of this graph: frontOf gets none.
func (o *fuseRun) momentsClient(cmd *cobra.Command, eng engine.Engine) (*onnx.Model, front, error) {
	none, cfg, names, f := front{}, &o.settings, o.names, o.moments
	o.acts = []string{"extractor."}
	if cfg.Extractor.Model == "default" {
		return nil, none, usageErrorf("--upload %s wants --extractor FILE, an ONNX image model",
			uploadMoments)
	}
	from := source(cfg.Dataset, cfg.Extractor, cfg.Engine).Options()
	fit, err := extractor.Fit(cfg.Extractor.Model, from)
	if err != nil {
		return nil, none, usageError(err)
	}
	// The side-car file beside the extractor was read for its size already.
	if fit.H == 0 {
		return nil, none, usageErrorf("extractor %s: it leaves height and width of its images "+
			"open: state side in a side-car file (%[1]s.yaml)", cfg.Extractor.Model)
	}
	x, err := extractor.Open(eng, cfg.Extractor.Model, from,
		dataset.Images{H: fit.H, W: fit.W, Ch: fit.Ch})
	if err != nil {
		return nil, none, usageError(err)
	}
	defer x.Close()
	k, err := f.width(x.Dx(), len(names))
	if err != nil {
		return nil, none, err
	}
	c := models.MomentsConfig{Dx: x.Dx(), C: len(names), Bytes: int(f.bytes)}
	// The setting is checked for two numbers or none, median and deviation of the logarithm.
	if known := cfg.Extractor.Kappa; len(known) == 2 {
		c.Kappa, c.KappaDeviation = known[0], known[1]
	}
	// Features that fit are sent as they are.
	if k < x.Dx() {
		o.acts = append(o.acts, "seed")
		if c.Basis, err = basis(cmd, eng, cfg, x, k); err != nil {
			return nil, none, err
		}
	}
	if f.learn {
		o.acts = append(o.acts, "dataset.", "seed")
		known, err := learnKappa(cmd, eng, cfg, c.Basis)
		if err != nil {
			return nil, none, err
		}
		c.Kappa, c.KappaDeviation = known.Median, known.Deviation
	}
	e, err := models.MomentsEmbedding(c)
	if err != nil {
		return nil, none, usageError(err)
	}
	em, err := models.ReadManifest(e)
	if err != nil {
		return nil, none, err
	}
	em.Classes = names
	graph, pre := frontOf(x, nil, nil)
	behind := x.Manifest()
	behind.C = 0 // the classes that it learned are not the clients'
	behind.Classes = nil
	m, err := models.ClientGraph(graph, behind, e, em, pre.Preprocessing)
	if err != nil {
		return nil, none, usageError(err)
	}
	return m, pre, nil
}

// maxLearned bounds the images that kappa is learned from; more tell no more. Features of 10000
// images and 2000 numbers take 80 MB.
const maxLearned = 10000

// learnKappa learns kappa from the images of the data set, those that are no test images. They are
// drawn without replacement by the seed, as a folder lists its images class by class. Features are
// brought to the coordinates of uploads first. maxLearned of them are taken at most, as features
// [n, dx]; labels may be of any classes. basis is [dx, k], or nil for all features. Kappa is a
// temperature in units of the classes' separation. The learned one is that under which images that
// no client holds are most likely. It is the median over simulated rounds, with a deviation of its
// logarithm.
//
// Images that tell nothing of kappa, of classes that are always told apart, are an error. The
// remedy is to leave the data set out.
func learnKappa(cmd *cobra.Command, eng engine.Engine, cfg *fuseSettings,
	basis *onnx.Tensor) (discriminant.Kappa, error) {
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.close()
	images, err := corpus.Read(cmd.Context(), source(cfg.Dataset, cfg.Extractor, cfg.Engine), eng,
		bar.report, nil)
	if err != nil {
		return discriminant.Kappa{}, usageError(err)
	}
	bar.close() // before the notes; the report of kappa opens it anew
	remark(cmd, images.Set.Notes)
	f := images.Features
	var mean, std []float32
	if f.Stats != nil {
		mean, std = f.Stats.Mean, f.Stats.Std
	}
	at, err := posterior.NewEmbedded(f.Dx, basis, mean, std)
	if err != nil {
		return discriminant.Kappa{}, err
	}
	n := min(f.Train.N, maxLearned)
	// Rows are [n, dx], in the drawn order.
	some, labels := make([]float32, 0, n*f.Dx), make([]int, n)
	// The permutation costs memory for all training images, and the copy for n of them alone.
	for at, i := range rng.New(cfg.Seed, "kappa", "images").Perm(f.Train.N)[:n] {
		some, labels[at] = append(some, f.Train.Features[i*f.Dx:(i+1)*f.Dx]...), f.Train.Labels[i]
	}
	rows, err := at.Map(cmd.Context(), some)
	if err != nil {
		return discriminant.Kappa{}, err
	}
	// The width of a row is k with a basis and dx without one.
	bank, err := task.NewBank(rows, len(rows)/n, labels, len(images.Set.Classes))
	if err != nil {
		return discriminant.Kappa{}, usageError(err)
	}
	known, err := meta.Kappa(cmd.Context(), bank, cfg.Seed,
		func(done, total int) { bar.report("kappa", done, total) })
	if err != nil {
		return known, usageError(fmt.Errorf("%w; or leave --dataset out: kappa is then wide", err))
	}
	return known, nil
}

// kappaText gives kappa's median and deviation, of its logarithm, in percent: one digit below 1,
// and no deviation of a kappa that is known. The deviation of a logarithm is about the relative
// deviation, so that it is printed in percent.
func kappaText(median, deviation float64) string {
	switch percent := 100 * deviation; {
	case percent == 0:
		return fmt.Sprintf("%.2f", median)
	case percent < 1:
		return fmt.Sprintf("%.2f ± %.1g%%", median, percent)
	default:
		return fmt.Sprintf("%.2f ± %.0f%%", median, percent)
	}
}

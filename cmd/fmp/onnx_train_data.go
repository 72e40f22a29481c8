package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/featurize/learn"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/npy"
	"fmp/onnx/train"
)

// imagesNamed is the name of a data set: a folder that is there is none that is known. "./NAME" is
// a path to package dataset, and "NAME" a known set. A file of that name, or a folder elsewhere,
// stays as it is given.
func imagesNamed(images string) string {
	if st, err := os.Stat(images); err == nil && st.IsDir() && filepath.IsLocal(images) {
		return "./" + images
	}
	return images
}

// preprocessingFlags says how images are fed to a model that is trained. Flags that are not given
// leave the choice to the side-car, the manifest or the preset.
func preprocessingFlags(cmd *cobra.Command, x *extractor.Options) {
	f := cmd.Flags()
	f.StringVar(&x.Preset, "preset", "",
		"preprocessing of images: "+strings.Join(extractor.PresetNames(), ", "))
	f.Float64SliceVar(&x.Mean, "mean", nil,
		"mean of pixels scaled to 0..1, one number or one a channel")
	f.Float64SliceVar(&x.Std, "std", nil, "standard deviation, likewise")
	f.StringVar(&x.Layout, "layout", "", "NCHW or NHWC (default: by the input's shape)")
	f.IntVar(&x.Side, "side", 0, "height and width of images where the model leaves them open")
}

// examples are the rows for training, for validation, and for the measurement before and after.
// test is empty of --data: the held-out rows are measured instead. digest is the sha256 of the data
// set or the archive, and part of a run's identity.
type examples struct {
	train, held, test train.Data
	classes           int      // 0 where the target is no class
	names             []string // of classes
	digest            string
	side              extractor.Options // of the side-car file beside the model
	notes             []string
}

// sidecar makes the side-car of the model that is written. A model of arrays has one where the
// model that is read has. With --list nothing is written, and no side-car is needed.
func (o *tuning) sidecar(cmd *cobra.Command, path string, manifest models.Manifest) (err error) {
	if o.list {
		return nil
	}
	if _, from, _ := extractor.Sidecar(path); o.images == "" && from == "" {
		return noSidecar(o.out)
	}
	o.side, err = newSidecar(cmd.Flags(), path, o.out, manifest, o.x, false)
	return err
}

// photos reads a data set of images. An extractor sees the part and the classes of it that are an
// extractor's. ex.test are the data set's test images, and held a share of the others. d.Fit has
// images brought to the size that the model fixes, where it fixes one.
func (o *tuning) photos(cmd *cobra.Command, path string, m *onnx.Model, manifest models.Manifest,
	d dataset.Options) (*examples, error) {
	x := o.x
	x.Output = o.t.Output
	var err error
	if d.Fit, err = extractor.Fit(path, x); err != nil {
		return nil, usageError(flagged{err})
	}
	ds, err := loadForTraining(cmd, d, o.onBad)
	if err != nil {
		return nil, err
	}
	feed, notes, err := extractor.Feeder(path, m, manifest, x, ds.Train.Images)
	if err != nil {
		return nil, usageError(fmt.Errorf("%s: %w", path, flagged{err}))
	}
	part := &ds.Train
	ex := &examples{classes: len(ds.Classes), names: ds.Classes, digest: ds.Digest, notes: notes}
	if ex.side, _, err = extractor.Sidecar(path); err != nil {
		return nil, usageError(err)
	}
	if o.finish != nil {
		if part, ex.classes, err = learn.Corpus(ds); err != nil {
			return nil, usageError(err)
		}
	}
	// Labels become targets of the loss here, for training and test images alike.
	of := func(p *dataset.Labelled) train.Data {
		return learn.Photos(p, ex.classes, o.t.Loss.Name, o.augment, feed)
	}
	ex.test = of(&ds.Test)
	if ex.train, ex.held, err = of(part).HoldOut(o.heldOut, o.t.Seed); err != nil {
		return nil, usageError(err)
	}
	return ex, nil
}

// arrays reads an archive of arrays. Where the target is class numbers, they become the targets of
// the loss. Each array has a row for each example. Those of float32 inputs are converted to it. The
// archive is read whole, and its other arrays are left out with a note. Class numbers are integers
// 0 to 2^20 in any element type, 2^20 being a bound of sanity.
func (o *tuning) arrays(m *onnx.Model) (*examples, error) {
	t, err := npy.LoadArchive(o.data)
	if err != nil {
		return nil, usageError(err)
	}
	ex := &examples{}
	if ex.digest, err = models.DigestFile(o.data, math.MaxInt64); err != nil {
		return nil, err
	}
	target := t[train.TargetInput]
	if target == nil {
		return nil, usageErrorf("%s: it has the arrays %q; want %q beside the model's inputs",
			o.data, slices.Sorted(maps.Keys(t)), train.TargetInput)
	}
	for _, in := range m.Graph.Inputs {
		if t[in.Name] == nil {
			return nil, usageErrorf("%s: it has the arrays %q; the model's inputs are %s", o.data,
				slices.Sorted(maps.Keys(t)), describeValues(m.Graph.Inputs))
		}
		// Arrays of NumPy are of float64 unless they are told otherwise.
		if have := t[in.Name]; in.DType == onnx.Float32 && have.DType != onnx.Float32 {
			t[in.Name] = float32s(have)
		}
	}
	if len(target.Shape) == 1 && o.t.Loss.Name != train.MSE && o.t.Loss.Name != train.Binary {
		labels := make([]int, target.Len())
		for i := range labels {
			v := target.At(i)
			if v < 0 || v > 1<<20 || v != math.Trunc(v) {
				return nil, usageErrorf("%s: target %d is %v; want a class, 0 to %d",
					o.data, i, v, 1<<20)
			}
			labels[i] = int(v)
		}
		// Without --classes the highest number decides, so that absent highest classes need the
		// flag.
		most := 0
		for _, y := range labels {
			most = max(most, y)
		}
		if ex.classes = cmp.Or(o.classes, most+1); most >= ex.classes {
			return nil, usageErrorf("%s: a target is %d and --classes is %d", o.data,
				most, ex.classes)
		}
		t[train.TargetInput] = train.Target(labels, ex.classes, o.t.Loss.Name)
	} else {
		t[train.TargetInput] = float32s(target)
		if err := o.targetFits(m, target); err != nil {
			return nil, err
		}
	}
	// Arrays that no input reads are no examples, and their rows need not agree.
	given := map[string]*onnx.Tensor{train.TargetInput: t[train.TargetInput]}
	for _, in := range m.Graph.Inputs {
		given[in.Name] = t[in.Name]
	}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if given[name] == nil {
			ex.notes = append(ex.notes,
				fmt.Sprintf("the array %q is of no input, and is left out", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if err := o.checkRows(name, given[name]); err != nil {
			return nil, usageError(err)
		}
	}
	all, err := train.Rows(given)
	if err != nil {
		return nil, usageError(fmt.Errorf("%s: %w", o.data, err))
	}
	if ex.train, ex.held, err = all.HoldOut(o.heldOut, o.t.Seed); err != nil {
		return nil, usageError(err)
	}
	return ex, nil
}

// targetFits returns an error where the rows of a target that is no list of classes have not the
// shape of the output's. Contrastive labels have one number a row. The first axis is the rows, and
// is compared by train.Rows. Sizes that the graph leaves open fit any.
func (o *tuning) targetFits(m *onnx.Model, target *onnx.Tensor) error {
	if o.t.Loss.Name == train.Contrastive {
		if len(target.Shape) == 2 && target.Shape[1] == 1 {
			return nil
		}
		return usageErrorf("%s: %q is of shape %v; --loss %s wants class numbers of one axis",
			o.data, train.TargetInput, target.Shape, o.t.Loss.Name)
	}
	// An output that is not there is refused by prepare, which names those that are.
	out, ok := m.Graph.Output(o.t.Output)
	if !ok || out.Shape == nil {
		return nil
	}
	fits := len(target.Shape) == len(out.Shape)
	for i := 1; fits && i < len(out.Shape); i++ {
		fits = !out.Shape[i].IsKnown() || out.Shape[i].Size == target.Shape[i]
	}
	want := "want numbers of the output's shape"
	switch {
	case fits:
		return nil
	case o.t.Loss.Name == train.CrossEntropy:
		want = "want class numbers of one axis, or probabilities of the output's shape"
	case len(target.Shape) == 1:
		want += "; target[:, None] of NumPy is a column"
	}
	return usageErrorf("%s: %q is of shape %v and output %q is %s; %s", o.data, train.TargetInput,
		target.Shape, out.Name, out.Type(), want)
}

// float32s converts a tensor. Numbers beyond float32 become infinite, which checkRows refuses. It
// makes a new tensor, and costs one conversion an element.
func float32s(t *onnx.Tensor) *onnx.Tensor {
	out := onnx.ZerosF32(t.Shape...)
	for i := range out.F32() {
		out.F32()[i] = float32(t.At(i))
	}
	return out
}

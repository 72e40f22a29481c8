// Package corpus reads labelled images behind an extractor, on which predictors are trained and
// with which client graphs are made. It finds the models that go with them: the user's files, or
// those that come with the program.
package corpus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"fmp/featurize"
	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/pipeline/settings"
	"fmp/pipeline/shipped"
	"fmp/pipeline/task"
)

// Source says which images are read, and the extractor that they go through.
type Source struct {
	Dataset   settings.Dataset
	Extractor settings.Extractor
	// Shipped is the data set whose extractor is meant where Extractor.Model is "default".
	Shipped string
	// Stats standardise the features; nil: the statistics of the data set's extractor part.
	Stats   *featurize.Stats
	Threads int // goroutines at most
}

// Images are the images of a data set, with their features.
type Images struct {
	Set *dataset.Dataset
	// Extractor is closed; only its description remains.
	Extractor *extractor.Extractor
	Features  *featurize.Features
}

// Read turns the images of a data set into feature rows. While the extractor is open, also is
// called with them, for features of other images; nil: nothing is. progress is called with the
// stages data and features. The extractor is closed before it returns, also after an error.
func Read(ctx context.Context, s Source, eng engine.Engine,
	progress func(stage string, done, total int), also func(*Images) error) (*Images, error) {
	ds, x, err := s.open(ctx, eng, progress)
	if err != nil {
		return nil, err
	}
	d := s.Dataset
	r := &Images{Set: ds, Extractor: x}
	r.Features, err = featurize.Run(ctx, ds, x, featurize.Config{
		Fractions: dataset.Fractions{Extractor: d.Splits.Extractor, Corpus: d.Splits.Corpus,
			Clients: d.Splits.Clients},
		Progress: func(done, total int) { progress("features", done, total) },
		Stats:    s.Stats, Test: d.Test,
		Skip: d.Bad == "skip",
	})
	if err == nil && also != nil {
		err = also(r)
	}
	if err = errors.Join(err, x.Close()); err != nil {
		return nil, err
	}
	return r, nil
}

// Describe describes images for which the program has the extractor and a client graph, without
// reading any: their classes, and the number of their features. It returns nil where the source
// names another extractor, some of the classes or a folder of its own, or the program has none.
func (s Source) Describe(eng engine.Engine) (*Images, error) {
	if d := s.Dataset; s.Extractor.Model != "default" || d.Name != s.Shipped ||
		d.Classes != "" || d.Dir != "" {
		return nil, nil
	}
	g, f, err := shipped.Load(s.Shipped, models.KindClient)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	shape := g.Graph.Inputs[0].Shape // images [n, height, width, channels]
	if len(shape) != 4 {
		return nil, fmt.Errorf("client graph of %s: its images have %d dimensions; want 4",
			s.Shipped, len(shape))
	}
	ds := &dataset.Dataset{Classes: f.Classes}
	ds.Train.Images = dataset.Images{H: shape[1].Size, W: shape[2].Size, Ch: shape[3].Size}
	x, err := s.openExtractor(eng, ds)
	if err != nil {
		return nil, err
	}
	return &Images{ds, x, &featurize.Features{Dx: f.Dx}}, x.Close()
}

// Store computes shard i of n of the features that [Read] reads, and stores it where Read looks for
// them once all are merged.
func Store(ctx context.Context, s Source, eng engine.Engine, i, n int,
	progress func(stage string, done, total int)) (featurize.Shard, error) {
	ds, x, err := s.open(ctx, eng, progress)
	if err != nil {
		return featurize.Shard{}, err
	}
	shard, err := featurize.RunShard(ctx, ds, x, i, n, featurize.Config{
		Skip:     s.Dataset.Bad == "skip",
		Progress: func(done, total int) { progress("features", done, total) },
	})
	shard.Notes = ds.Notes
	return shard, errors.Join(err, x.Close())
}

// open loads the data set and opens the extractor, which the caller closes.
func (s Source) open(ctx context.Context, eng engine.Engine,
	progress func(stage string, done, total int)) (*dataset.Dataset, *extractor.Extractor, error) {
	// Images in folders are resized directly to the model's size.
	var fit imagefile.Fit
	if s.Extractor.Model != "default" {
		var err error
		if fit, err = extractor.Fit(s.Extractor.Model, s.Options()); err != nil {
			return nil, nil, err
		}
	}
	d := s.Dataset
	ds, err := dataset.Load(ctx,
		dataset.Options{Name: d.Name, Dir: d.Dir, Classes: d.Classes, Test: d.Splits.Test, Fit: fit,
			Skip: d.Bad == "skip", Hold: dataset.MaxBytes,
			Progress: func(done, total int) { progress("data", done, total) }})
	if err != nil {
		return nil, nil, err
	}
	x, err := s.openExtractor(eng, ds)
	return ds, x, err
}

// Options returns how images are fed to the extractor. Empty lists of means and deviations are
// none: settings write them so.
func (s Source) Options() extractor.Options {
	x := s.Extractor
	o := extractor.Options{Batch: x.Batch, Mean: x.Mean, Std: x.Std, Scale: x.Scale,
		Channels: x.Channels, Resize: x.Resize, Preset: x.Preset,
		Layout: x.Layout, Output: x.Output, Threads: s.Threads}
	if len(o.Mean) == 0 {
		o.Mean = nil
	}
	if len(o.Std) == 0 {
		o.Std = nil
	}
	return o
}

// openExtractor opens the extractor of the setting, or with "default" the shipped one. Where none
// is shipped the error wraps fs.ErrNotExist, and says how to come by another.
func (s *Source) openExtractor(eng engine.Engine,
	ds *dataset.Dataset) (*extractor.Extractor, error) {
	if s.Extractor.Model != "default" {
		return extractor.Open(eng, s.Extractor.Model, s.Options(), ds.Train.Images)
	}
	m, f, err := shipped.Load(s.Shipped, models.KindExtractor)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: give an ONNX image model with --extractor FILE, or fetch one "+
			"for photographs (fmp extractors pull efficientnet-lite0) and give --extractor "+
			"efficientnet-lite0",
			err)
	}
	if err != nil {
		return nil, err
	}
	return extractor.New(eng, m, f, s.Options(), ds.Train.Images)
}

// Release drops the training images and their rows, of which parts have been taken.
func (r *Images) Release() { r.Set.Train.Images, r.Features.Train.Features = dataset.Images{}, nil }

// Bank returns a part of the training images; nil where it is empty.
func (r *Images) Bank(part dataset.Range) (*task.Bank, error) {
	rows := r.Features.Select(part)
	if rows.N == 0 {
		return nil, nil
	}
	return task.NewBank(rows.Features, r.Features.Dx, rows.Labels, len(r.Set.Classes))
}

// Behind returns the description of the extractor with the sizes of the features and the number of
// classes, which models must match.
func (r *Images) Behind() models.Manifest {
	f := r.Extractor.Manifest()
	f.Dx, f.C, f.Classes = r.Features.Dx, len(r.Set.Classes), r.Set.Classes
	return f
}

// Model returns the model of a kind that a setting names, behind an extractor: a file, or with
// "default" the shipped one of the data set. It is nil with "untrained" and where no shipped model
// fits, with a note if there is one for another extractor or other classes. A file that does not
// fit is an error. Of a conjugate predictor with class names it takes the classes of the data set,
// where it has them all.
func Model(kind, setting, dataset string,
	behind models.Manifest) (m *onnx.Model, f models.Manifest, note string, err error) {
	switch setting {
	case "untrained":
		return nil, f, "", nil
	case "default":
		m, f, err = shipped.Load(dataset, kind)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, f, "", nil
		}
		if err != nil {
			return nil, f, "", err
		}
		if kind == models.KindConjugate && len(f.Classes) > 0 { // some of the data set's classes
			if some, of, err := models.OfClasses(m, f, behind.Classes); err != nil {
				return nil, f, "", fmt.Errorf("shipped predictor of %s: %w", dataset, err)
			} else if some != nil {
				m, f = some, of
			}
		}
		behind.Source = filepath.Base(behind.Source) // notes are shared, so they name no folder
		if err := models.Match(behind, f); err != nil {
			return nil, f, fmt.Sprintf("the shipped %s does not fit (%v): an untrained one is "+
				"used; fmp train %s makes one that does", kind, err, kind), nil
		}
		return m, f, "", nil
	}
	m, f, err = file(kind, kind, setting, behind)
	return m, f, "", err
}

// file loads the model of a kind that the setting of a group names.
func file(kind, group, setting string,
	behind models.Manifest) (*onnx.Model, models.Manifest, error) {
	m, f, err := models.Load(setting)
	if err == nil && f.Kind != kind {
		err = fmt.Errorf("%s is %q by its manifest; want %s", setting, f.Kind, kind)
	}
	if err == nil {
		err = models.Match(behind, f)
	}
	if err != nil {
		return nil, f, fmt.Errorf("setting %s.model: %w", group, err)
	}
	return m, f, nil
}

// Private returns the private predictor behind an extractor: a file, or with "default" the shipped
// one of the data set. A conjugate predictor beside it, nil for none, must share its coordinates.
func Private(setting, dataset string, behind models.Manifest,
	conjugate *onnx.Model) (m *onnx.Model, f models.Manifest, err error) {
	behind.C = 0 // its classes are the round's
	if setting == "default" {
		if m, f, err = shipped.Load(dataset, models.KindPrivate); err == nil {
			err = models.Match(behind, f)
		}
		if err != nil {
			return nil, f, fmt.Errorf("setting privacy.model: no private predictor comes with "+
				"the program that fits (%w); fmp train private makes one", err)
		}
	} else if m, f, err = file(models.KindPrivate, "privacy", setting, behind); err != nil {
		return nil, f, err
	}
	if conjugate != nil {
		if err := models.SameCoordinates(m, conjugate); err != nil {
			return nil, f, fmt.Errorf("setting privacy.model: %w", err)
		}
	}
	return m, f, nil
}

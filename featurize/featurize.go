// Package featurize computes feature rows from raw images: a data set (featurize/dataset), an
// extractor (featurize/extractor), a cache of its features on disk, and their standardisation.
package featurize

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"

	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
)

// Labelled is N feature rows of dx numbers, row-major, and their labels.
type Labelled struct {
	N        int
	Features []float32
	Labels   []int
}

// Features holds the features of a data set, computed by an extractor.
type Features struct {
	Dx      int
	Classes []string
	// Train holds all training images in the order of the data set; Splits divides them.
	Train, Test Labelled
	Splits      dataset.Splits
	// Stats are the statistics that standardised the features; nil where the extractor does so
	// itself.
	Stats *Stats
	// Digest identifies the extractor, preprocessing, data set and statistics.
	Digest string
	Notes  []string
	// Cached reports whether the features were read from the cache.
	Cached bool
}

// Select copies the rows of a range of the training images.
func (f *Features) Select(r dataset.Range) Labelled {
	return Labelled{
		N:        r.Len(),
		Features: append([]float32(nil), f.Train.Features[r.From*f.Dx:r.To*f.Dx]...),
		Labels:   append([]int(nil), f.Train.Labels[r.From:r.To]...),
	}
}

// Config holds the options of [Run].
type Config struct {
	// Fractions are the parts of the training images; zero means [dataset.DefaultFractions].
	Fractions dataset.Fractions
	// Stats, if not nil, standardise the features in place of the statistics of the extractor part,
	// for tasks whose extractor was trained on other images.
	Stats *Stats
	// Test is the number of test images whose features are wanted, the first ones; 0 means all.
	Test int
	// Cache is the folder of cached features; "" means fmp/features in the user's cache folder,
	// "none" disables the cache.
	Cache string
	// Skip leaves out images that cannot be decoded, of a data set whose files are decoded when
	// they are asked for; without it they are an error that names them, once the features of all
	// others are stored.
	Skip bool
	// Progress, if not nil, is called with the number of images done, possibly from several
	// goroutines.
	Progress func(done, total int)
}

// Run computes, or reads from the cache, the features of a data set's training and test images. The
// features of a third-party model are standardised with the statistics of the extractor part.
// Images that are left out, see [Config], are dropped from ds as well.
func Run(ctx context.Context, ds *dataset.Dataset, x *extractor.Extractor,
	c Config) (*Features, error) {
	if c.Fractions == (dataset.Fractions{}) {
		c.Fractions = dataset.DefaultFractions
	}
	splits, err := ds.Splits(c.Fractions)
	if err != nil {
		return nil, err
	}
	f := &Features{Dx: x.Dx(), Classes: ds.Classes, Splits: splits, Digest: x.Digest() + ds.Digest}
	f.Notes = append(append(f.Notes, ds.Notes...), x.Notes()...)
	f.Train, f.Test = Labelled{N: ds.Train.N, Labels: ds.Train.Labels},
		Labelled{N: ds.Test.N, Labels: ds.Test.Labels}
	path := cachePath(c.Cache, ds, x)
	all, note := loadRows(path, f.Train.N+f.Test.N, f.Dx)
	if c.Test > 0 && c.Test < f.Test.N {
		if all != nil { // of a run that wanted more
			all = all[:(f.Train.N+c.Test)*f.Dx]
		} else if path != "" {
			path = strings.TrimSuffix(path, ".npy") + fmt.Sprintf("-%d.npy", c.Test)
			all, _ = loadRows(path, f.Train.N+c.Test, f.Dx)
		}
		f.Test.N, f.Test.Labels = c.Test, f.Test.Labels[:c.Test]
	}
	if note != "" {
		f.Notes = append(f.Notes, note)
	}
	if f.Cached = all != nil; !f.Cached {
		g := newGrid(ds, x)
		g.test = f.Test.N
		if all, err = extract(ctx, ds, x, g, dataset.Range{To: f.Train.N + f.Test.N}, path,
			c.Progress); err != nil {
			return nil, err
		}
		if err := saveRows(path, all, f.Dx); err != nil {
			// The features are right without a cache; the next run will compute them again.
			f.Notes = append(f.Notes, fmt.Sprintf("features could not be cached: %v", cause(err)))
		}
	}
	if all, err = f.decodable(ctx, ds, all, c); err != nil {
		return nil, err
	}
	cut := f.Train.N * f.Dx
	f.Train.Features, f.Test.Features = all[:cut:cut], all[cut:]
	if !x.Standardised() {
		if f.Stats = c.Stats; f.Stats == nil {
			var part dataset.Range
			if f.Stats, part, err = f.statistics(); err != nil {
				return nil, err
			}
			f.Digest += fmt.Sprintf("%+v", part)
		} else {
			f.Digest += fmt.Sprintf("%+v", *f.Stats)
		}
		f.Stats.Apply(f.Train.Features)
		f.Stats.Apply(f.Test.Features)
	}
	for i, v := range all {
		if !(math.Abs(float64(v)) <= maxFeature) {
			return nil, fmt.Errorf("feature %d of image %d is %v as it goes to the methods; their "+
				"arithmetic stands up to %g: check extractor.mean and extractor.std, and the model",
				i%f.Dx, i/f.Dx, v, maxFeature)
		}
	}
	sum := sha256.Sum256([]byte(f.Digest))
	f.Digest = hex.EncodeToString(sum[:])
	return f, nil
}

// statistics returns the statistics of the extractor part or, where it is too small, of the corpus
// as well, and the range of images that they were computed from.
func (f *Features) statistics() (*Stats, dataset.Range, error) {
	splits := f.Splits
	part := splits.Extractor
	if part.Len() < minStats {
		part = dataset.Range{From: 0, To: splits.Clients.From}
		f.Notes = append(f.Notes, fmt.Sprintf("the extractor part holds %d images: features are "+
			"standardised over the corpus as well", splits.Extractor.Len()))
	}
	if part.Len() < minStats {
		return nil, part, fmt.Errorf("standardising features needs %d "+
			"images outside the clients' part and there are %d; give dataset.splits.extractor or "+
			"dataset.splits.corpus a larger share", minStats, part.Len())
	}
	return newStats(f.Train.Features[part.From*f.Dx:part.To*f.Dx], f.Dx), part, nil
}

// cause returns the innermost error, such as "permission denied": notes are shared, and name no
// folder.
func cause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// maxFeature bounds the magnitude of a feature, after any standardisation: sums of squares of
// larger ones overflow float32, and every figure would be NaN.
const maxFeature = 1e9

// minStats is the least number of images that features are standardised over.
const minStats = 2

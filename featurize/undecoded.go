package featurize

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"fmp/featurize/dataset"
	"fmp/featurize/imagefile"
)

// undecoded returns the numbers of the images that could not be decoded: their stored features are
// NaN. All features of such an image are NaN, so that the first one tells. A model's own NaN cannot
// be meant: features that are not finite are an error of the extractor.
func undecoded(rows []float32, dx int) (out []int) {
	for i := 0; i*dx < len(rows); i++ {
		if math.IsNaN(float64(rows[i*dx])) {
			out = append(out, i)
		}
	}
	return out
}

// refused returns the error that names images, which cannot be decoded. Their numbers go on from
// training to test images. Each is decoded once more for its reason. bad has at least one number,
// in any order. All reasons are in one error ([imagefile.Unread]). A fault of the disk ends it.
func refused(ctx context.Context, train, test *dataset.Images, bad []int) error {
	var errs []error
	for _, i := range bad {
		part := train
		if i >= train.N {
			part, i = test, i-train.N
		}
		_, why, err := part.Load(ctx, i, i+1)
		if err != nil {
			return err
		}
		// The file was mended since: its features must be computed anew.
		if len(why) == 0 {
			return fmt.Errorf("%s could not be decoded when its features were stored, and can be "+
				"now: remove the stored features", strings.Join(part.Names([]int{i}), ""))
		}
		errs = append(errs, why[0].Err)
	}
	return imagefile.Unread(errs)
}

// decodable drops the images that cannot be decoded from the features, the data set and rows, and
// divides the others into splits. Without c.Skip they are an error. Rows that stay move up in their
// memory. Images in memory were decoded when they were read, so that none of theirs is NaN. An
// error of ctx, of a file or of the splits leaves ds and f half changed: the caller drops both.
func (f *Features) decodable(ctx context.Context, ds *dataset.Dataset, rows []float32,
	c Config) ([]float32, error) {
	if !ds.Train.Lazy() {
		return rows, nil
	}
	bad := undecoded(rows, f.Dx)
	if len(bad) == 0 {
		return rows, nil
	}
	if !c.Skip {
		return nil, refused(ctx, &ds.Train.Images, &ds.Test.Images, bad)
	}
	// bad is ascending, so that it is searched by halves.
	// Images are counted before any is dropped, for the note.
	of := ds.Train.N + ds.Test.N
	var names []string
	first := 0
	for _, p := range []struct {
		part *dataset.Labelled
		rows *Labelled
	}{{&ds.Train, &f.Train}, {&ds.Test, &f.Test}} {
		var keep, out []int
		for i := range p.part.N {
			if _, is := slices.BinarySearch(bad, first+i); is {
				out = append(out, i)
			} else {
				keep = append(keep, i)
			}
		}
		first += p.part.N
		names = append(names, p.part.Names(out)...)
		some, err := p.part.Subset(keep)
		if err != nil {
			return nil, err
		}
		*p.part = *some
		// The features may be of the first images of the part alone: its labels are cut to them.
		p.rows.N -= len(out)
		p.rows.Labels = some.Labels[:p.rows.N]
	}
	// A row is written at or before its own place, so that none is overwritten unread.
	left := rows[:0]
	for i := 0; i*f.Dx < len(rows); i++ {
		if _, is := slices.BinarySearch(bad, i); !is {
			left = append(left, rows[i*f.Dx:(i+1)*f.Dx]...)
		}
	}
	f.Notes = append(f.Notes, fmt.Sprintf("%d of %d images cannot be decoded and were left out: %s",
		len(bad), of, strings.Join(names, ", ")))
	splits, err := ds.Splits(c.Fractions)
	f.Splits = splits
	return left, errors.Join(ds.Check(), err)
}

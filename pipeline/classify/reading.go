package classify

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"fmp/featurize/imagefile"
	"fmp/onnx"
	"fmp/onnx/npy"
)

// Reading is how a command reads the images of a path.
type Reading struct {
	Log    io.Writer // is told which files and images are left out
	Prefix string    // begins its lines: "fmp predict: "
	Skip   bool      // leaves images out that cannot be used; else they are an error
}

// open opens the images of a path, and says which files beside them are left out.
func (r Reading) open(c *Classifier, path string, o imagefile.Options) (imagefile.Source, error) {
	src, others, err := c.Source(path, o)
	if err == nil && others.N > 0 {
		fmt.Fprintf(r.Log, "%sunder %s %v\n", r.Prefix, path, others)
	}
	return src, err
}

// Images is [Classifier.Images] of a path. mapped are the classes that folders were taken for or,
// where labels are optional, the folders of none: predictions need no class.
// Without Skip a bad image is an error, found after all others were read, so that one run names
// more than the first. do may have had predictions by then.
func (r Reading) Images(ctx context.Context, c *Classifier, path string, o imagefile.Options,
	do func([]Prediction) error) (bad []error, mapped []imagefile.Mapped, err error) {
	src, err := r.open(c, path, o)
	if err != nil {
		return nil, nil, err
	}
	defer src.Close()
	bad, err = c.Images(ctx, src, r.Skip, do)
	if err == nil && !r.Skip {
		err = imagefile.Unread(bad)
	}
	if err != nil {
		return nil, nil, err
	}
	r.leftOut(bad)
	mapped = imagefile.MappingOf(src)
	if o.Optional {
		mapped = slices.DeleteFunc(mapped,
			func(m imagefile.Mapped) bool { return m.Label != imagefile.Unlabelled })
	}
	return bad, mapped, nil
}

// Adapt is [Classifier.Adapt] by the images of a path.
// Labels are optional, as a camera's images need no classes.
func (r Reading) Adapt(ctx context.Context, c *Classifier, path string,
	o imagefile.Options) (n int, err error) {
	o.Optional = true
	src, err := r.open(c, path, o)
	if err != nil {
		return 0, err
	}
	defer src.Close()
	n, bad, err := c.Adapt(ctx, src, r.Skip)
	if err == nil && !r.Skip {
		err = imagefile.Unread(bad)
	}
	if err == nil {
		r.leftOut(bad)
	}
	return n, err
}

// leftOut names images that are left out.
func (r Reading) leftOut(bad []error) {
	for _, b := range bad {
		fmt.Fprintf(r.Log, "%sleft out: %v\n", r.Prefix, b)
	}
}

// LoadRows reads feature rows from a .npy file of most bytes at most, those that of takes:
// [FeatureRows] or [AnyRows].
// An error of the array names the path. A file that cannot be opened is an error of npy.
func LoadRows(path string, most int64,
	of func(*onnx.Tensor) (*onnx.Tensor, error)) (*onnx.Tensor, error) {
	rows, err := load(path, most)
	if err == nil {
		if rows, err = of(rows); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	return rows, err
}

// LoadLabels reads the labels of feature rows, of 0 to classes-1, from a .npy file of most bytes at
// most.
func LoadLabels(path string, most int64, classes int) ([]int, error) {
	y, err := load(path, most)
	if err != nil {
		return nil, fmt.Errorf("--labels of feature rows: %w", err)
	}
	labels, err := Labels(y, classes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return labels, nil
}

// load reads an array, whose size is checked before.
// A file whose size cannot be told, as a path that is none, is left to npy.Load to refuse.
func load(path string, most int64) (*onnx.Tensor, error) {
	if st, err := os.Stat(path); err == nil && st.Size() > most {
		return nil, fmt.Errorf("%s has %d bytes; allowed are %d", path, st.Size(), most)
	}
	return npy.Load(path)
}

package classify

import (
	"context"
	"errors"
	"fmt"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
)

// adaptBatch is the number of images of which one shift is estimated. The shift of more images is
// the mean of their batches'.
// A batch bounds the memory of a run, as that of predictions does; the weighted mean keeps each
// image's share the same.
const adaptBatch = 64

// Adapt makes the classifier that of an owner who took no part in the round, given images of its
// camera; labels are not read. The shift that the images have in common (models.ShiftOutput) is
// left out of the images that are classified from then on. It returns the number of images, and
// the bad ones as Images does. It is an error where the classifier has no shift. After an error
// the classifier is as it was, but where only the session before could not be closed.
// Images are taken to be of one camera: the estimate has no way to tell two apart. No call may
// predict meanwhile: the session is replaced and the old one closed.
func (c *Classifier) Adapt(ctx context.Context, src imagefile.Source,
	skip bool) (n int, bad []error, err error) {
	if c.TakesRows() {
		return 0, nil, fmt.Errorf("adapting the classifier: it takes feature rows: give feature " +
			"rows, or a classifier of images")
	}
	a, err := c.adapting()
	if err != nil {
		return 0, nil, err
	}
	defer a.session.Close()
	var unclear []error
	bad, err = imagefile.Read(ctx, src, c.Fit, adaptBatch, skip,
		func(pixels []uint8, items []imagefile.Item) error {
			places, err := add(a, "images", pixels, c.Fit.H, c.Fit.W, c.Fit.Ch)
			for _, i := range places {
				unclear = append(unclear, c.unclear(items[i].Name))
			}
			return err
		})
	bad = append(bad, unclear...)
	if err != nil || len(bad) > 0 && !skip {
		return a.n, bad, err
	}
	if a.n == 0 && len(bad) > 0 {
		return 0, bad, fmt.Errorf("adapting the classifier: none of the images can be used: %w",
			errors.Join(bad...))
	}
	return a.n, bad, a.finish()
}

// AdaptRows is Adapt for feature rows, [n, dx] of float32. Rows whose shift is not finite are an
// error.
// Unlike Adapt it leaves no row out. The context is looked at between batches of adaptBatch.
func (c *Classifier) AdaptRows(ctx context.Context, rows *onnx.Tensor) error {
	dx := c.Manifest.Dx
	if !c.TakesRows() || len(rows.Shape) != 2 || rows.Shape[1] != dx || rows.F32() == nil {
		return fmt.Errorf("adapting the classifier: feature rows are %v; want float32 "+
			"[n, %d], and a classifier of feature rows", rows, dx)
	}
	a, err := c.adapting()
	if err != nil {
		return err
	}
	defer a.session.Close()
	var bad []error
	for from := 0; from < rows.Shape[0]; from += adaptBatch {
		if err := ctx.Err(); err != nil {
			return err
		}
		to := min(from+adaptBatch, rows.Shape[0])
		places, err := add(a, "features", rows.F32()[from*dx:to*dx], dx)
		if err != nil {
			return err
		}
		for _, i := range places {
			bad = append(bad, c.unclear(fmt.Sprint(from+i)))
		}
	}
	if len(bad) > 0 {
		return imagefile.First(bad)
	}
	return a.finish()
}

// Shift returns the shift that the classifier was adapted by; nil where it was not.
// The caller reads it and changes nothing: the classifier shares it.
func (c *Classifier) Shift() *onnx.Tensor { return c.shift }

// adaptation sums the shifts of batches. Of batches b of n_b images with the shifts d_b it gives
//
//	d = sum_b n_b d_b / sum_b n_b
//
// The sum is in float64, and its length is that of the first batch's shift. n counts the images in
// the sum, without those left out.
type adaptation struct {
	c       *Classifier
	session engine.Session
	sum     []float64
	n       int
}

// adapting loads the whole graph with the shift as its only output, in a session of its own, which
// the caller closes. Predictions go on in the classifier's session until finish.
func (c *Classifier) adapting() (*adaptation, error) {
	if c.whole == nil {
		return nil, errors.New("adapting the classifier: it states no shifts of cameras: fmp " +
			"pool states them where it finds clients whose cameras differ")
	}
	s, err := c.load(c.whole, models.ShiftOutput)
	return &adaptation{c: c, session: s}, err
}

// add adds the shift of a batch of images or feature rows of a shape. Where it is not finite, it is
// that of those that have a finite shift alone, and add returns the places of the others.
// Trying images one by one costs a run for each, but only for a batch that holds a bad one.
func add[T uint8 | float32](a *adaptation, input string, batch []T,
	shape ...int) (unclear []int, err error) {
	size := 1
	for _, d := range shape {
		size *= d
	}
	shift, err := shiftOf(a, input, batch, size, shape)
	if err == nil && !finite(shift) {
		var kept []T
		for i := range len(batch) / size {
			one := batch[i*size : (i+1)*size]
			if shift, err = shiftOf(a, input, one, size, shape); err != nil {
				return nil, err
			}
			if finite(shift) {
				kept = append(kept, one...)
			} else {
				unclear = append(unclear, i)
			}
		}
		// The images kept are run once more together, since the shift is one of the whole batch.
		if batch = kept; len(batch) > 0 {
			shift, err = shiftOf(a, input, batch, size, shape)
		}
	}
	switch {
	case err != nil || len(batch) == 0:
		return unclear, err
	case !finite(shift):
		return nil, fmt.Errorf("adapting the classifier: %s of %d images is not finite, and that "+
			"of each alone is; check that the file is whole", models.ShiftOutput, len(batch)/size)
	}
	if a.sum == nil {
		a.sum = make([]float64, len(shift))
	}
	if len(shift) != len(a.sum) {
		return nil, fmt.Errorf("adapting the classifier: %s has %d numbers, and %d before; check "+
			"that the file is whole", models.ShiftOutput, len(shift), len(a.sum))
	}
	n := len(batch) / size
	for j, v := range shift {
		a.sum[j] += float64(n) * float64(v)
	}
	a.n += n
	return unclear, nil
}

// shiftOf returns the mean shift of a batch, in which images count alike.
// The sum stays as it is: add alone changes it.
func shiftOf[T uint8 | float32](a *adaptation, input string, batch []T, size int,
	shape []int) ([]float32, error) {
	x := onnx.NewTensor(batch, append([]int{len(batch) / size}, shape...)...)
	out, err := engine.Eval(a.session, map[string]*onnx.Tensor{input: x}, models.ShiftOutput)
	if err != nil {
		return nil, err
	}
	return out[models.ShiftOutput].F32(), nil
}

// finish loads the classifier anew, with the mean shift.
// The two graphs share their weights, and differ in the default of one input. The classifier is
// changed at once, when all is loaded: an error before leaves it as it was. The old session is
// closed last.
func (a *adaptation) finish() error {
	if a.n == 0 {
		return errors.New("adapting the classifier: there are no images; give some dozen " +
			"of the camera")
	}
	shift := make([]float32, len(a.sum))
	for j, v := range a.sum {
		shift[j] = float32(v / float64(a.n))
	}
	by := onnx.NewTensor(shift, len(shift))
	whole, err := models.Adapted(a.c.whole, by)
	if err != nil {
		return err
	}
	s, err := a.c.load(whole, a.c.outputs...)
	if err != nil {
		return err
	}
	old := a.c.session
	a.c.whole, a.c.shift, a.c.session = whole, by, s
	return old.Close()
}

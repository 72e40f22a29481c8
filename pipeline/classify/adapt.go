package classify

import (
	"context"
	"errors"
	"fmt"
	"math"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
)

// adaptBatch is the number of images of which one shift is estimated. The shift of more images is
// the mean of their batches'.
const adaptBatch = 64

// Adapt makes the classifier that of an owner who took no part in the round, given images of its
// camera; labels are not read. The shift that the images have in common (models.ShiftOutput) is
// left out of the images that are classified from then on. It returns the number of images, and
// those that cannot be read as Images does. It is an error where the classifier has no shift, and
// it is as it was then.
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
	bad, err = imagefile.Read(ctx, src, c.Fit, adaptBatch, skip,
		func(pixels []uint8, items []imagefile.Item) error {
			return a.add("images", onnx.NewTensor(pixels, len(items), c.Fit.H, c.Fit.W, c.Fit.Ch))
		})
	if err != nil || len(bad) > 0 && !skip {
		return a.n, bad, err
	}
	return a.n, bad, a.finish()
}

// AdaptRows is Adapt for feature rows, [n, dx] of float32.
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
	for from := 0; from < rows.Shape[0]; from += adaptBatch {
		if err := ctx.Err(); err != nil {
			return err
		}
		to := min(from+adaptBatch, rows.Shape[0])
		if err := a.add("features", onnx.NewTensor(rows.F32()[from*dx:to*dx], to-from,
			dx)); err != nil {
			return err
		}
	}
	return a.finish()
}

// Shift returns the shift that the classifier was adapted by; nil where it was not.
func (c *Classifier) Shift() *onnx.Tensor { return c.shift }

// adaptation sums the shifts of batches. Of batches b of n_b images with the shifts d_b it gives
//
//	d = sum_b n_b d_b / sum_b n_b
type adaptation struct {
	c       *Classifier
	session engine.Session
	sum     []float64
	n       int
}

func (c *Classifier) adapting() (*adaptation, error) {
	if c.whole == nil {
		return nil, errors.New("adapting the classifier: it states no shifts of cameras: fmp " +
			"pool states them where it finds clients whose cameras differ")
	}
	s, err := c.load(c.whole, models.ShiftOutput)
	return &adaptation{c: c, session: s}, err
}

func (a *adaptation) add(input string, x *onnx.Tensor) error {
	out, err := engine.Eval(a.session, map[string]*onnx.Tensor{input: x}, models.ShiftOutput)
	if err != nil {
		return err
	}
	// The output is the mean shift of the batch: its images count alike.
	n, shift := x.Shape[0], out[models.ShiftOutput].F32()
	if a.sum == nil {
		a.sum = make([]float64, len(shift))
	}
	for j, v := range shift {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) || len(shift) != len(a.sum) {
			return fmt.Errorf("adapting the classifier: %s is %v at place %d; check that the "+
				"file is whole", models.ShiftOutput, v, j)
		}
		a.sum[j] += float64(n) * float64(v)
	}
	a.n += n
	return nil
}

// finish loads the classifier anew, with the mean shift.
func (a *adaptation) finish() error {
	if a.n == 0 {
		return errors.New("adapting the classifier: there are no images; give some dozen " +
			"of the camera")
	}
	shift := make([]float32, len(a.sum))
	for j, v := range a.sum {
		shift[j] = float32(v / float64(a.n))
	}
	before := a.c.whole
	var err error
	a.c.shift = onnx.NewTensor(shift, len(shift))
	if a.c.whole, err = models.Adapted(before, a.c.shift); err != nil {
		return err
	}
	s, err := a.c.load(a.c.whole, a.c.outputs...)
	if err != nil {
		a.c.whole = before
		return err
	}
	old := a.c.session
	a.c.session = s
	return old.Close()
}

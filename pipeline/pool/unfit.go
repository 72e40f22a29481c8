package pool

import (
	"errors"
	"fmt"

	"fmp/pipeline/federate"
	"fmp/pipeline/sample"
)

// UnfitError reports uploads that no images give.
type UnfitError struct {
	Errors []error // one an upload
	Left   []Upload
}

func (e *UnfitError) Error() string { return errors.Join(e.Errors...).Error() }

// bound returns an [UnfitError] where [Round.Check] refuses an upload.
func (r *Round) bound() (err error) {
	if !r.closedForm() || r.Moments() { // moments have bounds of their own (federate.Decode)
		return nil
	}
	from := r.predictor
	if from == nil {
		from = r.open
	}
	if r.reach, err = sample.NewReach(from, r.Client.K > 0); err != nil {
		return err
	}
	var unfit UnfitError
	for _, u := range r.Uploads {
		if u.Points == nil { // of a server that has none yet
			continue
		}
		if err := r.Check(u.Upload); err != nil {
			unfit.Errors = append(unfit.Errors,
				fmt.Errorf("pool: upload %s of client %q: %w", u.Path, u.Client, err))
		} else {
			unfit.Left = append(unfit.Left, u)
		}
	}
	if len(unfit.Errors) > 0 {
		return &unfit
	}
	return nil
}

// Check returns an error for an upload that no images give: a mean or a calibration point further
// out than features of images are, several means of one class, whose scatter would pass for that of
// clients, or a mean of less than an image. Points of an embedding have no bounds.
func (r *Round) Check(u *federate.Upload) error {
	if r.reach == nil {
		return nil
	}
	classes := u.Points.Indices()
	if classes == nil {
		return errors.New("points are of several classes each; want class means")
	}
	held := make(map[int32]bool, len(classes))
	for i, y := range classes {
		if n := u.Points.W[i]; held[y] || n < 1 {
			return fmt.Errorf("points[%d] is of class %d and mass %g; want one mean a class, of an "+
				"image at least", i, y, n)
		}
		held[y] = true
	}
	if err := r.reach.Check(u.Points); err != nil || u.Calibration == nil {
		return err
	}
	if err := r.reach.Check(u.Calibration); err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	return nil
}

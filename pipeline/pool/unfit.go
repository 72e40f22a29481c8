package pool

import (
	"errors"
	"fmt"

	"fmp/models"
	"fmp/onnx/printable"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/federate"
	"fmp/pipeline/point"
	"fmp/pipeline/sample"
)

// UnfitError reports uploads that no images give.
type UnfitError struct {
	Errors []error // one an upload
	Left   []Upload
}

func (e *UnfitError) Error() string { return printable.Errors(e.Errors).Error() }

// bound returns an [UnfitError] where [Round.Check] refuses an upload.
func (r *Round) bound() (err error) {
	if r.closedForm() && !r.Moments() { // moments have a radius of their own (federate.Decode)
		from := r.predictor
		if from == nil {
			from = r.open
		}
		if r.reach, err = sample.NewReach(from, r.Client.K > 0); err != nil {
			return err
		}
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

// Kind returns a check of single uploads: an error unless they have the sizes and the parts that
// the client graph makes, and a scatter that is a covariance.
func Kind(client models.Manifest) func(*federate.Upload) error {
	r := &Round{Client: client, Options: Options{Trust: true}}
	return r.checkKind
}

// checkKind returns an error unless an upload has the sizes and the parts that the round's client
// graph makes, other images than the corpus and, where nobody is judged, a scatter that is a
// covariance. A fold of a state has the scatter of class means too, and the rounding of its
// uploads, which were looked at.
func (r *Round) checkKind(u *federate.Upload) error {
	f, of := r.Client, fmt.Errorf
	switch k := f.PointWidth(); {
	case u.Points.Dx != k || u.Points.C != f.C:
		return of("points are of %d numbers and %d classes; those of the client graph of %d and %d",
			u.Points.Dx, u.Points.C, k, f.C)
	case r.Moments() && u.Within == nil:
		return of("it holds no moments, and the client graph asks for them (fmp fuse --upload " +
			"moments): make it anew with fmp-edge compress")
	case !r.Moments() && u.Within != nil && !r.alike:
		return of("it holds moments, and the client graph asks for others (%s): make it anew with "+
			"fmp-edge compress", r.kind())
	case r.kind() == ofPoints && (u.Calibration != nil || u.Curve != nil):
		return of("it holds calibration points or a curve, and the client graph asks for points alone")
	case r.kind() == ofPoints && f.S > 0 && u.Points.N > f.S:
		return of("it has %d points; those of the client graph are %d", u.Points.N, f.S)
	case r.Moments() && r.CorpusMoments != nil && sameImages(u.Points, r.CorpusMoments):
		return of("it is of the corpus's images, which would count twice and speak for themselves: give a corpus of " +
			"images that no client holds")
	case r.Moments() && r.Trust && !r.alike:
		return checkCovariance(u.Within, u.Precision)
	}
	return nil
}

// sameImages reports whether class means are of a corpus's images: as many of each class, and
// nearer than those of other images by chance. The squared distance of two means of n images each
// is 2 tr(W) / n on average; a sixteenth of that in every class is no chance. Rounding to int8
// hides copies of some hundred images a class.
func sameImages(a *point.Set, corpus *discriminant.Client) bool {
	const chance = 16
	b, w := corpus.Means, corpus.Within
	if a.N != b.N || a.Dx != b.Dx {
		return false
	}
	variance := w.Trace() / float64(w.Dof)
	for i := range a.N {
		found := false
		for j := 0; j < b.N && !found; j++ {
			var apart float64
			for k, v := range a.Features(i) {
				d := float64(v) - float64(b.Features(j)[k])
				apart += d * d
			}
			found = a.W[i] == b.W[j] && apart <= 2*variance/float64(a.W[i])/chance
		}
		if !found {
			return false
		}
	}
	return true
}

// Check returns an error for an upload that the client graph makes of no images: of other sizes or
// parts; a mean or a calibration point further out than features of images are, several means of
// one class, whose scatter would pass for that of clients, or a mean of less than an image; or
// where nobody is judged a scatter that is no covariance. Points of an embedding are as far out as
// they may be.
func (r *Round) Check(u *federate.Upload) error {
	if err := r.checkKind(u); err != nil || r.reach == nil {
		return err
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

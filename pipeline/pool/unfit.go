package pool

import (
	"cmp"
	"errors"
	"fmt"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/printable"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/federate"
	"fmp/pipeline/point"
	"fmp/pipeline/sample"
)

// UnfitError reports uploads that no images give.
type UnfitError struct {
	Errors []error  // one an upload
	Left   []Upload // the others, in the order of the round
}

func (e *UnfitError) Error() string { return printable.Errors(e.Errors).Error() }

// bound returns an [UnfitError] where [Round.Check] refuses an upload.
func (r *Round) bound() error {
	if err := r.measure(); err != nil {
		return fmt.Errorf("pool: %w", err)
	}
	var unfit UnfitError
	for _, u := range r.Uploads {
		if u.Points == nil { // of a server that has none yet
			continue
		}
		if err := r.Check(u.Upload); err != nil {
			of := fmt.Sprintf("upload %s of client %q", u.Path, u.Client)
			if r.folds {
				of = "the state's sums of " + u.Client
			}
			unfit.Errors = append(unfit.Errors, fmt.Errorf("pool: %s: %w", of, err))
		} else {
			unfit.Left = append(unfit.Left, u)
		}
	}
	if len(unfit.Errors) > 0 {
		return &unfit
	}
	return nil
}

// measure reads how far out class means of images are: of the client graph, so that no predictor
// has a say in who is refused, or of a predictor where the graph's parameters were renamed. The
// error is that of the first graph, which should have told.
func (r *Round) measure() error {
	if r.kind() != ofMeans { // moments have a radius of their own (federate.Decode)
		return nil
	}
	var missing error
	for _, m := range []*onnx.Model{r.Graph, r.predictor, r.open} {
		if m == nil {
			continue
		}
		var err error
		if r.reach, err = sample.NewReach(m, r.Client.Dx, r.Client.K); err == nil {
			return nil
		}
		missing = cmp.Or(missing, err)
	}
	return fmt.Errorf("the client graph does not tell how far out class means of images are: %w; "+
		"give the graph that fmp fuse wrote", cmp.Or(missing, errors.New("there is none")))
}

// Checker returns [Round.Check] of single uploads behind a client graph, for those that are summed:
// nobody tells later whose they were. Corpus is the round's own moments; nil: it has none.
func Checker(graph *onnx.Model, client models.Manifest, corpus *discriminant.Client) (
	func(*federate.Upload) error, error) {
	r := &Round{Graph: graph, Client: client, Options: Options{Trust: true, CorpusMoments: corpus}}
	return r.Check, r.measure()
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
		return of("it holds calibration points or a curve, and the client graph asks for points " +
			"alone")
	case r.kind() == ofPoints && f.S > 0 && u.Points.N > f.S:
		return of("it has %d points; those of the client graph are %d", u.Points.N, f.S)
	case r.Moments() && r.CorpusMoments != nil && sameImages(u.Points, r.CorpusMoments):
		return of("it is of the corpus's images, which would count twice and speak for " +
			"themselves: give a corpus of images that no client holds")
	case r.Moments() && r.Trust && !r.alike:
		return checkCovariance(u.Within, u.Precision)
	}
	return nil
}

// sameImages reports whether class means are of a corpus's images: as many of each class, and
// nearer than those of other images by chance. The squared distance of two means of n images each
// is 2 tr(W) / n on average; a sixteenth of that in every class is no chance. Each mean a_i must
// have a mean b_j of as many images n with
//
//	|a_i - b_j|^2 <= 2 tr(S)/dof/n/16,   S the corpus's scatter of dof degrees of freedom
//
// whatever the classes are called. Rounding to int8 hides copies of some hundred images a class.
// It costs O(C^2 k), and O(C k) where the first mean has no twin.
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
	if u.Points.Indices() == nil {
		return errors.New("points are of several classes each; want class means")
	}
	if err := u.CheckMeans(); err != nil {
		return err
	}
	if r.folds {
		return r.reach.CheckSum(u.Points)
	}
	if err := r.reach.Check(u.Points); err != nil || u.Calibration == nil {
		return err
	}
	if err := r.reach.Check(u.Calibration); err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	return nil
}

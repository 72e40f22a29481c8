package pool

import (
	"fmt"
	"slices"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/point"
)

// pointed is the uploads of clients of class means, each with calibration points, those of the
// first bad clients under the next class's name.
func (w *world) pointed(t *testing.T, clients, each, bad int) (*Round, error) {
	t.Helper()
	g, f := w.client(t, false)
	us := w.uploads(t, g, f, slices.Repeat([]int{12}, clients)...)
	for m := range us {
		pix, labels := w.clientImages(0, uint64(m), each)
		u := *us[m].Upload
		u.Calibration = &point.Set{N: each, Dx: f.PointWidth(), C: classes, W: make([]float32, each)}
		for i, y := range labels {
			z := w.eval(t, g, pix[i*dx:(i+1)*dx], []int{y})["points"].F32()
			u.Calibration.Z = append(u.Calibration.Z,
				z[y*(f.PointWidth()+classes):][:f.PointWidth()]...)
			if m < bad {
				y = (y + 1) % classes
			}
			u.Calibration.Y = append(u.Calibration.Y, int32(y))
		}
		us[m].Upload = &u
	}
	return New(us, g, f, Options{Predictor: w.predictor, Seed: 3, Samples: 25})
}

// TestFalsePoints: the points of clients that contradict the others' count nowhere, and the clients
// are named; sets are about those of a round without these clients' points. Where none is to be
// survived, they fill the sets.
func TestFalsePoints(t *testing.T) {
	w := newWorld(t)
	threshold := func(r *Round) (float32, []string, []int) {
		t.Helper()
		p := must.Get(r.Posterior(t.Context(), w.eng))(t)
		if p.Sets == nil {
			t.Fatal("no sets")
		}
		return p.Sets.Thresholds[0], p.Sets.LeftOut, p.Sets.False
	}
	made := func(bad int) *Round {
		t.Helper()
		return must.Get(w.pointed(t, 10, 10, bad))(t)
	}
	honest, left, bad := threshold(made(0))
	if left != nil || !slices.Equal(bad, []int{2}) {
		t.Errorf("honest clients: %q are left out, and %d may be false; want none, and 2", left, bad)
	}
	r := made(2)
	got, left, bad := threshold(r)
	slices.Sort(left)
	if want := []string{r.Uploads[0].Client, r.Uploads[1].Client}; !slices.Equal(left, want) ||
		!slices.Equal(bad, []int{0}) {
		t.Errorf("%q are left out, and %d may be false; want %q, and 0", left, bad, want)
	}
	if got < honest {
		t.Errorf("two false clients take the threshold from %v to %v", honest, got)
	}
	r.falseShare = 0
	if all, left, bad := threshold(r); left != nil || bad != nil || all > honest/3 {
		t.Errorf("where none is survived: threshold %v, %q are left out, %v may be false; with honest "+
			"clients %v", all, left, bad, honest)
	}
}

// TestEvenPoints: a client's points count up to the lower median of the clients', and ten at least.
func TestEvenPoints(t *testing.T) {
	r := &Round{Options: Options{Seed: 1}}
	var points []calibrationPoint
	for m, n := range []int{3, 12, 14, 100, 100} {
		r.Uploads = append(r.Uploads, Upload{Upload: &federate.Upload{Client: fmt.Sprint(m)}})
		for i := range n {
			points = append(points, calibrationPoint{class: i, client: m})
		}
	}
	counted := func() (out [5]int) {
		for _, p := range r.even(points) {
			out[p.client]++
		}
		return out
	}
	if got := counted(); got != [5]int{3, 12, 14, 14, 14} {
		t.Errorf("points that count: %v", got)
	}
	points = points[:15+3]
	if got := counted(); got != [5]int{3, 10, 3} {
		t.Errorf("points that count of few clients: %v", got)
	}
}

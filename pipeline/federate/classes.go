package federate

import (
	"fmt"
	"slices"

	"fmp/pipeline/federate/uploadpb"
	"fmp/pipeline/point"
)

func (u *Upload) format(classes []uint32) uint32 {
	switch {
	case u.Within != nil:
		return MomentsFormat
	case u.Calibration != nil:
		return CalibratedFormat
	case classes != nil:
		return ClassesFormat
	}
	return Format
}

// byNumber reports whether points of a format have the number of their class in place of a label.
func byNumber(format uint32) bool { return format == ClassesFormat || format == CalibratedFormat }

// byClass returns the points as they are sent: where each has one class, without labels, and with the numbers of the classes. Those of
// moments keep their labels. Calibration points come last, with the mass 0.
func (u *Upload) byClass() (*point.Set, []uint32, error) {
	s := u.Points
	y := s.Indices()
	if u.Calibration != nil && (u.Within != nil || y == nil || u.Calibration.Dx != s.Dx || u.Calibration.C != s.C || u.Calibration.Y == nil) {
		return nil, nil, refuse("calibration", "given", "none but of class means and of their coordinates, each point with a class")
	}
	if u.Within != nil || y == nil {
		return s.Dense(), nil, nil
	}
	out := &point.Set{N: s.N, Dx: s.Dx, C: s.C, W: s.W, Y: y}
	var classes []uint32
	for i := range s.N {
		classes = append(classes, uint32(y[i]))
		out.Z = append(out.Z, s.Features(i)...)
	}
	if c := u.Calibration; c != nil {
		out.N, out.Z, out.Y, out.W = s.N+c.N, append(out.Z, c.Z...), slices.Concat(y, c.Y), slices.Concat(s.W, make([]float32, c.N))
		for _, y := range c.Y {
			classes = append(classes, uint32(y))
		}
	}
	return out, classes, nil
}

// part parts the points of a message in CalibratedFormat: the last ones, of mass 0, are calibration points.
func (u *Upload) part() error {
	s := u.Points
	n := s.N
	for n > 0 && s.W[n-1] == 0 {
		n--
	}
	if k := s.N - n; k < 1 || k > MaxCalibration {
		return refuse("calibration", fmt.Sprintf("%d points", k), "1 to %d points of mass 0, the last ones", MaxCalibration)
	}
	if i := slices.Index(s.W[:n], 0); i >= 0 || n == 0 {
		return refuse(fmt.Sprintf("masses[%d]", max(i, 0)), 0, "numbers above 0 before those of calibration points")
	}
	u.Calibration = &point.Set{N: s.N - n, Dx: s.Dx, C: s.C, Z: slices.Clone(s.Z[n*s.Dx:]), Y: slices.Clone(s.Y[n:]),
		W: make([]float32, s.N-n)}
	u.Points = &point.Set{N: n, Dx: s.Dx, C: s.C, Z: s.Z[:n*s.Dx], Y: s.Y[:n], W: s.W[:n]}
	return nil
}

// pointClasses returns the classes of the points of a message whose points have numbers of classes, one a point; nil for other formats.
func pointClasses(m *uploadpb.Upload) ([]int32, error) {
	want := 0
	if byNumber(m.Format) {
		want = int(m.Size)
	}
	if len(m.PointClasses) != want {
		return nil, refuse("point_classes", fmt.Sprintf("%d numbers", len(m.PointClasses)), "%d in format %d", want, m.Format)
	}
	if want == 0 {
		return nil, nil
	}
	out := make([]int32, want)
	for i, y := range m.PointClasses {
		if y >= m.Classes {
			return nil, refuse(fmt.Sprintf("point_classes[%d]", i), y, "0 to %d", m.Classes-1)
		}
		out[i] = int32(y)
	}
	return out, nil
}

package federate

import (
	"fmt"

	"fmp/pipeline/federate/uploadpb"
	"fmp/pipeline/point"
)

// byClass returns the points as they are sent: where each has one class, without labels, and with
// the numbers of the classes.
// Without labels a message is C numbers a point smaller. Points of several classes are an
// embedding's, beside which nothing else is sent.
// The masses are shared with the upload, and rows are copied, C numbers a point shorter. The
// upload stays as it is.
func (u *Upload) byClass() (*point.Set, []uint32, error) {
	s := u.Points
	y := s.Indices()
	if y == nil {
		if u.Within != nil || u.Calibration != nil || u.Curve != nil {
			return nil, nil, refuse("points", "of several classes each",
				"class means, each of one class, beside scatter, calibration points or a curve")
		}
		return s, nil, nil
	}
	out := &point.Set{N: s.N, Dx: s.Dx, C: s.C, W: s.W, Y: y}
	var classes []uint32
	for i := range s.N {
		classes = append(classes, uint32(y[i]))
		out.Z = append(out.Z, s.Features(i)...)
	}
	return out, classes, nil
}

// pointClasses returns the classes of the points of a message whose points have numbers of classes,
// one a point; nil for other formats.
// Each is below the number of classes that the message states.
func pointClasses(m *uploadpb.Upload) ([]int32, error) {
	want := 0
	if m.Format == StatisticsFormat {
		want = int(m.Size)
	}
	if len(m.PointClasses) != want {
		return nil, refuse("point_classes", fmt.Sprintf("%d numbers", len(m.PointClasses)),
			"%d in format %d", want, m.Format)
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

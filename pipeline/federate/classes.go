package federate

import (
	"fmt"

	"fmp/pipeline/federate/uploadpb"
	"fmp/pipeline/point"
)

func (u *Upload) format(classes []uint32) uint32 {
	switch {
	case u.Within != nil:
		return MomentsFormat
	case classes != nil:
		return ClassesFormat
	}
	return Format
}

// byClass returns the points as they are sent: where each has one class, without labels, and with the numbers of the classes. Those of moments
// keep their labels.
func (u *Upload) byClass() (*point.Set, []uint32) {
	s := u.Points
	y := s.Indices()
	if u.Within != nil || y == nil {
		return s.Dense(), nil
	}
	out := &point.Set{N: s.N, Dx: s.Dx, C: s.C, W: s.W, Y: y}
	classes := make([]uint32, s.N)
	for i := range classes {
		classes[i] = uint32(y[i])
		out.Z = append(out.Z, s.Features(i)...)
	}
	return out, classes
}

// pointClasses returns the classes of the points of a message in ClassesFormat, one a point; nil for other formats.
func pointClasses(m *uploadpb.Upload) ([]int32, error) {
	want := 0
	if m.Format == ClassesFormat {
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

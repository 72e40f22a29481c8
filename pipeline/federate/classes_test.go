package federate

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"fmp/onnx"
	"fmp/onnx/alloctest"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/federate/uploadpb"
	"fmp/pipeline/point"
)

// oneClass is an upload like drawn whose points have one class each.
func oneClass(s, dx, c, n int) *Upload {
	u := drawn(s, dx, c, n)
	for i := range s {
		label := u.Points.Row(i)[dx:]
		clear(label)
		label[(3*i+1)%c] = 1
	}
	return u
}

// asBefore returns the message of an upload whose labels are sent in Z, as those of several classes
// are.
func asBefore(t *testing.T, u *Upload) []byte {
	t.Helper()
	s := u.Points
	m := &uploadpb.Upload{Format: Format, Round: u.Round, Client: u.Client,
		Model: bytes.Repeat([]byte{0x0f}, 32), N: uint64(u.N),
		Dx: uint32(s.Dx), Classes: uint32(s.C), Size: uint32(s.N)}
	q, scale := quantise(s)
	m.Points, _ = serde.TensorToProto("points", onnx.NewTensor(q, s.N, s.Dx+s.C))
	m.Scale, _ = serde.TensorToProto("scale", onnx.NewTensor(scale, s.N, 2))
	m.Masses, _ = serde.TensorToProto("masses", onnx.NewTensor(s.W, s.N))
	m.Checksum = checksum(m)
	return must.Get(proto.Marshal(m))(t)
}

// TestClasses: class means are sent with the numbers of their classes, come back as they were, in
// either form of memory, and equal those of a message with labels, which are still read.
func TestClasses(t *testing.T) {
	for _, c := range []struct {
		s, dx, c int
		compact  bool
	}{{5, 4, 7, false}, {300, 300, 200, true}} {
		u := oneClass(c.s, c.dx, c.c, 2*c.s)
		u.Precision = Int8
		data := must.Get(u.Encode())(t)
		if most := c.s*(c.dx+4+4+2) + 200; len(data) > most {
			t.Errorf("%d points of %d features and %d classes take %d bytes; want at most %d", c.s,
				c.dx, c.c, len(data), most)
		}
		got := must.Get(Decode(data, Expect{}))(t)
		if (got.Points.Y != nil) != c.compact {
			t.Errorf("%d points of %d features and %d classes: class indices %v in memory; want %v",
				c.s, c.dx, c.c, got.Points.Y != nil, c.compact)
		}
		before := must.Get(Decode(asBefore(t, u), Expect{}))(t)
		if d := cmp.Diff(before, got); d != "" {
			t.Errorf("read from labels and from class numbers (-labels +numbers):\n%s", d)
		}
		for i := range c.s {
			if d := cmp.Diff(u.Points.Row(i)[c.dx:], got.Points.Row(i)[c.dx:]); d != "" {
				t.Fatalf("label of point %d (-want +got):\n%s", i, d)
			}
		}
		again, err := got.Encode()
		if err != nil || !bytes.Equal(data, again) {
			t.Errorf("written again it is another message (%v)", err)
		}
		if d := cmp.Diff(got.Points.Dense(), u.Points.Dense(), cmp.Comparer(near)); d != "" {
			t.Errorf("(-got +want):\n%s", d)
		}
	}
	// A few bytes a point are not to become a row of all classes each.
	const most = 1 << 14
	s := &point.Set{N: most, Dx: 1, C: MaxWidth, Z: make([]float32, most), W: make([]float32, most),
		Y: make([]int32, most)}
	for i := range s.W {
		s.W[i] = 1
	}
	u := drawn(1, 1, 2, most)
	u.Points = s
	data := must.Get(u.Encode())(t)
	var err error
	alloctest.AtMost(t, 20*len(data), func() { _, err = Decode(data, Expect{}) })
	must.Do(t, err)
}

func near(a, b float32) bool { return a-b < 0.02 && b-a < 0.02 }

// TestClassesRefused changes one field at a time.
func TestClassesRefused(t *testing.T) {
	for field, change := range map[string]func(*uploadpb.Upload){
		"point_classes":    func(m *uploadpb.Upload) { m.PointClasses = m.PointClasses[1:] },
		"point_classes[2]": func(m *uploadpb.Upload) { m.PointClasses[2] = 3 },
		"points.dims":      func(m *uploadpb.Upload) { m.Format, m.PointClasses = Format, nil },
		"format":           func(m *uploadpb.Upload) { m.Format = 6 },
	} {
		refusesField(Decode(spoilt(t, oneClass(5, 4, 3, 20), change), Expect{}))(t, field, "changed")
	}
}

// calibrated is an upload of class means with so many calibration points.
func calibrated(points int) *Upload {
	u := oneClass(3, 4, 3, 20)
	for i := range u.Points.W { // one mean a class
		label := u.Points.Row(i)[4:]
		clear(label)
		label[i] = 1
		u.Points.W[i] = float32(6 + i%2*2)
	}
	all := drawn(points, 4, 3, 1).Points
	u.Calibration = &point.Set{N: points, Dx: 4, C: 3, W: make([]float32, points)}
	for i := range points {
		u.Calibration.Z, u.Calibration.Y = append(u.Calibration.Z, all.Features(i)...),
			append(u.Calibration.Y, int32(i%3))
	}
	return u
}

// TestCalibrationPoints: points beside class means come back with their classes, in every
// precision, apart from the means, which stay as they were without them.
func TestCalibrationPoints(t *testing.T) {
	for _, p := range []Precision{Single, Half, Int8} {
		u := calibrated(MaxCalibration)
		u.Precision = p
		data := must.Get(u.Encode())(t)
		got := must.Get(Decode(data, Expect{Dx: 4, C: 3}))(t)
		if d := cmp.Diff(u.Calibration, got.Calibration, cmp.Comparer(near)); d != "" {
			t.Errorf("%s: calibration points (-want +got):\n%s", p, d)
		}
		again, err := got.Encode()
		if err != nil || !bytes.Equal(data, again) {
			t.Errorf("%s: written again it is another message (%v)", p, err)
		}
		u.Calibration = nil
		data = must.Get(u.Encode())(t)
		without := must.Get(Decode(data, Expect{}))(t)
		if d := cmp.Diff(without.Points, got.Points); d != "" || got.N != without.N {
			t.Errorf("%s: class means without and with calibration points (n = %d and %d):\n%s", p,
				without.N, got.N, d)
		}
	}
}

// TestCalibrationRefused: no message has too many calibration points, none, means of no mass, or
// points of several classes.
func TestCalibrationRefused(t *testing.T) {
	for field, change := range map[string]func(*uploadpb.Upload){
		"calibration_classes":    func(m *uploadpb.Upload) { m.CalibrationClasses = make([]uint32, MaxCalibration+1) },
		"calibration_classes[1]": func(m *uploadpb.Upload) { m.CalibrationClasses[1] = 3 },
		"calibration":            func(m *uploadpb.Upload) { m.CalibrationClasses = nil },
		"calibration.dims":       func(m *uploadpb.Upload) { m.CalibrationClasses = m.CalibrationClasses[1:] },
		"calibration[0]":         func(m *uploadpb.Upload) { copy(m.Calibration.RawData, []byte{0, 0, 128, 127}) },
		"points[1]":              func(m *uploadpb.Upload) { m.PointClasses[1] = m.PointClasses[0] },
		"scatter, calibration and curve": func(m *uploadpb.Upload) {
			m.Format, m.PointClasses = Format, nil
			m.Points, _ = serde.TensorToProto("points", onnx.NewTensor(make([]float32, 3*7), 3, 7))
		},
		"scatter": func(m *uploadpb.Upload) { m.Scatter = m.Masses },
	} {
		refusesField(Decode(spoilt(t, calibrated(2), change), Expect{}))(t, field, "changed")
	}
	several, narrow := drawn(5, 4, 3, 20), calibrated(2)
	several.Calibration = calibrated(2).Calibration
	narrow.Calibration.Dx, narrow.Calibration.Z = 2, narrow.Calibration.Z[:4]
	for field, u := range map[string]*Upload{"calibration_classes": calibrated(MaxCalibration + 1),
		"points": several, "calibration": narrow} {
		refusesField(u.Encode())(t, field, "encoding")
	}
}

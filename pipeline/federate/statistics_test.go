package federate

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/federate/uploadpb"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// withMoments is an upload of moments of n rows of length 1 or less.
func withMoments(t testing.TB, n int, p Precision) *Upload {
	t.Helper()
	const k, c = 6, 3
	x, y := make([]float32, n*k), make([]int, n)
	rng.Normal(rng.New(1, "rows"), x)
	for i := range y {
		y[i] = i % c
		l := float32(point.Norm(x[i*k : (i+1)*k]))
		for j := range k {
			x[i*k+j] /= l
		}
	}
	means, w := must.Get2(moments.Compute(x, k, y, c, "a"))(t)
	curve := must.Get(moments.CurveOf(x, k, y, c, "a"))(t)
	return &Upload{Round: 2, Client: "a", Model: strings.Repeat("ab", 32), N: int(means.Mass()),
		Points: means, Within: w, Curve: curve, Precision: p}
}

// TestMomentsRoundTrip: in each precision, with the scatter and with a factor of it, numbers come
// back within its rounding, and the diagonal of the scatter in int8 exactly but for float32.
func TestMomentsRoundTrip(t *testing.T) {
	for _, n := range []int{6, 40} {
		for p, tolerance := range map[Precision]float64{Single: 0, Half: 1e-3, Int8: 1e-2} {
			u := withMoments(t, n, p)
			if (u.Within.Rank > 0) != (n == 6) {
				t.Fatalf("%d rows: rank %d", n, u.Within.Rank)
			}
			data := must.Get(u.Encode())(t)
			back := must.Get(Decode(data, Expect{Model: u.Model, Dx: 6, C: 3}))(t)
			if (u.Curve != nil) != (n == 40) || !cmp.Equal(u.Curve, back.Curve) {
				t.Errorf("%s, %d rows: curve %v, was %v", p, n, back.Curve, u.Curve)
			}
			top := u.Within.Trace()
			for i, v := range u.Within.Data {
				if off := math.Abs(float64(v - back.Within.Data[i])); off > tolerance*top {
					t.Fatalf("%s, %d rows: element %d of the scatter is %v, was %v", p, n, i,
						back.Within.Data[i], v)
				}
			}
			if off := math.Abs(back.Within.Trace() - top); n == 40 && p == Int8 && off > 1e-5*top {
				t.Errorf("%s: trace %v, was %v", p, back.Within.Trace(), top)
			}
			for i, v := range u.Within.Calibration {
				if math.Abs(float64(v-back.Within.Calibration[i])) > tolerance {
					t.Fatalf("%s: calibration %v, was %v", p, back.Within.Calibration[i], v)
				}
			}
			if d := cmp.Diff(u.Within.Labels, back.Within.Labels); d != "" ||
				back.Within.Dof != u.Within.Dof || back.N != u.N {
				t.Errorf("%s: %s, %d degrees of freedom, n %d", p, d, back.Within.Dof, back.N)
			}
		}
	}
}

// TestMomentsRefused: hostile fields of an upload of moments are named, and none reaches the
// numbers.
func TestMomentsRefused(t *testing.T) {
	for name, v := range map[string]struct {
		n     int
		spoil func(*uploadpb.Upload)
		want  string
	}{
		"dof above n":       {40, func(m *uploadpb.Upload) { m.Dof = proto.Uint64(m.N + 1) }, "dof"},
		"no scatter":        {40, func(m *uploadpb.Upload) { m.Scatter = nil }, "scatter"},
		"scatter of no dof": {40, func(m *uploadpb.Upload) { m.Dof = proto.Uint64(0) }, "scatter"},
		"dims":              {40, func(m *uploadpb.Upload) { m.Scatter.Dims[0]++ }, "scatter.dims"},
		"rank":              {6, func(m *uploadpb.Upload) { m.Scatter.Dims[0] = 7 }, "scatter.dims"},
		"another type":      {40, func(m *uploadpb.Upload) { m.Scatter.DataType = 1 }, "scatter"},
		"scale":             {40, func(m *uploadpb.Upload) { m.ScatterScale = nil }, "scatter_scale"},
		"huge scale": {40,
			func(m *uploadpb.Upload) { copy(m.ScatterScale.RawData, []byte{0, 0, 128, 75}) },
			"scatter"},
		"infinite scale": {40,
			func(m *uploadpb.Upload) { copy(m.ScatterScale.RawData, []byte{0, 0, 128, 127}) },
			"finite"},
		"classes": {40, func(m *uploadpb.Upload) { m.CalibrationClasses[0] = 3 },
			"calibration_classes[0]"},
		"huge class": {40, func(m *uploadpb.Upload) { m.CalibrationClasses[0] = 1 << 31 },
			"calibration_classes[0]"},
		"points without class": {40, func(m *uploadpb.Upload) { m.CalibrationClasses = nil },
			"calibration"},
		"classes alone": {40, func(m *uploadpb.Upload) { m.Calibration = nil }, "calibration"},
		"a curve short": {40, func(m *uploadpb.Upload) { m.Curve = m.Curve[1:] }, "curve"},
		"a curve long":  {40, func(m *uploadpb.Upload) { m.Curve = append(m.Curve, 0) }, "curve"},
		"curve beyond bounds": {40, func(m *uploadpb.Upload) { m.Curve[48] = 32*1024*40 + 1 },
			"curve at temperature 40"},
		"curve of few images": {6, func(m *uploadpb.Upload) {
			m.Curve = make([]uint32, 49)
			m.Curve[2] = 1 << 31
		}, "curve at temperature"},
		"many": {40, func(m *uploadpb.Upload) { m.CalibrationClasses = make([]uint32, 11) },
			"calibration"},
		"long mean": {40, func(m *uploadpb.Upload) {
			for i := range 3 {
				copy(m.Scale.RawData[4*i:], []byte{0, 0, 128, 63})
			}
		}, "length"},
	} {
		must.Fail(Decode(spoilt(t, withMoments(t, v.n, Int8), v.spoil), Expect{}))(t, v.want, name)
	}
}

// TestMomentsMeans: an upload of moments has one mean of each class, of an image or more. Thousands
// of small ones would count as as many clients where the spread of clients' class means is
// measured.
func TestMomentsMeans(t *testing.T) {
	for name, v := range map[string]struct {
		spoil func(u *Upload)
		want  string
	}{
		"a class twice": {func(u *Upload) {
			copy(u.Points.Row(2)[6:], u.Points.Row(1)[6:])
		}, "points[2] is of class 1"},
		"two classes": {func(u *Upload) {
			copy(u.Points.Row(2)[6:], []float32{0.5, 0, 0.5})
		}, "several classes"},
		"less than an image": {func(u *Upload) {
			u.Points.W[0], u.Points.W[1] = u.Points.W[0]+u.Points.W[1]-0.5, 0.5
		}, "points[1] is of class 1 and mass 0.5"},
		"nothing": {func(u *Upload) {
			u.Points.W[0], u.Points.W[1] = u.Points.W[0]+u.Points.W[1], 0
		}, "mass 0"},
		"too many degrees of freedom": {func(u *Upload) { u.Within.Dof++ }, "dof"},
	} {
		u := withMoments(t, 40, Single)
		v.spoil(u)
		must.Fail(u.Encode())(t, v.want, name)
	}
}

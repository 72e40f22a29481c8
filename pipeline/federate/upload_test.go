package federate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/alloctest"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/federate/uploadpb"
	"fmp/pipeline/point"
)

// drawn is an upload of s points with random features, labels and masses.
func drawn(s, dx, c, n int) *Upload {
	r := rng.New(5, "upload", s, dx, c)
	p := point.New(s, dx, c)
	var mass float64
	for i := range s {
		row := p.Row(i)
		rng.Normal(r, row[:dx])
		var sum float64
		for k := range c {
			row[dx+k] = float32(math.Pow(r.Float64(), 4))
			sum += float64(row[dx+k])
		}
		for k := range c {
			row[dx+k] = float32(float64(row[dx+k]) / sum)
		}
		p.W[i] = float32(r.Float64())
		mass += float64(p.W[i])
	}
	for i := range p.W {
		p.W[i] = float32(float64(p.W[i]) / mass * float64(n))
	}
	return &Upload{Round: 3, Client: "Zürich 7", Model: strings.Repeat("0f", 32), N: n, Points: p}
}

// TestRoundTrip: each precision gives back what went in, to what it can hold; a second trip changes
// nothing in float32, and encoding is a function of the upload.
func TestRoundTrip(t *testing.T) {
	for _, c := range []struct {
		precision Precision
		bound     func(row []float32, dx int) float64 // of the error of one number
	}{
		{"", func([]float32, int) float64 { return 0 }},
		{Half, func([]float32, int) float64 { return 2e-3 }},
		{Int8, func(row []float32, dx int) float64 {
			top := 0.0
			for _, v := range row[:dx] {
				top = max(top, math.Abs(float64(v)))
			}
			return max(top, 2) / 254
		}},
	} {
		for _, size := range []struct{ s, dx, c, n int }{{1, 1, 2, 1}, {10, 32, 10, 20}, {20, 64, 20, 400}} {
			u := drawn(size.s, size.dx, size.c, size.n)
			u.Precision = c.precision
			data := must.Get(u.Encode())(t)
			again, err := u.Encode()
			if err != nil || !bytes.Equal(data, again) {
				t.Fatalf("%q: two encodings differ (%v)", c.precision, err)
			}
			round := uint64(3)
			got, err := Decode(data,
				Expect{Model: u.Model, Dx: size.dx, C: size.c, S: size.s, Round: &round})
			if err != nil {
				t.Fatalf("%q: %v", c.precision, err)
			}
			if got.Round != u.Round || got.Client != u.Client || got.Model != u.Model || got.N != u.N ||
				!cmp.Equal(got.Points.W, u.Points.W) {
				t.Errorf("%q: got %+v, want %+v", c.precision, got, u)
			}
			for i := range size.s {
				want := u.Points.Row(i)
				bound := c.bound(want, size.dx)
				var sum float64
				for k, v := range got.Points.Row(i) {
					b := bound
					if k >= size.dx {
						sum += float64(v)
						if c.precision == Int8 {
							b = 0.1 // brought back onto the simplex
						}
					}
					if math.Abs(float64(v-want[k])) > b {
						t.Errorf("%q: number %d of point %d is %v, was %v; allowed %v", c.precision, k,
							i, v, want[k], b)
					}
				}
				if math.Abs(sum-1) > 1e-5 {
					t.Errorf("%q: label of point %d sums to %v", c.precision, i, sum)
				}
			}
		}
	}
}

// spoilt is the message of an upload with something done to it, and with a checksum that fits.
func spoilt(t testing.TB, u *Upload, change func(*uploadpb.Upload)) []byte {
	t.Helper()
	var m uploadpb.Upload
	must.Do(t, proto.Unmarshal(must.Get(u.Encode())(t), &m))
	change(&m)
	m.Checksum = checksum(&m)
	return must.Get(proto.Marshal(&m))(t)
}

// refusesField takes the results of a call, which fails unless its error is of a field.
func refusesField(_ any, err error) func(t testing.TB, field, name string) {
	return func(t testing.TB, field, name string) {
		t.Helper()
		var f *FieldError
		if !errors.As(err, &f) || f.Field != field {
			t.Errorf("%s: got %v, want field %s to be refused", name, err, field)
		}
	}
}

// TestDecodeRefuses changes one field at a time and makes the checksum fit, so that each check
// stands on its own.
func TestDecodeRefuses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	points := func(i int, v float32) func(*uploadpb.Upload) {
		return func(m *uploadpb.Upload) {
			binary.LittleEndian.PutUint32(m.Points.RawData[4*i:], math.Float32bits(v))
		}
	}
	masses := func(i int, v float32) func(*uploadpb.Upload) {
		return func(m *uploadpb.Upload) {
			binary.LittleEndian.PutUint32(m.Masses.RawData[4*i:], math.Float32bits(v))
		}
	}
	for _, c := range []struct {
		name   string
		change func(*uploadpb.Upload)
		field  string
	}{
		{"format", func(m *uploadpb.Upload) { m.Format = 2 }, "format"},
		{"client empty", func(m *uploadpb.Upload) { m.Client = "" }, "client"},
		{"client long", func(m *uploadpb.Upload) { m.Client = strings.Repeat("x", MaxClient+1) }, "client"},
		{"client unprintable", func(m *uploadpb.Upload) { m.Client = "a\x1b[2J" }, "client"},
		{"model short", func(m *uploadpb.Upload) { m.Model = m.Model[:31] }, "model"},
		{"n 0", func(m *uploadpb.Upload) { m.N = 0 }, "n"},
		{"n huge", func(m *uploadpb.Upload) { m.N = 1 << 63 }, "n"},
		{"n wrong", func(m *uploadpb.Upload) { m.N = 21 }, "masses"},
		{"dx 0", func(m *uploadpb.Upload) { m.Dx = 0 }, "dx"},
		{"classes huge", func(m *uploadpb.Upload) { m.Classes = 1 << 31 }, "classes"},
		{"size huge", func(m *uploadpb.Upload) { m.Size = 1 << 31 }, "size"},
		{"size promised", func(m *uploadpb.Upload) { m.Size = MaxSize }, "points.dims"},
		{"dims and size promised",
			func(m *uploadpb.Upload) { m.Size, m.Points.Dims[0] = MaxSize, MaxSize }, "points.raw_data"},
		{"no points", func(m *uploadpb.Upload) { m.Points = nil }, "points"},
		{"points of int64", func(m *uploadpb.Upload) { m.Points.DataType = int32(onnx.Int64) }, "points.data_type"},
		{"points elsewhere", func(m *uploadpb.Upload) { m.Points.DataLocation = 1 }, "points"},
		{"points twice", func(m *uploadpb.Upload) { m.Points.FloatData = []float32{1} }, "points"},
		{"points cut", func(m *uploadpb.Upload) { m.Points.RawData = m.Points.RawData[1:] }, "points.raw_data"},
		{"scale for nothing", func(m *uploadpb.Upload) { m.Scale = m.Masses }, "scale"},
		{"no masses", func(m *uploadpb.Upload) { m.Masses = nil }, "masses"},
		{"feature NaN", points(1, nan), "points[0][1]"},
		{"feature infinite", points(0, inf), "points[0][0]"},
		{"label above 1", points(4, 1.5), "points[0][4]"},
		{"label below 0", points(5, -0.5), "points[0][5]"},
		{"label NaN", points(6, nan), "points[0][6]"},
		{"label off the simplex", points(4, 0.999), "points[0]"},
		{"mass negative", masses(2, -1), "masses[2]"},
		{"mass NaN", masses(2, nan), "masses[2]"},
		{"mass too much", masses(2, 30), "masses"},
		{"unknown field", func(m *uploadpb.Upload) {
			m.ProtoReflect().SetUnknown(
				protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
		}, "unknown fields"},
	} {
		refusesField(Decode(spoilt(t, drawn(5, 4, 3, 20), c.change), Expect{}))(t, c.field, c.name)
	}
	round := uint64(4)
	for field, want := range map[string]Expect{"model": {Model: strings.Repeat("ab", 32)}, "dx": {Dx: 9},
		"classes": {C: 9}, "size": {S: 9}, "round": {Round: &round}} {
		refusesField(Decode(must.Get(drawn(5, 4, 3, 20).Encode())(t), want))(t, field, "another")
	}
}

// TestDamage: a message with any one bit changed, or cut anywhere, is not read as another upload.
func TestDamage(t *testing.T) {
	for _, u := range []*Upload{drawn(3, 4, 3, 6), oneClass(3, 4, 3, 6), withMoments(t, 40, Single)} {
		for _, u.Precision = range []Precision{Single, Int8} {
			data := must.Get(u.Encode())(t)
			want := must.Get(Decode(data, Expect{}))(t)
			for i := range data {
				if got, err := Decode(data[:i], Expect{}); err == nil {
					t.Fatalf("the first %d of %d bytes were read as %+v", i, len(data), got)
				}
				for bit := range 8 {
					bad := bytes.Clone(data)
					bad[i] ^= 1 << bit
					if got, err := Decode(bad, Expect{}); err == nil && !cmp.Equal(got, want) {
						t.Fatalf("bit %d of byte %d changed: read as %+v", bit, i, got)
					}
				}
			}
		}
	}
	must.Fail(Decode(make([]byte, MaxBytes+1), Expect{}))(t, "size", "a message that is too long")
}

// TestScales: one scale for all and one a point are read as well as the pair a point that Encode
// writes.
func TestScales(t *testing.T) {
	for _, shape := range [][]int{{1}, {2}, {2, 2}} {
		n, _ := onnx.Elements(shape)
		scale := make([]float32, n)
		for i := range scale {
			scale[i] = 0.5
		}
		m := &uploadpb.Upload{Format: Format, Client: "a", Model: make([]byte, 32), N: 4, Dx: 1,
			Classes: 2, Size: 2}
		m.Points, _ = serde.TensorToProto("points", onnx.NewTensor([]int8{-3, 2, 0, 7, 1, 1}, 2, 3))
		m.Scale, _ = serde.TensorToProto("scale", onnx.NewTensor(scale, shape...))
		m.Masses, _ = serde.TensorToProto("masses", onnx.Vector[float32](1, 3))
		m.Checksum = checksum(m)
		u := must.Get(Decode(must.Get(proto.Marshal(m))(t), Expect{}))(t)
		if d := cmp.Diff([]float32{-1.5, 1, 0, 3.5, 0.5, 0.5}, u.Points.Z); d != "" {
			t.Errorf("scale %v (-want +got):\n%s", shape, d)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*Upload)
	}{
		{"points", func(u *Upload) { u.Points = nil }},
		{"points", func(u *Upload) { u.Points.Z = u.Points.Z[1:] }},
		{"model", func(u *Upload) { u.Model = "xyz" }},
		{"model", func(u *Upload) { u.Model = "abcd" }},
		{"client", func(u *Upload) { u.Client = "" }},
		{"precision", func(u *Upload) { u.Precision = "float8" }},
		{"points", func(u *Upload) { u.Precision, u.Points.Z[0] = Half, 1e6 }},
		{"masses", func(u *Upload) { u.N++ }},
	} {
		u := drawn(3, 2, 2, 9)
		c.change(u)
		refusesField(u.Encode())(t, c.field, "encoding")
	}
}

// inPieces is an upload whose points have n dimensions, each in a piece of its own.
func inPieces(n int) []byte {
	const points = 9 // the field's number
	return protowire.AppendBytes(protowire.AppendTag(nil, points, protowire.BytesType),
		bytes.Repeat([]byte{10, 1, 1}, n))
}

// Such an upload of 900 kB took the server a minute and 300 GB.
func TestDecodePieces(t *testing.T) {
	data := inPieces(300_000)
	alloctest.AtMost(t, len(data), func() {
		must.Fail(Decode(data, Expect{}))(t, "dims comes in more than 16 pieces")
	})
}

// TestEncodeWithin: an upload takes the first precision from its own on that keeps to the bytes; one
// that nobody knows is refused with and without a bound, and is not the greatest.
func TestEncodeWithin(t *testing.T) {
	for _, c := range []struct {
		precision, want Precision // "" for an error
		bytes           int
	}{
		{"", Single, 0}, {"", Single, 1 << 20}, {Single, Single, 1 << 20}, {Single, Half, 9000},
		{Single, Int8, 5000}, {Half, Half, 1 << 20}, {Int8, Int8, 1 << 20}, {Int8, Int8, 0},
		{Single, "", 100}, {"float8", "", 0}, {"float8", "", 1 << 20},
	} {
		u := drawn(20, 190, 10, 100)
		u.Precision = c.precision
		data, err := u.EncodeWithin(c.bytes)
		if err != nil {
			if c.want != "" || len(data) > 0 {
				t.Errorf("%q in %d bytes: %v", c.precision, c.bytes, err)
			}
			continue
		}
		got, err := Decode(data, Expect{})
		if err != nil || got.Precision != c.want || c.bytes > 0 && len(data) > c.bytes {
			t.Errorf("%q in %d bytes: %d bytes of %q, %v; want %q", c.precision, c.bytes, len(data),
				got.Precision, err, c.want)
		}
	}
}

// FuzzDecode: whatever is read can be written and read again, and takes at most 400 bytes of memory
// for each byte of the message. With seal the checksum is made right first: no fuzzer guesses it,
// and what lies behind it must stand hostile numbers too.
func FuzzDecode(f *testing.F) {
	for _, p := range []Precision{Single, Half, Int8} {
		u := drawn(3, 4, 3, 6)
		u.Precision = p
		data := must.Get(u.Encode())(f)
		f.Add(data, true)
		f.Add(data[:len(data)/2], false)
		u = oneClass(3, 4, 3, 6)
		u.Precision = p
		f.Add(must.Get(u.Encode())(f), true)
	}
	f.Add(must.Get(calibrated(2).Encode())(f), true)
	for _, n := range []int{6, 40} {
		f.Add(must.Get(withMoments(f, n, Int8).Encode())(f), true)
	}
	f.Add([]byte{}, false)
	f.Add(inPieces(100), false)
	f.Add([]byte{0x08, 0x01, 0x40, 0xff, 0xff, 0xff, 0xff, 0x0f}, true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		var m uploadpb.Upload
		if seal && proto.Unmarshal(data, &m) == nil {
			m.Checksum = checksum(&m)
			data = must.Get(proto.Marshal(&m))(t)
		}
		var u *Upload
		var err error
		alloctest.AtMost(t, 400*len(data), func() { u, err = Decode(data, Expect{}) })
		if err != nil {
			return
		}
		u.Precision = Single
		again := must.Get(u.Encode())(t)
		if v, err := Decode(again, Expect{}); err != nil || !cmp.Equal(u, v) {
			t.Fatalf("written and read again: %+v and %+v, %v", u, v, err)
		}
	})
}

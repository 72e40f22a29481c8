// Package federate defines the messages that clients send to the server: an upload of fictitious
// points and their masses, one protobuf message, every field of which is validated before it is
// used.
//
// The package depends on the standard library and protobuf alone, as it is part of the program for
// small devices.
package federate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"fmp/onnx"
	"fmp/onnx/message"
	"fmp/onnx/onnxpb"
	"fmp/onnx/serde"
	"fmp/pipeline/federate/uploadpb"
	"fmp/pipeline/internal/whole"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// Formats of the message: Format of points with labels, StatisticsFormat of points of one class
// each, which is sent as its number: class means, beside which scatter, calibration points and
// a curve may come.
const (
	Format           = 1
	StatisticsFormat = 3
)

// Bounds on an upload.
const (
	// MaxBytes is the maximum size of a message: 16 MiB. Decoding allocates a small multiple of the
	// message's size at most.
	MaxBytes = 16 << 20
	// MaxSize is the maximum number of points of an upload.
	MaxSize = 1 << 16
	// MaxWidth is the maximum number of features, and of classes.
	MaxWidth = 1 << 16
	// MaxN is the maximum number of real points behind an upload.
	MaxN = 1_000_000_000
	// MaxCalibration is the maximum number of calibration points of an upload of class means.
	MaxCalibration = 100
	// MaxClient is the maximum length of a client's name in bytes.
	MaxClient = 128
)

// Tolerances in decoding: of labels (sums of probabilities) and of masses (their sum, relative to
// n).
const (
	labelTolerance32 = 1e-4
	labelTolerance16 = 1e-2
	massTolerance32  = 1e-4
	massTolerance16  = 1e-2
)

// Precision is the element type of an upload's points.
type Precision string

// Precisions of an upload. Half and Int8 make it two and nearly four times smaller than Single;
// labels are projected back onto the simplex when they are decoded. Int8 has one scale for the
// features and one for the label of each point; its rounding error is at most half a scale. Masses
// are float32 in all precisions.
const (
	Single Precision = "float32"
	Half   Precision = "float16"
	Int8   Precision = "int8"
)

// Upload is a client's message to a round.
type Upload struct {
	// Round is the number of the round in the federation, from 0.
	Round uint64
	// Client is the client's name: 1 to MaxClient bytes of printable UTF-8.
	Client string
	// Model is the SHA-256, in hexadecimal, of the model file that made the points.
	Model string
	// N is the number of real points behind the upload, 1 to MaxN.
	N int
	// Points are the fictitious points; their weights, the masses, sum to N.
	Points *point.Set
	// Precision is that of the points on the wire: the one Encode writes (default Single), or the
	// one Decode found.
	Precision Precision
	// Within, of an upload of moments, is sent beside the class means, which Points are; nil for
	// other uploads. N counts the images behind means and scatter, not the calibration points.
	Within *moments.Within
	// Calibration, of an upload of class means, are calibration points: single images, in the
	// coordinates of the means, that take no part in these and are not in N. Each has a class and
	// the weight 0. Nil where there are none.
	Calibration *point.Set
	// Curve, of class means and moments, is measured by the client of its images; nil where it is
	// not sent.
	Curve *moments.ClientCurve
}

// Images returns the number of images behind the upload, its calibration points among them.
func (u *Upload) Images() int {
	n := u.N
	if u.Within != nil {
		n += len(u.Within.Labels)
	}
	if u.Calibration != nil {
		n += u.Calibration.N
	}
	return n
}

// Expect holds the fields that the reader of an upload knows beforehand; zero fields are not
// compared.
type Expect struct {
	// Model is the digest of the client graph of this federation.
	Model string
	// Dx, C and S are the numbers of features, classes and points.
	Dx, C, S int
	// Round, if not nil, is the round that is being collected.
	Round *uint64
	// Unsalted takes a [Release] without a salt, as earlier programs made them.
	Unsalted bool
}

// FieldError reports an invalid field of a message of a kind.
type FieldError struct {
	Kind, Field string
	Value       any
	Allowed     string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s: %s is %v; allowed: %s", e.Kind, e.Field, e.Value, e.Allowed)
}

// kind is that of uploads, of either format.
var kind = Kind{Name: "upload", Most: MaxBytes, Writer: "fmp-edge compress"}

var refuse = kind.Refuse

// EncodeWithin is Encode in the first precision from the upload's own on that keeps to the given
// number of bytes; 0 sets no bound. The size is known once it is encoded, so that it is encoded up
// to three times. It leaves the precision that it chose in the upload.
func (u *Upload) EncodeWithin(bytes int) ([]byte, error) {
	all := []Precision{Single, Half, Int8}
	u.Precision = cmp.Or(u.Precision, Single)
	at := slices.Index(all, u.Precision)
	if bytes == 0 || at < 0 {
		return u.Encode()
	}
	for _, u.Precision = range all[at:] {
		data, err := u.Encode()
		if err != nil || len(data) <= bytes {
			return data, err
		}
		if u.Precision == Int8 {
			return nil, fmt.Errorf("the upload has %d bytes in int8, and the client graph "+
				"allows %d: it takes one with more (fmp fuse --bytes)", len(data), bytes)
		}
	}
	return nil, nil
}

// Encode returns the encoded upload, after the same checks that Decode makes. The same upload has
// the same content, and so the same checksum, on every machine.
func (u *Upload) Encode() ([]byte, error) {
	if u.Points == nil {
		return nil, refuse("points", "missing", "a set of points")
	}
	model, err := hex.DecodeString(u.Model)
	if err != nil {
		return nil, refuse("model", fmt.Sprintf("%q", u.Model), "a sha256 in hexadecimal")
	}
	if err := u.checkSize(); err != nil {
		return nil, err
	}
	if err := u.check(labelTolerance32, massTolerance32); err != nil {
		return nil, err
	}
	s, classes, err := u.byClass()
	if err != nil {
		return nil, err
	}
	m := &uploadpb.Upload{Format: Format, PointClasses: classes, Round: u.Round, Client: u.Client,
		Model: model, N: uint64(u.N), Dx: uint32(s.Dx), Classes: uint32(s.C), Size: uint32(s.N)}
	if err := u.encodePoints(m, s, classes); err != nil {
		return nil, err
	}
	if m.Masses, err = inProto("masses", onnx.NewTensor(s.W, s.N)); err != nil {
		return nil, err
	}
	if classes != nil {
		m.Format = StatisticsFormat
		if err := u.encodeStatistics(m); err != nil {
			return nil, err
		}
	}
	m.Checksum = checksum(m)
	data, err := kind.Encode(m)
	if err != nil {
		return nil, err
	}
	// Never send an upload that a reader would reject.
	if _, err := Decode(data, Expect{}); err != nil {
		return nil, err
	}
	return data, nil
}

// checkSize checks the numbers of points, classes and features against their bounds.
func (u *Upload) checkSize() error {
	s := u.Points
	if s.N < 1 || s.N > MaxSize || s.Dx < 1 || s.Dx > MaxWidth || s.C < 2 ||
		s.C > MaxWidth || u.N < 1 {
		return refuse("points", fmt.Sprintf("%d of dx %d and %d classes, of n %d", s.N,
			s.Dx, s.C, u.N), "1 to %d points, dx 1 to %d, 2 to %d classes, n of at least 1",
			MaxSize, MaxWidth, MaxWidth)
	}
	d := s.Dx
	if s.Y == nil {
		d += s.C
	}
	if len(s.Z) != s.N*d || len(s.W) != s.N || s.Y != nil && len(s.Y) != s.N {
		return refuse("points", fmt.Sprintf("%d numbers, %d masses and %d classes",
			len(s.Z), len(s.W), len(s.Y)), "%d and %d for %d points", s.N*d, s.N, s.N)
	}
	return nil
}

// encodePoints writes the points to a message, with their scale where they are in int8.
func (u *Upload) encodePoints(m *uploadpb.Upload, s *point.Set, classes []uint32) (err error) {
	shape := []int{s.N, len(s.Z) / s.N}
	switch u.Precision {
	case "", Single, Half:
		m.Points, err = narrow("points", s.Z, shape, u.Precision)
		return err
	case Int8:
	default:
		return refuse("precision", u.Precision, "%s, %s and %s", Single, Half, Int8)
	}
	q, scale := quantise(s)
	scales := []int{s.N, 2}
	if classes != nil {
		scales = scales[:1]
	}
	if m.Scale, err = inProto("scale", onnx.NewTensor(scale, scales...)); err != nil {
		return err
	}
	m.Points, err = inProto("points", onnx.NewTensor(q, shape...))
	return err
}

// inProto encodes a tensor.
func inProto(field string, t *onnx.Tensor) (*onnxpb.TensorProto, error) {
	p, err := serde.TensorToProto(field, t)
	if err != nil {
		return nil, fmt.Errorf("upload: %w", err)
	}
	return p, nil
}

// quantise rounds features and, where a point has several classes, labels to integer multiples,
// -127 to 127, of a scale each. With the scale s = max |v| / 127 the error of a number is at most
// s/2; zeros alone have the scale 1. The scales are [N, 2], of features and labels by turns, or [N]
// without labels.
func quantise(s *point.Set) (q []int8, scale []float32) {
	q = make([]int8, len(s.Z))
	at := 0
	for i := range s.N {
		parts := [][]float32{s.Features(i)}
		if s.Y == nil {
			parts = append(parts, s.Row(i)[s.Dx:])
		}
		for _, row := range parts {
			top := float32(0)
			for _, v := range row {
				top = max(top, v, -v)
			}
			step := cmp.Or(top/127, 1)
			scale = append(scale, step)
			for k, v := range row {
				q[at+k] = int8(min(max(math.RoundToEven(float64(v)/float64(step)), -127), 127))
			}
			at += len(row)
		}
	}
	return q, scale
}

// Decode decodes a message and checks it: size, checksum, every number against its bounds, tensors
// against the numbers, finite points, labels on the simplex, nonnegative masses that sum to n, and
// the expectations in want. The error is a *FieldError, which names the field, its value and the
// allowed ones, unless data are not a message at all. The checks that cost least come first:
// bounds, then headers of tensors, then the checksum. Numbers are read after these.
func Decode(data []byte, want Expect) (*Upload, error) {
	if len(data) == 0 {
		return nil, refuse("size", "0 bytes, the file is empty", "1 to %d", MaxBytes)
	}
	u, err := decode(data, want)
	if err != nil && isModel(data) {
		err = fmt.Errorf("upload: it is an ONNX model; want the upload that fmp-edge compress " +
			"--output writes")
	}
	return u, err
}

// isModel reports whether data are an ONNX model, the file most likely to be given for an upload by
// mistake.
func isModel(data []byte) bool {
	// ModelProto begins with ir_version (field 1), as an upload begins with its format, which is
	// never so high.
	const oldestIR, newestIR = 3, 20
	if len(data) < 2 || data[0] != 0x08 || data[1] < oldestIR || data[1] > newestIR {
		return false
	}
	if len(data) > MaxBytes {
		return true // truncated by the reader
	}
	m, err := serde.Unmarshal(data)
	return err == nil && m.Graph != nil
}

// Each check relies on those before it: sizes are bounded before shapes are, and shapes agree with
// the data before memory is taken.
func decode(data []byte, want Expect) (*Upload, error) {
	if err := kind.checkSize(data); err != nil {
		return nil, err
	}
	if IsRelease(data) {
		return nil, refuse("format", ReleaseFormat,
			"%d; the message is of a private round, and class means or points are wanted", Format)
	}
	var m uploadpb.Upload
	if err := unmarshal(data, &m); err != nil {
		return nil, err
	}
	u := &Upload{Round: m.Round, Client: m.Client, Model: hex.EncodeToString(m.Model), N: int(m.N)}
	s, d := int(m.Size), int(m.Dx)
	if m.Format == Format {
		d += int(m.Classes)
	}
	is := Expect{Model: u.Model, Round: &m.Round, Dx: int(m.Dx), C: int(m.Classes), S: s}
	if err := kind.Matches(want, is); err != nil {
		return nil, err
	}
	// Tensors: headers first; no memory is allocated before they agree with the size of the data.
	if err := checkTensor("points", m.Points, []int{s, d}, onnx.Float32, onnx.Float16,
		onnx.Int8); err != nil {
		return nil, err
	}
	if err := checkTensor("masses", m.Masses, []int{s}, onnx.Float32, onnx.Float16); err != nil {
		return nil, err
	}
	scaled := onnx.DType(m.Points.DataType) == onnx.Int8
	scaleShape, err := checkScale(m.Scale, scaled, s, m.Format == Format)
	if err != nil {
		return nil, err
	}
	classes, err := pointClasses(&m)
	if err != nil {
		return nil, err
	}
	if err := checkStatistics(&m); err != nil {
		return nil, err
	}
	if err := kind.Sealed(m.Checksum, checksum(&m)); err != nil {
		return nil, err
	}
	labels, masses, err := u.readPoints(&m, classes, scaleShape)
	if err != nil {
		return nil, err
	}
	if err := u.check(labels, masses); err != nil {
		return nil, err
	}
	if u.Points.Small() {
		u.Points = u.Points.Dense()
	}
	if u.Precision != Single && classes == nil {
		ontoSimplex(u.Points)
	}
	u.Points = u.Points.Compact()
	if m.Format == Format {
		return u, nil
	}
	return u, u.decodeStatistics(&m)
}

// unmarshal reads a message and checks its numbers against their bounds.
func unmarshal(data []byte, m *uploadpb.Upload) error {
	if err := message.Unmarshal(data, m, 0); err != nil {
		return fmt.Errorf("upload: not a message of the type that fmp-edge compress "+
			"writes: %w", err)
	}
	if m.Format != Format && m.Format != StatisticsFormat {
		return refuse("format", m.Format, "%d and %d; use programs of one release on both sides",
			Format, StatisticsFormat)
	}
	if err := kind.Known("unknown fields", m); err != nil {
		return err
	}
	if len(m.Checksum) != sha256.Size {
		return refuse("checksum", fmt.Sprintf("%d bytes", len(m.Checksum)), "%d", sha256.Size)
	}
	if len(m.Model) != sha256.Size {
		return refuse("model", fmt.Sprintf("a digest of %d bytes", len(m.Model)), "%d", sha256.Size)
	}
	return cmp.Or(kind.Bounded("n", m.N, 1, MaxN), kind.Bounded("dx", uint64(m.Dx), 1, MaxWidth),
		kind.Bounded("classes", uint64(m.Classes), 2, MaxWidth),
		kind.Bounded("size", uint64(m.Size), 1, MaxSize))
}

// readPoints reads the points and masses of a message whose tensors are checked, and returns the
// tolerances of their labels and of their masses.
func (u *Upload) readPoints(m *uploadpb.Upload, classes []int32,
	scaleShape []int) (labels, masses float64, err error) {
	u.Points = &point.Set{N: int(m.Size), Dx: int(m.Dx), C: int(m.Classes), Y: classes}
	if u.Points.W, err = numbers("masses", m.Masses); err != nil {
		return 0, 0, err
	}
	labels, masses = labelTolerance32, massTolerance32
	if onnx.DType(m.Masses.DataType) == onnx.Float16 {
		masses = massTolerance16
	}
	u.Precision = Single
	switch onnx.DType(m.Points.DataType) {
	case onnx.Float16:
		u.Precision, labels = Half, labelTolerance16
	case onnx.Int8:
		u.Precision = Int8
	}
	if onnx.DType(m.Points.DataType) == onnx.Int8 {
		if labels, err = dequantise(u.Points, m.Points.RawData, m.Scale, scaleShape); err != nil {
			return 0, 0, err
		}
	} else if u.Points.Z, err = numbers("points", m.Points); err != nil {
		return 0, 0, err
	}
	return labels, masses, nil
}

// Matches returns an error unless a decoded upload has the fields that are expected.
func (u *Upload) Matches(want Expect) error {
	return kind.Matches(want, Expect{Model: u.Model, Round: &u.Round, Dx: u.Points.Dx,
		C: u.Points.C, S: u.Points.N})
}

// checkTensor returns an error unless a tensor has one of the types, the shape, and all of its data
// in raw_data.
func checkTensor(field string, p *onnxpb.TensorProto, shape []int, types ...onnx.DType) error {
	if p == nil {
		return refuse(field, "missing", "a tensor")
	}
	d := onnx.DType(p.DataType)
	if !slices.Contains(types, d) {
		return refuse(field+".data_type", d, "%v", types)
	}
	if !slices.EqualFunc(p.Dims, shape, func(a int64, b int) bool { return a == int64(b) }) {
		return refuse(field+".dims", brief(p.Dims), "%v", shape)
	}
	if n := elements(shape) * int64(d.Size()); int64(len(p.RawData)) != n {
		return refuse(field+".raw_data", fmt.Sprintf("%d bytes", len(p.RawData)),
			"%d for %v of shape %v", n, d, shape)
	}
	if p.Segment != nil || p.DataLocation != 0 || len(p.ExternalData) > 0 ||
		len(p.ProtoReflect().GetUnknown()) > 0 ||
		len(p.FloatData)+len(p.DoubleData)+len(p.Int32Data)+len(p.Int64Data)+len(p.Uint64Data)+
			len(p.StringData) > 0 {
		return refuse(field, "a tensor with other fields",
			"name, dims, data_type and raw_data alone")
	}
	return nil
}

// elements returns the number of elements, up to 2^33, which exceeds an int of 32 bits.
func elements(shape []int) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= int64(d)
	}
	return n
}

// brief shortens the dimensions for an error message.
func brief(dims []int64) any {
	if len(dims) > 8 {
		return fmt.Sprintf("%d numbers", len(dims))
	}
	return dims
}

// checkScale returns the scale's shape, one of three, or of two without labels, or nil if the scale
// is rightly absent; any other is an error.
// They are [1] for all, [s] one a point, and [s, 2] one each for features and label.
func checkScale(p *onnxpb.TensorProto, wanted bool, s int, labels bool) ([]int, error) {
	if !wanted {
		if p != nil {
			return nil, refuse("scale", "given", "none, as the points are not int8")
		}
		return nil, nil
	}
	if p == nil {
		return nil, refuse("scale", "missing", "a float32 tensor, as the points are int8")
	}
	shape := []int{1}
	switch {
	case len(p.Dims) == 2 && labels:
		shape = []int{s, 2}
	case len(p.Dims) == 1 && p.Dims[0] != 1:
		shape = []int{s}
	}
	return shape, checkTensor("scale", p, shape, onnx.Float32)
}

// numbers returns the elements of a checked tensor as float32.
// Float16 becomes float32 exactly.
func numbers(field string, p *onnxpb.TensorProto) ([]float32, error) {
	t, err := serde.TensorFromProto(p)
	if err != nil {
		return nil, fmt.Errorf("upload: %s: %w", field, err)
	}
	if half, ok := t.Data.([]uint16); ok {
		out := make([]float32, len(half))
		for i, h := range half {
			out[i] = onnx.HalfToFloat32(onnx.Float16, h)
		}
		return out, nil
	}
	return t.F32(), nil
}

// dequantise sets Z and returns the tolerance of a label's sum around 1: half a scale per class,
// and 1/2 at most. raw is row by row; d is the number of features, or of features and classes. A
// scale of one number is for all points.
// A number is z_k = s q_k with q_k from -128 to 127 and s the scale of its part, features or label.
func dequantise(s *point.Set, raw []byte, scale *onnxpb.TensorProto,
	shape []int) (tolerance float64, err error) {
	f, err := numbers("scale", scale)
	if err != nil {
		return 0, err
	}
	for i, v := range f {
		if !(v > 0) || math.IsInf(float64(v), 0) {
			return 0, refuse(fmt.Sprintf("scale[%d]", i), v, "finite numbers above 0")
		}
	}
	of := func(row, part int) float32 {
		switch {
		case len(shape) == 2:
			return f[2*row+part]
		case len(f) == 1:
			return f[0]
		}
		return f[row]
	}
	d := len(raw) / s.N
	s.Z = make([]float32, s.N*d)
	tolerance = labelTolerance32
	for i := range s.N {
		features, label := of(i, 0), of(i, 1)
		for k := range d {
			v := label
			if k < s.Dx {
				v = features
			}
			s.Z[i*d+k] = v * float32(int8(raw[i*d+k]))
		}
		tolerance = max(tolerance, labelTolerance32+float64(label)*float64(s.C)/2)
	}
	return min(tolerance, 0.5), nil
}

// CheckClient returns an error unless a client may have the name.
func CheckClient(name string) error {
	if len(name) < 1 || len(name) > MaxClient || !printable(name) {
		return refuse("client", fmt.Sprintf("%q (%d bytes)", name[:min(len(name), MaxClient)],
			len(name)), "1 to %d bytes of printable UTF-8", MaxClient)
	}
	return nil
}

// check validates names, numbers, labels and masses.
// The tolerances are those of the precision: of each label, and of the masses' sum relative to n.
// It costs O(numbers of the points).
func (u *Upload) check(labels, masses float64) error {
	if err := CheckClient(u.Client); err != nil {
		return err
	}
	if u.N < 1 || u.N > MaxN {
		return refuse("n", u.N, "1 to %d", MaxN)
	}
	s := u.Points
	for i := range s.N {
		var sum float64
		row := s.Features(i)
		if s.Y != nil {
			if y := s.Y[i]; y < 0 || int(y) >= s.C {
				return refuse(fmt.Sprintf("point_classes[%d]", i), y, "0 to %d", s.C-1)
			}
			sum = 1
		} else {
			row = s.Row(i)
		}
		for k, v := range row {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return refuse(fmt.Sprintf("points[%d][%d]", i, k), v, "finite numbers")
			}
			if k < s.Dx {
				continue
			}
			if float64(v) < -labels || float64(v) > 1+labels {
				return refuse(fmt.Sprintf("points[%d][%d]", i, k), v,
					"label probabilities of 0 to 1")
			}
			sum += float64(v)
		}
		if math.Abs(sum-1) > labels {
			return refuse(fmt.Sprintf("points[%d]", i),
				fmt.Sprintf("of a label that sums to %.6g", sum), "1, to within %.3g", labels)
		}
	}
	var sum float64
	for i, w := range s.W {
		if !(w >= 0) || math.IsInf(float64(w), 0) {
			return refuse(fmt.Sprintf("masses[%d]", i), w, "finite numbers of at least 0")
		}
		sum += float64(w)
	}
	if math.Abs(sum-float64(u.N)) > masses*float64(u.N) {
		return refuse("masses", fmt.Sprintf("%.6g in sum", sum), "n = %d, to within %.3g", u.N,
			masses*float64(u.N))
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s,
		func(r rune) bool { return !unicode.IsPrint(r) })
}

// ontoSimplex removes the rounding of a narrow type from the labels: negative values become 0, and
// each label sums to 1. check has held the sum within 1/2 of 1, and taking out negative values only
// adds to it: the division is by 1/2 at least.
func ontoSimplex(s *point.Set) {
	for i := range s.N {
		y := s.Row(i)[s.Dx:]
		var sum float64
		for k, p := range y {
			y[k] = max(p, 0)
			sum += float64(y[k])
		}
		for k := range y {
			y[k] = float32(float64(y[k]) / sum)
		}
	}
}

// checksum returns the SHA-256 of the content: every field but the checksum in the order of the
// field numbers, numbers as little-endian uint64, strings and bytes preceded by their length,
// tensors as type, dims and raw data. As each length is in it, two messages of different content
// never give the hash the same bytes. A tensor that is missing counts as a 0.
func checksum(m *uploadpb.Upload) []byte {
	h := sha256.New()
	h.Write([]byte("fmp.federate.Upload\n"))
	whole.Hash(h, uint64(m.Format), m.Round)
	whole.HashText(h, []byte(m.Client))
	whole.HashText(h, m.Model)
	whole.Hash(h, m.N, uint64(m.Dx), uint64(m.Classes), uint64(m.Size))
	tensors := []*onnxpb.TensorProto{m.Points, m.Scale, m.Masses}
	if m.Format == StatisticsFormat {
		tensors = append(tensors, m.Scatter, m.ScatterScale, m.Calibration)
	}
	for _, t := range tensors {
		if t == nil {
			whole.Hash(h, 0)
			continue
		}
		whole.Hash(h, uint64(t.DataType), uint64(len(t.Dims)))
		for _, d := range t.Dims {
			whole.Hash(h, uint64(d))
		}
		whole.HashText(h, t.RawData)
	}
	if m.Format == StatisticsFormat {
		if m.Dof != nil { // 0 where there is none
			whole.Hash(h, 1)
		}
		whole.Hash(h, m.GetDof())
		for _, list := range [][]uint32{m.CalibrationClasses, m.PointClasses, m.Curve} {
			whole.Hash(h, uint64(len(list)))
			for _, v := range list {
				whole.Hash(h, uint64(v))
			}
		}
		whole.Hash(h, 0) // the length of a second curve, of earlier uploads
	}
	return h.Sum(nil)
}

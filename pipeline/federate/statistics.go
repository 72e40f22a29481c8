package federate

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"fmp/onnx"
	"fmp/onnx/onnxpb"
	"fmp/pipeline/federate/uploadpb"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// Bounds on an upload of moments.
// A triangle of 4,096 coordinates has 8.4 million numbers, some 32 MiB in float32.
const (
	// MaxMoments is the maximum number of features of one.
	MaxMoments = 1 << 12
	// maxLength is the maximum length of a row: embedded features have length 1 at most, but for
	// rounding.
	maxLength = 1.02
)

// encodeStatistics sets the fields that come beside class means.
// They are in the precision of the upload, but that calibration points of one in int8 are float16:
// their rows have no scale.
// A curve has values up to 0, and is sent as its whole steps of moments.CurveStep below 0.
// Degrees of freedom are sent of moments alone, 0 included: they tell moments from class means.
// Curve and scatter are checked as the reader checks them, so that a client learns of a fault
// before it sends.
func (u *Upload) encodeStatistics(m *uploadpb.Upload) error {
	rows, labels, err := u.singles()
	if err != nil {
		return err
	}
	if m.CalibrationClasses = labels; len(labels) > 0 {
		precision := u.Precision
		if precision == Int8 {
			precision = Half
		}
		if m.Calibration, err = narrow("calibration", rows, []int{len(labels), u.Points.Dx},
			precision); err != nil {
			return err
		}
	}
	if u.Curve != nil {
		if err := u.Curve.Check(u.N + len(labels)); err != nil {
			return fmt.Errorf("upload: %w", err)
		}
		for _, v := range u.Curve.Curve {
			m.Curve = append(m.Curve, uint32(-v/moments.CurveStep)) // in steps below 0
		}
	}
	if u.Within == nil {
		return nil
	}
	return u.encodeWithin(m)
}

// singles returns the calibration points, which moments keep beside their scatter.
// Rows are [k, dx]. An upload has those of class means or of moments, never both.
// The slices are the upload's own, and labels are copied.
func (u *Upload) singles() (rows []float32, labels []uint32, err error) {
	c, w := u.Calibration, u.Within
	switch {
	case c == nil && w == nil:
		return nil, nil, nil
	case c == nil:
		if w.K != u.Points.Dx {
			return nil, nil, refuse("scatter", fmt.Sprintf("of %d coordinates", w.K),
				"those of the class means, %d", u.Points.Dx)
		}
		if err := w.Check(u.Points.C); err != nil {
			return nil, nil, fmt.Errorf("upload: %w", err)
		}
		for _, y := range w.Labels {
			labels = append(labels, uint32(y))
		}
		return w.Calibration, labels, nil
	case w != nil || c.Dx != u.Points.Dx || c.C != u.Points.C || len(c.Y) != c.N ||
		len(c.Z) != c.N*c.Dx || c.N < 1:
		return nil, nil, refuse("calibration", "given",
			"none but of class means and of their coordinates, each point with a class")
	}
	for _, y := range c.Y {
		labels = append(labels, uint32(y))
	}
	return c.Z, labels, nil
}

// encodeWithin sets degrees of freedom and scatter. Int8 has a scale for each row of a factor or,
// of the scatter itself, for each coordinate, the root of its own scatter. Element (i, j) of the
// scatter then has the step s_i s_j = sqrt(S_ii S_jj) / 127. By Cauchy and Schwarz no element is
// beyond 127 steps.
// Rounding is to the nearest step, ties to even. Nothing is set for 0 degrees of freedom but their
// number, as the scatter is 0.
func (u *Upload) encodeWithin(m *uploadpb.Upload) (err error) {
	w := u.Within
	m.Dof = proto.Uint64(uint64(w.Dof))
	if w.Dof == 0 {
		return nil
	}
	shape := scatterShape(w.K, w.Rank)
	if u.Precision != Int8 {
		m.Scatter, err = narrow("scatter", w.Data, shape, u.Precision)
		return err
	}
	scale := scatterScale(w)
	q := make([]int8, len(w.Data))
	of := stepOf(scale, w.K, w.Rank)
	for i, v := range w.Data {
		q[i] = int8(min(max(math.RoundToEven(float64(v)/of(i)), -127), 127))
	}
	if m.Scatter, err = inProto("scatter", onnx.NewTensor(q, shape...)); err == nil {
		m.ScatterScale, err = inProto("scatter_scale", onnx.NewTensor(scale, len(scale)))
	}
	return err
}

// scatterShape returns the shape of a scatter of k coordinates: [rank, k], or the numbers of its
// upper triangle, row by row. A factor F of [rank, k] stands for F' F, which is smaller where the
// rank is below about k/2.
// A factor has rank k numbers against k (k+1)/2 of the triangle.
func scatterShape(k, rank int) []int {
	if rank > 0 {
		return []int{rank, k}
	}
	return []int{k * (k + 1) / 2}
}

// scatterScale returns the scales of a scatter in int8: max |v| / 127 of each row of a factor, or
// sqrt(S_ii / 127) of each coordinate. The step of an element is the product of two of the latter.
// A diagonal element S_ii lies at v = sum_{j<i} (k - j) of the triangle.
func scatterScale(w *moments.Within) []float32 {
	var scale []float32
	if w.Rank > 0 {
		for r := range w.Rank {
			top := float32(0)
			for _, v := range w.Data[r*w.K : (r+1)*w.K] {
				top = max(top, v, -v)
			}
			scale = append(scale, top/127)
		}
		return scale
	}
	for i, at := 0, 0; i < w.K; i++ {
		scale = append(scale, float32(math.Sqrt(float64(w.Data[at])/127)))
		at += w.K - i
	}
	return scale
}

// stepOf returns a function from the number of an element, asked for in order, to the value of one
// step of it. Of an upper triangle it counts rows and columns by itself, and is for one pass.
// Zeros have a step of 1.
// A step of 1 for zeros keeps the division of the encoder finite, and 0 / 1 is 0.
func stepOf(scale []float32, k, rank int) func(i int) float64 {
	step := func(v float64) float64 {
		if v > 0 {
			return v
		}
		return 1 // of zeros
	}
	if rank > 0 {
		return func(i int) float64 { return step(float64(scale[i/k])) }
	}
	row, column := 0, -1
	return func(int) float64 {
		if column++; column == k {
			row++
			column = row
		}
		return step(float64(scale[row]) * float64(scale[column]))
	}
}

// narrow encodes numbers in float32 or float16.
// A number that float16 makes infinite is an error, as its reader would refuse it.
// Float16 keeps 11 bits: a relative error of 2^-11 at most in its normal range. Float32 shares v.
func narrow(field string, v []float32, shape []int, p Precision) (*onnxpb.TensorProto, error) {
	t := &onnx.Tensor{DType: onnx.Float32, Shape: shape, Data: v}
	if p == Half {
		h := make([]uint16, len(v))
		for i, x := range v {
			// An exponent of all ones is infinity or NaN (IEEE 754).
			if h[i] = onnx.Float32ToFloat16(x); h[i]&0x7c00 == 0x7c00 {
				return nil, refuse(field, x, "up to 65504 in float16; use float32")
			}
		}
		t.DType, t.Data = onnx.Float16, h
	}
	return inProto(field, t)
}

// checkStatistics checks the headers of the fields beside class means against the sizes, before
// memory is allocated; points with labels have none.
// Nothing is read of a tensor here but its type, its dimensions and the length of its bytes. A
// server may call it on any message.
func checkStatistics(m *uploadpb.Upload) error {
	k := int(m.Dx)
	switch lists := len(m.CalibrationClasses) + len(m.Curve); {
	case m.Format == Format &&
		(m.Scatter != nil || m.ScatterScale != nil || m.Calibration != nil ||
			m.Dof != nil || lists > 0):
		return refuse("scatter, calibration and curve", "given", "none in format %d", m.Format)
	case m.Format == Format:
		return nil
	case m.Dof != nil && k > MaxMoments:
		return refuse("dx", k, "1 to %d with moments", MaxMoments)
	}
	most := MaxCalibration
	if m.Dof != nil {
		most = moments.MaxCalibration
	}
	n := len(m.CalibrationClasses)
	switch {
	case n > most:
		return refuse("calibration_classes", fmt.Sprintf("%d of them", n), "%d at most", most)
	case (m.Calibration != nil) != (n > 0):
		return refuse("calibration", m.Calibration != nil, "points and their classes, or neither")
	}
	if n > 0 {
		// Of one type with the points, but that there is no int8.
		only := onnx.DType(m.Points.DataType)
		if only == onnx.Int8 {
			only = onnx.Float16
		}
		if err := checkTensor("calibration", m.Calibration, []int{n, k}, only); err != nil {
			return err
		}
	}
	if l := len(m.Curve); l != 0 && l != moments.Temperatures {
		return refuse("curve", fmt.Sprintf("%d numbers", l), "%d, or none", moments.Temperatures)
	}
	return checkScatter(m)
}

// checkScatter checks the headers of a scatter.
// With n images and m class means there are at most n - m degrees of freedom. A tensor of two axes
// is a factor [rank, dx], and one of one axis the triangle.
// The degrees of freedom alone are compared first, as their sum with m may overflow.
// One image a class gives a mean and no scatter: each of m means costs one degree of freedom.
func checkScatter(m *uploadpb.Upload) error {
	k := int(m.Dx)
	dof := m.GetDof()
	if dof > m.N || dof+uint64(m.Size) > m.N && m.Dof != nil {
		return refuse("dof", dof, "%d at most, n less the class means",
			max(m.N, uint64(m.Size))-uint64(m.Size))
	}
	if dof == 0 {
		if m.Scatter != nil || m.ScatterScale != nil {
			return refuse("scatter", "given", "none with 0 degrees of freedom")
		}
		return nil
	}
	if m.Scatter == nil {
		return refuse("scatter", "missing", "a tensor, as there are %d degrees of freedom", dof)
	}
	scatter := onnx.DType(m.Points.DataType) // one type
	rank, scales := 0, k
	if len(m.Scatter.Dims) == 2 {
		if r := m.Scatter.Dims[0]; r < 1 || r > int64(k) {
			return refuse("scatter.dims", brief(m.Scatter.Dims), "a rank of 1 to %d", k)
		}
		rank = int(m.Scatter.Dims[0])
		scales = rank
	}
	if err := checkTensor("scatter", m.Scatter, scatterShape(k, rank), scatter); err != nil {
		return err
	}
	if scatter == onnx.Int8 {
		return checkTensor("scatter_scale", m.ScatterScale, []int{scales}, onnx.Float32)
	}
	if m.ScatterScale != nil {
		return refuse("scatter_scale", "given", "none, as the scatter is not int8")
	}
	return nil
}

// decodeStatistics sets the parts beside class means from checked headers, and checks the numbers.
// Beside anything each class has one mean, of an image or more: the spread of clients' class means
// is measured by how many there are.
// Calibration points have the weight 0. Of moments they go to Within, else to Calibration.
// After an error u is of no use.
func (u *Upload) decodeStatistics(m *uploadpb.Upload) (err error) {
	var rows []float32
	if m.Calibration != nil {
		if rows, err = numbers("calibration", m.Calibration); err != nil {
			return err
		}
	}
	c := &point.Set{N: len(m.CalibrationClasses), Dx: u.Points.Dx, C: u.Points.C, Z: rows,
		W: make([]float32, len(m.CalibrationClasses))}
	for i, y := range m.CalibrationClasses {
		if y >= m.Classes {
			return refuse(fmt.Sprintf("calibration_classes[%d]", i), y, "0 to %d", m.Classes-1)
		}
		c.Y = append(c.Y, int32(y))
	}
	for i, v := range rows {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return refuse(fmt.Sprintf("calibration[%d]", i/c.Dx), v, "finite numbers")
		}
	}
	if m.Curve != nil {
		u.Curve = &moments.ClientCurve{}
		for i, v := range m.Curve {
			u.Curve.Curve[i] = -float64(v) * moments.CurveStep
		}
		if err := u.Curve.Check(u.N + c.N); err != nil {
			return fmt.Errorf("upload: %w", err)
		}
	}
	if m.Dof != nil || c.N > 0 || u.Curve != nil {
		if err := u.CheckMeans(); err != nil {
			return err
		}
	}
	if m.Dof != nil {
		return u.decodeWithin(m, c)
	}
	if c.N > 0 {
		u.Calibration = c
	}
	return nil
}

// CheckMeans returns an error unless each class has one mean, of an image or more. The points have
// one class each.
func (u *Upload) CheckMeans() error {
	held := make([]bool, u.Points.C)
	for i, y := range u.Points.Indices() {
		if n := u.Points.W[i]; held[y] || n < 1 {
			return refuse(fmt.Sprintf("points[%d]", i), fmt.Sprintf("of class %d and mass %g", y,
				n), "one mean a class, of an image at least")
		}
		held[y] = true
	}
	return nil
}

// decodeWithin sets scatter and calibration points of moments. Rows have length 1 at most, so that
// means have, and the trace of the scatter is at most n: no client counts for more than its images.
// With L = maxLength, lengths are up to L, and the trace and each number of the scatter up to L² n.
// The trace is sum_i |h_i - mean|² over images, and |h_i| up to 1 bounds it by n. By Cauchy and
// Schwarz |S_ij| is at most sqrt(S_ii S_jj), and so at most the trace.
func (u *Upload) decodeWithin(m *uploadpb.Upload, c *point.Set) (err error) {
	w := &moments.Within{K: int(m.Dx), Dof: int(*m.Dof), Calibration: c.Z}
	for _, y := range c.Y {
		w.Labels = append(w.Labels, int(y))
	}
	if m.Scatter != nil {
		if len(m.Scatter.Dims) == 2 {
			w.Rank = int(m.Scatter.Dims[0])
		}
		if m.ScatterScale == nil {
			w.Data, err = numbers("scatter", m.Scatter)
		} else {
			var scale []float32
			if scale, err = numbers("scatter_scale", m.ScatterScale); err == nil {
				of := stepOf(scale, w.K, w.Rank)
				// A byte is one number, and checkScatter has compared their number with the shape.
				w.Data = make([]float32, len(m.Scatter.RawData))
				for i, b := range m.Scatter.RawData {
					w.Data[i] = float32(float64(int8(b)) * of(i))
				}
			}
		}
		if err != nil {
			return err
		}
	}
	if err := w.Check(u.Points.C); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	for i := range u.Points.N {
		if l := point.Norm(u.Points.Features(i)); l > maxLength {
			return refuse(fmt.Sprintf("points[%d]", i), fmt.Sprintf("of length %.4g", l),
				"class means of length 1 at most")
		}
	}
	for i := range w.Labels {
		if l := point.Norm(w.Calibration[i*w.K : (i+1)*w.K]); l > maxLength {
			return refuse(fmt.Sprintf("calibration[%d]", i), fmt.Sprintf("of length %.4g", l),
				"rows of length 1 at most")
		}
	}
	most := maxLength * maxLength * float64(u.N)
	if t := w.Trace(); t > most {
		return refuse("scatter", fmt.Sprintf("of trace %.4g", t), "n at most, %d", u.N)
	}
	for i, v := range w.Data {
		if math.Abs(float64(v)) > most {
			return refuse(fmt.Sprintf("scatter[%d]", i), v, "from -n to n, %d", u.N)
		}
	}
	u.Within = w
	return nil
}

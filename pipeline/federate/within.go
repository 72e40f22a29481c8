package federate

import (
	"fmt"
	"math"

	"fmp/onnx"
	"fmp/onnx/onnxpb"
	"fmp/onnx/serde"
	"fmp/pipeline/federate/uploadpb"
	"fmp/pipeline/moments"
)

// Bounds on an upload of moments.
const (
	// MaxMoments is the maximum number of features of one.
	MaxMoments = 1 << 12
	// maxLength is the maximum length of a row: embedded features have length 1 at most, but for rounding.
	maxLength = 1.02
)

// encodeWithin sets the fields of an upload of moments. Int8 has a scale for each row of a factor or, of the scatter itself, for each
// coordinate, the root of its own scatter; calibration points are then float16.
func (u *Upload) encodeWithin(m *uploadpb.Upload) error {
	w := u.Within
	if w.K != u.Points.Dx {
		return refuse("scatter", fmt.Sprintf("of %d coordinates", w.K), "those of the class means, %d", u.Points.Dx)
	}
	if err := w.Check(u.Points.C); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	m.Dof = uint64(w.Dof)
	for _, y := range w.Labels {
		m.CalibrationClasses = append(m.CalibrationClasses, uint32(y))
	}
	var err error
	if len(w.Labels) > 0 {
		precision := u.Precision
		if precision == Int8 {
			precision = Half
		}
		if m.Calibration, err = narrow("calibration", w.Calibration, []int{len(w.Labels), w.K}, precision); err != nil {
			return err
		}
	}
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
	if m.Scatter, err = serde.TensorToProto("scatter", onnx.NewTensor(q, shape...)); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	if m.ScatterScale, err = serde.TensorToProto("scatter_scale", onnx.NewTensor(scale, len(scale))); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	return nil
}

// scatterShape returns the shape of a scatter of k coordinates: [rank, k], or the numbers of its upper triangle.
func scatterShape(k, rank int) []int {
	if rank > 0 {
		return []int{rank, k}
	}
	return []int{k * (k + 1) / 2}
}

// scatterScale returns the scales of a scatter in int8.
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

// stepOf returns a function from the number of an element, asked for in order, to the value of one step of it.
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
func narrow(field string, v []float32, shape []int, p Precision) (*onnxpb.TensorProto, error) {
	t := &onnx.Tensor{DType: onnx.Float32, Shape: shape, Data: v}
	if p == Half {
		h := make([]uint16, len(v))
		for i, x := range v {
			if h[i] = onnx.Float32ToFloat16(x); h[i]&0x7c00 == 0x7c00 {
				return nil, refuse(field, x, "up to 65504 in float16; use float32")
			}
		}
		t.DType, t.Data = onnx.Float16, h
	}
	p2, err := serde.TensorToProto(field, t)
	if err != nil {
		return nil, fmt.Errorf("upload: %w", err)
	}
	return p2, nil
}

// checkWithin checks the headers of the fields of an upload of moments against the sizes, before memory is allocated; other uploads have
// none.
func checkWithin(m *uploadpb.Upload) error {
	if m.Format != MomentsFormat {
		if m.Scatter != nil || m.ScatterScale != nil || m.Calibration != nil || m.Dof != 0 || len(m.CalibrationClasses) > 0 {
			return refuse("scatter", "given", "none in format %d", m.Format)
		}
		return nil
	}
	k := int(m.Dx)
	// Of one type with the points; calibration points have no int8.
	scatter := onnx.DType(m.Points.DataType)
	calibration := scatter
	if scatter == onnx.Int8 {
		calibration = onnx.Float16
	}
	if k > MaxMoments {
		return refuse("dx", k, "1 to %d with moments", MaxMoments)
	}
	if m.Dof+uint64(m.Size) > m.N {
		return refuse("dof", m.Dof, "%d at most, n less the class means", max(m.N, uint64(m.Size))-uint64(m.Size))
	}
	if len(m.CalibrationClasses) > moments.MaxCalibration {
		return refuse("calibration_classes", fmt.Sprintf("%d of them", len(m.CalibrationClasses)), "%d at most", moments.MaxCalibration)
	}
	if (m.Calibration != nil) != (len(m.CalibrationClasses) > 0) {
		return refuse("calibration", m.Calibration != nil, "points and their classes, or neither")
	}
	if m.Calibration != nil {
		if err := checkTensor("calibration", m.Calibration, []int{len(m.CalibrationClasses), k}, calibration); err != nil {
			return err
		}
	}
	if m.Dof == 0 {
		if m.Scatter != nil || m.ScatterScale != nil {
			return refuse("scatter", "given", "none with 0 degrees of freedom")
		}
		return nil
	}
	if m.Scatter == nil {
		return refuse("scatter", "missing", "a tensor, as there are %d degrees of freedom", m.Dof)
	}
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

// decodeWithin sets Within from checked headers, and checks the numbers. Rows have length 1 at most, so that means have, and the trace of
// the scatter is at most n: no client counts for more than its images. Each class has one mean, of an image or more: the spread of clients'
// class means is measured by how many there are.
func (u *Upload) decodeWithin(m *uploadpb.Upload) (err error) {
	w := &moments.Within{K: int(m.Dx), Dof: int(m.Dof)}
	for _, y := range m.CalibrationClasses {
		w.Labels = append(w.Labels, int(y))
	}
	if m.Calibration != nil {
		if w.Calibration, err = numbers("calibration", m.Calibration); err != nil {
			return err
		}
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
	classes := u.Points.Indices()
	if classes == nil {
		return refuse("points", "of several classes each", "class means, each of one class")
	}
	held := make([]bool, u.Points.C)
	for i, y := range classes {
		field := fmt.Sprintf("points[%d]", i)
		if l := length(u.Points.Features(i)); l > maxLength {
			return refuse(field, fmt.Sprintf("of length %.4g", l), "class means of length 1 at most")
		}
		if n := u.Points.W[i]; held[y] || n < 1 {
			return refuse(field, fmt.Sprintf("of class %d and mass %g", y, n), "one mean a class, of an image at least")
		}
		held[y] = true
	}
	for i := range w.Labels {
		if l := length(w.Calibration[i*w.K : (i+1)*w.K]); l > maxLength {
			return refuse(fmt.Sprintf("calibration[%d]", i), fmt.Sprintf("of length %.4g", l), "rows of length 1 at most")
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

func length(row []float32) float64 {
	var sum float64
	for _, v := range row {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum)
}

package featurize

import "math"

// Stats are the mean and standard deviation of each feature over a set of images.
type Stats struct {
	Mean []float32 `json:"mean"`
	Std  []float32 `json:"std"`
}

// newStats computes the statistics of rows of dx features: mean and population standard deviation,
// summed in float64 in the order of the rows. A feature that hardly varies (less than a millionth
// of the largest standard deviation) gets 1 for its standard deviation, so that it becomes 0 and
// not noise. Deviations are summed in a second pass: sums of squares less the square of the mean
// would cancel.
func newStats(rows []float32, dx int) *Stats {
	n := len(rows) / dx
	mean, m2 := make([]float64, dx), make([]float64, dx)
	for i := range n {
		for k, v := range rows[i*dx : (i+1)*dx] {
			mean[k] += float64(v)
		}
	}
	for k := range mean {
		mean[k] /= float64(n)
	}
	for i := range n {
		for k, v := range rows[i*dx : (i+1)*dx] {
			d := float64(v) - mean[k]
			m2[k] += d * d
		}
	}
	top := 0.0
	for k := range m2 {
		m2[k] = math.Sqrt(m2[k] / float64(n))
		top = math.Max(top, m2[k])
	}
	s := &Stats{Mean: make([]float32, dx), Std: make([]float32, dx)}
	for k := range m2 {
		s.Mean[k], s.Std[k] = float32(mean[k]), float32(m2[k])
		if m2[k] <= 1e-6*top || s.Std[k] == 0 {
			s.Std[k] = 1
		}
	}
	return s
}

// Apply standardises rows in place: (h - mean) / std. rows are [n, dx], row by row. Stats are not
// changed, so that several goroutines may use them.
func (s *Stats) Apply(rows []float32) {
	dx := len(s.Mean)
	for i := range rows {
		rows[i] = (rows[i] - s.Mean[i%dx]) / s.Std[i%dx]
	}
}

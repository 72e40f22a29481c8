package quantise

import (
	"encoding/json"
	"math"
)

// Loss is a squared error as a share of a variance. It is infinite where a number that is finite in
// float32 is infinite or NaN in the quantised model, and NaN where nothing tells it.
type Loss float64

// MarshalJSON writes null for a loss that is infinite or NaN, which JSON has no number for.
func (l Loss) MarshalJSON() ([]byte, error) {
	if !finite(float64(l)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(l))
}

// Sums tell the loss of an output.
type Sums struct {
	n, x, xx, off float64
	left          bool // a number was left out
}

// Add takes a number of the model and the same of the quantised model. It leaves out those that are
// infinite or NaN in the model itself.
func (s *Sums) Add(before, after float32) {
	x, d := float64(before), float64(after)-float64(before)
	if !finite(x) {
		s.left = true
		return
	}
	if math.IsNaN(d) {
		d = math.Inf(1)
	}
	s.n, s.x, s.xx, s.off = s.n+1, s.x+x, s.xx+x*x, s.off+d*d
}

// Loss is sum (a - b)^2 / sum (b - mean of b)^2, of finite numbers b before and a after. It is NaN
// where the b do not differ, or there are none.
func (s *Sums) Loss() Loss {
	if variance := s.xx - s.x*s.x/s.n; variance > 0 {
		return Loss(s.off / variance)
	}
	return Loss(math.NaN())
}

func finite(x float64) bool { return !math.IsInf(x, 0) && !math.IsNaN(x) }

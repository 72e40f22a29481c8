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

// Sums tell the loss of an output. Differences between its numbers that are the same for every image
// are no part of the variance: a score that a mask sets to -1e4 would hide the loss of all others.
type Sums struct {
	at      []position // of an image's numbers
	xx, off float64
	left    bool // a number was left out
}

// position sums the numbers of one position, less the first of them, so that no large mean rounds
// their differences away.
type position struct{ n, first, x float64 }

// Add takes the numbers of an image from the model, and those from the quantised model. It leaves
// out those that are infinite or NaN in the model itself.
func (s *Sums) Add(before, after []float32) {
	if more := len(before) - len(s.at); more > 0 {
		s.at = append(s.at, make([]position, more)...)
	}
	for i, b := range before {
		x, d := float64(b), float64(after[i])-float64(b)
		if !finite(x) {
			s.left = true
			continue
		}
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		p := &s.at[i]
		if p.n == 0 {
			p.first = x
		}
		x -= p.first
		p.n, p.x = p.n+1, p.x+x
		s.xx, s.off = s.xx+x*x, s.off+d*d
	}
}

// Loss is sum (a - b)^2 / sum (b - m)^2, of finite numbers b before and a after, and the mean m of
// all b of the same position within their image. It is NaN where no b differs from its mean. The
// sum of squares about m is sum x² - (sum x)²/n, of numbers less the first of their position.
func (s *Sums) Loss() Loss {
	variance := s.xx
	for _, p := range s.at {
		if p.n > 0 {
			variance -= p.x * p.x / p.n
		}
	}
	if variance > 0 {
		return Loss(s.off / variance)
	}
	return Loss(math.NaN())
}

func finite(x float64) bool { return !math.IsInf(x, 0) && !math.IsNaN(x) }

package privacy

import (
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
)

// Release is class sums of clipped, rounded coordinates, and counts, before or after noise.
type Release struct {
	Classes, K int
	// Values holds, for each class, K sums in steps of R/Steps, and the count in CountSteps per
	// point.
	Values []int64
}

// NewRelease returns a release of zeros.
func NewRelease(classes, k int) *Release {
	return &Release{Classes: classes, K: k, Values: make([]int64, classes*(k+1))}
}

// Sum clips coordinates w (n x k, row-major) to norm radius, rounds them toward zero, and sums them
// by class. Rows whose label is not one of the classes are left out. A row that is not finite
// counts as one of zeros: an error would tell of the one point that it is of.
// A row w becomes the whole numbers of w Steps/max(R, |w|), R the radius, cut toward zero. Its norm
// is then Steps at most. Where that factor is not finite, as of a row of zeros at an R below 1e-305,
// or not above 0, the row is one of zeros. It costs O(n k).
func Sum(w []float32, labels []int, classes, k int, radius float64) (*Release, error) {
	if classes < 1 || k < 1 || len(w) != len(labels)*k || !(radius > 0) {
		return nil, fmt.Errorf("privacy: %d coordinates for %d labels, %d of each, %d classes, "+
			"norm %v; want %d coordinates, a class or more, and a norm above 0", len(w),
			len(labels), k, classes, radius, len(labels)*k)
	}
	if len(labels) > maxPoints {
		return nil, fmt.Errorf("privacy: %d points; allowed are up to %d", len(labels), maxPoints)
	}
	out := NewRelease(classes, k)
	steps := make([]int64, k)
	for i, y := range labels {
		if y < 0 || y >= classes {
			continue
		}
		row := w[i*k : (i+1)*k]
		var square float64
		for _, v := range row {
			square += float64(v) * float64(v)
		}
		by := Steps / math.Max(radius, math.Sqrt(square))
		if !(by > 0) || math.IsInf(by, 1) {
			by, row = 0, make([]float32, k)
		}
		for j, v := range row {
			steps[j] = int64(float64(v) * by)
		}
		cut(steps, Steps) // floating-point rounding may have exceeded the norm slightly
		to := out.Values[y*(k+1):][:k+1]
		for j, v := range steps {
			to[j] += v
		}
		to[k] += CountSteps
	}
	return out, nil
}

// cut shortens v, rounding toward zero, until its norm is at most norm. Norms are compared as whole
// numbers of 128 bits, so that no rounding lets one pass. It ends as each turn shortens v.
func cut(v []int64, norm uint64) {
	for {
		high, low := square(v)
		maxHigh, maxLow := bits.Mul64(norm, norm)
		if high < maxHigh || high == maxHigh && low <= maxLow {
			return
		}
		by := float64(norm) / math.Sqrt(float64(high)*(1<<64)+float64(low)) * (1 - 1e-9)
		for j, x := range v {
			v[j] = int64(float64(x) * min(by, 1-1e-9))
		}
	}
}

// square returns the squared norm exactly, as a 128-bit number.
func square(v []int64) (high, low uint64) {
	for _, x := range v {
		u := uint64(max(x, -x))
		h, l := bits.Mul64(u, u)
		var carry uint64
		low, carry = bits.Add64(low, l, 0)
		high += h + carry
	}
	return high, low
}

// Clip shortens the whole release to a norm, which bounds a client's contribution if the client is
// the unit.
func (r *Release) Clip(norm uint64) { cut(r.Values, norm) }

// Bound brings every number into -most to most, the range that two servers prove. No two releases
// are further apart after than before.
func (r *Release) Bound(most uint64) {
	for i, v := range r.Values {
		r.Values[i] = min(max(v, -int64(most)), int64(most))
	}
}

// AddNoise adds discrete Gaussian noise of standard deviation sigma to every number. After an error
// some numbers have noise and some have none: the release must not be used.
// It draws C (K + 1) numbers, each apart from the others. In a round random must be crypto/rand's.
func (r *Release) AddNoise(sigma uint64, random io.Reader) error {
	s, err := NewSampler(sigma, random)
	if err != nil {
		return err
	}
	for i := range r.Values {
		v, err := s.Next()
		if err != nil {
			return fmt.Errorf("privacy: no randomness: %w", err)
		}
		r.Values[i] += v
	}
	return nil
}

// maxEntry bounds the numbers of a release, so that those of 2^20 clients can be summed without
// overflow.
const maxEntry = 1 << 42

// Add adds another release. It changes r alone. An error comes before any number is added.
func (r *Release) Add(o *Release) error {
	if err := o.Check(); err != nil {
		return err
	}
	if r.Classes != o.Classes || r.K != o.K {
		return fmt.Errorf("privacy: a release of %d classes and %d coordinates beside one of %d "+
			"and %d; use one client graph", o.Classes, o.K, r.Classes, r.K)
	}
	for i, v := range o.Values {
		r.Values[i] += v
	}
	return nil
}

// Check returns an error if the release's size or a number in it is invalid.
func (r *Release) Check() error {
	if r.Classes < 1 || r.K < 1 || len(r.Values) != r.Classes*(r.K+1) {
		return fmt.Errorf("privacy: a release of %d classes, %d coordinates and %d numbers; want "+
			"classes x (coordinates + 1)", r.Classes, r.K, len(r.Values))
	}
	beyond := func(v int64) bool { return v > maxEntry || v < -maxEntry }
	if i := slices.IndexFunc(r.Values, beyond); i >= 0 {
		return fmt.Errorf("privacy: number %d of a release is %d; allowed are -2^42 to 2^42", i,
			r.Values[i])
	}
	return nil
}

// Totals are noisy class sums and counts in the scale of the coordinates, with the variances of
// their noise.
type Totals struct {
	Classes, K                 int
	Sums                       []float64 // classes x K
	Counts                     []float64
	SumVariance, CountVariance float64
}

// Totals returns the totals of a release whose numbers have noise of the given variance, in steps
// squared. With step the clipping norm over [Steps] a sum is a number times step, and a count a
// number over [CountSteps]. Variances are scaled by the squares.
func (r *Release) Totals(radius, variance float64) *Totals {
	step := radius / Steps
	t := &Totals{Classes: r.Classes, K: r.K, SumVariance: variance * step * step,
		CountVariance: variance / (CountSteps * CountSteps)}
	for c := range r.Classes {
		row := r.Values[c*(r.K+1):][:r.K+1]
		for _, v := range row[:r.K] {
			t.Sums = append(t.Sums, float64(v)*step)
		}
		t.Counts = append(t.Counts, float64(row[r.K])/CountSteps)
	}
	return t
}

// Variance returns the variance of the noise in a total, in steps squared.
func (a Account) Variance() float64 {
	return float64(a.Releases) * float64(a.Deviation) * float64(a.Deviation)
}

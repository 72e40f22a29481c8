package metric

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Interval is a mean over repeats with its spread and Student's two-sided confidence interval.
type Interval struct {
	N    int     `json:"n"`    // repeats
	Mean float64 `json:"mean"` // mean over repeats
	SD   float64 `json:"sd"`   // standard deviation over repeats (N-1); 0 for one repeat
	// Half is the half-width of the interval. For one repeat it is infinite, which JSON cannot
	// represent: it is 0 there.
	Half float64 `json:"half"`
}

// Lo returns the lower end of the interval.
func (i Interval) Lo() float64 { return i.Mean - i.Half }

// Hi returns the upper end of the interval.
func (i Interval) Hi() float64 { return i.Mean + i.Half }

// Estimate returns the mean of x with its level (say 0.95) confidence interval by Student's t with
// len(x)-1 degrees of freedom. One value has no spread: SD and Half are then 0 and N says so.
// With t the quantile (1 + level)/2 of that law
//
//	Half = t SD/sqrt(N)
func Estimate(x []float64, level float64) (Interval, error) {
	if len(x) == 0 {
		return Interval{}, fmt.Errorf("interval: no values; give at least one")
	}
	if !(level > 0 && level < 1) {
		return Interval{}, fmt.Errorf("interval: level %v; allowed are numbers between 0 "+
			"and 1, say 0.95", level)
	}
	out := Interval{N: len(x)}
	if len(x) == 1 {
		out.Mean = x[0]
		return out, nil
	}
	out.Mean, out.SD = stat.MeanStdDev(x, nil)
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(len(x) - 1)}
	out.Half = t.Quantile(0.5+level/2) * out.SD / math.Sqrt(float64(len(x)))
	return out, nil
}

// Paired returns the interval of the mean of a[i] - b[i], for two methods run on the same task in
// repeat i.
// Pairing takes out the variance that the tasks have in common. The slices are not changed.
func Paired(a, b []float64, level float64) (Interval, error) {
	if len(a) != len(b) {
		return Interval{}, fmt.Errorf("paired interval: %d and %d values; pairs need "+
			"as many of each", len(a), len(b))
	}
	return Estimate(floats.SubTo(make([]float64, len(a)), a, b), level)
}

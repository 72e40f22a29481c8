package optim

import "math"

// Schedule returns the learning rate of step t (from 0) of total.
type Schedule func(t, total int) float64

// Constant returns a schedule of the same rate at every step.
func Constant(rate float64) Schedule { return func(int, int) float64 { return rate } }

// WarmupCosine returns a schedule that rises linearly to peak over the first warmup steps, then
// falls to floor along half a cosine (Loshchilov and Hutter 2017).
func WarmupCosine(peak, floor float64, warmup int) Schedule {
	return func(t, total int) float64 {
		if t < warmup {
			return peak * float64(t+1) / float64(warmup)
		}
		if total <= warmup {
			return peak
		}
		at := min(1, float64(t-warmup)/float64(total-warmup))
		return floor + (peak-floor)*(1+math.Cos(math.Pi*at))/2
	}
}

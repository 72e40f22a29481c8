package attack

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/pipeline/honesty"
)

// trim is the share of clients that the trimmed mean leaves out at each end. The mean then
// withstands up to a fifth of bad clients.
const trim = 0.2

// robust returns one upload in place of all: for each class a centre of the clients' means, with
// the median of their masses times their number. Masses do not weigh the means, and a median of
// masses is not moved by one overclaim. A class that nobody holds keeps mass 0. The means given to
// centre are views of u, and must not be written.
func robust(u honesty.Uploads, centre func(means [][]float64) []float64) honesty.Uploads {
	out := honesty.Uploads{Clients: 1, Classes: u.Classes, K: u.K,
		Masses: make([]float64, u.Classes), Means: make([]float64, u.Classes*u.K)}
	for c := range u.Classes {
		var of [][]float64
		var n []float64
		for m := range u.Clients {
			if mass := u.Masses[m*u.Classes+c]; mass > 0 {
				of, n = append(of, u.Means[(m*u.Classes+c)*u.K:][:u.K]), append(n, mass)
			}
		}
		if len(of) == 0 {
			continue
		}
		out.Masses[c] = median(n) * float64(len(n))
		copy(out.Means[c*u.K:], centre(of))
	}
	return out
}

// median is the mean of the two values in the middle of an even number of them. It sorts a copy, in
// O(n log n); x has one value at least.
func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	n := len(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}

// coordinatewise applies a statistic to each coordinate (Yin et al. 2018, arXiv:1803.01498). The
// column is reused from one coordinate to the next: the statistic must not keep or sort it in
// place. Coordinates are taken apart, so that the result depends on the axes.
func coordinatewise(of func([]float64) float64) func([][]float64) []float64 {
	return func(means [][]float64) []float64 {
		out, column := make([]float64, len(means[0])), make([]float64, len(means))
		for j := range out {
			for i, x := range means {
				column[i] = x[j]
			}
			out[j] = of(column)
		}
		return out
	}
}

// trimmed returns the mean without the share [trim] of the values at each end, rounded up, and the
// median where nothing would be left.
func trimmed(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	cut := int(math.Ceil(trim * float64(len(x))))
	if 2*cut >= len(x) {
		return median(x)
	}
	var sum float64 // in order, as kept runs have it
	for _, v := range x[cut : len(x)-cut] {
		sum += v
	}
	return sum / float64(len(x)-2*cut)
}

// geometric returns the geometric median, the point z of least sum_i |x_i - z|, by Weiszfeld's
// algorithm (Pillutla et al. 2022, arXiv:1912.13445):
//
//	z <- sum_i w_i x_i / sum_i w_i,   w_i = 1 / max(|x_i - z|, 1e-6)
//
// from the coordinatewise median, in a hundred steps. All clients weigh alike, whatever they claim.
// The number of steps is fixed, with no test of convergence: O(100 n K) for n clients, the same on
// every machine. The point that it nears does not depend on the axes, unlike the coordinatewise
// median.
func geometric(means [][]float64) []float64 {
	at := coordinatewise(median)(means)
	for range 100 {
		next, sum := make([]float64, len(at)), 0.0
		for _, x := range means {
			var d float64 // in order, as kept runs have it
			for j, v := range x {
				d += (v - at[j]) * (v - at[j])
			}
			w := 1 / max(math.Sqrt(d), 1e-6)
			sum += w
			floats.AddScaled(next, w, x)
		}
		for j := range next {
			next[j] /= sum
		}
		at = next
	}
	return at
}

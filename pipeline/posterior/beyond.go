package posterior

import (
	"cmp"

	"fmp/pipeline/discriminant"
)

// Variance of the log-odds of a class in a limit of infinite data about those of a round of
// moments, beyond that of its heads. Heads vary by the noise of class means as the covariance
// within classes has it, which understates images along heads by the temperature, and by no error
// of the covariance. Both were measured on CIFAR-100's classes 20 to 59 behind EfficientNet-Lite0
// (docs/notes/moments.md, Intervals).
const (
	beyondAll   = 1.7 // however many images there are
	beyondClass = 48  // of a class without images, and less by n + 1 with n
)

// beyond returns the variance of each class's log-odds, [C]. With n_c images of class c it is
//
//	beyondAll + beyondClass (1/(n_c + 1) + mean_c' 1/(n_c' + 1)) / 2
//
// as log-odds are of a class beside the others. Images of class means count as in the posterior: by
// the share of the client that counts, one of each class that it holds at least. Calibration
// points, which the heads have too, do not count: intervals of rounds with points are the wider for
// it.
func beyond(clients []discriminant.Client) []float64 {
	out := make([]float64, clients[0].Means.C)
	for _, c := range clients {
		for i := range c.Means.N {
			c.Means.Shares(i, func(y int, share float32) {
				if n := float64(share * c.Means.W[i]); n > 0 {
					out[y] += max(min(1, n), n*cmp.Or(c.Share, 1))
				}
			})
		}
	}
	mean := 0.0
	for y, n := range out {
		out[y] = 1 / (n + 1)
		mean += out[y] / float64(len(out))
	}
	for y, v := range out {
		out[y] = beyondAll + beyondClass*(v+mean)/2
	}
	return out
}

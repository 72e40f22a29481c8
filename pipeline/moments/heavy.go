package moments

import (
	"math"

	"fmp/pipeline/point"
)

// Bounds from which on one feature drowns the others.
const (
	// heavyShare is of sum |h|, on average over images.
	heavyShare = 0.5
	// heavySpread is how much the others' share differs between images, its standard deviation over
	// its mean. A constant feature, however large, scales all rows alike and does no harm.
	heavySpread = 0.5
	// heavyWidth is the least number of features: of few each has a large share.
	heavyWidth = 16
)

// Heavy is the feature h_j that has most of sum |h| and varies between images. The map
// sign(h) sqrt(|h|/sum |h|) has its variation in every other number then.
type Heavy struct {
	Feature int     // its number, from 0
	Share   float64 // of sum |h|, on average; 0 where no feature is heavy
}

// HeavyRows returns the heavy feature of rows before the map, [n, dx].
// Numbers behind the last whole row are passed over.
func HeavyRows(h []float32, dx int) Heavy {
	sum, squares, n := make([]float64, dx), make([]float64, dx), 0.0
	for ; len(h) >= dx; h = h[dx:] {
		n++
		total := 0.0
		for _, v := range h[:dx] {
			total += math.Abs(float64(v))
		}
		for j, v := range h[:dx] {
			if v != 0 {
				share := math.Abs(float64(v)) / total
				sum[j] += math.Copysign(math.Sqrt(share), float64(v))
				squares[j] += share
			}
		}
	}
	return heavyOf(sum, squares, n)
}

// HeavyMoments returns the heavy feature of an upload of all features: the squares of a row are
// shares of its sum |h|.
func HeavyMoments(means *point.Set, w *Within) Heavy {
	k := w.K
	sum, squares, n := make([]float64, k), make([]float64, k), means.Mass()
	for i := range means.N {
		for j, v := range means.Features(i) {
			sum[j] += float64(means.W[i]) * float64(v)
			squares[j] += float64(means.W[i]) * float64(v) * float64(v)
		}
	}
	if w.Rank > 0 {
		for i, v := range w.Data {
			squares[i%k] += float64(v) * float64(v)
		}
	} else {
		for j, at := 0, 0; j < k && at < len(w.Data); j++ {
			squares[j] += float64(w.Data[at])
			at += k - j
		}
	}
	return heavyOf(sum, squares, n)
}

// heavyOf tells from sums of a row's numbers and of their squares over n images. With x the number
// and x^2 its share, sd(x)/(1 - |mean x|) is about the spread of the others' share.
// Shares of a row add up to 1, so that one feature at most has more than half.
func heavyOf(sum, squares []float64, n float64) Heavy {
	if len(sum) < heavyWidth {
		return Heavy{}
	}
	for j, s := range squares {
		mean := sum[j] / n
		if share := s / n; share > heavyShare &&
			math.Sqrt(max(share-mean*mean, 0)) > heavySpread*(1-math.Abs(mean)) {
			return Heavy{j, share}
		}
	}
	return Heavy{}
}

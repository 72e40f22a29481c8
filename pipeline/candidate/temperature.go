package candidate

import (
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"fmp/pipeline/moments"
)

// Priors of the logarithms of the temperature and of kappa, and the least errors of their
// measurements. priorT stands where nobody can be asked, priorKappa where fewer than fewCurves
// clients measured and class means have fewImages at least (logKappa).
var (
	priorT     = normal{1, 0.7}
	priorKappa = normal{0.3, 0.3}
)

const (
	// errorT and errorKappa are added to the jackknife's errors of log T and log kappa. Groups that
	// agree by chance do not make a temperature exact.
	errorT     = 0.05
	errorKappa = 0.1
	// leastKappa bounds log kappa as measured: Gaussian images in the place of draws with tails lie
	// no nearer, but a pooled covariance of few degrees of freedom would have them. On real images
	// of few at a client it costs up to .0017 nats beside a bound of 0 (docs/notes/moments.md).
	leastKappa = -0.2
	// singleKappa is log kappa of images that stand for themselves: a class mean of one image is
	// that image.
	singleKappa = 0.08
	// fewCurves is the number of clients below which curves tell nothing of their own error.
	fewCurves = 3
)

// nodes are those of Gauss-Hermite quadrature with three points: weights and places in deviations.
// The mean of a polynomial of degree 5 over a normal is exact with them.
var nodes = [3]struct{ weight, at float64 }{{1. / 6, -math.Sqrt(3)}, {2. / 3, 0},
	{1. / 6, math.Sqrt(3)}}

// normal is a normal distribution, of a logarithm of a temperature or of a factor on it.
type normal struct{ mean, deviation float64 }

// given returns the posterior of a number with this prior measured with an error e:
//
//	mean = (value/e^2 + mean/deviation^2)/(1/e^2 + 1/deviation^2)
//	deviation = (1/e^2 + 1/deviation^2)^(-1/2)
func (n normal) given(value, e float64) normal {
	a, b := 1/(e*e), 1/(n.deviation*n.deviation)
	return normal{(a*value + b*n.mean) / (a + b), 1 / math.Sqrt(a+b)}
}

// peak returns the logarithm of the temperature of a curve's maximum. A curve's temperatures have
// equal steps of their logarithm. The parabola through the values c0, c1, c2 about the largest has
// its top this many steps beyond the middle one:
//
//	(c0 - c2) / (2 (c0 - 2 c1 + c2))
func peak(c *moments.Curve) float64 {
	i := min(max(floats.MaxIdx(c[:]), 1), len(c)-2)
	at := float64(i)
	if bend := c[i-1] - 2*c[i] + c[i+1]; bend < 0 {
		at += (c[i-1] - c[i+1]) / 2 / bend
	}
	step := math.Log(moments.Temperature(1) / moments.Temperature(0))
	return math.Log(moments.Temperature(0)) + at*step
}

// jackknife returns the standard error of a number from its G values with one part left out each,
// sqrt((G - 1)/G sum_g (value_g - mean)^2).
func jackknife(left []float64) float64 {
	return math.Sqrt(float64(len(left)-1) * stat.PopVariance(left, nil))
}

// peakOf returns the peak of the sum of curves, and its error by leaving each of them out.
func peakOf(curves []moments.Curve) (at, e float64) {
	all, left := sumOf(curves), make([]float64, len(curves))
	for i := range curves {
		left[i] = peak(minus(all, &curves[i]))
	}
	return peak(all), jackknife(left)
}

// columnOf returns the curves of candidate j, one a fold.
func columnOf(per [][]moments.Curve, j int) (of []moments.Curve) {
	for _, fold := range per {
		of = append(of, fold[j])
	}
	return of
}

func minus(a, b *moments.Curve) *moments.Curve {
	out := *a
	floats.Sub(out[:], b[:])
	return &out
}

func sumOf(curves []moments.Curve) *moments.Curve {
	var out moments.Curve
	for i := range curves {
		floats.Add(out[:], curves[i][:])
	}
	return &out
}

// temperature returns the posterior of the log temperature, given the evidence of each fold. Where
// there is one fold alone, nothing was left out; where no class is held by two folds, nobody could
// be asked. The prior stands then.
func temperature(folds []moments.Curve) normal {
	if len(folds) < 2 || *sumOf(folds) == (moments.Curve{}) {
		return priorT
	}
	at, e := peakOf(folds)
	return priorT.given(at, e+errorT)
}

package candidate

import (
	"math"

	"fmp/pipeline/moments"
)

// fewImages is the number of images of a class mean from which on the prior of kappa is priorKappa.
const fewImages = 4

// logKappa returns the posterior of log kappa, the factor on the temperature where draws stood for
// images. It is measured as the distance of the peaks of two curves, summed over clients:
//
//	log kappa = peak(sum_m own_m) - peak(sum_m twin_m), from leastKappa to 1
//
// own_m is of client m's images, twin_m of draws in their place (curves). Its error is the
// jackknife's over clients. Of the images a share stand for themselves, in cells of one image;
// kappa of all has the mean
//
//	(1 - share) log kappa + share singleKappa
//
// and the deviation of the first term alone. Images lie the nearer to their class mean the fewer it
// has. With n of them the prior of log kappa is
//
//	N(singleKappa + s (m - singleKappa), (s d)^2),   s = min(1, log n/log fewImages)
//
// where priorKappa is N(m, d^2), and s the mean over images that do not stand for themselves.
func (r *Round) logKappa(all *pool, o *Options) (normal, error) {
	var single, images, far float64
	for i := range r.Clients {
		for _, v := range r.Clients[i].cells() {
			images += v.n
			if v.n == 1 {
				single++
			}
			far += v.n * min(1, math.Log(v.n)/math.Log(fewImages))
		}
	}
	kappa := priorKappa
	if single < images {
		far /= images - single
		kappa = normal{singleKappa + far*(kappa.mean-singleKappa), far * kappa.deviation}
	}
	own, twin, err := r.curves(all, o)
	if len(own) >= fewCurves {
		kappa = kappa.measured(own, twin, leastKappa)
	}
	real := single / images
	return normal{(1-real)*kappa.mean + real*singleKappa, (1 - real) * kappa.deviation}, err
}

// measured returns the posterior of log kappa with this prior by curves of images and of twins, as
// measured from least to 1.
func (n normal) measured(own, twin []moments.Curve, least float64) normal {
	a, b := sumOf(own), sumOf(twin)
	left := make([]float64, len(own))
	for i := range own {
		left[i] = peak(minus(a, &own[i])) - peak(minus(b, &twin[i]))
	}
	return n.given(min(max(peak(a)-peak(b), least), 1), jackknife(left)+errorKappa)
}

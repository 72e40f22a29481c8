package candidate

import "fmp/pipeline/moments"

// logKappa returns the posterior of log kappa, the factor on the temperature where Gaussian draws
// stood for images: clients measured it as the distance of two curves' peaks. No image has lighter
// tails than its twin. Images that stand for themselves count singleKappa.
func (r *Round) logKappa() normal {
	var own, twin []moments.Curve
	var single, images float64
	for i := range r.Clients {
		u := &r.Clients[i]
		if u.Curves != nil {
			own, twin = append(own, u.Curves.Own), append(twin, u.Curves.Twin)
		}
		for _, v := range u.cells() {
			images += v.n
			if v.n == 1 {
				single++
			}
		}
	}
	kappa := priorKappa
	if len(own) >= fewCurves {
		a, b := sumOf(own), sumOf(twin)
		left := make([]float64, len(own))
		for i := range own {
			left[i] = peak(less(a, &own[i])) - peak(less(b, &twin[i]))
		}
		kappa = kappa.given(min(max(peak(a)-peak(b), 0), 1), jackknife(left)+errorKappa)
	}
	real := single / images
	return normal{(1-real)*kappa.mean + real*singleKappa, (1 - real) * kappa.deviation}
}

package candidate

// logKappa returns the posterior of log kappa, the factor on the temperature where draws stood for
// images: the distance of the peaks of two curves, of clients' images and of their twins. Draws
// have tails: Gaussian images lie a little nearer. Images that stand for themselves count
// singleKappa.
func (r *Round) logKappa(all *pool, o *Options) (normal, error) {
	var single, images float64
	for i := range r.Clients {
		for _, v := range r.Clients[i].cells() {
			images += v.n
			if v.n == 1 {
				single++
			}
		}
	}
	kappa, least := priorKappa, leastKappa
	own, twin, err := r.curves(all, o)
	if o.reference != nil {
		own, twin = o.reference[0], o.reference[1]
		least = 0 // the reference draws Gaussian twins
	}
	if len(own) >= fewCurves {
		a, b := sumOf(own), sumOf(twin)
		left := make([]float64, len(own))
		for i := range own {
			left[i] = peak(less(a, &own[i])) - peak(less(b, &twin[i]))
		}
		kappa = kappa.given(min(max(peak(a)-peak(b), least), 1), jackknife(left)+errorKappa)
	}
	real := single / images
	return normal{(1-real)*kappa.mean + real*singleKappa, (1 - real) * kappa.deviation}, err
}

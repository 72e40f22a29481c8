package candidate

import "fmp/pipeline/moments"

const (
	// minHalved is the number of clients from which on a refit is judged by halves of them.
	minHalved = 4
	// maxSharper bounds the log of the factor by which a refit is taken to sharpen: halves of few
	// images tell it badly.
	maxSharper = 0.3
)

// half is one half of a round's clients, with questions of the other half.
type half struct {
	round *Round
	sums  *sums
	other []*asked
}

// halves parts the clients, every second one; nil for few.
func (r *Round) halves(o *Options) ([]half, error) {
	if len(r.Clients) < minHalved {
		return nil, nil
	}
	out := make([]half, 2)
	for f := range out {
		own := &Round{K: r.K, C: r.C}
		var others []int
		for m := range r.Clients {
			if m%2 == f {
				own.Clients = append(own.Clients, r.Clients[m])
			} else {
				others = append(others, m)
			}
		}
		s, err := own.sum(o.Threads)
		if err != nil {
			return nil, err
		}
		draw := func(group []int, limit int) []residuals { return o.residuals(r, group, limit) }
		out[f] = half{own, s, r.ask(others, s.all, draw)}
	}
	return out, nil
}

// sharper returns the log of the factor by which refitting a candidate's head at temperature t
// makes its logits too large: a regression has seen the images that it is fitted to, most of all
// where clients hold few classes. Each half of the clients is asked about the head of the other
// half, as it was and refitted; the peaks of their log-likelihoods differ by it. It is from 0 to
// maxSharper.
func (c *candidate) sharper(halves []half, t float64, o *Options) (float64, error) {
	var plain, again moments.Curve
	for i := range halves {
		f := &halves[i]
		h := f.sums.in(c.target).at(c.strength, c.prior)
		l, err := f.round.refit(h, t, o)
		if err != nil {
			return 0, err
		}
		before := h.linear().over(t)
		for _, a := range f.other {
			here := a.in(h.basis)
			here.add(&plain, *before, f.sums.images)
			here.add(&again, l, f.sums.images)
		}
	}
	if len(halves) == 0 {
		return 0, nil
	}
	return min(max(peak(&again)-peak(&plain), 0), maxSharper), nil
}

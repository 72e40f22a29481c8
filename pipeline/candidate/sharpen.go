package candidate

import (
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/pipeline/moments"
)

const (
	// minHalves is the number of clients from which on halves of them tell how the temperature
	// falls with more images, and minRefitted that from which on they judge a refit.
	minHalves, minRefitted = 3, 4
	// maxSharper bounds the log of the factor by which a refit is taken to sharpen, and of that of
	// a head of all images (toAllImages). Halves of few images tell both badly.
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
	if len(r.Clients) < minHalves {
		return nil, nil
	}
	out := make([]half, 2)
	for f := range out {
		own := &Round{K: r.K, C: r.C, halfOf: len(r.Clients)}
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
		s.parts = nil // nobody is left out of a half
		out[f] = half{own, s, r.ask(others, s.all, o.residuals(r))}
	}
	return out, nil
}

// excess returns by how much the mean of 1/n is larger over the images that are asked about, n the
// images of their class in the head that judges them, than where n is those of all clients; own are
// the images, [C], of each group that the others judge. Nobody is asked about a class that the
// others have none of.
func (p *pool) excess(own [][]float64) (mean, asked float64) {
	for _, of := range own {
		for y, n := range of {
			if head := p.n[y] - n; n > 0 && head > 0 {
				mean, asked = mean+n*(1/head-1/p.n[y]), asked+n
			}
		}
	}
	return mean / asked, asked
}

// toAllImages returns the log of the factor by which the temperature of a head of all images lies
// below that where some are left out. Let e be the excess of 1/n (pool.excess) of the groups that
// are left out in turn, and of the halves. log T is taken as linear in e, and told at both; that at
// 0 is wanted:
//
//	log factor = (log T(e_halves) - log T(e_left)) e_left / (e_halves - e_left)
//
// It is from 0 to maxSharper. It is 0 where halves are not asked about all the images that the
// others of a client are, as where classes are held by few clients. It is 0 too where halves are no
// further from all images than these.
func (s *sums) toAllImages(left, halved float64, halves []half) float64 {
	var folds, others [][]float64
	for _, p := range s.parts {
		folds = append(folds, p.n)
	}
	for i := range halves {
		others = append(others, halves[1-i].sums.all.n)
	}
	l, asked := s.all.excess(folds)
	h, again := s.all.excess(others)
	if asked != again || !(h-l >= l) { // counts are of float32, so that their sums are exact
		return 0
	}
	return min(max((halved-left)*l/(h-l), 0), maxSharper)
}

// sharpness is by how much refitting a candidate's head sharpens it.
type sharpness struct {
	log    float64 // of the factor by which it makes logits too large, from 0 to maxSharper
	halved float64 // the peak of the log-likelihood of the halves, before refitting
}

// sharpen returns by how much refitting sharpens the heads of candidates at temperatures t: a
// regression has seen the images that it is fitted to, most of all where clients hold few classes.
// Each half of the clients is asked about the head of the other half, as it was and refitted; the
// peaks of their log-likelihoods differ by it. Questions are turned into the basis of a target once
// for all of its candidates.
func sharpen(cands []*candidate, t []float64, halves []half, o *Options) ([]sharpness, error) {
	var images float64
	clients := 0
	for i := range halves {
		images += halves[i].sums.images
		clients += len(halves[i].round.Clients)
	}
	told := make([]halfHead, len(halves)*len(cands))
	err := each(len(told), o.Threads, func(i int) (err error) {
		f, j := &halves[i/len(cands)], i%len(cands)
		h := f.sums.in(cands[j].target).at(cands[j].strength, cands[j].prior)
		told[i].in, told[i].plain = h.basis, *h.linear().over(t[j])
		told[i].again, err = f.round.refit(h, t[j], o)
		return err
	})
	if err != nil {
		return nil, err
	}
	var targets []*target
	for _, c := range cands {
		if !slices.Contains(targets, c.target) {
			targets = append(targets, c.target)
		}
	}
	err = each(len(halves)*len(targets), o.Threads, func(i int) error {
		f, of := i/len(targets), targets[i%len(targets)]
		var some []*halfHead
		for j, c := range cands {
			if c.target == of {
				some = append(some, &told[f*len(cands)+j])
			}
		}
		halves[f].tell(some, images)
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := make([]sharpness, len(cands))
	for j := range cands {
		var before, after moments.Curve
		for f := range halves {
			floats.Add(before[:], told[f*len(cands)+j].before[:])
			floats.Add(after[:], told[f*len(cands)+j].after[:])
		}
		out[j].halved = peak(&before)
		if clients >= minRefitted {
			out[j].log = min(max(peak(&after)-out[j].halved, 0), maxSharper)
		}
	}
	return out, nil
}

// halfHead is a candidate fitted to one half: its head before and after refitting, and the
// log-likelihoods of the other half's images under these.
type halfHead struct {
	in            *basis
	plain, again  linear
	before, after moments.Curve
}

// tell adds the log-likelihoods of the other half under heads in one basis.
func (f *half) tell(to []*halfHead, images float64) {
	for questions := range slices.Chunk(f.other, perProduct) {
		for _, here := range to[0].in.asked(questions) {
			for _, h := range to {
				here.add(&h.before, h.plain, images)
				here.add(&h.after, h.again, images)
			}
		}
	}
}

package candidate

import (
	"math"
	"slices"
)

// LogLikelihood returns that of the images of some clients under heads of all clients but a few of
// them, by the best prior at its best temperature, to the power of evidence: how well the counts of
// the others' images serve them. It is 0 where none of their classes is held by another client. All
// other clients are one more group, which no head leaves out.
func (r *Round) LogLikelihood(of []int, o Options) (float64, error) {
	r, err := r.prepared(&o)
	if err != nil {
		return 0, err
	}
	// Groups hold places in the list given, and are turned into places in the round.
	folds := foldsOf(len(of))
	for _, fold := range folds {
		for i, m := range fold {
			fold[i] = of[m]
		}
	}
	var rest []int
	for m := range r.Clients {
		if !slices.Contains(of, m) {
			rest = append(rest, m)
		}
	}
	s, err := r.sumOf(append(folds, rest), o.Threads)
	if err != nil {
		return 0, err
	}
	s.images = r.askedImages(of) // whatever the others claim
	cands, err := r.candidates()
	if err != nil {
		return 0, err
	}
	per, err := r.evidence(s, len(folds), cands, o.residuals(r), &o)
	if err != nil {
		return 0, err
	}
	// One temperature serves all groups: curves are added up before the greatest value is taken.
	best := math.Inf(-1)
	for j := range cands {
		best = max(best, slices.Max(sumOf(columnOf(per, j))[:]))
	}
	return power * best, nil
}

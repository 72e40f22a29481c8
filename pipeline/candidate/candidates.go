package candidate

import "fmt"

// strengths are those of the prior on the covariance within classes, in degrees of freedom a
// feature. At 0.02 images tell W nearly alone, at 50 the target does. Clients' evidence chooses
// among them, as one strength does not serve all extractors.
var strengths = []float64{0.02, 0.1, 0.5, 2, 10, 50}

const (
	// corpusOdds is the log prior odds, in nats, of images of one kind against any shift. A
	// corpus's covariance and the identity's have even odds (docs/notes/moments.md, A corpus of few
	// images).
	corpusOdds = 6
	// betweenStrengths is the first strength at which a corpus's covariance between classes is
	// tried.
	betweenStrengths = 3
)

// evens are the shares, of the trace, of a prior of class means that have the shape of the
// covariance within classes. The larger is from training on left-out classes (gamma of CIFAR-100's
// closed form, docs/notes/moments.md).
var evens = []float64{0.1, 0.4}

// candidate is a prior.
type candidate struct {
	name     string
	target   *target
	strength float64
	prior    *between // of class means; nil: of the shape of W
}

// candidates returns the priors that a round's clients choose among, those of one target together.
func (r *Round) candidates() ([]candidate, error) {
	identity := &target{name: "identity", k: r.K}
	var out []candidate
	for _, s := range strengths {
		out = append(out,
			candidate{name: fmt.Sprintf("identity %g", s), target: identity, strength: s})
	}
	for i := range r.Corpora {
		c := &r.Corpora[i]
		t, err := newTarget(fmt.Sprint("corpus ", i), c.Within, c.Dof, r.K)
		if err != nil {
			return nil, fmt.Errorf("candidate: corpus %d: %w", i, err)
		}
		for _, s := range strengths {
			out = append(out, candidate{name: fmt.Sprintf("corpus %d %g", i, s),
				target: &t, strength: s})
		}
		if rows, left := newBetween(c.Means, &t); rows != nil {
			for _, even := range evens {
				prior := &between{rows, even + (1-even)*left}
				for _, s := range strengths[betweenStrengths:] {
					name := fmt.Sprintf("corpus %d %g between %g", i, s, even)
					out = append(out, candidate{name: name, target: &t, strength: s, prior: prior})
				}
			}
		}
	}
	return out, nil
}

package posterior

import (
	"fmt"

	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/pipeline/internal/effect"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/open"
	"fmp/pipeline/point"
	"fmp/pipeline/sample"
)

// subtracted is a round whose client effects are taken away: the values that its forms read in
// place of the Input's.
type subtracted struct {
	effects   *effect.Effects // nil where no client has one
	conjugate Conjugate
	open      *open.Predictor
	means     []*point.Set // ClassMeans
	soft      []*point.Set
	// judge and judged are the open predictor and the class means by which clients are judged:
	// those for a client to come, of any result.
	judge  *open.Predictor
	judged []*point.Set
}

// withoutEffects estimates client effects (package effect), which takes class means of softened
// features and the open predictor's covariance within classes. Without them nothing changes. With
// them, class means are read less the effects, and images of a client to come as if their effect
// had the covariance of those found: the open predictor's covariance within classes is wider by it,
// and the closed form's coordinates leave out an image's own estimate of its effect
// (open.Predictor.Unshift). Of a client that took part (Input.For) the effect is known: coordinates
// start from it, and leave out how single images differ along effects.
// It is computed once for a round. Sums of clients (Input.Rest) show no effects, and rounds whose
// clients are alike (Input.Alike) have none.
func (t *FMP) withoutEffects() (*subtracted, error) {
	return memo.Once(t.memo, "apart", func() (*subtracted, error) {
		a := &subtracted{conjugate: t.in.Conjugate, open: t.in.Open, means: t.in.ClassMeans,
			soft: t.in.Soft}
		a.judge, a.judged = a.open, a.soft
		if t.in.Open == nil || t.in.Alike || t.in.Rest != nil {
			return a, nil
		}
		white, back, err := t.in.Open.White()
		if err != nil {
			return nil, err
		}
		if a.effects, err = effect.Estimate(t.in.Soft, white, back); err != nil ||
			!a.effects.Any() {
			return a, err
		}
		var known []float64
		if t.in.For > 0 {
			known = a.effects.Shift[t.in.For-1]
		}
		a.soft, a.judged = a.effects.Subtract(t.in.Soft, known), a.effects.Subtract(t.in.Soft, nil)
		a.judge = t.in.Open.Wider(a.effects.ToCome().Covariance())
		closed, ok := t.in.Conjugate.(*sample.Conjugate)
		if t.in.For > 0 {
			if known != nil {
				a.open = t.in.Open.Moved(known)
			}
		} else {
			a.open = a.judge
		}
		if !ok {
			return a, nil
		}
		a.means = a.soft
		a.conjugate, err = t.closed(closed, a, known)
		return a, err
	})
}

// closed returns the conjugate predictor of a round with effects.
func (t *FMP) closed(c *sample.Conjugate, a *subtracted, known []float64) (Conjugate, error) {
	gain, centre, err := t.in.Open.Unshift(a.effects.ToCome().Covariance())
	if err != nil {
		return nil, err
	}
	if gain == nil && known == nil {
		return c, nil
	}
	// The pure engine's sessions hold memory only, so they need not be closed after each task.
	eng, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	out, err := c.Shifted(eng, gain, centre, known)
	if err != nil {
		return nil, fmt.Errorf("client effects: %w", err)
	}
	out.Threads = t.in.Threads
	return out, nil
}

// shared returns the class means less effects, with masses by their information on their classes.
func (a *subtracted) shared() []*point.Set {
	out := make([]*point.Set, len(a.soft))
	for m, set := range a.soft {
		out[m] = reweighted(set, func(int) float64 { return a.effects.Share[m] })
	}
	return out
}

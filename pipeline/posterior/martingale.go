package posterior

import (
	"context"
	"fmt"

	"fmp/models/rng"
	"fmp/pipeline/erm"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/point"
)

// Martingale is the paper's martingale posterior (arXiv 2605.18554): heads fitted to points seen
// and points that a set transformer draws given them, each from its own noise. It is safe for
// concurrent use, and must not be copied.
type Martingale struct {
	Drawer  Drawer
	Samples int // S
	Fresh   int // n', drawn points a sample
	Seed    uint64
	Stream  string // the round's name among those of the seed
	Threads int    // goroutines at most

	memo memo.Memo
}

// Fit sets the fits of heads: penalty lambda > 0 in sum form, and tolerance (erm.Options).
type Fit struct{ L2, Tolerance float64 }

// maxFresh bounds the points drawn a sample.
const maxFresh = 1_000_000

// Check returns an error for a number of samples or of drawn points that is out of range.
func (t *Martingale) Check() error {
	switch {
	case t.Samples < 1 || t.Samples > maxSamples:
		return fmt.Errorf("posterior: %d samples; allowed are 1 to %d", t.Samples, maxSamples)
	case t.Fresh < 1 || t.Fresh > maxFresh:
		return fmt.Errorf("posterior: %d fresh points; allowed are 1 to %d", t.Fresh, maxFresh)
	}
	return nil
}

// BaseNoise names the stream of the noise that posteriors of the same task share.
const BaseNoise = "base"

// Uploads returns the posterior of the clients' compressed points, or a part of it.
func (t *Martingale) Uploads(ctx context.Context, uploads []*point.Set, f Fit,
	part SampleRange) (*Result, error) {
	seen, err := point.Pool(uploads...)
	if err != nil {
		return nil, err
	}
	e, err := part.made(seen.Dx+1, seen.C)
	if err == nil && e == nil {
		e, err = t.Posterior(ctx, "uploads", seen, f, part, BaseNoise)
	}
	if err != nil {
		return nil, err
	}
	// A point is dx features, C shares of classes and a mass, each a float32 of four bytes.
	return &Result{Ensembles: []Ensemble{e},
		UploadBytes: 4 * float64(seen.N*(seen.Dx+seen.C+1)) / float64(len(uploads))}, nil
}

// fitChunk bounds how many problems of an ensemble are held in memory at a time.
const fitChunk = 64

// noise returns S x n' x d base noise E from the named stream of the round.
func (t *Martingale) noise(stream ...any) ([]float32, error) {
	if t.Drawer == nil {
		return nil, fmt.Errorf("no predictor to draw points with; set predictor.model")
	}
	return t.Drawer.Noise(rng.New(t.Seed, append([]any{t.Stream}, stream...)...),
		t.Samples, t.Fresh)
}

// draws returns the part's sets of n' unseen points given seen. Fits with another lambda use the
// same draws. The noise is made for all samples, so that a sample's is its own whatever the part.
func (t *Martingale) draws(ctx context.Context, key string, seen *point.Set, part SampleRange,
	stream ...any) ([]*point.Set, error) {
	from, to := part.of(t.Samples)
	return memo.Once(&t.memo, fmt.Sprint("draws/", key, from, "-", to),
		func() ([]*point.Set, error) {
			e, err := t.noise(stream...)
			if err != nil {
				return nil, err
			}
			each := len(e) / t.Samples
			drawn, err := t.Drawer.Draw(ctx, seen, e[from*each:to*each], to-from)
			if err != nil {
				return nil, fmt.Errorf("drawing points: %w", err)
			}
			if len(drawn) != to-from {
				return nil, fmt.Errorf("drawing points: the predictor made %d sets, %d were asked "+
					"for", len(drawn), to-from)
			}
			return drawn, nil
		})
}

// Posterior returns the martingale posterior given seen, or a part of it: sample i is the minimiser
// over seen together with the i-th set of drawn points, whose weights are 1.
//
//	theta_i = argmin_T sum over seen and drawn_i of w l(z, T) + l2/2 |T|^2
//
// key names the seen points in the memo of the draws. E comes from the named stream; posteriors
// that read the same one differ only by the seen points.
func (t *Martingale) Posterior(ctx context.Context, key string, seen *point.Set, f Fit,
	part SampleRange, stream ...any) (Ensemble, error) {
	return memo.Once(&t.memo,
		fmt.Sprint("martingale/", key, "/", f.L2, f.Tolerance, part.From, "-", part.To),
		func() (Ensemble, error) {
			drawn, err := t.draws(ctx, key, seen, part, stream...)
			if err != nil {
				return nil, err
			}
			shared, err := erm.FromSets(f.L2, seen)
			if err != nil {
				return nil, err
			}
			out := make(Ensemble, 0, len(drawn))
			for from := 0; from < len(drawn); from += fitChunk {
				own := make([]*erm.Problem, min(fitChunk, len(drawn)-from))
				for i := range own {
					if d := drawn[from+i]; d.Dx != seen.Dx || d.C != seen.C {
						return nil,
							fmt.Errorf("sample %d: points drawn have dx %d and C %d, those given "+
								"%d and %d; use the predictor that was made for them", from+i, d.Dx,
								d.C, seen.Dx, seen.C)
					}
					if own[i], err = erm.FromSets(f.L2, drawn[from+i]); err != nil {
						return nil, fmt.Errorf("sample %d: %w", from+i, err)
					}
				}
				if from > 0 {
					// Later chunks start from a head of the same posterior, which is near theirs.
					own[0].Start = &out[0]
				}
				solved, err := erm.SolveShared(ctx, shared, own,
					erm.Options{Tolerance: f.Tolerance, Threads: t.Threads})
				if err != nil {
					return nil, err
				}
				for _, v := range solved {
					out = append(out, v.Theta)
				}
			}
			return out, nil
		})
}

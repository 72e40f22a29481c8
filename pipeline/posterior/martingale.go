package posterior

import (
	"context"
	"fmt"

	"fmp/models/rng"
	"fmp/pipeline/erm"
	"fmp/pipeline/point"
)

// fitChunk bounds how many problems of an ensemble are held in memory at a time.
const fitChunk = 64

// noise returns S x n' x d base noise E from the named stream of the task.
func (t *Task) noise(stream ...any) ([]float32, error) {
	if t.in.Drawer == nil {
		return nil, fmt.Errorf("no predictor to draw points with; set predictor.model")
	}
	return t.in.Drawer.Noise(rng.New(t.in.Seed, append([]any{t.in.Stream}, stream...)...), t.in.Samples, t.in.Fresh)
}

// draws returns S sets of n' unseen points given seen. Fits with another lambda use the same draws.
func (t *Task) draws(ctx context.Context, key string, seen *point.Set, stream ...any) ([]*point.Set, error) {
	from, to := t.part.of(t.in.Samples)
	return once(t.memo, fmt.Sprint("draws/", key, from, "-", to), func() ([]*point.Set, error) {
		e, err := t.noise(stream...)
		if err != nil {
			return nil, err
		}
		drawn, err := t.in.Drawer.Draw(ctx, seen, e, to-from)
		if err != nil {
			return nil, fmt.Errorf("drawing points: %w", err)
		}
		if len(drawn) != to-from {
			return nil, fmt.Errorf("drawing points: the predictor made %d sets, %d were asked for", len(drawn), to-from)
		}
		return drawn, nil
	})
}

// martingale returns the martingale posterior given seen: sample i is the minimiser over seen together with the
// i-th set of drawn points, whose weights are 1.
//
//	theta_i = argmin_T sum over seen and drawn_i of w l(z, T) + l2/2 |T|^2
//
// E comes from the named stream; MP and FMP read the same one, so that they differ only by their uploads.
func (t *Task) martingale(ctx context.Context, key string, seen *point.Set, s Settings, stream ...any) (Ensemble, error) {
	return once(t.memo, fmt.Sprint("martingale/", key, "/", s.L2, s.Tolerance, t.part.From, "-", t.part.To), func() (Ensemble, error) {
		drawn, err := t.draws(ctx, key, seen, stream...)
		if err != nil {
			return nil, err
		}
		shared, err := erm.FromSets(s.L2, seen)
		if err != nil {
			return nil, err
		}
		out := make(Ensemble, 0, len(drawn))
		for from := 0; from < len(drawn); from += fitChunk {
			own := make([]*erm.Problem, min(fitChunk, len(drawn)-from))
			for i := range own {
				if d := drawn[from+i]; d.Dx != seen.Dx || d.C != seen.C {
					return nil, fmt.Errorf("sample %d: points drawn have dx %d and C %d, those given %d and %d; use the predictor that was made for them", from+i, d.Dx, d.C, seen.Dx, seen.C)
				}
				if own[i], err = erm.FromSets(s.L2, drawn[from+i]); err != nil {
					return nil, fmt.Errorf("sample %d: %w", from+i, err)
				}
			}
			if from > 0 {
				own[0].Start = &out[0]
			}
			solved, err := erm.SolveShared(ctx, shared, own, t.ermOptions(s))
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

// baseNoise names the stream of the noise E that MP, FMP and PRIOR share.
const baseNoise = "base"

// localMartingales returns the martingale posteriors of the clients' own points, one ensemble per client.
func (t *Task) localMartingales(ctx context.Context, l2 float64, s Settings) ([]Ensemble, error) {
	s.L2 = l2
	out := make([]Ensemble, len(t.in.Clients))
	for m, set := range t.in.Clients {
		e, err := t.martingale(ctx, fmt.Sprint("client/", m), set, s, "client", m)
		if err != nil {
			return nil, fmt.Errorf("client %d: %w", m, err)
		}
		out[m] = e
	}
	return out, nil
}

// pooledUploads returns the union of the uploads.
func (t *Task) pooledUploads() (*point.Set, error) {
	if len(t.in.Uploads) == 0 {
		return nil, fmt.Errorf("no uploads; compress the clients' points first (embedding.model)")
	}
	return point.Pool(t.in.Uploads...)
}

// uploadBytes returns the mean size of an upload: points and masses.
func (t *Task) uploadBytes() float64 {
	var n int
	for _, u := range t.in.Uploads {
		n += u.N
	}
	return float32Bytes(n*(t.dx+t.c+1)) / float64(len(t.in.Uploads))
}

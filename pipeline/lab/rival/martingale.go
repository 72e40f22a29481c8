package rival

import (
	"context"
	"errors"
	"fmt"

	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// martingale returns the martingale posterior given seen; see [posterior.Martingale]. Posteriors
// are remembered by the key, the penalty and the tolerance. stream names the noise of the draws
// beside the task's own: posteriors of one stream share their noise.
func (t *Task) martingale(ctx context.Context, key string, seen *point.Set, s Settings,
	stream ...any) (posterior.Ensemble, error) {
	return t.drawn.Posterior(ctx, key, seen, posterior.Fit{L2: s.L2, Tolerance: s.Tolerance},
		posterior.SampleRange{}, stream...)
}

// localMartingales returns the martingale posteriors of the clients' own points, one ensemble per
// client, of as many heads as the task says; they have no diagnostics. Each client has a stream of
// its own, so that the samples of two clients are independent.
func (t *Task) localMartingales(ctx context.Context, l2 float64, _ int,
	s Settings) ([]posterior.Ensemble, map[string]float64, error) {
	s.L2 = l2
	out := make([]posterior.Ensemble, len(t.in.Clients))
	for m, set := range t.in.Clients {
		e, err := t.martingale(ctx, fmt.Sprint("client/", m), set, s, "client", m)
		if err != nil {
			return nil, nil, fmt.Errorf("client %d: %w", m, err)
		}
		out[m] = e
	}
	return out, nil, nil
}

var errNoUploads = errors.New("no uploads; compress the clients' points first (embedding.model)")

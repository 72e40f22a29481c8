package rival

import (
	"context"
	"errors"
	"fmt"

	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// martingale returns the martingale posterior given seen; see [posterior.Martingale].
func (t *Task) martingale(ctx context.Context, key string, seen *point.Set, s Settings,
	stream ...any) (posterior.Ensemble, error) {
	return t.drawn.Posterior(ctx, key, seen, posterior.Fit{L2: s.L2, Tolerance: s.Tolerance},
		posterior.SampleRange{}, stream...)
}

// localMartingales returns the martingale posteriors of the clients' own points, one ensemble per
// client.
func (t *Task) localMartingales(ctx context.Context, l2 float64,
	s Settings) ([]posterior.Ensemble, error) {
	s.L2 = l2
	out := make([]posterior.Ensemble, len(t.in.Clients))
	for m, set := range t.in.Clients {
		e, err := t.martingale(ctx, fmt.Sprint("client/", m), set, s, "client", m)
		if err != nil {
			return nil, fmt.Errorf("client %d: %w", m, err)
		}
		out[m] = e
	}
	return out, nil
}

var errNoUploads = errors.New("no uploads; compress the clients' points first (embedding.model)")

// pooledUploads returns the union of the uploads.
func (t *Task) pooledUploads() (*point.Set, error) {
	if len(t.in.Uploads) == 0 {
		return nil, errNoUploads
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

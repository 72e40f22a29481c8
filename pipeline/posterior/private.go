package posterior

import (
	"context"

	"fmp/models/rng"
	"fmp/pipeline/privacy"
)

// Private is the private predictor behind an engine (fmp/pipeline/sample): the coordinates that
// clients clip and sum, and heads from class means known through noise.
type Private interface {
	Coordinates
	// Rows returns the k coordinates of feature rows (n x dx) that clients clip to norm Clip and
	// sum. Prior returns the variances of class means.
	Rows(ctx context.Context, features []float32) ([]float32, error)
	K() int
	Clip() float64
	Prior() []float64
	// Heads returns samples heads on the coordinates of Map, given means, variances and latent,
	// samples x classes x k numbers each.
	Heads(ctx context.Context, mean, variance []float64, latent []float32, samples,
		classes int) ([]Theta, error)
}

// PrivateRound is the outcome of a private round: its totals, the spent budget, and the stream of
// its random numbers.
type PrivateRound struct {
	Totals  *privacy.Totals
	Account *privacy.Account
	Seed    uint64
	Stream  string
}

// NoiseAware returns samples of FMP's posterior given the totals. The same totals, seed and stream
// give the same samples.
func (r *PrivateRound) NoiseAware(ctx context.Context, p Private, samples int) (*Result, error) {
	return r.Heads(ctx, p, r.Totals.DrawCounts(p.Prior(), samples,
		rng.New(r.Seed, r.Stream, "counts")))
}

// Heads returns the heads of class means given the totals and the counts of each sample,
// [samples, classes] (privacy.Totals.Moments has their posterior).
func (r *PrivateRound) Heads(ctx context.Context, p Private, counts []float64) (*Result, error) {
	mean, variance := r.Totals.Moments(p.Prior(), counts)
	latent := make([]float32, len(mean))
	rng.Normal(rng.New(r.Seed, r.Stream, "latent"), latent)
	e, err := p.Heads(ctx, mean, variance, latent, len(counts)/r.Totals.Classes, r.Totals.Classes)
	if err != nil {
		return nil, err
	}
	return &Result{Ensembles: []Ensemble{e}, Coordinates: p, Diagnostics: Spent(r.Account),
		Spent: r.Account}, nil
}

// Spent returns an account as diagnostics.
func Spent(a *privacy.Account) map[string]float64 {
	return map[string]float64{"epsilon": a.Epsilon, "delta": a.Delta, "sigma": a.Sigma}
}

package posterior

import (
	"context"

	"fmp/models/rng"
	"fmp/pipeline/privacy"
)

// Private is the private predictor behind an engine (fmp/pipeline/sample): the coordinates that clients clip and sum, and heads
// from class means known through noise.
type Private interface {
	Coordinates
	// Rows returns the k coordinates of feature rows (n x dx) that clients clip to norm Clip and sum. Prior returns the variances
	// of class means.
	Rows(ctx context.Context, features []float32) ([]float32, error)
	K() int
	Clip() float64
	Prior() []float64
	// Heads returns samples heads on the coordinates of Of, given means, variances and latent, samples x classes x k numbers each.
	Heads(ctx context.Context, mean, variance []float64, latent []float32, samples, classes int) ([]Theta, error)
}

// NoiseAware returns samples of FMP's posterior given the totals of a private round. The same totals, seed and stream give the same samples.
func NoiseAware(ctx context.Context, p Private, totals *privacy.Totals, account *privacy.Account, samples int, seed uint64, stream string) (*Result, error) {
	counts := totals.DrawCounts(p.Prior(), samples, rng.New(seed, stream, "counts"))
	return PrivateHeads(ctx, p, totals, account, counts, seed, stream)
}

// PrivateHeads returns the heads of class means given the totals and the counts of each sample.
func PrivateHeads(ctx context.Context, p Private, totals *privacy.Totals, account *privacy.Account, counts []float64, seed uint64, stream string) (*Result, error) {
	mean, variance := totals.Moments(p.Prior(), counts)
	latent := make([]float32, len(mean))
	rng.Normal(rng.New(seed, stream, "latent"), latent)
	e, err := p.Heads(ctx, mean, variance, latent, len(counts)/totals.Classes, totals.Classes)
	if err != nil {
		return nil, err
	}
	return &Result{Ensembles: []Ensemble{e}, Coordinates: p, Diagnostics: Spent(account), Spent: account}, nil
}

// Spent returns an account as diagnostics.
func Spent(a *privacy.Account) map[string]float64 {
	return map[string]float64{"epsilon": a.Epsilon, "delta": a.Delta, "sigma": a.Sigma}
}

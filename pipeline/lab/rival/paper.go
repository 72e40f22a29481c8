package rival

import (
	"context"
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/pipeline/erm"
	"fmp/pipeline/posterior"
)

// Nine of the paper's ten methods are three ways of using three kinds of heads: fits,
// Gaussian-prior posteriors and martingale posteriors; of each client's own points (L), of all
// clients' points, or combined from the clients' (C). A client of the combined ones has the share
// l2 / M of the penalty, so that the shares add up to that of all points: its prior to the power
// 1/M.

// heads makes heads of one kind, by methods of a task. The functions take a Task first so that
// method expressions fit them.
type heads struct {
	// local returns those of each client's own points, of as many samples as a client needs; pooled
	// those of all clients' points.
	local func(t *Task, ctx context.Context, l2 float64, samples int,
		s Settings) ([]posterior.Ensemble, map[string]float64, error)
	pooled func(t *Task, ctx context.Context, l2 float64,
		s Settings) (posterior.Ensemble, map[string]float64, error)
	// sent returns the number of heads that a client uploads to be combined.
	sent    func(t *Task) int
	combine func(ctx context.Context, locals []posterior.Ensemble,
		s Settings) (posterior.Ensemble, error)
}

// alone returns each client's own heads; scores are their mean over clients. Nothing is uploaded,
// and UploadBytes stays 0.
func (h heads) alone(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
	e, d, err := h.local(t, ctx, s.L2, t.in.Samples, s)
	if err != nil {
		return nil, err
	}
	return &posterior.Result{Ensembles: e, Diagnostics: d}, nil
}

// centralised returns the heads of all clients' points, which are uploaded as they are. It is a
// reference without privacy: the features of all images are in one place.
func (h heads) centralised(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
	e, d, err := h.pooled(t, ctx, s.L2, s)
	if err != nil {
		return nil, err
	}
	return &posterior.Result{Ensembles: []posterior.Ensemble{e}, Diagnostics: d,
		// the clients' own rows and class indices
		UploadBytes: float32Bytes(t.pooled().N*(t.dx+1)) / float64(len(t.in.Clients))}, nil
}

// combined returns the consensus of the clients' heads. The product of the clients' densities then
// has the prior once, as the pooled posterior has.
func (h heads) combined(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
	locals, d, err := h.local(t, ctx, s.L2/float64(len(t.in.Clients)), h.sent(t), s)
	if err != nil {
		return nil, err
	}
	e, err := h.combine(ctx, locals, s)
	if err != nil {
		return nil, err
	}
	return &posterior.Result{Ensembles: []posterior.Ensemble{e}, Diagnostics: d,
		UploadBytes: t.headBytes(h.sent(t))}, nil
}

// The three kinds.
var (
	fits = heads{
		local: func(t *Task, ctx context.Context, l2 float64, _ int,
			s Settings) ([]posterior.Ensemble, map[string]float64, error) {
			e, err := t.localFits(ctx, l2, s)
			return slices.Collect(slices.Chunk(e, 1)), nil, err
		},
		pooled: func(t *Task, ctx context.Context, l2 float64,
			s Settings) (posterior.Ensemble, map[string]float64, error) {
			theta, err := t.pooledFit(ctx, l2, s)
			return posterior.Ensemble{theta}, nil, err
		},
		sent:    func(*Task) int { return 1 },
		combine: mean,
	}
	gaussian = heads{
		local:   (*Task).localGaussianPosteriors,
		pooled:  (*Task).pooledGaussianPosterior,
		sent:    func(t *Task) int { return chainHeads(t.in.Samples) },
		combine: consensus,
	}
	martingale = heads{
		local: (*Task).localMartingales,
		pooled: func(t *Task, ctx context.Context, _ float64,
			s Settings) (posterior.Ensemble, map[string]float64, error) {
			e, err := t.martingale(ctx, "pooled", t.pooled(), s, posterior.BaseNoise)
			return e, nil, err
		},
		sent:    func(t *Task) int { return t.in.Samples },
		combine: consensus,
	}
)

// mean returns the mean of the clients' single heads. Heads are of one shape D x C. The locals are
// shared and stay as they are.
func mean(_ context.Context, locals []posterior.Ensemble, _ Settings) (posterior.Ensemble, error) {
	out := erm.NewTheta(locals[0][0].D, locals[0][0].C)
	for _, e := range locals {
		floats.Add(out.W, e[0].W)
	}
	floats.Scale(1/float64(len(locals)), out.W)
	return posterior.Ensemble{out}, nil
}

// The nine methods. MP is the target of FMP's approximation. CBNN is consensus Monte Carlo: the
// i-th samples of all clients' subposteriors are combined by precision, and CFMP does the same with
// martingale posteriors. Weighting by precision favours clients that know nothing: where a class is
// absent the drawn points agree, and so do the samples. The tuned protocol therefore tries equal
// weights too.
var (
	lann = method{Info{Name: "LANN", Family: Fits, Cost: 20,
		Title: "one fit to each client's points; mean over clients", Group: Local,
		Cite: citeFMP, Param: ParamL2, Grid: gridL2}, fits.alone}
	lbnn = method{Info{Name: "LBNN", Family: GaussianPriors, Cost: 90,
		Title: "Gaussian-prior posterior of each client's points; mean over clients", Group: Local,
		Cite: citeNeal, Param: ParamL2, Grid: gridL2}, gaussian.alone}
	lmp = method{Info{Name: "LMP", Family: Martingales, Cost: 80,
		Title: "martingale posterior of each client's points; mean over clients", Group: Local,
		Cite: citeFong + "; " + citeFMP, Param: ParamL2, Grid: gridL2, Draws: true},
		martingale.alone}
	ann = method{Info{Name: "ANN", Family: Fits, Cost: 1, Title: "one fit to all clients' points",
		Group: Centralised, Cite: citeFMP, Param: ParamL2, Grid: gridL2}, fits.centralised}
	bnn = method{Info{Name: "BNN", Family: GaussianPriors, Cost: 45,
		Title: "Gaussian-prior posterior of all clients' points", Group: Centralised,
		Cite: citeNeal, Param: ParamL2, Grid: gridL2}, gaussian.centralised}
	mp = method{Info{Name: "MP", Family: Martingales, Keep: true, Cost: 12,
		Title: "martingale posterior of all clients' points", Group: Centralised,
		Cite: citeFong, Param: ParamL2, Grid: gridL2, Draws: true}, martingale.centralised}
	cann = method{Info{Name: "CANN", Family: Fits, Cost: 1, Title: "average of the clients' fits",
		Group: OneShot, Cite: citeZinkevich, Param: ParamL2, Grid: gridL2}, fits.combined}
	cbnn = method{Info{Name: "CBNN", Family: GaussianPriors, Cost: 80,
		Title: "consensus of the clients' Gaussian-prior posteriors", Group: OneShot,
		Cite: citeScott, Param: ParamL2, Grid: gridL2, More: weightings}, gaussian.combined}
	cfmp = method{Info{Name: "CFMP", Family: Martingales, Keep: true, Cost: 20,
		Title: "consensus of the clients' martingale posteriors", Group: OneShot,
		Cite: citeFMP, Param: ParamL2, Grid: gridL2, More: weightings, Draws: true, Least: 2},
		martingale.combined}
)

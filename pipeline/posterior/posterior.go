// Package posterior computes FMP, the posterior of a head given a round's uploads (arXiv
// 2605.18554): of class means in closed form, or in open form for classes that the corpus lacks
// ([FMP]); of compressed points by drawn ones ([Martingale]); and of class sums with noise for
// differential privacy ([NoiseAware]). A head is the D x C weight matrix of a softmax classifier (D
// = dx + 1); an ensemble is a set of posterior samples of one head.
package posterior

import (
	"context"
	"fmt"
	"math/rand/v2"

	"fmp/models"
	"fmp/onnx"
	"fmp/pipeline/erm"
	"fmp/pipeline/honesty"
	"fmp/pipeline/internal/effect"
	"fmp/pipeline/point"
	"fmp/pipeline/privacy"
	"fmp/pipeline/sample"
)

// Theta is a head, D x C with the bias row last.
type Theta = erm.Theta

// Ensemble holds posterior samples of one head. Its prediction is the mean of their softmaxes
// (metric.Predict).
type Ensemble []Theta

// Tensor returns the heads as a tensor [S, D, C], the bias row last.
func (e Ensemble) Tensor() *onnx.Tensor {
	w := make([]float64, 0, len(e)*len(e[0].W))
	for _, t := range e {
		w = append(w, t.W...)
	}
	return onnx.NewTensor(w, e.Shape()...)
}

// Shape returns the shape of the tensor: heads, coordinates and one, classes.
func (e Ensemble) Shape() []int { return []int{len(e), e[0].D, e[0].C} }

// Result is the result of running a method on a task.
type Result struct {
	// Ensembles holds one ensemble, or several whose scores are averaged: one per client for the
	// local methods, one per shuffle for PRIOR.
	Ensembles []Ensemble
	// Coordinates maps feature rows to the inputs of the heads; nil where the heads act on the
	// features themselves.
	Coordinates Coordinates
	// Limit is the head, on the same coordinates, to which the method converges if the clients have
	// infinite data; nil where it is that of a softmax regression on the features (LimitHead), or
	// not known.
	Limit *Theta
	// Regression says that the limit is that of a softmax regression on the features although heads
	// act on Coordinates.
	Regression bool
	// Intervals are the method's own intervals of class probabilities; nil: quantiles of the heads'
	// probabilities.
	Intervals Intervals
	// Judgement of the clients; nil unless Input.Honesty asked for it.
	Judgement *Judgement
	// Sets is the calibration of prediction sets; nil where there is none.
	Sets *models.OriginSets
	// NoSets says why there are none where uploads have calibration points for them; "" elsewhere.
	NoSets string
	// Effects are the shifts of clients whose camera differs; nil where none does.
	Effects *effect.Effects
	// Shift estimates a further client's effect from images without labels; nil where no client has
	// one.
	Shift *models.ShiftParts
	// IntervalLimit is the head whose probabilities Intervals should cover, where it is not Limit.
	IntervalLimit *Theta
	// Means maps feature rows to the coordinates of uploaded class means; nil where no class means
	// are uploaded.
	Means Coordinates
	// Unlike names the classes whose images of the corpus do not count, as clients' class means lie
	// elsewhere; nil where there are none.
	Unlike []int
	// Unread says why nothing weighed a corpus of moments; "" where something did, or there is
	// none.
	Unread string
	// Unmeasured says why nothing of the round told the temperature of a round of moments, whose
	// kappa is discriminant.Unknown; "" where something did, or kappa was known.
	Unmeasured string
	// Diagnostics of samplers by name: "rhat" (largest split R-hat), "acceptance" (mean), and so
	// on.
	Diagnostics map[string]float64
	// Spent is the privacy account of a private round; nil for other rounds.
	Spent *privacy.Account
	// UploadBytes is the size of one client's upload, in bytes (mean over clients): the float32
	// payload without framing; 0 for local methods.
	UploadBytes float64
}

// Coordinates map feature rows (n x dx, row-major) to the inputs of the heads (n x their own
// width), for methods whose predictive is linear in something other than the features.
type Coordinates interface {
	Map(ctx context.Context, features []float32) ([]float32, error)
}

// Rows returns the inputs of the result's heads for the given feature rows.
func (r *Result) Rows(ctx context.Context, features []float32) ([]float32, error) {
	if r.Coordinates == nil {
		return features, nil
	}
	rows, err := r.Coordinates.Map(ctx, features)
	if err != nil {
		return nil, fmt.Errorf("coordinates of the heads: %w", err)
	}
	return rows, nil
}

// Intervals are a method's own intervals of class probabilities. A method without them uses the
// quantiles of its heads' probabilities.
type Intervals interface {
	// Compute returns the ends of intervals of the given level, n x C each, for feature rows (n x
	// dx, row-major).
	Compute(ctx context.Context, features []float32, level float64) (low, high []float64, err error)
	// Heads returns the heads whose weights' quantiles are the intervals of the weights.
	Heads(ctx context.Context) (Ensemble, error)
}

// IntervalLevel is the level of a classifier's intervals.
const IntervalLevel = 0.9

// Drawer draws unseen points given seen ones: the predictor graph of arXiv 2605.18554, behind an
// engine.
type Drawer interface {
	// Noise returns samples x fresh x d base noise drawn from r. The same stream gives the same
	// noise.
	Noise(r *rand.Rand, samples, fresh int) ([]float32, error)
	// Draw returns samples sets of fresh points each, given seen (whose weights count as masses).
	// noise holds samples x fresh x d numbers; fresh is len(noise) / (samples d). The same noise
	// gives the same points.
	Draw(ctx context.Context, seen *point.Set, noise []float32, samples int) ([]*point.Set, error)
}

// Conjugate is the conjugate predictor behind an engine (fmp/pipeline/sample): posterior samples in
// closed form, as heads on coordinates of its own.
type Conjugate interface {
	Coordinates
	// LatentSize returns C k, the size of one sample's latent.
	LatentSize() int
	// Heads returns samples heads given the pooled class means, one for each part of latent
	// (samples x C k numbers from N(0, 1)). The same latent gives the same heads.
	Heads(ctx context.Context, seen *point.Set, latent []float32, samples int) ([]Theta, error)
	// Mean returns the head of the posterior means.
	Mean(ctx context.Context, seen *point.Set) (Theta, error)
	// Claims returns clients' class means as package honesty weighs them, and the variances of
	// class means.
	Claims(clients []*point.Set) (u honesty.Uploads, lambda []float64, err error)
	// Intervals returns the ends of intervals of class probabilities (n x C each) for feature rows,
	// given the samples of a round. IntervalLimit returns the head whose probabilities they should
	// cover, given very many points.
	Intervals(ctx context.Context, d sample.Drawn, features []float32,
		level float64) (low, high []float64, err error)
	IntervalLimit(ctx context.Context, all *point.Set) (Theta, error)
}

// Values of a round's scope: which form of FMP reads its class means.
const (
	ScopeAuto   = "auto"
	ScopeClosed = "closed"
	ScopeOpen   = "open"
)

// maxSamples bounds the samples of one posterior: a larger value is more likely a mistake than
// intended.
const maxSamples = 100_000

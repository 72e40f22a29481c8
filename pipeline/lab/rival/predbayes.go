package rival

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"

	"fmp/pipeline/internal/memo"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// predbayes is beta-predictive Bayes (Hasan et al. 2024, arXiv 2312.09817, equation 10 and section
// 4.3): clients upload samples of their own posteriors (CBNN's, each with the prior raised to 1/M).
// With p_m(y | x) the mean prediction of client m's samples,
//
//	p(y | x) proportional to (1/M sum_m p_m(y | x))^(1-beta) (prod_m p_m(y | x))^beta
//
// where beta = 0 is a mixture and beta = 1 the product of a Bayesian committee machine. As in the
// paper, the result is distilled into a single model: a softmax regression on rows of the server's
// corpus, whose labels are not used.
var predbayes = method{
	Info{Name: "PredBayes", Cost: 5,
		Title: "mixture and product of the clients' posterior predictions, distilled",
		Group: OneShot, Cite: "beta-predictive Bayes: Hasan, Zhang, Guo, Chen and Poupart 2024, " +
			"Calibrated one round federated learning with Bayesian inference in the predictive " +
			"space, AAAI, arXiv:2312.09817",
		Param: ParamBeta, Grid: []float64{0, 0.25, 0.5, 0.75, 1},
		More: []Param{{ParamL2, []float64{0.1, 1, 10}}}, NeedsCorpus: true},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		precision := s.L2 / float64(len(t.in.Clients))
		// The key has all settings that the clients' samples depend on. Beta is none of them: its
		// values share one set of predictions.
		local, err := memo.Once(t.memo,
			fmt.Sprint("predbayes/", precision, s.Tolerance, s.Sampler, s.Chains,
				s.Warmup, s.Draws),
			func() (*localPredictions, error) {
				return t.predictCorpus(ctx, precision, s)
			})
		if err != nil {
			return nil, err
		}
		labelled := local.combined(s.Beta)
		e, err := t.fits(ctx, []*point.Set{labelled}, distillL2, s)
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{e}, Diagnostics: local.diagnostics,
			UploadBytes: t.headBytes(chainHeads(t.in.Samples))}, nil
	},
}

const (
	distillRows = 1000 // rows of the corpus used for distillation
	distillL2   = 0.1  // a little, so that the fit exists where all predictions are certain
)

// localPredictions are the predictions of the clients' posteriors on some rows of the corpus.
// Probabilities are [rows, C]. Nobody writes them once they are made.
type localPredictions struct {
	rows        *point.Set            // without labels
	mixture     *metric.Probabilities // mean over clients
	logProduct  *metric.Probabilities // sum of logarithms
	diagnostics map[string]float64
}

// predictCorpus predicts evenly spaced rows of the corpus, distillRows at most, by the samples of
// each client's posterior, whose prior precision is given. A floor keeps the logarithm of an
// impossible class finite. Rows are evenly spaced since a corpus may be stored class by class. The
// mean over a client's samples comes before the product, as in the paper: the product is of
// predictive distributions.
func (t *Task) predictCorpus(ctx context.Context, precision float64,
	s Settings) (*localPredictions, error) {
	k, err := t.corpus()
	if err != nil {
		return nil, err
	}
	locals, d, err := t.localGaussianPosteriors(ctx, precision, chainHeads(t.in.Samples), s)
	if err != nil {
		return nil, err
	}
	all := len(k.Features) / k.Dx
	n := min(all, distillRows)
	out := &localPredictions{rows: point.New(n, t.dx, t.c), diagnostics: d}
	features := make([]float32, 0, n*t.dx)
	for i := range n {
		from := i * all / n * k.Dx
		row := k.Features[from : from+k.Dx]
		features = append(features, row...)
		copy(out.rows.Row(i), row)
	}
	for _, e := range locals {
		p, err := metric.Predict(ctx, e, features, t.in.Threads)
		if err != nil {
			return nil, err
		}
		if out.mixture == nil {
			out.mixture = &metric.Probabilities{N: p.N, C: p.C, P: make([]float64, len(p.P))}
			out.logProduct = &metric.Probabilities{N: p.N, C: p.C, P: make([]float64, len(p.P))}
		}
		for i, v := range p.P {
			out.mixture.P[i] += v / float64(len(locals))
			out.logProduct.P[i] += math.Log(v + nllFloor)
		}
	}
	return out, nil
}

// combined returns the rows with the combined predictions of the clients as labels. In logarithms,
// log p = (1-beta) log mixture + beta sum_m log p_m, less the log of the sum over classes. Labels
// are probabilities, and rows have weight 1. Sums of exponentials are taken less the largest, so
// that a product of many clients does not underflow.
func (l *localPredictions) combined(beta float64) *point.Set {
	out := point.New(l.rows.N, l.rows.Dx, l.rows.C)
	copy(out.Z, l.rows.Z)
	log := make([]float64, out.C)
	for i := range out.N {
		for c, v := range l.mixture.Row(i) {
			log[c] = (1-beta)*math.Log(v+nllFloor) + beta*l.logProduct.Row(i)[c]
		}
		total := floats.LogSumExp(log)
		for c, v := range log {
			out.Row(i)[out.Dx+c] = float32(math.Exp(v - total))
		}
	}
	return out
}

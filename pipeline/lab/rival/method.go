package rival

import (
	"context"
	"fmt"

	"fmp/pipeline/posterior"
	"gonum.org/v1/gonum/floats"
)

// method is a Method made of a description and a function.
type method struct {
	info Info
	run  func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error)
}

func (m method) Info() Info { return m.info }

// Run checks the settings and that the task has the points that the method reads. Errors begin with
// the method's name.
func (m method) Run(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", m.info.Name, err)
	}
	if len(t.in.Clients) == 0 && !(m.info.Conjugate && len(t.in.ClassMeans)+len(t.in.Soft) > 0) &&
		!(m.info.Compresses && len(t.in.Uploads) > 0) {
		return nil, fmt.Errorf("%s: the clients' own points are not here, and the method reads "+
			"them", m.info.Name)
	}
	r, err := m.run(ctx, t, s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.info.Name, err)
	}
	return Cooled(r, s.Temperature), nil
}

// Cooled returns r with its heads divided by the temperature t (Guo et al. 2017, section 4.2,
// divide the logits, in which a head is linear). Heads may be shared with others and are not
// changed.
func Cooled(r *posterior.Result, t float64) *posterior.Result {
	if t == 1 {
		return r
	}
	out := *r
	out.Ensembles = make([]posterior.Ensemble, len(r.Ensembles))
	for i, e := range r.Ensembles {
		out.Ensembles[i] = make(posterior.Ensemble, len(e))
		for k, h := range e {
			w := make([]float64, len(h.W))
			floats.AddScaled(w, 1/t, h.W)
			out.Ensembles[i][k] = posterior.Theta{D: h.D, C: h.C, W: w}
		}
	}
	return &out
}

// Citations that several methods share.
const (
	citeFMP  = "Federated Martingale Posterior Sampling, arXiv:2605.18554"
	citeFong = "Fong, Holmes and Walker 2023, Martingale posterior distributions, JRSS B 85(5)"
	citeNeal = "Neal 2011, MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte " +
		"Carlo, ch. 5"
	citeZinkevich = "Zinkevich, Weimer, Li and Smola 2010, Parallelized stochastic gradient " +
		"descent, NeurIPS 23"
	citeScott = "Scott et al. 2016, Bayes and big data: the consensus Monte Carlo algorithm, " +
		"Int. J. Management Science and Engineering Management 11(2)"
	citeIoffe = "Ioffe 2006, Probabilistic linear discriminant analysis, ECCV, LNCS 3954"
	citeGHOFL = "GH-OFL: Turazza, Picone and Mamei 2026, The Gaussian-head OFL family: one-shot " +
		"federated learning from client global statistics, ICLR, arXiv:2602.01186"
	citeFedPFT = "FedPFT: Beitollahi et al. 2024, Parametric feature transfer: " +
		"one-shot federated learning with foundation models, arXiv:2402.01862"
	citeFedCGS = "FedCGS: Guan, Zhou and Gu 2025, Capture global feature statistics for one-shot " +
		"federated learning, arXiv:2503.06962"
)

// gridL2 holds the values that the tuned protocol tries for lambda and prior precisions.
var gridL2 = []float64{0.03, 0.1, 0.3, 1, 3, 10, 30}

// gridShrinkage holds the values that it tries for the shrinkage of a covariance, up to 1, at which
// the covariance is a multiple of the identity.
var gridShrinkage = []float64{0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.97, 0.99, 1}

// ghShrinkage is the shrinkage that GH-OFL's authors publish.
var ghShrinkage = 0.05

// float32Bytes returns the size of n float32 numbers on the wire.
func float32Bytes(n int) float64 { return 4 * float64(n) }

// headBytes returns the size of k heads on the wire.
func (t *Task) headBytes(k int) float64 { return float32Bytes(k * (t.dx + 1) * t.c) }

package models

import (
	"fmt"
	"math"
	"slices"

	"fmp/onnx"
)

// The conjugate predictor. In coordinates w in which a class is N(mu_c, I) around its mean and the
// means are N(0, diag lambda), the posterior of the means given the clients' class means is
// Gaussian, a posterior sample is one draw of all class means, and the classifier that would be
// fitted to infinitely many points drawn from it has a closed form:
//
//	phi(h)  = (h - c) / sqrt(1 + |h - c|^2/r^2)          features with their norm softened
//	w       = phi(h) V - m0                              coordinates, k of them
//	beta    = b ((1-g) lambda + g mean lambda)           prior variances
//	m_c     = n_c beta/(1 + n_c beta) wbar_c             posterior mean of mu_c
//	v_c     = beta/(1 + n_c beta)                        posterior variance of mu_c
//	mu_c    = m_c + sqrt(tau v_c) latent_c               one latent for all draws of a sample
//	a_c     = mu_c R                                     in the head's coordinates w R
//	logit_c = rho (wR . a_c - |a_c|^2/2) + offset_c      the head
//	offset_c = rho/2 o1 tau sum_j v_cj |R_j|^2 + o2 sum_j log(1 + v_cj)
//
// n_c is the mass of class c over all clients and wbar_c its mean. It is the martingale posterior
// (arXiv:2605.18554; Fong, Holmes and Walker 2023) of a conjugate predictive: probabilistic linear
// discriminant analysis (Ioffe 2006) with a learned metric. c, r, V, m0 and lambda are moments of
// the meta-training corpus, R and the scalars are learned on it.

// Names of the conjugate predictor's parameters: initializers of its graph.
const (
	ConjCentre    = "c"          // [dx], mean of the corpus
	ConjRadius    = "r"          // [], mean distance of the corpus from c
	ConjMap       = "V"          // [dx, k]
	ConjOrigin    = "m0"         // [k]
	ConjLogLambda = "log_lambda" // [k]
	ConjMetric    = "R"          // [k, k]
	ConjWidening  = "widening"   // [], h of the intervals
)

// Prefixes of the three sets of scalars of a conjugate predictor.
const (
	// ConjSample is the prefix of the scalars of the posterior samples, ConjMean of those of a
	// point head from the posterior means, and ConjInterval of those of the intervals of
	// probabilities.
	ConjSample   = "sample/"
	ConjMean     = "mean/"
	ConjInterval = "interval/"
)

// ConjugateConfig holds the sizes of a conjugate predictor, and of a private one, which has no C.
type ConjugateConfig struct {
	// Dx and C are the numbers of features and classes, K that of coordinates, 1 to Dx. Uploads of
	// k and of dx numbers are told apart by their width; where k = dx, they are taken as class
	// means of phi.
	Dx int `json:"dx"`
	C  int `json:"c"`
	K  int `json:"k"`
}

// check returns an error for sizes out of their bounds.
func (c ConjugateConfig) check() error {
	if c.Dx < 1 || c.Dx > maxWidth || c.C < 2 || c.C > maxWidth || c.K < 1 || c.K > c.Dx {
		return fmt.Errorf("conjugate predictor for dx %d, C %d and k %d; allowed are dx 1 to %d, "+
			"C 2 to %d and k 1 to dx", c.Dx, c.C, c.K, maxWidth, maxWidth)
	}
	return nil
}

// shapes returns the parameters' shapes by name.
func (c ConjugateConfig) shapes() map[string][]int {
	s := map[string][]int{
		ConjCentre: {c.Dx}, ConjRadius: {}, ConjMap: {c.Dx, c.K}, ConjOrigin: {c.K},
		ConjLogLambda: {c.K},
		ConjMetric:    {c.K, c.K},
		ConjWidening:  {},
	}
	for _, set := range []string{ConjSample, ConjMean, ConjInterval} {
		for _, n := range []string{ConjLogRho, ConjLogTau, ConjLogB, ConjLogitGamma, ConjO1,
			ConjO2} {
			s[set+n] = []int{}
		}
	}
	return s
}

// checkValues returns an error unless the sizes are sound and the parameters have them.
func (c ConjugateConfig) checkValues(values map[string]*onnx.Tensor) error {
	if err := c.check(); err != nil {
		return err
	}
	return checkShapes("conjugate predictor", c.shapes(), values)
}

// checkShapes returns an error unless all parameters of a model are present, of the given shapes,
// and finite.
func checkShapes(model string, shapes map[string][]int, values map[string]*onnx.Tensor) error {
	for name, shape := range shapes {
		t := values[name]
		if t == nil || t.DType != onnx.Float32 || !slices.Equal(t.Shape, shape) {
			return fmt.Errorf("%s: parameter %q is %v; want float32 %v", model, name, t, shape)
		}
	}
	return finite(model, values)
}

// finite returns an error for parameters of a model that are not.
func finite(model string, values map[string]*onnx.Tensor) error {
	for name, t := range values {
		for i, v := range t.F32() {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return fmt.Errorf("%s: element %d of parameter %q is %v; want finite numbers",
					model, i, name, v)
			}
		}
	}
	return nil
}

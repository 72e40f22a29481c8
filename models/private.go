package models

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/build"
)

// The private predictor is the conjugate one for class sums that were released with noise
// (pipeline/privacy): the same coordinates w, the norm that clients clip them to, and scalars
// learned on rounds with noise. The effect of the noise on the posterior of the class means is
// computed outside the graph, which makes heads from their means m and variances v, separate ones
// for every sample:
//
//	mu_c     = m_c + sqrt(tau v_c) latent_c
//	rho      = rho exp(c1 u + c2 u^2), u = mean(v/beta): means shrink as less is known
//	a_c      = mu_c R
//	offset_c = rho/2 o1 tau sum_j v_cj |R_j|^2 + o2 sum_j log(1 + v_cj)
//	logit_c  = rho (wR . a_c - |a_c|^2/2) + offset_c
//
// rho and beta are the conjugate predictor's, so that where the noise is negligible the heads are
// those without noise: a single rho learned for all amounts of noise is overconfident there. The
// number of classes is that of the inputs.

// PrivateSet is the prefix of the private predictor's scalars; its further ones are [PrivateC1],
// [PrivateC2] and [PrivateClip], all [].
const (
	PrivateSet  = "private/"
	PrivateC1   = PrivateSet + "c1"
	PrivateC2   = PrivateSet + "c2"
	PrivateClip = "clip"
)

// Outputs of a private predictor's graph.
const (
	// PrivateRows and PrivateCoordinates: features [n, dx] -> rows [n, k], the coordinates w that
	// clients clip and sum, and coordinates [n, k], w R, which the heads take.
	PrivateRows        = "rows"
	PrivateCoordinates = ConjCoordinates
	// PrivateHeads: mean, variance, latent [S, C, k] -> heads [S, k+1, C], bias last.
	PrivateHeads = ConjHeads
)

// PrivateScalars returns the names of the learned scalars: all of them, or only those not taken
// from a conjugate predictor.
func PrivateScalars(all bool) []string {
	own := []string{PrivateSet + ConjLogTau, PrivateSet + ConjO1, PrivateSet + ConjO2,
		PrivateC1, PrivateC2}
	if all {
		return append(own, PrivateSet+ConjLogRho, PrivateSet+ConjLogB, PrivateSet+ConjLogitGamma)
	}
	return own
}

// private returns the shapes of a private predictor's parameters by name. It has no classes.
func (c ConjugateConfig) private() map[string][]int {
	all, s := c.shapes(), map[string][]int{PrivateClip: {}}
	for _, name := range []string{ConjCentre, ConjRadius, ConjMap, ConjOrigin, ConjLogLambda,
		ConjMetric} {
		s[name] = all[name]
	}
	for _, n := range PrivateScalars(true) {
		s[n] = []int{}
	}
	return s
}

// checkPrivate returns an error unless the sizes are sound, and the parameters of a private
// predictor have them. The radius and the norm to clip to must be above 0.
func (c ConjugateConfig) checkPrivate(values map[string]*onnx.Tensor) error {
	if c.Dx < 1 || c.Dx > maxWidth || c.K < 1 || c.K > c.Dx {
		return fmt.Errorf("private predictor for dx %d and k %d; allowed are dx 1 to %d and k 1 "+
			"to dx", c.Dx, c.K, maxWidth)
	}
	if err := checkShapes("private predictor", c.private(), values); err != nil {
		return err
	}
	for _, name := range []string{PrivateClip, ConjRadius} {
		if v := values[name].F32()[0]; !(v > 0) {
			return fmt.Errorf("private predictor: parameter %q is %v; want a number above 0",
				name, v)
		}
	}
	return nil
}

// NewPrivate builds the graph of a private predictor from its parameters.
func NewPrivate(c ConjugateConfig, values map[string]*onnx.Tensor) (*onnx.Model, error) {
	if err := c.checkPrivate(values); err != nil {
		return nil, err
	}
	g := newPrivate(c, "private", values, nil)
	b := g.b
	w := g.coordinates(g.phi(b.Input("features", onnx.Float32, "n", c.Dx)))
	b.Output(PrivateRows, w)
	b.Output(PrivateCoordinates, b.MatMul(w, g.refs[ConjMetric]))
	in := func(name string) build.Ref {
		return b.Unsqueeze(b.Input(name, onnx.Float32, "S", "C", c.K), 0)
	}
	weights, bias := g.noisyHead(moments{in("mean"), in("variance")}, in("latent"))
	b.Output(PrivateHeads, b.Squeeze(b.Concat(2, weights, b.Unsqueeze(bias, 2)), 0))
	m, err := b.Model()
	if err != nil {
		return nil, err
	}
	// those that nothing in the graph reads are read by the server's posterior, and by clients
	for name, t := range values {
		if c.private()[name] != nil && m.Graph.Initializers[name] == nil {
			m.Graph.Initializers[name] = t.Clone()
		}
	}
	return m, Manifest{Kind: KindPrivate, Dx: c.Dx, K: c.K}.Write(m)
}

// newPrivate starts a graph whose parameters are initializers; those in constants are excluded from
// training. Its conjugate has no classes: their number is an axis of the inputs.
func newPrivate(c ConjugateConfig, name string, values map[string]*onnx.Tensor,
	constants map[string]bool) conjugate {
	g := newConjugate(c, name, nil)
	for _, name := range slices.Sorted(maps.Keys(c.private())) {
		if constants[name] {
			g.refs[name] = g.b.Const(values[name])
		} else {
			g.refs[name] = g.b.Param(name, values[name].Clone())
		}
	}
	return g
}

// noisyHead returns weights [T, S, k, C] on w R and biases [T, S, C] for moments and latent [T, S,
// C, k]. u is the mean over samples, classes and coordinates, so that all heads of a task have one
// rho.
func (g conjugate) noisyHead(p moments, latent build.Ref) (weights, bias build.Ref) {
	b := g.b
	tau := g.exp(PrivateSet + ConjLogTau)
	mu := b.Add(p.mean, b.Mul(b.Sqrt(b.Mul(tau, p.variance)), latent))
	unknown := b.ReduceMean(b.Div(p.variance, g.prior(PrivateSet)), true, 1, 2, 3) // [T, 1, 1, 1]
	rho := b.Exp(b.Add(g.refs[PrivateSet+ConjLogRho],
		b.Mul(unknown, b.Add(g.refs[PrivateC1], b.Mul(g.refs[PrivateC2], unknown)))))
	a := b.MatMul(mu, g.refs[ConjMetric])
	half := b.Mul(b.F32(0.5), b.Squeeze(rho, 3)) // [T, 1, 1]
	square := b.ReduceSum(b.Mul(a, a), false, 3)
	scale := b.Mul(half, b.Mul(tau, g.refs[PrivateSet+ConjO1]))
	offset := b.Add(b.Mul(scale, b.Squeeze(b.MatMul(p.variance, g.sizes()), 3)),
		b.Mul(g.refs[PrivateSet+ConjO2], b.ReduceSum(b.Log(b.Add(p.variance, b.F32(1))), false, 3)))
	return b.Mul(rho, b.Transpose(a, 0, 1, 3, 2)), b.Sub(offset, b.Mul(half, square))
}

// PrivateValues returns the sizes and the parameters of a private predictor. The tensors are shared
// with the model.
func PrivateValues(m *onnx.Model) (ConjugateConfig, map[string]*onnx.Tensor, error) {
	f, err := manifestOf(m, KindPrivate)
	c := ConjugateConfig{Dx: f.Dx, K: f.K}
	if err != nil {
		return c, nil, err
	}
	values := map[string]*onnx.Tensor{}
	for name := range c.private() {
		values[name] = m.Graph.Initializers[name]
	}
	return c, values, c.checkPrivate(values)
}

// PrivatePart returns the part of a private predictor that computes one of its outputs, with the
// model's manifest.
func PrivatePart(m *onnx.Model, output string) (*onnx.Model, error) {
	part, err := cut(m, output)
	if err != nil {
		return nil, fmt.Errorf("private predictor: %w; make it anew with fmp train private", err)
	}
	return part, nil
}

// SameCoordinates returns an error unless a private predictor's coordinates are those of a
// conjugate one.
func SameCoordinates(private, conjugate *onnx.Model) error {
	_, p, err := PrivateValues(private)
	if err != nil {
		return err
	}
	_, c, err := ConjugateValues(conjugate)
	if err != nil {
		return err
	}
	for _, name := range []string{ConjCentre, ConjRadius, ConjMap, ConjOrigin} {
		if !slices.Equal(p[name].Shape, c[name].Shape) ||
			!slices.Equal(p[name].F32(), c[name].F32()) {
			return fmt.Errorf("the private predictor has other coordinates than the conjugate " +
				"predictor; train it anew with fmp train private --set conjugate.model=FILE")
		}
	}
	return nil
}

// Prior returns beta, the prior variances [k] of class means, from the parameters of a conjugate or
// private predictor, by a set of its scalars such as [ConjSample]. With lambda the variances
// between the corpus's classes and g the logistic of logit_gamma
//
//	beta = b ((1-g) lambda + g mean lambda)
func Prior(values map[string]*onnx.Tensor, set string) []float64 {
	at := func(name string) float64 { return float64(values[set+name].F32()[0]) }
	b, gamma := math.Exp(at(ConjLogB)), 1/(1+math.Exp(-at(ConjLogitGamma)))
	log := values[ConjLogLambda].F32()
	out, mean := make([]float64, len(log)), 0.0
	for j, l := range log {
		out[j] = math.Exp(float64(l))
		mean += out[j] / float64(len(log))
	}
	for j, l := range out {
		out[j] = b * ((1-gamma)*l + gamma*mean)
	}
	return out
}

// PrivateEmbedding returns the client's part of a private predictor as an embedding for the given
// number of classes, which [ClientGraph] takes. Given one labelled point it returns that point's
// coordinates w; the manifest says how they are used and the norm to clip them to. Of the
// parameters only those of coordinates go to clients.
func PrivateEmbedding(m *onnx.Model, classes int, names []string) (*onnx.Model, error) {
	c, values, err := PrivateValues(m)
	if err != nil {
		return nil, err
	}
	if classes < 2 || classes > maxWidth {
		return nil, fmt.Errorf("private predictor: a client graph of %d classes; "+
			"allowed are 2 to %d", classes, maxWidth)
	}
	g := newPrivate(c, "private", values, nil)
	g.C = classes
	g.upload(true, g.phi)
	e, err := g.b.Model()
	if err != nil {
		return nil, err
	}
	for name := range c.private() {
		if name != ConjCentre && name != ConjRadius && name != ConjMap && name != ConjOrigin {
			delete(e.Graph.Initializers, name)
		}
	}
	f, err := ReadManifest(m)
	if err != nil {
		return nil, err
	}
	f.Kind, f.C, f.S, f.ClassMeans, f.Classes, f.Clip = KindEmbedding, classes, classes, true,
		names, float64(values[PrivateClip].F32()[0])
	return e, f.Write(e)
}

// PrivateLoss configures the graph of the training loss of a private predictor's scalars.
type PrivateLoss struct {
	ConjugateConfig
	Values map[string]*onnx.Tensor // the initial parameters
	// Samples is S, Joint the number J of points in a batch of the joint score.
	Samples, Joint int
	// All makes every scalar a parameter, temperature and prior included.
	All bool
}

// Model builds the loss of [ConjugateLoss], with inputs sums [T, C, k] and noise [T] (the variance
// of a sum), counts [T, S, C] (one draw of the class counts for each sample), targets [T, h, k]
// (coordinates w), target_labels [T, h, C], batches [T, h, B] and latent [T, S, C, k]; outputs
// loss, nll and joint. The scalars are its parameters. With s the sums, v their noise and q = n/(n
// + v) the posterior in it has
//
//	variance = 1/(1/beta + n q),   mean = variance q s
func (l PrivateLoss) Model() (*onnx.Model, []string, error) {
	if err := l.checkPrivate(l.Values); err != nil {
		return nil, nil, err
	}
	params := PrivateScalars(l.All)
	constants := map[string]bool{}
	for name := range l.private() {
		constants[name] = !slices.Contains(params, name)
	}
	g := newPrivate(l.ConjugateConfig, "private-loss", l.Values, constants)
	b := g.b
	sums, noise := b.Input("sums", onnx.Float32, "tasks", "C", l.K),
		b.Input("noise", onnx.Float32, "tasks")
	counts := b.Unsqueeze(b.Input("counts", onnx.Float32, "tasks", l.Samples, "C"), 3)
	targets, truth := b.Input("targets", onnx.Float32, "tasks", "h", l.K),
		b.Input("target_labels", onnx.Float32, "tasks", "h", "C")
	batches := b.Input("batches", onnx.Float32, "tasks", "h", "B")
	latent := b.Input("latent", onnx.Float32, "tasks", l.Samples, "C", l.K)
	// n/(n + v_s)
	share := b.Div(counts, b.Add(counts, b.Add(b.Unsqueeze(noise, 1, 2, 3), b.F32(minWeight))))
	variance := b.Div(b.F32(1), b.Add(b.Div(b.F32(1), g.prior(PrivateSet)), b.Mul(counts, share)))
	mean := b.Mul(b.Mul(variance, share), b.Unsqueeze(sums, 1))
	w, bias := g.noisyHead(moments{mean, variance}, latent)
	z := g.logits(b.MatMul(targets, g.refs[ConjMetric]), w, bias)
	g.scores(PrivateSet, l.Samples, l.Joint, z, truth, batches)
	m, err := b.Model()
	return m, params, err
}

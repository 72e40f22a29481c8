package models

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/check"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
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

// Names of the scalars within a set, all [].
const (
	ConjLogRho     = "log_rho"
	ConjLogTau     = "log_tau"
	ConjLogB       = "log_b"
	ConjLogitGamma = "logit_gamma"
	ConjO1         = "o1"
	ConjO2         = "o2"
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

// Outputs of a conjugate predictor's graph, which [ConjugatePart] cuts out. Every part takes only
// the inputs that its outputs need.
const (
	// ConjCoordinates: features [n, dx] -> coordinates [n, k], the rows w R that the heads take.
	ConjCoordinates = "coordinates"
	// ConjCompressed and the next two: client_points [clients, m, dx+C], client_weights [clients,
	// m] (0: padding) -> the upload, one point per class: compressed [clients, C, k+C] (class means
	// of w, then labels), or, for a server that may have another predictor, compressed_phi
	// [clients, C, dx+C] (class means of phi), and masses [clients, C].
	ConjCompressed    = "compressed"
	ConjCompressedPhi = "compressed_phi"
	ConjMasses        = "masses"
	// ConjHeads: points [1, N, k+C], weights [1, N] (the pooled uploads), latent [S, C, k] ~ N(0,
	// 1) -> heads [S, k+1, C] on the coordinates, bias last: the posterior samples in the limit of
	// infinitely many drawn points.
	ConjHeads = "heads"
	// ConjDrawn and the next three: the same inputs and noise [S, f, k] ~ N(0, 1) -> drawn [S, 2f,
	// k+C], antithetic points in the heads' coordinates with labels in turn, and drawn_weights [S,
	// 2f]; context [C, k+C] and context_masses [C] are the pooled uploads in these coordinates.
	ConjDrawn         = "drawn"
	ConjDrawnWeights  = "drawn_weights"
	ConjContext       = "context"
	ConjContextMasses = "context_masses"
	// ConjMeanHead: points, weights -> mean_head [1, k+1, C], the head of the posterior means.
	ConjMeanHead = "mean_head"
	// ConjLow and the rest: features, points, weights, latent, uniform [S] in (0, 1), width [] ->
	// low, high [n, C], an interval of each class probability, and the same of log p/(1-p):
	// log_odds_low, log_odds_high. Samples are few and skewed, so width is a quantile of Student's
	// t with S - 1 degrees of freedom times sqrt(1 + 1/S). The intervals are meant to cover the
	// limit of infinite data: the probabilities of interval_head [1, k+1, C] given the class means
	// of very many points.
	ConjLow          = "low"
	ConjHigh         = "high"
	ConjLogOddsLow   = "log_odds_low"
	ConjLogOddsHigh  = "log_odds_high"
	ConjIntervalHead = "interval_head"
)

// NewConjugate builds the graph of a conjugate predictor, with all its outputs, from its
// parameters; [ConjugatePart] cuts parts out of it. Parts that nobody asks for cost nothing once
// they are cut away. values are cloned.
func NewConjugate(c ConjugateConfig, values map[string]*onnx.Tensor) (*onnx.Model, error) {
	if err := c.checkValues(values); err != nil {
		return nil, err
	}
	g := newConjugate(c, "conjugate", values, slices.Sorted(maps.Keys(c.shapes()))...)
	b := g.b
	g.client()
	points, weights := b.Input("points", onnx.Float32, 1, "N", c.K+c.C),
		b.Input("weights", onnx.Float32, 1, "N")
	latent := b.Unsqueeze(b.Input("latent", onnx.Float32, "S", c.C, c.K), 0)
	mass, mean := g.pool(points, weights, c.K)
	p := g.posterior(ConjSample, mass, mean)
	w, bias := g.head(ConjSample, p, g.sample(ConjSample, p, latent))
	b.Output(ConjHeads, b.Squeeze(b.Concat(2, w, b.Unsqueeze(bias, 2)), 0))
	g.draws(p, mass, mean, g.sample(ConjSample, p, latent))
	for _, at := range [][2]string{{ConjMean, ConjMeanHead}, {ConjInterval, ConjIntervalHead}} {
		q := g.posterior(at[0], mass, mean)
		w, bias = g.head(at[0], q, b.Unsqueeze(q.mean, 1))
		b.Output(at[1], b.Squeeze(b.Concat(2, w, b.Unsqueeze(bias, 2)), 0))
	}
	at := g.coordinates(g.phi(b.Input("features", onnx.Float32, "n", c.Dx)))
	b.Output(ConjCoordinates, b.MatMul(at, g.refs[ConjMetric]))
	g.intervals(at, mass, mean, latent)
	return Manifest{Kind: KindConjugate, Dx: c.Dx, C: c.C, K: c.K}.of(b)
}

// ConjugateValues returns the sizes and the parameters of a conjugate predictor. The tensors are
// shared with the model.
func ConjugateValues(m *onnx.Model) (ConjugateConfig, map[string]*onnx.Tensor, error) {
	f, err := manifestOf(m, KindConjugate)
	c := ConjugateConfig{Dx: f.Dx, C: f.C, K: f.K}
	if err != nil {
		return c, nil, err
	}
	values := map[string]*onnx.Tensor{}
	for name := range c.shapes() {
		values[name] = m.Graph.Initializers[name]
	}
	return c, values, c.checkValues(values)
}

// ConjugatePart returns the part of a conjugate predictor that computes the named outputs, with the
// model's manifest.
func ConjugatePart(m *onnx.Model, outputs ...string) (*onnx.Model, error) {
	if _, _, err := ConjugateValues(m); err != nil {
		return nil, fmt.Errorf("conjugate predictor: %w", err)
	}
	part, err := cut(m, outputs...)
	if err != nil {
		return nil, fmt.Errorf("conjugate predictor: %w; make it anew with fmp train conjugate",
			err)
	}
	return part, nil
}

// ConjugateIntervals returns the part that computes coordinates and intervals of class
// probabilities for one round: features [n, dx] -> coordinates [n, k], low, high [n, C]. The part's
// other inputs, given, are built in as constants. One input alone, the features, must be left open.
func ConjugateIntervals(m *onnx.Model, given map[string]*onnx.Tensor) (*onnx.Model, error) {
	part, err := ConjugatePart(m, ConjCoordinates, ConjLow, ConjHigh)
	if err != nil {
		return nil, err
	}
	var open []onnx.ValueInfo
	for _, in := range part.Graph.Inputs {
		t := given[in.Name]
		if t == nil {
			open = append(open, in)
			continue
		}
		part.Graph.Initializers[in.Name] = t
	}
	if part.Graph.Inputs = open; len(open) != 1 || open[0].Name != "features" {
		return nil, fmt.Errorf("conjugate predictor: its intervals want %v beside features; give "+
			"all but these", open)
	}
	if err := shape.Infer(part); err != nil {
		return nil, fmt.Errorf("conjugate predictor: intervals: %w", err)
	}
	return part, check.Model(part)
}

// ConjugateEmbedding returns the client's part of a conjugate predictor as an embedding, which
// [ClientGraph] and pipeline/compress take: one slot per class, of mass 0 where the client has no
// point of it. By default points are class means of w, k numbers; with phi, of phi, dx numbers,
// which a server with another predictor can read as well.
func ConjugateEmbedding(m *onnx.Model, phi bool) (*onnx.Model, error) {
	f, err := ReadManifest(m)
	if err != nil {
		return nil, err
	}
	out := ConjCompressed
	if phi {
		out, f.K = ConjCompressedPhi, 0
	}
	e, err := ConjugatePart(m, out, ConjMasses)
	if err != nil {
		return nil, err
	}
	names := map[string]string{"client_points": "points", "client_weights": "weights"}
	if phi {
		names[ConjCompressedPhi] = ConjCompressed
	}
	pass.Rename(e.Graph, names)
	f.Kind, f.S, f.ClassMeans = KindEmbedding, f.C, true
	return e, f.Write(e)
}

// conjugate builds the graphs. All values have a leading axis of T tasks; T is 1 except in
// training.
type conjugate struct {
	ConjugateConfig
	b    *build.Builder
	refs map[string]build.Ref
}

// newConjugate starts a graph whose initializers are the named parameters.
func newConjugate(c ConjugateConfig, graph string, values map[string]*onnx.Tensor,
	names ...string) conjugate {
	g := conjugate{ConjugateConfig: c, b: build.New(graph), refs: map[string]build.Ref{}}
	for _, name := range names {
		g.refs[name] = g.b.Param(name, values[name].Clone())
	}
	return g
}

// moments are the posterior mean and variance [T, C, k] of the class means.
type moments struct{ mean, variance build.Ref }

// exp returns the exponential of a parameter, of which the logarithm is learned: it is above 0.
func (g conjugate) exp(name string) build.Ref { return g.b.Exp(g.refs[name]) }

// phi softens the norm of features [..., dx].
func (g conjugate) phi(h build.Ref) build.Ref {
	return softened(g.b, h, g.refs[ConjCentre], g.refs[ConjRadius])
}

// softened returns (h - c) / sqrt(1 + |h - c|^2/r^2) of features h [..., dx].
func softened(b *build.Builder, h, centre, r build.Ref) build.Ref {
	d := b.Sub(h, centre)
	return b.Div(d, b.Sqrt(b.Add(b.F32(1), b.Div(b.ReduceSum(b.Mul(d, d), true, -1), b.Mul(r, r)))))
}

// coordinates returns w [..., k] of phi.
func (g conjugate) coordinates(phi build.Ref) build.Ref {
	return g.b.Sub(g.b.MatMul(phi, g.refs[ConjMap]), g.refs[ConjOrigin])
}

// pool returns the masses [T, C] and means [T, C, width] of labelled, weighted points [T, N,
// width+C]. A mass below 1e-9, of a class that nobody holds, divides as 1e-9: its mean is 0.
func (g conjugate) pool(points, weights build.Ref, width int) (mass, mean build.Ref) {
	b := g.b
	return g.classMeans(b.Slice(points, 2, 0, width),
		b.Mul(b.Slice(points, 2, width, width+g.C), b.Unsqueeze(weights, 2)))
}

// classMeans returns the masses and means of rows [T, N, width] with weighted labels [T, N, C].
// With L the labels it is
//
//	mass_c = sum_n L_nc,   mean_c = sum_n L_nc rows_n / max(mass_c, 1e-9)
func (g conjugate) classMeans(rows, labels build.Ref) (mass, mean build.Ref) {
	b := g.b
	mass = b.ReduceSum(labels, false, 1)
	sums := b.MatMul(b.Transpose(labels, 0, 2, 1), rows)
	return mass, b.Div(sums, b.Unsqueeze(b.Op("Max", []build.Ref{mass, b.F32(1e-9)}), 2))
}

// prior returns beta, [k]. It is b ((1 - g) lambda + g mean lambda), with g the logistic of the
// parameter.
func (g conjugate) prior(set string) build.Ref {
	b := g.b
	lambda, gamma := g.exp(ConjLogLambda), b.Op("Sigmoid", []build.Ref{g.refs[set+ConjLogitGamma]})
	mixed := b.Add(b.Mul(b.Sub(b.F32(1), gamma), lambda),
		b.Mul(gamma, b.ReduceMean(lambda, true, 0)))
	return b.Mul(g.exp(set+ConjLogB), mixed)
}

// posterior returns the moments of the class means given masses [T, C] and means [T, C, k] of w. It
// is n beta/(n beta + 1) times the mean, and beta/(n beta + 1), as images have covariance I.
func (g conjugate) posterior(set string, mass, mean build.Ref) moments {
	b, beta := g.b, g.prior(set)
	nb := b.Mul(b.Unsqueeze(mass, 2), beta)
	shrunk := b.Add(nb, b.F32(1))
	return moments{b.Mul(b.Div(nb, shrunk), mean), b.Div(beta, shrunk)}
}

// sample returns the class means [T, S, C, k] of latent, [T or 1, S, C, k]. Tau scales the variance
// that samples have, 1 being the posterior.
func (g conjugate) sample(set string, p moments, latent build.Ref) build.Ref {
	b := g.b
	spread := b.Sqrt(b.Mul(g.exp(set+ConjLogTau), p.variance))
	return b.Add(b.Unsqueeze(p.mean, 1), b.Mul(b.Unsqueeze(spread, 1), latent))
}

// sizes returns |R_j|^2 as [k, 1].
func (g conjugate) sizes() build.Ref {
	r := g.refs[ConjMetric]
	return g.b.ReduceSum(g.b.Mul(r, r), true, 1)
}

// offset returns the logits' offsets, [T, C].
func (g conjugate) offset(set string, p moments) build.Ref {
	b := g.b
	scale := b.Mul(b.F32(0.5),
		b.Mul(b.Mul(g.exp(set+ConjLogRho), g.exp(set+ConjLogTau)), g.refs[set+ConjO1]))
	one := b.Mul(scale, b.Squeeze(b.MatMul(p.variance, g.sizes()), 2))
	two := b.Mul(g.refs[set+ConjO2], b.ReduceSum(b.Log(b.Add(p.variance, b.F32(1))), false, 2))
	return b.Add(one, two)
}

// head returns weights [T, S, k, C] on w R and biases [T, S, C] for class means mu [T, S, C, k].
// For rows r in the heads' coordinates the logit is rho (r . a_c - |a_c|^2/2) + offset_c with a_c =
// mu_c R.
func (g conjugate) head(set string, p moments, mu build.Ref) (weights, bias build.Ref) {
	return g.headWith(set, mu, g.offset(set, p))
}

// headWith is head with given offsets.
func (g conjugate) headWith(set string, mu, offset build.Ref) (weights, bias build.Ref) {
	b, rho := g.b, g.exp(set+ConjLogRho)
	a := b.MatMul(mu, g.refs[ConjMetric])
	square := b.ReduceSum(b.Mul(a, a), false, 3)
	bias = b.Sub(b.Unsqueeze(offset, 1), b.Mul(b.Mul(rho, b.F32(0.5)), square))
	return b.Mul(rho, b.Transpose(a, 0, 1, 3, 2)), bias
}

// logits returns the logits [T, S, n, C] of rows [T, n, k] in the heads' coordinates.
func (g conjugate) logits(rows, weights, bias build.Ref) build.Ref {
	return g.b.Add(g.b.MatMul(g.b.Unsqueeze(rows, 1), weights), g.b.Unsqueeze(bias, 2))
}

// client adds the part that computes uploads.
func (g conjugate) client() {
	b := g.b
	points := b.Input("client_points", onnx.Float32, "clients", "m", g.Dx+g.C)
	weights := b.Input("client_weights", onnx.Float32, "clients", "m")
	mean, mass, names := g.means(points, weights, g.phi)
	b.Output(ConjCompressed, b.Concat(2, g.coordinates(mean), names))
	b.Output(ConjCompressedPhi, b.Concat(2, mean, names))
	b.Output(ConjMasses, mass)
}

// means returns the class means of embedded features [clients, C, dx], such as phi, masses
// [clients, C] and labels [clients, C, C] of clients' points.
func (g conjugate) means(points, weights build.Ref,
	embed func(features build.Ref) build.Ref) (mean, mass, names build.Ref) {
	b := g.b
	labels := b.Mul(b.Slice(points, 2, g.Dx, g.Dx+g.C), b.Unsqueeze(weights, 2))
	mass, mean = g.classMeans(embed(b.Slice(points, 2, 0, g.Dx)), labels)
	names = b.Op("Expand", []build.Ref{g.eye(),
		b.Concat(0, b.Op("Shape", []build.Ref{mass}), b.Axes(g.C))})
	return mean, mass, names
}

// upload adds the outputs of a client's part: points and masses of labelled, weighted points, class
// means of w where coordinates is set, else of embedded features.
func (g conjugate) upload(coordinates bool, embed func(features build.Ref) build.Ref) {
	b := g.b
	mean, mass, labels := g.means(b.Input("points", onnx.Float32, "clients", "m", g.Dx+g.C),
		b.Input("weights", onnx.Float32, "clients", "m"), embed)
	if coordinates {
		mean = g.coordinates(mean)
	}
	b.Output(ConjCompressed, b.Concat(2, mean, labels))
	b.Output(ConjMasses, mass)
}

// maxNamed is the number of classes up to which the names of a client's classes are stored in its
// graph, where [ParseClient] looks for them. Of more classes they would be most of a model.
const maxNamed = 1 << 10

// eye returns [C, C] with ones on the diagonal. Where classes are many the nodes compute it, so
// that no file holds classes by classes.
func (g conjugate) eye() build.Ref {
	if g.C > maxNamed {
		return g.b.Op("EyeLike", []build.Ref{g.square(0)})
	}
	t := onnx.ZerosF32(g.C, g.C)
	for i := range g.C {
		t.F32()[i*g.C+i] = 1
	}
	return g.b.Const(t)
}

// upper returns [C, C] with ones from the diagonal on.
func (g conjugate) upper() build.Ref { return g.b.Op("Trilu", []build.Ref{g.square(1)}) }

// square returns [C, C] of one number.
func (g conjugate) square(v float32) build.Ref {
	return g.b.Op("ConstantOfShape", []build.Ref{g.b.Axes(g.C, g.C)},
		onnx.TensorAttr("value", onnx.Vector(v)))
}

// draws adds the points that a fit would take. Their classes alternate in a fixed order, so that
// labels add no noise; a class's weight is the exponential of its offset, which the fit turns back
// into the offset.
func (g conjugate) draws(p moments, mass, mean, mu build.Ref) {
	b := g.b
	noise := b.Input("noise", onnx.Float32, "S", "f", g.K)
	count := b.Slice(b.Op("Shape", []build.Ref{noise}), 0, 1, 2)
	turn := b.Op("Mod", []build.Ref{b.Op("Range",
		[]build.Ref{b.Const(onnx.Scalar[int64](0)), b.Squeeze(count, 0),
			b.Const(onnx.Scalar[int64](1))}), b.Const(onnx.Scalar(int64(g.C)))})
	around := b.Op("Gather", []build.Ref{b.MatMul(b.Squeeze(mu, 0), g.refs[ConjMetric]), turn},
		onnx.IntAttr("axis", 1))
	e := b.Mul(b.Exp(b.Mul(b.F32(-0.5), g.refs[ConjSample+ConjLogRho])), noise)
	labels := b.Op("Gather", []build.Ref{g.eye(), turn}, onnx.IntAttr("axis", 0))
	shape := b.Concat(0, b.Op("Shape", []build.Ref{noise}, onnx.IntAttr("end", 1)), count)
	all := b.Op("Expand", []build.Ref{labels, b.Concat(0, shape, b.Axes(g.C))})
	b.Output(ConjDrawn, b.Concat(1, b.Concat(2, b.Add(around, e), all),
		b.Concat(2, b.Sub(around, e), all)))
	share := b.Mul(b.F32(float32(g.C)), b.Softmax(b.Squeeze(g.offset(ConjSample, p), 0), 0))
	half := b.Op("Expand", []build.Ref{b.Op("Gather", []build.Ref{share, turn},
		onnx.IntAttr("axis", 0)), shape})
	b.Output(ConjDrawnWeights, b.Concat(1, half, half))
	b.Output(ConjContext, b.Squeeze(b.Concat(2, b.MatMul(mean, g.refs[ConjMetric]),
		b.Unsqueeze(g.eye(), 0)), 0))
	b.Output(ConjContextMasses, b.Squeeze(mass, 0))
}

// normalTenth is the number of standard deviations that a normal variable exceeds, in absolute
// value, in a tenth of all draws.
const normalTenth = 1.6448536

// intervals adds the bounds of class probabilities at w [n, k].
//
// Quantiles of the heads' own probabilities are too narrow, for two reasons. Classes differ in
// their covariance, and the error of a class mean lies in the directions in which the points of the
// class scatter; the variance of the means is therefore widened as if n were n/h. And a point to be
// classified lies near its own class mean, which the data do not determine yet: where that effect
// is small (d_c <= 1), d_c times the class's mean probability is added to its logit; otherwise one
// class is drawn for each sample from the mean probabilities, and its class mean is conditioned on
// the point. The bounds are mean -+ width times the standard deviation of the log odds over
// samples. Where classes are hard to tell apart, the one that infinite data rank first lies above
// its own mean: the samples show by how much, each for the class that it ranks first, and where a
// tenth of them lie further off than a normal's tenth, width is multiplied by the ratio.
func (g conjugate) intervals(at, mass, mean, latent build.Ref) {
	b, set := g.b, ConjInterval
	uniform := b.Input("uniform", onnx.Float32, "S")
	width := b.Input("width", onnx.Float32)
	metric, rho := g.refs[ConjMetric], g.exp(set+ConjLogRho)
	p := g.posterior(set, mass, mean)
	rows := b.Unsqueeze(b.MatMul(at, metric), 0)
	w, bias := g.head(set, p, g.sample(set, p, latent))
	pbar := b.ReduceMean(b.Softmax(g.logits(rows, w, bias), 3), false, 0, 1) // [n, C]

	wide, offset := g.widened(p, mass, rho)
	mu := b.Add(p.mean, b.Mul(b.Sqrt(wide), b.Squeeze(latent, 0))) // [S, C, k]
	w, bias = g.headWith(set, b.Unsqueeze(mu, 0), b.Unsqueeze(offset, 0))
	z := b.Squeeze(g.logits(rows, w, bias), 0) // [S, n, C]

	// y ~ pbar(x), as the indicator own [S, n, C] of the one class between whose cumulative
	// probabilities a sample's uniform is.
	upper := b.Slice(g.upper(), 1, 0, g.C-1)
	over := b.Cast(b.Op("GreaterOrEqual",
		[]build.Ref{b.Unsqueeze(uniform, 1, 2), b.Unsqueeze(b.MatMul(pbar, upper), 0)}),
		onnx.Float32)
	own := b.Sub(b.Op("Pad", []build.Ref{over, b.Axes(0, 0, 1, 0, 0, 0), b.F32(1)}),
		b.Op("Pad", []build.Ref{over, b.Axes(0, 0, 0, 0, 0, 1), b.F32(0)}))
	pull := g.trace(rho, wide) // d_c
	far := b.Cast(b.Op("Greater", []build.Ref{pull, b.F32(1)}), onnx.Float32)
	gain := b.Div(wide, b.Add(wide, b.F32(1)))                      // K_c, [C, k]
	centre := b.Squeeze(p.mean, 0)                                  // m_c, [C, k]
	kept := b.Mul(b.Sqrt(b.Sub(b.F32(1), gain)), b.Sub(mu, centre)) // [S, C, k]
	// the part that does not depend on the point
	still := b.Add(b.Mul(b.Sub(b.F32(1), gain), centre), kept)
	// the drawn class's mean, [S, n, k]
	moved := b.Add(b.MatMul(own, still), b.Mul(b.MatMul(own, gain), at))
	a := b.MatMul(moved, metric) // in the heads' coordinates
	dot := b.Sub(b.ReduceSum(b.Mul(rows, a), true, 2),
		b.Mul(b.F32(0.5), b.ReduceSum(b.Mul(a, a), true, 2)))
	replaced := b.Add(b.Mul(rho, dot), offset) // [S, n, C], meant for the drawn class alone
	z = b.Add(z, b.Mul(b.Mul(own, far), b.Sub(replaced, z)))
	z = b.Add(z, b.Mul(b.Mul(b.Sub(b.F32(1), far), pull), pbar))

	odds := g.logOdds(z)
	g.ends(odds, b.ReduceMean(odds, false, 0), width, Ends{})
}

// widened returns the variances S_c of intervals, [C, k], and the offsets [C] of their heads'
// logits, for the posterior p of plain variances.
func (g conjugate) widened(p moments, mass, rho build.Ref) (wide, offset build.Ref) {
	b, beta := g.b, g.prior(ConjInterval)
	wide = b.Squeeze(b.Div(beta,
		b.Add(b.Mul(b.Unsqueeze(b.Div(mass, g.refs[ConjWidening]), 2), beta), b.F32(1))), 0)
	extra := b.Mul(b.F32(0.5), g.trace(rho, b.Sub(wide, b.Squeeze(p.variance, 0))))
	return wide, b.Add(b.Squeeze(g.offset(ConjInterval, p), 0), extra)
}

// trace returns rho tr(G v_c), [C], for variances v [C, k].
func (g conjugate) trace(rho, v build.Ref) build.Ref {
	return g.b.Mul(rho, g.b.Squeeze(g.b.MatMul(v, g.sizes()), 1))
}

// Ends are how far the interval of an image's most probable class reaches below and above its
// middle, in units of its own half width; the zero value stands for one unit each. Intervals of
// other classes reach as far the other way round: probability that one class gains is lost by the
// others.
type Ends struct {
	Down float32 `json:"down"`
	Up   float32 `json:"up"`
}

// SizedEnds are the ends of rounds of FewImages and of ManyImages a class; the zero value stands
// for one unit each.
type SizedEnds struct{ Few, Many Ends }

// FewImages and ManyImages of a class are those of [SizedEnds].
const (
	FewImages  = 2
	ManyImages = 64
)

// At returns the ends of a round of a number of images a class, on the line in its logarithm; those
// of few or many beyond these.
func (s SizedEnds) At(images float64) Ends {
	t := float32(min(max(math.Log(images/FewImages)/math.Log(ManyImages/FewImages), 0), 1))
	return Ends{s.Few.Down + t*(s.Many.Down-s.Few.Down), s.Few.Up + t*(s.Many.Up-s.Few.Up)}
}

// half returns how far intervals reach down and up, from their half widths [n, C] about middle.
func (e Ends) half(b *build.Builder, middle, half build.Ref) (down, up build.Ref) {
	if e == (Ends{}) {
		return half, half
	}
	is := b.Cast(b.Op("GreaterOrEqual", []build.Ref{middle, b.ReduceMax(middle, true, 1)}),
		onnx.Float32)
	times := func(top, other float32) build.Ref {
		return b.Mul(half, b.Add(b.F32(other), b.Mul(b.F32(top-other), is)))
	}
	return times(e.Down, e.Up), times(e.Up, e.Down)
}

// ends adds the ends of intervals about middle [n, C], from the log odds [S, n, C] of samples. s is
// the standard deviation of the samples' log odds. A tenth of the samples lie r of them or more
// off, at the class that they rank first. The half width is
//
//	width s max(1, r/normalTenth)
//
// The ends are those of the log odds; low and high are their logistics.
func (g conjugate) ends(odds, middle, width build.Ref, e Ends) {
	b := g.b
	off := b.Sub(odds, b.ReduceMean(odds, true, 0))
	samples := b.Slice(b.Op("Shape", []build.Ref{odds}), 0, 0, 1)
	spread := b.Sqrt(b.Div(b.ReduceSum(b.Mul(off, off), false, 0),
		b.Sub(b.Cast(samples, onnx.Float32), b.F32(1))))
	first := b.Cast(b.Op("GreaterOrEqual", []build.Ref{odds, b.ReduceMax(odds, true, 2)}),
		onnx.Float32)
	scale := b.Op("Max", []build.Ref{spread, b.F32(minWeight)})
	// [S, n]
	away := b.ReduceMax(b.Mul(first, b.Op("Abs", []build.Ref{b.Div(off, scale)})), false, 2)
	tenth := b.Add(b.Div(samples, b.Axes(10)), b.Axes(1))
	outer := b.OpN("TopK", []build.Ref{away, tenth}, 2, onnx.IntAttr("axis", 0))[0]
	// [n]
	reach := b.Op("ReduceMin", []build.Ref{outer}, onnx.IntsAttr("axes", 0),
		onnx.IntAttr("keepdims", 0))
	half := b.Mul(b.Mul(width, spread),
		b.Unsqueeze(b.Op("Max", []build.Ref{b.Mul(b.F32(1/normalTenth), reach), b.F32(1)}), 1))
	down, up := e.half(b, middle, half)
	low, high := b.Sub(middle, down), b.Add(middle, up)
	b.Output(ConjLogOddsLow, low)
	b.Output(ConjLogOddsHigh, high)
	b.Output(ConjLow, b.Op("Sigmoid", []build.Ref{low}))
	b.Output(ConjHigh, b.Op("Sigmoid", []build.Ref{high}))
}

// HeadIntervals returns the graph that computes coordinates and intervals of class probabilities
// about given heads: features [n, dx] -> coordinates [n, k], low, high and their log odds [n, C].
// The intervals lie about the mean log odds of heads and are as wide as those of spread, both [S,
// k+1, C] on the coordinates, disagree, times ends; width is as in [NewConjugate].
func HeadIntervals(m *onnx.Model, heads, spread *onnx.Tensor, width float32,
	ends Ends) (*onnx.Model, error) {
	c, values, err := ConjugateValues(m)
	if err != nil {
		return nil, fmt.Errorf("conjugate predictor: %w", err)
	}
	g := newConjugate(c, "intervals", values, ConjCentre, ConjRadius, ConjMap, ConjOrigin,
		ConjMetric)
	b := g.b
	rows := b.MatMul(g.coordinates(g.phi(b.Input("features", onnx.Float32, "n", c.Dx))),
		g.refs[ConjMetric])
	b.Output(ConjCoordinates, rows)
	odds := func(name string, t *onnx.Tensor) build.Ref {
		at := b.Param(name, t)
		z := b.MatMul(b.Unsqueeze(rows, 0), b.Slice(at, 1, 0, c.K))
		return g.logOdds(b.Add(z, b.Slice(at, 1, c.K, c.K+1)))
	}
	g.ends(odds("spread", spread), b.ReduceMean(odds("heads", heads), false, 0), b.F32(width), ends)
	return b.Model()
}

// logOdds returns log p/(1-p) of logits along the last axis. For the largest probability, 1 - p is
// computed as the sum of the others: the difference would have no correct digits where p is close
// to 1.
func (g conjugate) logOdds(z build.Ref) build.Ref {
	b := g.b
	top := b.Sub(z, b.ReduceMax(z, true, 2))
	e := b.Exp(top)
	is := b.Cast(b.Op("GreaterOrEqual", []build.Ref{top, b.F32(0)}), onnx.Float32)
	others := b.ReduceSum(b.Mul(e, b.Sub(b.F32(1), is)), true, 2)
	ties := b.ReduceSum(is, true, 2)
	// For a class that is not the largest, the rest are the others, less itself, and all largest
	// ones.
	rest := b.Add(b.Sub(others, b.Mul(e, b.Sub(b.F32(1), is))), b.Sub(ties, is))
	return b.Sub(top, b.Log(b.Op("Max", []build.Ref{rest, b.F32(minWeight)})))
}

// ConjugateLoss configures the graph of the training loss.
type ConjugateLoss struct {
	ConjugateConfig
	// Values are the initial parameters.
	Values map[string]*onnx.Tensor
	// Set is the prefix, such as [ConjSample], of the scalars that the heads use.
	Set string
	// Learn lists the scalars of the set that are learned, by their names without the prefix.
	Learn []string
	// Moves lists the matrices that are learned too, each with a factor: the parameter is its
	// initial value plus the factor times a learned matrix of its shape that starts at zero, so
	// that one learning rate of Adam suits all.
	Moves map[string]float64
	// Samples is S, Joint the number J of points in a batch of the joint score.
	Samples, Joint int
}

// ConjMove is the prefix of the name of the learned matrix that is added to a parameter (see
// [ConjugateLoss].Moves).
const ConjMove = "move/"

// Model builds the loss
//
//	-log mean_s p_s(y|x), averaged over points,
//	- 1/J log mean_s prod_{j of a batch} p_s(y_j|x_j), averaged over batches,
//	+ 0.01 (o1^2 + o2^2)
//
// with inputs rows [T, n, dx] and labels [T, n, C] of the clients of T tasks, targets [T, h, dx],
// target_labels [T, h, C], batches [T, h, B] (how often a point is in a batch) and latent [T, S, C,
// k]; outputs loss, nll and joint. It returns the names of the parameters to be learned.
func (l ConjugateLoss) Model() (*onnx.Model, []string, error) {
	if err := l.checkValues(l.Values); err != nil {
		return nil, nil, err
	}
	if l.Samples < 1 || l.Joint < 1 {
		return nil, nil, fmt.Errorf("loss of the conjugate predictor with %d samples and batches "+
			"of %d points; allowed are numbers from 1", l.Samples, l.Joint)
	}
	b := build.New("conjugate-loss")
	g := conjugate{ConjugateConfig: l.ConjugateConfig, b: b, refs: map[string]build.Ref{}}
	var params []string
	for _, name := range slices.Sorted(maps.Keys(l.shapes())) {
		t := l.Values[name]
		if by := l.Moves[name]; by != 0 {
			params = append(params, ConjMove+name)
			g.refs[name] = b.Add(b.Const(t),
				b.Mul(b.F32(float32(by)), b.Param(ConjMove+name, onnx.ZerosF32(t.Shape...))))
			continue
		}
		g.refs[name] = b.Param(name, t)
	}
	for _, name := range l.Learn {
		params = append(params, l.Set+name)
	}
	rows, labels := b.Input("rows", onnx.Float32, "tasks", "n", l.Dx),
		b.Input("labels", onnx.Float32, "tasks", "n", l.C)
	targets, truth := b.Input("targets", onnx.Float32, "tasks", "h", l.Dx),
		b.Input("target_labels", onnx.Float32, "tasks", "h", l.C)
	batches := b.Input("batches", onnx.Float32, "tasks", "h", "B")
	latent := b.Input("latent", onnx.Float32, "tasks", l.Samples, l.C, l.K)
	mass, mean := g.classMeans(g.phi(rows), labels)
	p := g.posterior(l.Set, mass, g.coordinates(mean))
	w, bias := g.head(l.Set, p, g.sample(l.Set, p, latent))
	z := g.logits(b.MatMul(g.coordinates(g.phi(targets)), g.refs[ConjMetric]), w, bias)
	g.scores(l.Set, l.Samples, l.Joint, z, truth, batches)
	m, err := b.Model()
	return m, params, err
}

// scores adds the outputs nll, joint and loss, which includes a penalty on o1 and o2 of a set, for
// logits z [T, S, h, C]. lp is the log-probability of the true class, and nll and joint are in nats
// a point.
func (g conjugate) scores(set string, samples, joint int, z, truth, batches build.Ref) {
	b, o1, o2 := g.b, g.refs[set+ConjO1], g.refs[set+ConjO2]
	// [T, S, h]
	lp := b.ReduceSum(b.Mul(b.Op("LogSoftmax", []build.Ref{z}, onnx.IntAttr("axis", 3)),
		b.Unsqueeze(truth, 1)), false, 3)
	score := func(lp build.Ref, points int) build.Ref {
		mix := b.Op("ReduceLogSumExp", []build.Ref{lp}, onnx.IntsAttr("axes", 1),
			onnx.IntAttr("keepdims", 0))
		return b.Mul(b.F32(-1/float32(points)),
			b.Sub(b.ReduceMean(mix, false, 0, 1), b.F32(float32(math.Log(float64(samples))))))
	}
	nll, all := score(lp, 1), score(b.MatMul(lp, batches), joint)
	b.Output("loss", b.Add(b.Add(nll, all), b.Mul(b.F32(0.01),
		b.Add(b.Mul(o1, o1), b.Mul(o2, o2)))))
	b.Output("nll", nll)
	b.Output("joint", all)
}

package models

import (
	"fmt"
	"maps"
	"slices"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/check"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
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

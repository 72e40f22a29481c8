package models

import (
	"fmt"
	"math"

	"fmp/onnx"
	"fmp/onnx/build"
)

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

package models

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/pass"
)

// A wide classifier is that of a conjugate predictor with many classes and coordinates, whose heads
// would take samples x classes x coordinates numbers, several times over. It keeps their sources:
// the moments of the class means, and the latents as steps of one byte. A head's logit of features
// x is linear in its class mean,
//
//	logit_c = rho w R R' (m_c + s_c latent_c) + bias_c,
//
// so that nothing but latents, moments and biases is kept, and no head is ever written out. Classes
// are computed a block at a time.

// LatentStep is the step in which a wide classifier keeps latents, and MaxLatent the largest number
// of steps.
const (
	LatentStep = 1. / 32
	MaxLatent  = 127
)

// wideFrom is the number of weights of all heads above which a classifier is wide, 32 MiB in
// float32, and maxLatents that of latents that it has by default, 32 MiB.
const (
	wideFrom   = 1 << 23
	maxLatents = 1 << 25
)

// wideBlock is how many classes a wide classifier computes at a time.
const wideBlock = 25

// Wide reports whether samples heads of these sizes make a wide classifier. The number counts a
// bias for each head.
func (c ConjugateConfig) Wide(samples int) bool { return samples*c.C*(c.K+1) > wideFrom }

// WideSamples returns the number of samples up to which the latents of these sizes take no more
// than 32 MiB, between 8 and most.
func (c ConjugateConfig) WideSamples(most int) int {
	return min(most, max(8, maxLatents/(c.C*c.K)))
}

// Steps rounds latents to steps of [LatentStep], in place: v becomes LatentStep n, with n the whole
// number nearest to v/LatentStep, from -MaxLatent to MaxLatent. A latent is thus within 4. 127
// steps of 1/32 are 3.97, which a normal number exceeds once in 14,000 times.
func Steps(latent []float32) {
	for i, v := range latent {
		latent[i] = LatentStep * float32(min(max(math.RoundToEven(float64(v)/LatentStep),
			-MaxLatent), MaxLatent))
	}
}

// WideParts are the parts of a wide classifier.
type WideParts struct {
	// Features turns images into features; nil: the classifier takes feature rows.
	Features *onnx.Model
	// Predictor is the conjugate predictor.
	Predictor *onnx.Model
	// Masses [C] and Means [C, k] of w are those of all uploads. Biases [3, S, C] are [WidePart]'s.
	Masses, Means, Biases *onnx.Tensor
	// Latent are S C k numbers in steps of LatentStep, Uniform one in (0, 1) for each sample, Width
	// as for [NewConjugate].
	Latent, Uniform []float32
	Width           float32
	// Samples adds the probabilities of each head as an output.
	Samples bool
}

// Inputs and an output of [WidePart].
const (
	WideMasses = "masses"
	WideMeans  = "means"
	WideBias   = "biases"
)

// WidePart returns the graph masses [C], means [C, k] of the pooled uploads, latent [S, C, k] ->
// either [ConjHeads] of [NewConjugate], or [WideBias] [3, S, C]: of the heads, of those that
// classes are drawn from for intervals, and of those of intervals. It is for a program that works
// the biases out before the classifier is built.
func WidePart(predictor *onnx.Model, output string) (*onnx.Model, error) {
	g, err := conjugateOf(predictor, output)
	if err != nil {
		return nil, err
	}
	b := g.b
	mass, mean := b.Unsqueeze(b.Input(WideMasses, onnx.Float32, g.C), 0),
		b.Unsqueeze(b.Input(WideMeans, onnx.Float32, g.C, g.K), 0)
	latent := b.Unsqueeze(b.Input("latent", onnx.Float32, "S", g.C, g.K), 0)
	var biases []build.Ref
	for _, set := range []string{ConjSample, ConjInterval} {
		p := g.posterior(set, mass, mean)
		w, bias := g.head(set, p, g.sample(set, p, latent))
		if output == ConjHeads {
			b.Output(ConjHeads, b.Squeeze(b.Concat(2, w, b.Unsqueeze(bias, 2)), 0))
			return g.only()
		}
		biases = append(biases, bias)
	}
	plain := g.posterior(ConjInterval, mass, mean)
	wide, offset := g.widened(plain, mass, g.exp(ConjInterval+ConjLogRho))
	mu := b.Add(plain.mean, b.Mul(b.Sqrt(wide), b.Squeeze(latent, 0)))
	_, bias := g.headWith(ConjInterval, b.Unsqueeze(mu, 0), b.Unsqueeze(offset, 0))
	b.Output(WideBias, b.Concat(0, append(biases, bias)...))
	return g.only()
}

// only returns the built graph without nodes that no output needs.
func (g conjugate) only() (*onnx.Model, error) {
	m, err := g.b.Model()
	if err == nil {
		pass.RemoveUnused(m.Graph)
	}
	return m, err
}

// conjugateOf returns a builder of graphs with the parameters of a conjugate predictor, those of
// the point head left out.
func conjugateOf(predictor *onnx.Model, name string) (conjugate, error) {
	c, values, err := ConjugateValues(predictor)
	if err != nil {
		return conjugate{}, fmt.Errorf("conjugate predictor: %w", err)
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(values)),
		func(n string) bool { return strings.HasPrefix(n, ConjMean) })
	return newConjugate(c, name, values, names...), nil
}

// NewWideClassifier builds a wide classifier, with the inputs and outputs of [NewClassifier].
// Tensors of p are copied. The class means of uploads stay in the graph as they are.
func NewWideClassifier(p WideParts, f Manifest) (m *onnx.Model, err error) {
	defer wrapped(&err, makingClassifier)
	g, err := conjugateOf(p.Predictor, "heads")
	if err != nil {
		return nil, err
	}
	samples := len(p.Uniform)
	if samples < 2 || len(p.Latent) != samples*g.C*g.K || p.Biases == nil ||
		!slices.Equal(p.Biases.Shape, []int{3, samples, g.C}) {
		return nil, fmt.Errorf("%d samples, %d numbers of latents, biases %v; want samples x %d "+
			"x %d latents and biases [3, samples, %d]",
			samples, len(p.Latent), p.Biases, g.C, g.K, g.C)
	}
	w := &wide{conjugate: g, samples: samples}
	w.build(p)
	if m, err = g.b.Model(); err != nil {
		return nil, err
	}
	dropOutputs(m.Graph, ConjLogOddsLow, ConjLogOddsHigh)
	pass.RemoveUnused(m.Graph)
	if p.Features != nil {
		if m, err = pass.Compose(p.Features, m,
			map[string]string{"features": p.Features.Graph.Outputs[0].Name}); err != nil {
			return nil, err
		}
	}
	return described(m, f, g.Dx, g.C, samples)
}

// wide builds the graph of a wide classifier.
type wide struct {
	conjugate
	samples int
	latent  build.Ref // [C S, k], int8
	// [1], int64: a 0 that only a run knows, lest a runtime computes values that do not depend on
	// features, at several times the memory, when it loads the model
	zero build.Ref
}

// build adds all outputs.
func (w *wide) build(p WideParts) {
	b := w.b
	features := b.Input("features", onnx.Float32, "n", w.Dx)
	w.zero = b.Op("Mul", []build.Ref{b.Op("Shape", []build.Ref{features}, onnx.IntAttr("start", 0),
		onnx.IntAttr("end", 1)), b.Axes(0)})
	at := w.coordinates(w.phi(features))
	rows := b.MatMul(at, w.refs[ConjMetric])
	mass, mean := b.Unsqueeze(b.Add(b.Param("masses", p.Masses.Clone()),
		b.Cast(w.zero, onnx.Float32)),
		0),
		b.Unsqueeze(b.Param("means", p.Means.Clone()), 0)
	w.latent = b.Param("latent", w.bytes(p.Latent))
	own, plain := w.posterior(ConjSample, mass, mean), w.posterior(ConjInterval, mass, mean)
	broad, offset := w.widened(plain, mass, w.exp(ConjInterval+ConjLogRho))
	spread := func(set string, v build.Ref) build.Ref {
		return b.Squeeze(b.Sqrt(b.Mul(w.exp(set+ConjLogTau), v)), 0)
	}
	flipped := onnx.IntAttr("transB", 1)
	along := b.Op("Gemm", []build.Ref{rows, w.refs[ConjMetric]}, flipped)
	moved := w.deviations(along, spread(ConjSample, own.variance),
		spread(ConjInterval, plain.variance), b.Sqrt(broad))
	// [1, S, C] each
	biases := b.OpN("Split", []build.Ref{b.Param("biases", p.Biases.Clone())}, 3,
		onnx.IntAttr("axis", 0))
	// [S, n, C] each
	var z []build.Ref
	for i, set := range []string{ConjSample, ConjInterval, ConjInterval} {
		centre := plain.mean
		if i == 0 {
			centre = own.mean
		}
		dot := b.Op("Gemm", []build.Ref{along, b.Squeeze(centre, 0)}, flipped) // [n, C]
		z = append(z, b.Add(b.Mul(w.exp(set+ConjLogRho), b.Add(dot, moved[i])),
			b.Unsqueeze(b.Squeeze(biases[i], 0), 1)))
	}
	answers(b, b.Transpose(b.Softmax(z[0], 2), 1, 0, 2), p.Samples)
	pbar := b.ReduceMean(b.Softmax(z[1], 2), false, 0)
	w.bounds(z[2], pbar, at, rows, known{plain: plain, wide: broad, offset: offset,
		uniform: b.Param("uniform", onnx.NewTensor(slices.Clone(p.Uniform), w.samples)),
		width:   b.F32(p.Width)})
}

// bytes returns latents [S, C, k] as steps, [C S, k]. Classes come first, so that a block of them
// is one slice.
func (w *wide) bytes(latent []float32) *onnx.Tensor {
	out := make([]int8, len(latent))
	for s := range w.samples {
		for c := range w.C {
			from, to := latent[(s*w.C+c)*w.K:][:w.K], out[(c*w.samples+s)*w.K:][:w.K]
			for j, v := range from {
				to[j] = int8(v / LatentStep)
			}
		}
	}
	return onnx.NewTensor(out, w.C*w.samples, w.K)
}

// numbers returns the latents that steps stand for.
func (w *wide) numbers(steps build.Ref) build.Ref {
	return w.b.Op("DequantizeLinear", []build.Ref{steps, w.b.F32(LatentStep)})
}

// deviations returns, for rows y [n, k] and each of some spreads [C, k], the sums over j of y_j
// spread_cj latent_scj, [S, n, C]. It computes [wideBlock] classes at a time, so that the latents
// are never all in float32.
func (w *wide) deviations(y build.Ref, spreads ...build.Ref) []build.Ref {
	b := w.b
	columns := b.Unsqueeze(b.Transpose(y, 1, 0), 0) // [1, k, n]
	var blocks []build.Ref
	for from := 0; from < w.C; from += wideBlock {
		to := min(from+wideBlock, w.C)
		var scaled []build.Ref
		for _, s := range spreads {
			// [block, k, n]
			scaled = append(scaled, b.Mul(b.Unsqueeze(b.Slice(s, 0, from, to), 2), columns))
		}
		steps := b.Op("Slice", []build.Ref{w.latent, b.Add(w.zero, b.Axes(from*w.samples)),
			b.Add(w.zero, b.Axes(to*w.samples)), b.Axes(0)})
		steps = b.Reshape(steps, to-from, w.samples, w.K)
		// [block, S, spreads n]
		blocks = append(blocks, b.MatMul(w.numbers(steps), b.Concat(2, scaled...)))
	}
	all := b.Transpose(b.Concat(0, blocks...), 1, 2, 0) // [S, spreads n, C]
	return b.OpN("Split", []build.Ref{all}, len(spreads), onnx.IntAttr("axis", 1))
}

// known is the posterior of the class means that intervals use: their moments, widened variances
// [C, k] and offsets [C], and one number a sample.
type known struct {
	plain                        moments
	wide, offset, uniform, width build.Ref
}

// bounds adds the ends of intervals, as intervals does, from the logits z [S, n, C] of the heads of
// intervals and mean probabilities [n, C]. The class that a sample draws for a point is known by
// its number, and its class mean made for it alone.
func (w *wide) bounds(z, pbar, at, rows build.Ref, d known) {
	b := w.b
	rho := w.exp(ConjInterval + ConjLogRho)
	// The class of a sample is the number of cumulative probabilities that its uniform number is
	// not below.
	upto := b.Slice(b.Op("CumSum", []build.Ref{pbar, b.Const(onnx.Scalar[int64](1))}), 1, 0, w.C-1)
	over := b.Cast(b.Op("GreaterOrEqual",
		[]build.Ref{b.Unsqueeze(d.uniform, 1, 2), b.Unsqueeze(upto, 0)}), onnx.Float32)
	class := b.Cast(b.ReduceSum(over, false, 2), onnx.Int64) // [S, n]
	pick := func(of build.Ref) build.Ref {
		return b.Op("Gather", []build.Ref{of, class}, onnx.IntAttr("axis", 0))
	}
	// Latents of class c and sample s are in row c S + s.
	first := make([]int64, w.samples)
	for s := range first {
		first[s] = int64(s)
	}
	place := b.Add(b.Mul(class, b.Const(onnx.Scalar(int64(w.samples)))),
		b.Const(onnx.NewTensor(first, w.samples, 1)))
	// [S, n, k]
	latent := w.numbers(b.Op("Gather", []build.Ref{w.latent, place}, onnx.IntAttr("axis", 0)))
	spread := pick(d.wide)
	gain := b.Div(spread, b.Add(spread, b.F32(1)))
	rest := b.Sub(b.F32(1), gain)
	still := b.Add(b.Mul(rest, pick(b.Squeeze(d.plain.mean, 0))),
		b.Mul(b.Sqrt(b.Mul(rest, spread)), latent))
	a := b.MatMul(b.Add(still, b.Mul(gain, at)), w.refs[ConjMetric])
	dot := b.Sub(b.ReduceSum(b.Mul(rows, a), true, 2),
		b.Mul(b.F32(0.5), b.ReduceSum(b.Mul(a, a), true, 2)))
	replaced := b.Add(b.Mul(rho, dot), b.Unsqueeze(pick(d.offset), 2)) // [S, n, 1]

	numbers := make([]int64, w.C)
	for c := range numbers {
		numbers[c] = int64(c)
	}
	own := b.Cast(b.Op("Equal",
		[]build.Ref{b.Unsqueeze(class, 2), b.Const(onnx.NewTensor(numbers, w.C))}), onnx.Float32)
	pull := w.trace(rho, d.wide)
	far := b.Cast(b.Op("Greater", []build.Ref{pull, b.F32(1)}), onnx.Float32)
	z = b.Add(z, b.Mul(b.Mul(own, far), b.Sub(replaced, z)))
	z = b.Add(z, b.Mul(b.Mul(b.Sub(b.F32(1), far), pull), pbar))
	odds := w.logOdds(z)
	w.ends(odds, b.ReduceMean(odds, false, 0), d.width, Ends{})
}

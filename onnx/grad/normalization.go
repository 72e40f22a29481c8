package grad

import (
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

func init() {
	register(inFloat32(vjpLRN), "LRN")
	register(inFloat32(vjpBatchNormalization), "BatchNormalization")
	register(inFloat32(vjpLayerNormalization), "LayerNormalization")
	register(inFloat32(vjpInstanceNormalization), "InstanceNormalization")
	register(inFloat32(vjpGroupNormalization), "GroupNormalization")
	register(inFloat32(vjpMeanVarianceNormalization), "MeanVarianceNormalization")
	register(inFloat32(vjpLpNormalization), "LpNormalization")
}

// normalized recomputes x̂ = (x - μ) s with s = 1/sqrt(σ² + ε), μ and σ² over the given axes. n is
// the number of elements that share a mean, as a number of x's type. The variance is that of the
// centred values, since E x² - μ² loses digits where μ is large.
func (c *call) normalized(x string, axes []int, eps float64) (hat, s, n string) {
	n = c.size(x, axes)
	mean := c.div(c.sum(x, true, axes...), n)
	centred := c.sub(x, mean)
	variance := c.div(c.sum(c.mul(centred, centred), true, axes...), n)
	s = c.un("Reciprocal", c.un("Sqrt", c.add(variance, c.num(eps, x))))
	return c.mul(centred, s), s, n
}

// normalizedVJP takes the cotangent of x̂ to that of x, the statistics being functions of x:
// x̄ = s (h - mean h - x̂ mean(h x̂)). Up to ε it is the projection of h to vectors orthogonal to 1
// and to x̂, times s.
func (c *call) normalizedVJP(h, hat, s, n string, axes []int) string {
	mean := c.div(c.sum(h, true, axes...), n)
	along := c.div(c.sum(c.mul(h, hat), true, axes...), n)
	return c.mul(s, c.sub(c.sub(h, mean), c.mul(hat, along)))
}

// vjpBatchNormalization (Ioffe and Szegedy 2015). In inference form y = (x - μ) s γ + β with stored
// μ and σ²; in training form μ and σ² are the batch's. With S = Σ ȳ (x - μ) per channel, the
// inference form has
//
//	x̄ = γ s ȳ,  γ̄ = s S,  β̄ = Σ ȳ,  μ̄ = -γ s Σ ȳ,  and -γ s³ S / 2 for σ²
func vjpBatchNormalization(c *call) []string {
	x, gamma, mu, sigma2, g := c.in(0), c.in(1), c.in(3), c.in(4), c.g()
	r := c.rank(x)
	if r < 2 {
		try.Fail("%q has rank %d; batch and channels are needed", x, r)
	}
	eps := float64(c.attrs.Float("epsilon"))
	others := append([]int{0}, span(2, r)...) // all axes but the channels
	lift := func(v string) string {           // [C] to [C, 1, ...]
		if v = c.castLike(v, x); r == 2 {
			return v
		}
		return c.reshape(v, c.ints(append([]int{-1}, ones(r-2)...)...))
	}
	// Parameters may be of another type than x, and their cotangents are cast to it.
	back := func(v, like string) string {
		if c.dtype(like) != c.dtype(x) {
			return c.cast(v, c.dtype(like))
		}
		return v
	}
	out := make([]string, 5)
	if c.wants(2) {
		out[2] = back(c.sum(g, false, others...), c.in(2))
	}
	if c.attrs.Int("training_mode") == 1 {
		for i := 1; i < len(c.cot); i++ {
			if c.cot[i] != "" {
				try.Fail("the running statistics are outputs to be stored, not to " +
					"be differentiated")
			}
		}
		c.batchNormTraining(out, lift, back, others, eps)
		return out
	}
	s := c.un("Reciprocal", c.un("Sqrt", c.add(sigma2, c.num(eps, sigma2))))
	scale := c.mul(gamma, s)
	if c.wants(0) {
		out[0] = c.mul(g, lift(scale))
	}
	// The sums below are passes over x, which a frozen layer is spared.
	if !c.wants(1) && !c.wants(3) && !c.wants(4) {
		return out
	}
	if c.wants(1) || c.wants(4) {
		// Σ ȳ (x - μ), per channel.
		along := back(c.sum(c.mul(g, c.sub(x, lift(mu))), false, others...), gamma)
		out[1] = c.mul(along, s)
		if c.wants(4) {
			out[4] = c.scale(c.mul(c.mul(along, scale), c.mul(s, s)), -0.5, sigma2)
		}
	}
	if c.wants(3) {
		out[3] = c.un("Neg", c.mul(back(c.sum(g, false, others...), mu), scale))
	}
	return out
}

// batchNormTraining is the training form with n elements to a channel. With a = γ s, G = Σ ȳ and D
// = Σ ȳ (x - μ) s,
//
//	γ̄ = D,  x̄ = a ȳ - a G / n - (a s D / n) (x - μ),
//
// in few passes over tensors of x's size: a BatchNormalization in inference form scales and shifts
// ȳ at once. x is centred before it is squared, or a mean far from 0 would leave nothing of σ².
func (c *call) batchNormTraining(out []string, lift func(string) string,
	back func(v, like string) string, others []int, eps float64) {
	x, g := c.in(0), c.g()
	gamma := c.castLike(c.in(1), x)
	n := c.size(x, others)
	mean := c.div(c.sum(x, false, others...), n)
	centred := c.sub(x, lift(mean))
	variance := c.div(c.sum(c.mul(centred, centred), false, others...), n)
	s := c.un("Reciprocal", c.un("Sqrt", c.add(variance, c.num(eps, x))))
	total := c.sum(g, false, others...)
	along := c.mul(c.sum(c.mul(g, centred), false, others...), s)
	if c.wants(1) {
		out[1] = back(along, c.in(1))
	}
	if !c.wants(0) {
		return
	}
	a := c.mul(gamma, s)
	slope := c.div(c.mul(c.mul(a, s), along), n)
	shift := c.un("Neg", c.div(c.mul(a, total), n))
	// Mean 0, variance 1 and epsilon 0 leave a ȳ + shift of the node.
	zero, one := c.filledShape(c.un("Shape", a), 0, c.dtype(x)),
		c.filledShape(c.un("Shape", a), 1, c.dtype(x))
	scaled := c.op("BatchNormalization", []string{g, a, shift, zero, one},
		onnx.FloatAttr("epsilon", 0))
	out[0] = c.sub(scaled, c.mul(centred, lift(slope)))
}

// vjpLayerNormalization (Ba, Kiros and Hinton 2016): statistics over the axes from axis on. γ̄ is ȳ
// x̂ and β̄ is ȳ, each summed over the axes of its broadcast. The scale may be broadcast to x, so
// that its cotangent is summed by unbroadcast.
func vjpLayerNormalization(c *call) []string {
	x, gamma, g := c.in(0), c.in(1), c.g()
	r := c.rank(x)
	for i := 1; i < len(c.cot); i++ {
		if c.cot[i] != "" {
			try.Fail("differentiating the outputs Mean and InvStdDev is not supported")
		}
	}
	axis := c.axis(x)
	axes := span(axis, r)
	hat, s, n := c.normalized(x, axes, float64(c.attrs.Float("epsilon")))
	out := make([]string, 3)
	if c.wants(0) {
		out[0] = c.normalizedVJP(c.mul(g, gamma), hat, s, n, axes)
	}
	out[1] = c.pull(1, func() string { return c.mul(g, hat) })
	out[2] = c.pull(2, func() string { return g })
	return out
}

// vjpInstanceNormalization: statistics over the spatial axes of each channel of each item. γ̄ = Σ ȳ
// x̂ and β̄ = Σ ȳ, over batch and positions.
func vjpInstanceNormalization(c *call) []string {
	x, gamma, g := c.in(0), c.in(1), c.g()
	r := c.rank(x)
	axes := span(2, r)
	others := append([]int{0}, axes...)
	hat, s, n := c.normalized(x, axes, float64(c.attrs.Float("epsilon")))
	out := make([]string, 3)
	if c.wants(0) {
		lifted := c.reshape(gamma, c.ints(append([]int{-1}, ones(r-2)...)...))
		out[0] = c.normalizedVJP(c.mul(g, lifted), hat, s, n, axes)
	}
	if c.wants(1) {
		out[1] = c.sum(c.mul(g, hat), false, others...)
	}
	if c.wants(2) {
		out[2] = c.sum(g, false, others...)
	}
	return out
}

// vjpMeanVarianceNormalization: the deviation of values that are all equal is 1e-9, as the operator
// has it. 1e-18 is added to the variance, whose root is the standard's 1e-9.
func vjpMeanVarianceNormalization(c *call) []string {
	axes := c.axes(c.in(0), c.attrs.Ints("axes")...)
	hat, s, n := c.normalized(c.in(0), axes, 1e-18)
	return []string{c.normalizedVJP(c.g(), hat, s, n, axes)}
}

// vjpGroupNormalization (Wu and He 2018): statistics over the channels of a group and all
// positions. Before operator set 21 scale and bias are of groups, not of channels, and have no
// rule.
func vjpGroupNormalization(c *call) []string {
	x, gamma, g := c.in(0), c.in(1), c.g()
	if r := c.rank(x); r < 2 || c.opset < 21 {
		try.Fail("an input of rank %d, or of operator set %d; [N, C, ...] and 21 are needed", r,
			c.opset)
	}
	groups := c.attrs.Int("num_groups")
	channels := c.shape(x)[1]
	if groups < 1 || !channels.IsKnown() || channels.Size%groups != 0 {
		try.Fail("num_groups %d must divide a known number of channels", groups)
	}
	per := channels.Size / groups
	batch := c.dim(x, 0)
	split := c.vec(batch, c.ints(groups, per, -1)) // [N, G, C/G, P]
	axes := []int{2, 3}
	xs := c.shaped(c.reshape(x, split), c.dtype(x),
		[]onnx.Dim{c.shape(x)[0], onnx.Known(groups), onnx.Known(per), {Size: -1}})
	gs := c.reshape(g, split)
	hat, s, n := c.normalized(xs, axes, float64(c.attrs.Float("epsilon")))
	out := make([]string, 3)
	if c.wants(0) {
		lifted := c.reshape(gamma, c.ints(groups, per, 1))
		out[0] = c.reshape(c.normalizedVJP(c.mul(gs, lifted), hat, s, n, axes), c.shapeOf(x))
	}
	total := func(v string) string {
		return c.reshape(c.sum(v, false, 0, 3), c.ints(-1))
	}
	if c.wants(1) {
		out[1] = total(c.mul(gs, hat))
	}
	if c.wants(2) {
		out[2] = total(gs)
	}
	return out
}

// vjpLpNormalization: y = x / ‖x‖ along an axis. x̄ = (ȳ - sign(x) sum(ȳ y)) / ‖x‖ for p = 1, with
// y in place of sign(x) for p = 2. A vector of zeros gets zeros.
func vjpLpNormalization(c *call) []string {
	x, y, g := c.in(0), c.out(0), c.g()
	axis := c.attrs.Int("axis")
	var norm, slope string
	switch p := c.attrs.Int("p"); p {
	case 1:
		norm, slope = c.sum(c.un("Abs", x), true, axis), c.un("Sign", x)
	case 2:
		norm, slope = c.un("Sqrt", c.sum(c.mul(x, x), true, axis)), y
	default:
		try.Fail("p is %d; allowed are 1 and 2", p)
	}
	along := c.sum(c.mul(g, y), true, axis)
	zero := c.op("Equal", []string{norm, c.num(0, x)})
	v := c.div(c.sub(g, c.mul(along, slope)), c.where(zero, c.num(1, x), norm))
	return []string{c.where(zero, c.num(0, x), v)}
}

// vjpLRN: y = x s^-β with s = bias + α A(x²), where A is the mean over neighbouring channels, zeros
// beyond the ends. Its adjoint is the mean over the mirrored neighbours: g s^-β - 2αβ x Aᵀ(g x
// s^(-β-1)). The mean counts zeros beyond the ends, which makes it the standard's sum divided by
// size.
func vjpLRN(c *call) []string {
	x, g := c.in(0), c.g()
	s := c.shape(x)
	if len(s) < 3 || slices.ContainsFunc(s[1:], func(d onnx.Dim) bool { return !d.IsKnown() }) {
		try.Fail("the sizes of all axes of %q but the first must be known; export the model with "+
			"them fixed", x)
	}
	channels, rest := s[1].Size, 1
	for _, d := range s[2:] {
		rest *= d.Size
	}
	alpha, beta := float64(c.attrs.Float("alpha")), float64(c.attrs.Float("beta"))
	size := int(c.attrs.Int("size"))
	before := (size - 1) / 2
	mean := func(v string, before, after int) string {
		v = c.op("AveragePool", []string{c.reshape(v, c.ints(-1, 1, channels, rest))},
			onnx.IntsAttr("kernel_shape", size, 1), onnx.IntsAttr("pads", before, 0, after, 0),
			onnx.IntAttr("count_include_pad", 1))
		return c.reshape(v, c.shapeOf(x))
	}
	sum := c.add(c.num(float64(c.attrs.Float("bias")), x),
		c.mul(c.num(alpha, x), mean(c.mul(x, x), before, size-1-before)))
	power := c.op("Pow", []string{sum, c.num(-beta, x)})
	// The adjoint's window is the mirror: as many channels before as the node has behind.
	back := mean(c.div(c.mul(c.mul(g, x), power), sum), size-1-before, before)
	return []string{c.sub(c.mul(g, power), c.mul(c.num(2*alpha*beta, x), c.mul(x, back)))}
}

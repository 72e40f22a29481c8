package shape

import (
	"slices"

	"fmp/onnx/internal/try"
)

// Random values and signal windows.
var generatorRules = map[string]rule{
	"RandomNormal": inferRandom, "RandomUniform": inferRandom, "RandomNormalLike": inferLike,
	"RandomUniformLike": inferLike,
	"Bernoulli":         inferLike, "Multinomial": inferMultinomial,
	"HannWindow": inferWindow, "HammingWindow": inferWindow, "BlackmanWindow": inferWindow,
	"DFT": shaped(inferDFT), "STFT": inferSTFT, "MelWeightMatrix": inferMel,
}

// inferRandom: the attributes alone tell type and shape; the operators that end in Like are
// inferLike's.
func inferRandom(c *call) {
	c.set(0, c.attrs.DType("dtype"), constants(c.attrs.Ints("shape")))
}

// inferMultinomial: [batch, sample_size] of logits [batch, classes].
func inferMultinomial(c *call) {
	d := c.attrs.DType("dtype")
	batch := c.inf.unknownSize()
	if s := c.in[0].shape; len(s) == 2 {
		batch = s[0]
	}
	c.set(0, d, []expr{batch, constant(c.attrs.Int("sample_size"))})
}

// inferWindow: a vector of as many samples as the scalar input says.
func inferWindow(c *call) {
	c.set(0, c.attrs.DType("output_datatype"), []expr{c.number(0)})
}

// number is input i as a size where it is known, else an unknown one.
func (c *call) number(i int) expr {
	if d := c.arg(i).data; len(d) == 1 {
		return c.size(d[0])
	}
	return c.inf.unknownSize()
}

// half is the number of bins of one side of a transform of n. A symbolic length is left open: bins
// stay unknown until a run.
func (c *call) half(n expr) expr {
	if v, ok := n.value(); ok {
		return constant(v/2 + 1)
	}
	return c.inf.unknownSize()
}

// inferDFT: real signals are [..., n, 1] and complex ones [..., n, 2]. A one-sided transform of n
// has n/2 + 1 bins. Its inverse is real, of 2 (bins - 1) samples where no length is given.
// dft_length, input 1, cuts or fills the axis before the transform. The axis moved from an
// attribute, 1 by default, to input 2, -2 by default, in operator set 20.
func inferDFT(c *call, x *fact) []expr {
	out := slices.Clone(x.shape)
	real := c.attrs.Bool("inverse") && c.attrs.Bool("onesided")
	if len(out) > 0 {
		out[len(out)-1] = constant(2 - boolInt(real))
	}
	at, known := c.attrs.Int("axis"), true
	if c.opset >= 20 {
		at = -2
		if c.has(2) {
			var v []int
			if v, known = c.ints(2); known && len(v) == 1 {
				at = v[0]
			}
		}
	}
	if !known {
		return c.unknownSizes(len(out))
	}
	at = try.Get(axis(at, len(out)))
	switch {
	case c.has(1):
		out[at] = c.number(1)
	case real:
		out[at] = out[at].minus(constant(1)).times(constant(2))
	}
	if c.attrs.Bool("onesided") && !real {
		out[at] = c.half(out[at])
	}
	return out
}

// inferSTFT: [batch, frames, bins, 2]. Bins are of the frame length, or of the window's where that
// is left out; the number of frames is left open. The last axis is real and imaginary part, whether
// the signal is real or complex.
func inferSTFT(c *call) {
	batch, length := c.inf.unknownSize(), c.inf.unknownSize()
	if s := c.in[0].shape; len(s) > 0 {
		batch = s[0]
	}
	if c.has(3) {
		length = c.number(3)
	} else if w := c.arg(2).shape; len(w) == 1 {
		length = w[0]
	}
	if c.attrs.Bool("onesided") {
		length = c.half(length)
	}
	c.set(0, c.in[0].dtype, []expr{batch, c.inf.unknownSize(), length, constant(2)})
}

// inferMel: [dft_length/2 + 1, num_mel_bins]. Rows are bins of a one-sided transform, columns the
// filters on the mel scale.
func inferMel(c *call) {
	c.set(0, c.attrs.DType("output_datatype"), []expr{c.half(c.number(1)), c.number(0)})
}

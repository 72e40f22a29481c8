package shape

import (
	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Normalisations, softmax and losses.
var normalizationRules = map[string]rule{
	"Softmax": inferAxiswise, "LogSoftmax": inferAxiswise, "Hardmax": inferAxiswise,
	"LpNormalization": inferAxiswise,
	"LRN":             typeFrom(0), "MeanVarianceNormalization": inferMeanVariance,
	"InstanceNormalization": inferChannelwise,
	"GroupNormalization":    inferGroupNormalization, "BatchNormalization": inferBatchNormalization,
	"LayerNormalization": inferLayerNormalization, "RMSNormalization": inferRMSNormalization,
	"Dropout":                   inferDropout,
	"NegativeLogLikelihoodLoss": inferLoss, "SoftmaxCrossEntropyLoss": inferLoss,
}

// inferAxiswise checks the axis. Before opset 13 the default axis of the softmaxes was 1, not the
// last.
func inferAxiswise(c *call) {
	x := c.in[0]
	c.same(0, x)
	a := c.attrs.Int("axis")
	if !x.ranked() || c.opset < 13 && a == len(x.shape) {
		return // an old softmax may flatten before or after all axes
	}
	try.Get(axis(a, len(x.shape)))
}

// inferMeanVariance checks the axes.
func inferMeanVariance(c *call) {
	x := c.in[0]
	c.same(0, x)
	if x.ranked() {
		try.Get(axesOf(c.attrs.Ints("axes"), len(x.shape)))
	}
}

// inferChannelwise checks vectors of parameters against axis 1. A parameter of unknown rank is not
// checked.
func inferChannelwise(c *call) {
	x := c.in[0]
	c.same(0, x)
	if !x.ranked() {
		return
	}
	if len(x.shape) < 2 {
		try.Fail("an input of rank %d; [N, C, ...] is needed", len(x.shape))
	}
	for i := 1; i < len(c.in); i++ {
		s := c.arg(i).shape
		if s == nil {
			continue
		}
		if len(s) != 1 {
			try.Fail("input %d is of rank %d; it must be a vector of the channels", i, len(s))
		}
		agree(s[0], x.shape[1], "input %d and the channels", i)
	}
}

// inferGroupNormalization checks the channels, of which groups have equally many.
func inferGroupNormalization(c *call) {
	inferChannelwise(c)
	if x, groups := c.in[0], c.attrs.Int("num_groups"); x.ranked() && groups > 0 {
		if n, known := x.shape[1].value(); known && n%groups != 0 {
			try.Fail("%d channels cannot be shared among %d groups", n, groups)
		}
	}
}

// inferRMSNormalization checks that the scale is broadcast to the input.
func inferRMSNormalization(c *call) {
	inferAxiswise(c)
	c.broadcastTo(c.in[0].shape, 1)
}

// inferBatchNormalization checks the vectors of channels; statistics have the shape of the mean.
// Runtimes give the statistics in training alone, and a node without those outputs skips them.
func inferBatchNormalization(c *call) {
	if c.same(0, c.in[0]); len(c.in[0].shape) != 1 { // a vector has one channel
		inferChannelwise(c)
	}
	for i := 1; i < len(c.out); i++ {
		// Opset 14: running mean and variance; before: mean, variance, saved mean, saved variance.
		c.same(i, c.in[3])
	}
}

// inferLayerNormalization: the statistics have size 1 on the axes from axis on. Statistics are mean
// and inverse standard deviation, of stash_type, float32 by default.
func inferLayerNormalization(c *call) {
	x := c.in[0]
	c.same(0, x)
	stash := c.attrs.DType("stash_type")
	c.set(1, stash, nil)
	c.set(2, stash, nil)
	c.broadcastTo(x.shape, 1)
	c.broadcastTo(x.shape, 2)
	if !x.ranked() {
		return
	}
	a := try.Get(axis(c.attrs.Int("axis"), len(x.shape)))
	stat := append([]expr{}, x.shape...)
	for i := a; i < len(stat); i++ {
		stat[i] = constant(1)
	}
	c.set(1, stash, stat)
	c.set(2, stash, stat)
}

// inferDropout: the mask is boolean, before operator set 10 of the input's type.
func inferDropout(c *call) {
	c.same(0, c.in[0])
	mask := onnx.Bool
	if c.opset < 10 {
		mask = c.in[0].dtype
	}
	c.set(1, mask, c.in[0].shape)
}

// inferLoss: scores [N, C, D1, ...], targets [N, D1, ...] -> a scalar, or the targets' shape
// without reduction. The second output of SoftmaxCrossEntropyLoss is the log-probabilities, of the
// scores' shape. The weight and ignore_index change no shape.
func inferLoss(c *call) {
	x, y := c.in[0], c.in[1]
	if x.ranked() && y.ranked() && len(x.shape) != len(y.shape)+1 {
		try.Fail("scores and targets are of rank %d and %d; the scores have one more",
			len(x.shape), len(y.shape))
	}
	c.set(0, x.dtype, []expr{})
	if c.attrs.Str("reduction") == "none" {
		c.set(0, x.dtype, y.shape)
	}
	c.set(1, x.dtype, x.shape)
}

package grad

import (
	"fmp/onnx"
	"fmp/onnx/internal/try"
)

func init() {
	register(inFloat32(vjpLoss), "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
}

// vjpLoss differentiates a loss of scores [n, c, d...] at labels [n, d...] for the scores:
//
//	∂/∂logp[n, k, d] = -ū[n, d] weights[label] [k = label, label ≠ ignore_index]
//
// with ū the loss's cotangent, divided by the sum of weights[label] where the mean is taken.
// SoftmaxCrossEntropyLoss, whose second output is logp, goes through the log softmax as well.
// Labels and weights get none: labels are integers, and the rule of weights is refused where it is
// asked for.
func vjpLoss(c *call) []string {
	x, labels, weights := c.in(0), c.cast(c.in(1), onnx.Int64), c.in(2)
	if c.wants(2) {
		try.Fail("the weights of classes have no gradient; make them a constant")
	}
	whole := func(v int) string { return c.constant(onnx.Scalar(int64(v))) }
	each := "" // the weight of each label, 0 where it is ignored
	if c.attrs.Has("ignore_index") {
		ignored := c.op("Equal", []string{labels, whole(c.attrs.Int("ignore_index"))})
		// An ignored label may be no class at all, and Gather would refuse it.
		labels = c.where(ignored, whole(0), labels)
		each = c.mask(c.un("Not", ignored), x)
	}
	if weights != "" {
		w := c.op("Gather", []string{weights, labels})
		if each != "" {
			w = c.mul(w, each)
		}
		each = w
	}
	u := c.g()
	if c.attrs.Str("reduction") == "mean" {
		// Without weights and ignored labels each label counts 1, and the sum is their number.
		total := c.cast(c.un("Size", labels), c.dtype(x))
		if each != "" {
			total = c.sumAll(each)
		}
		u = c.div(u, total)
	}
	if each != "" {
		u = c.mul(u, each)
	}
	if c.attrs.Str("reduction") != "none" { // as one for each label
		// A reduced loss is a scalar, whose cotangent is the same for each label.
		u = c.op("Expand", []string{u, c.un("Shape", labels)})
	}
	// OneHot gives -1 at the label, which is the sign of the equation above.
	onOff := c.cast(c.constant(onnx.Vector[float32](0, -1)), c.dtype(x))
	bar := c.mul(c.op("OneHot", []string{labels, c.dim(x, 1), onOff}, onnx.IntAttr("axis", 1)),
		c.unsqueeze(u, 1))
	if c.node.Op == "SoftmaxCrossEntropyLoss" {
		if len(c.cot) > 1 && c.cot[1] != "" {
			bar = c.add(bar, c.cot[1])
		}
		// logp = x - log sum exp x, so that x̄ = l̄ - softmax(x) sum l̄, the sum over classes.
		p := c.op("Softmax", []string{x}, onnx.IntAttr("axis", 1))
		bar = c.sub(bar, c.mul(p, c.sum(bar, true, 1)))
	}
	return []string{c.as(bar, x)}
}

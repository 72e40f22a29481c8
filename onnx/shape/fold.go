package shape

import (
	"fmp/onnx"
)

// fold evaluates a node whose inputs are all constants, so that what is computed from constants is known.
// Results of more than limit elements are left.
func (c *call) fold(limit int) {
	if len(c.out) != 1 || c.out[0].tensor != nil || c.out[0].shape == nil {
		return
	}
	shape := make([]int, len(c.out[0].shape))
	n := 1
	for i, e := range c.out[0].shape {
		v, ok := e.value()
		if !ok || v < 0 || v > limit {
			return
		}
		shape[i] = v
		if n *= v; n > limit {
			return
		}
	}
	if !c.inf.afford(n) {
		return
	}
	in := make([]*onnx.Tensor, len(c.in))
	for i, f := range c.in {
		if f != nil {
			in[i] = f.constant()
		}
	}
	if out := evaluate(c.node, c.opset, in, shape); out != nil {
		c.out[0] = tensorFact(out)
	}
}

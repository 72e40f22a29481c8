package shape

import (
	"fmp/onnx"
)

// Quantised values.
var quantizationRules = map[string]rule{
	"QuantizeLinear": inferQuantize, "DequantizeLinear": typeFrom(1),
	"DynamicQuantizeLinear": inferDynamicQuantize,
}

func inferQuantize(c *call) {
	d := c.arg(2).dtype
	if !c.has(2) {
		d = onnx.Uint8
		if t := c.attrs.Int("output_dtype"); t != 0 {
			d = onnx.DTypeOf(int64(t))
		}
	}
	c.set(0, d, c.arg(0).shape)
}

func inferDynamicQuantize(c *call) {
	c.set(0, onnx.Uint8, c.arg(0).shape)
	c.set(1, onnx.Float32, []expr{})
	c.set(2, onnx.Uint8, []expr{})
}

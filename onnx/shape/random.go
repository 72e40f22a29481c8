package shape

import (
	"fmp/onnx"
)

// Random values and signal windows.
var generatorRules = map[string]rule{
	"RandomNormal": inferRandom, "RandomUniform": inferRandom, "RandomNormalLike": inferLike, "RandomUniformLike": inferLike,
	"Bernoulli": inferLike, "Multinomial": inferMultinomial,
	"HannWindow": inferWindow, "HammingWindow": inferWindow, "BlackmanWindow": inferWindow,
}

func inferRandom(c *call) error {
	d := onnx.DTypeOf(int64(c.node.Int("dtype", int(onnx.Float32))))
	out := []expr{}
	for _, v := range c.node.Ints("shape", nil) {
		out = append(out, constant(v))
	}
	c.set(0, d, out)
	return nil
}

func inferMultinomial(c *call) error {
	if err := c.need(1); err != nil {
		return err
	}
	d := onnx.DTypeOf(int64(c.node.Int("dtype", int(onnx.Int32))))
	batch := c.inf.unknownSize()
	if s := c.in[0].shape; len(s) == 2 {
		batch = s[0]
	}
	c.set(0, d, []expr{batch, constant(c.node.Int("sample_size", 1))})
	return nil
}

func inferWindow(c *call) error {
	if err := c.need(1); err != nil {
		return err
	}
	n := c.inf.unknownSize()
	if d := c.in[0].data; len(d) == 1 {
		n = c.size(d[0])
	}
	c.set(0, onnx.DTypeOf(int64(c.node.Int("output_datatype", int(onnx.Float32)))), []expr{n})
	return nil
}

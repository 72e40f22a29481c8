package shape

// Random values and signal windows.
var generatorRules = map[string]rule{
	"RandomNormal": inferRandom, "RandomUniform": inferRandom, "RandomNormalLike": inferLike, "RandomUniformLike": inferLike,
	"Bernoulli": inferLike, "Multinomial": inferMultinomial,
	"HannWindow": inferWindow, "HammingWindow": inferWindow, "BlackmanWindow": inferWindow,
}

func inferRandom(c *call) error {
	d := c.attrs.DType("dtype")
	out := []expr{}
	for _, v := range c.attrs.Ints("shape") {
		out = append(out, constant(v))
	}
	c.set(0, d, out)
	return nil
}

func inferMultinomial(c *call) error {
	if err := c.need(1); err != nil {
		return err
	}
	d := c.attrs.DType("dtype")
	batch := c.inf.unknownSize()
	if s := c.in[0].shape; len(s) == 2 {
		batch = s[0]
	}
	c.set(0, d, []expr{batch, constant(c.attrs.Int("sample_size"))})
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
	c.set(0, c.attrs.DType("output_datatype"), []expr{n})
	return nil
}

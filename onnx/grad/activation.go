package grad

import (
	"math"

	"fmp/onnx/internal/try"
)

// Derivatives are in x and y = f(x), whichever takes fewer nodes. In y: sigmoid y (1 - y), tanh
// 1 - y², and for x < 0 Elu y + α and Selu y + α γ. In x: Softplus σ(x), Softsign 1 / (1 + |x|)²,
// and for x < 0 Celu exp(x / α). At 0 the slope of the left side is taken: 0 of Relu and α of
// LeakyRelu and Elu.
func init() {
	unary("Shrink", func(c *call, x, y string) string {
		return c.mask(c.op("Greater", []string{c.un("Abs", x),
			c.num(float64(c.attrs.Float("lambd")), x)}), x)
	})
	unary("Sigmoid", func(c *call, x, y string) string { return c.mul(y, c.sub(c.num(1, x), y)) })
	unary("Tanh", func(c *call, x, y string) string { return c.oneMinusSquare(y) })
	unary("Softplus", func(c *call, x, y string) string { return c.un("Sigmoid", x) })
	unary("Softsign", func(c *call, x, y string) string {
		d := c.add(c.un("Abs", x), c.num(1, x))
		return c.un("Reciprocal", c.mul(d, d))
	})
	unary("LeakyRelu", func(c *call, x, y string) string {
		return c.where(c.positive(x), c.num(1, x), c.num(float64(c.attrs.Float("alpha")), x))
	})
	unary("ThresholdedRelu", func(c *call, x, y string) string {
		return c.mask(c.op("Greater", []string{x, c.num(float64(c.attrs.Float("alpha")), x)}), x)
	})
	unary("Elu", func(c *call, x, y string) string {
		return c.where(c.positive(x), c.num(1, x),
			c.add(y, c.num(float64(c.attrs.Float("alpha")), x)))
	})
	unary("Celu", func(c *call, x, y string) string {
		alpha := float64(c.attrs.Float("alpha"))
		return c.where(c.positive(x), c.num(1, x), c.un("Exp", c.scale(x, 1/alpha, x)))
	})
	unary("Selu", func(c *call, x, y string) string {
		alpha := float64(c.attrs.Float("alpha"))
		gamma := float64(c.attrs.Float("gamma"))
		return c.where(c.positive(x), c.num(gamma, x), c.add(y, c.num(alpha*gamma, x)))
	})
	unary("HardSigmoid", func(c *call, x, y string) string {
		alpha := float64(c.attrs.Float("alpha"))
		return c.where(c.between(y, 0, 1), c.num(alpha, x), c.num(0, x))
	})
	// x clip(x/6 + 1/2, 0, 1) has slope x/3 + 1/2 inside (-3, 3).
	unary("HardSwish", func(c *call, x, y string) string {
		slope := c.add(c.scale(x, 1.0/3, x), c.num(0.5, x))
		return c.where(c.between(x, -3, 3), slope,
			c.mask(c.op("GreaterOrEqual", []string{x, c.num(3, x)}), x))
	})
	// x tanh(softplus(x)).
	unary("Mish", func(c *call, x, y string) string {
		t := c.as(c.un("Tanh", c.un("Softplus", x)), x)
		return c.add(t, c.mul(c.mul(x, c.oneMinusSquare(t)), c.un("Sigmoid", x)))
	})
	// A product is quicker than Where on the ONNX Runtime's CPU. The sign of an output, which is
	// never negative and 0 where it was cut off, is the mask.
	unary("Relu", func(c *call, x, y string) string { return c.un("Sign", y) })
	register(inFloat32(vjpGelu), "Gelu")
	register(vjpPRelu, "PRelu")
	register(vjpSoftmax, "Softmax")
	register(vjpLogSoftmax, "LogSoftmax")
}

// positive is x > 0 as booleans.
func (e *emitter) positive(x string) string { return e.op("Greater", []string{x, e.num(0, x)}) }

// between is lo < x < hi.
func (e *emitter) between(x string, lo, hi float64) string {
	return e.op("And", []string{e.op("Greater", []string{x, e.num(lo, x)}),
		e.op("Less", []string{x, e.num(hi, x)})})
}

// vjpGelu differentiates x Φ(x), or its approximation by tanh (Hendrycks and Gimpel 2016). Exactly,
// the slope is Φ(x) + x φ(x), with φ the density of the standard normal distribution. With t =
// tanh(u) and u = sqrt(2/π) (x + 0.044715 x³) it is (1 + t)/2 + x (1 - t²) u'/2.
func vjpGelu(c *call) []string {
	g, x := c.g(), c.in(0)
	if kind := c.attrs.Str("approximate"); kind == "tanh" {
		const k = 0.044715
		r := math.Sqrt(2 / math.Pi)
		x2 := c.mul(x, x)
		u := c.scale(c.mul(x, c.add(c.scale(x2, k, x), c.num(1, x))), r, x)
		du := c.scale(c.add(c.scale(x2, 3*k, x), c.num(1, x)), r, x)
		t := c.un("Tanh", u)
		half := c.scale(c.add(t, c.num(1, x)), 0.5, x)
		slope := c.scale(c.mul(c.mul(x, c.oneMinusSquare(t)), du), 0.5, x)
		return []string{c.mul(g, c.add(half, slope))}
	} else if kind != "none" {
		try.Fail("approximate is %q; allowed are none and tanh", kind)
	}
	phi := c.scale(c.add(c.un("Erf", c.scale(x, math.Sqrt2/2, x)), c.num(1, x)), 0.5, x)
	density := c.scale(c.un("Exp", c.scale(c.mul(x, x), -0.5, x)), 1/math.Sqrt(2*math.Pi), x)
	return []string{c.mul(g, c.add(phi, c.mul(x, density)))}
}

// vjpPRelu: x̄ = ȳ where x > 0, else slope · ȳ. The slope's is the sum of x ȳ over the other x that
// it was broadcast to.
func vjpPRelu(c *call) []string {
	g, x, slope := c.g(), c.in(0), c.in(1)
	pos := c.positive(x)
	return []string{
		c.pull(0, func() string { return c.where(pos, g, c.mul(g, slope)) }),
		c.pull(1, func() string { return c.where(pos, c.num(0, x), c.mul(g, x)) }),
	}
}

// vjpSoftmax: x̄ = y (ȳ - Σ ȳ y). From operator set 13 on the sum is over one axis, and the graph
// is raised to that beforehand.
func vjpSoftmax(c *call) []string {
	g, y := c.g(), c.out(0)
	axis := c.attrs.Int("axis")
	return []string{c.mul(y, c.sub(g, c.sum(c.mul(g, y), true, axis)))}
}

// vjpLogSoftmax: x̄ = ȳ - exp(y) Σ ȳ.
func vjpLogSoftmax(c *call) []string {
	g, y := c.g(), c.out(0)
	axis := c.attrs.Int("axis")
	return []string{c.sub(g, c.mul(c.un("Exp", y), c.sum(g, true, axis)))}
}

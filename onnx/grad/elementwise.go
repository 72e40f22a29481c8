package grad

import (
	"math"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

func init() {
	register(vjpSub, "Sub")
	// y = a b: ā = ȳ b, b̄ = ȳ a.
	register(func(c *call) []string {
		g := c.g()
		return []string{
			c.pull(0, func() string { return c.mul(g, c.in(1)) }),
			c.pull(1, func() string { return c.mul(g, c.in(0)) }),
		}
	}, "Mul")
	// y = a/b: ā = ȳ/b, b̄ = -ȳ a/b² = -ā y. The quotient serves both.
	register(func(c *call) []string {
		g := c.g()
		gx := c.div(g, c.in(1))
		return []string{
			c.pull(0, func() string { return gx }),
			c.pull(1, func() string { return c.un("Neg", c.mul(gx, c.out(0))) }),
		}
	}, "Div")
	register(vjpPow, "Pow")
	register(vjpExtremum, "Max", "Min")
	register(vjpSum, "Add", "Sum", "Mean")
	register(vjpClip, "Clip")
	// The condition is a bool and has no cotangent.
	register(func(c *call) []string {
		g, cond, zero := c.g(), c.in(0), c.num(0, c.out(0))
		return []string{"",
			c.pull(1, func() string { return c.where(cond, g, zero) }),
			c.pull(2, func() string { return c.where(cond, zero, g) }),
		}
	}, "Where")
	register(func(c *call) []string { return []string{c.g()} }, "Identity")
	register(vjpCast, "Cast", "CastLike")
	register(vjpDropout, "Dropout")
	register(vjpMod, "Mod")
	register(func(c *call) []string { return []string{c.un("Neg", c.g())} }, "Neg")

	// Functions of one number: ȳ f'(x), with f' from x and y.
	unary("Abs", func(c *call, x, y string) string { return c.un("Sign", x) })
	unary("Exp", func(c *call, x, y string) string { return y })
	unary("Log", func(c *call, x, y string) string { return c.un("Reciprocal", x) })
	// The slope at 0 is infinite, as the function's own is.
	unary("Sqrt", func(c *call, x, y string) string { return c.div(c.num(0.5, x), y) })
	unary("Reciprocal", func(c *call, x, y string) string { return c.un("Neg", c.mul(y, y)) })
	unary("Erf", func(c *call, x, y string) string {
		return c.scale(c.un("Exp", c.un("Neg", c.mul(x, x))), 2/math.Sqrt(math.Pi), x)
	})
	unary("Sin", func(c *call, x, y string) string { return c.un("Cos", x) })
	unary("Cos", func(c *call, x, y string) string { return c.un("Neg", c.un("Sin", x)) })
	unary("Tan", func(c *call, x, y string) string { return c.add(c.mul(y, y), c.num(1, x)) })
	// Asin and Acos: ±1/√(1 - x²), infinite at ±1.
	unary("Asin", func(c *call, x, y string) string {
		return c.un("Reciprocal", c.un("Sqrt", c.oneMinusSquare(x)))
	})
	unary("Acos", func(c *call, x, y string) string {
		return c.un("Neg", c.un("Reciprocal", c.un("Sqrt", c.oneMinusSquare(x))))
	})
	unary("Atan", func(c *call, x, y string) string {
		return c.un("Reciprocal", c.onePlusSquare(x))
	})
	unary("Sinh", func(c *call, x, y string) string { return c.un("Cosh", x) })
	unary("Cosh", func(c *call, x, y string) string { return c.mul(y, c.un("Tanh", x)) })
	// cosh(asinh x) = √(1 + x²) and sinh(acosh x) = √(x² - 1), whose squares would overflow in
	// float32 beyond 1.8e19.
	unary("Asinh", func(c *call, x, y string) string { return c.un("Reciprocal", c.un("Cosh", c.un("Asinh", x))) })
	unary("Acosh", func(c *call, x, y string) string { return c.un("Reciprocal", c.un("Sinh", c.un("Acosh", x))) })
	// 1/(1 - x²), infinite at ±1
	unary("Atanh", func(c *call, x, y string) string {
		return c.un("Reciprocal", c.oneMinusSquare(x))
	})
	// y in halves would make an error several times its own
	for _, op := range []string{"Asinh", "Acosh"} {
		register(inFloat32(rules[op]), op)
	}
}

// unary registers a function of one number by its derivative.
func unary(op string, derivative func(c *call, x, y string) string) {
	register(func(c *call) []string {
		return []string{c.mul(c.g(), derivative(c, c.in(0), c.out(0)))}
	}, op)
}

// onePlusSquare is 1 + x²; oneMinusSquare is 1 - x².
func (e *emitter) onePlusSquare(x string) string  { return e.add(e.mul(x, x), e.num(1, x)) }
func (e *emitter) oneMinusSquare(x string) string { return e.sub(e.num(1, x), e.mul(x, x)) }

// pull makes the cotangent of input i of a broadcasting node from its value at the output's shape.
// v is called where the input is differentiated for, so that no node is made in vain.
func (c *call) pull(i int, v func() string) string {
	if !c.wants(i) {
		return ""
	}
	return c.unbroadcast(v(), c.out(0), c.in(i))
}

// vjpSub: ȳ for the minuend and -ȳ for the subtrahend, each summed over the axes of its broadcast.
func vjpSub(c *call) []string {
	g := c.g()
	x := c.pull(0, func() string { return g })
	if !c.wants(1) {
		return []string{x, ""}
	}
	// The smaller tensor is negated.
	return []string{x, c.un("Neg", c.unbroadcast(g, c.out(0), c.in(1)))}
}

// vjpMod is for fmod, x - trunc(x/y) y, between its jumps.
func vjpMod(c *call) []string {
	g, x, y := c.g(), c.in(0), c.in(1)
	return []string{
		c.pull(0, func() string { return g }),
		c.pull(1, func() string {
			// The slope in y is -trunc(x/y) = -(x - out)/y. The quotient is whole but for rounding,
			// which Round takes away.
			times := c.div(c.sub(x, c.out(0)), y)
			return c.un("Neg", c.mul(g, c.un("Round", times)))
		}),
	}
}

// vjpPow: x̄ = ȳ p x^(p-1), p̄ = ȳ y ln x, with 0 for ln x where x is not positive.
func vjpPow(c *call) []string {
	g, x, p := c.g(), c.in(0), c.in(1)
	if k, ok := c.constScalar(p); ok && !c.wants(1) {
		return []string{c.pull(0, func() string {
			// Exponents that are common get forms without Pow: 0 has no slope, even at x = 0, where
			// 0 x^-1 is no number.
			switch k {
			case 0:
				return c.filled(c.out(0), 0)
			case 1:
				return g
			case 2:
				return c.mul(g, c.scale(x, 2, x))
			case 0.5:
				return c.mul(g, c.div(c.num(0.5, x), c.out(0)))
			}
			return c.mul(g, c.scale(c.op("Pow", []string{x, c.num(k-1, x)}), k, x))
		}), ""}
	}
	pf := c.castLike(p, x)
	gx := c.pull(0, func() string {
		// 0 * 0^-1 is not a number; x^0 has slope 0.
		d := c.mul(pf, c.op("Pow", []string{x, c.sub(pf, c.num(1, x))}))
		zero := c.op("Equal", []string{pf, c.num(0, x)})
		return c.mul(g, c.where(zero, c.num(0, x), d))
	})
	// Where x is not positive, ln 1 = 0 stands in for the logarithm, so that no NaN is made to be
	// masked.
	gp := c.pull(1, func() string {
		positive := c.op("Greater", []string{x, c.num(0, x)})
		log := c.un("Log", c.where(positive, x, c.num(1, x)))
		return c.mul(g, c.mul(c.out(0), log))
	})
	if gp != "" && c.dtype(p) != c.dtype(x) {
		gp = c.cast(gp, c.dtype(p))
	}
	return []string{gx, gp}
}

// vjpExtremum shares ȳ equally among the inputs that attain the maximum or minimum.
// With k ties each gets ȳ/k, so that the shares add up to ȳ: a subgradient.
func vjpExtremum(c *call) []string {
	g, y := c.g(), c.out(0)
	if len(c.node.Inputs) == 1 {
		return []string{g}
	}
	attains := make([]string, len(c.node.Inputs))
	ties := ""
	for i, x := range c.node.Inputs {
		attains[i] = c.mask(c.op("Equal", []string{x, y}), y)
		if ties == "" {
			ties = attains[i]
		} else {
			ties = c.add(ties, attains[i])
		}
	}
	share := c.div(g, ties)
	out := make([]string, len(attains))
	for i := range attains {
		out[i] = c.pull(i, func() string { return c.mul(share, attains[i]) })
	}
	return out
}

// vjpSum is for the sum or the mean of several tensors.
func vjpSum(c *call) []string {
	g := c.g()
	if c.node.Op == "Mean" {
		g = c.scale(g, 1/float64(len(c.node.Inputs)), c.out(0))
	}
	out := make([]string, len(c.node.Inputs))
	for i := range out {
		out[i] = c.pull(i, func() string { return g })
	}
	return out
}

// vjpClip lets ȳ through where min <= x <= max; a bound gets it where it holds x back.
// At a bound x itself gets ȳ, and the bound nothing. Bounds are scalars, so that theirs are sums
// over all elements.
func vjpClip(c *call) []string {
	g, x, lo, hi := c.g(), c.in(0), c.in(1), c.in(2)
	inside := ""
	out := []string{"", "", ""}
	if lo != "" {
		inside = c.op("GreaterOrEqual", []string{x, lo})
	}
	if hi != "" {
		in := c.op("LessOrEqual", []string{x, hi})
		if inside == "" {
			inside = in
		} else {
			inside = c.op("And", []string{inside, in})
		}
	}
	if inside == "" {
		return []string{g}
	}
	if c.wants(0) {
		out[0] = c.where(inside, g, c.num(0, x))
	}
	// The smaller bound is taken where they cross: min(max(x, lo), hi).
	if c.wants(1) {
		below := c.op("Less", []string{x, lo})
		if hi != "" {
			below = c.op("And", []string{below, c.op("LessOrEqual", []string{lo, hi})})
		}
		out[1] = c.reshapeLike(c.sumAll(c.where(below, g, c.num(0, x))), lo)
	}
	if c.wants(2) {
		if lo != "" {
			x = c.op("Max", []string{x, lo})
		}
		out[2] = c.reshapeLike(c.sumAll(c.where(c.op("Greater", []string{x, hi}), g, c.num(0, x))),
			hi)
	}
	return out
}

// vjpCast: ȳ cast back to the input's type.
func vjpCast(c *call) []string {
	if from := c.dtype(c.in(0)); from != c.dtype(c.out(0)) {
		return []string{c.cast(c.g(), from)}
	}
	return []string{c.g()}
}

// vjpDropout is the identity in inference; in training the kept elements are scaled by 1/(1 -
// ratio).
// The mask of kept elements is the node's second output, which is added where the node does not
// name it. The ratio left out is 0.5, whose scale is 2.
func vjpDropout(c *call) []string {
	training := c.in(2)
	if training == "" {
		return []string{c.g()}
	}
	t, ok := c.constOf(training)
	if !ok {
		try.Fail("training_mode is worked out by the graph; make it a constant")
	}
	if on, isBool := t.Data.([]bool); isBool && len(on) == 1 && !on[0] {
		return []string{c.g()}
	}
	kept := c.mask(c.ensureOutput(1, onnx.ValueInfo{DType: onnx.Bool, Shape: c.shape(c.in(0))}),
		c.in(0))
	ratio := c.in(1)
	if ratio == "" {
		return []string{c.scale(c.mul(c.g(), kept), 2, c.in(0))}
	}
	kept = c.mul(c.g(), kept)
	return []string{c.div(kept, c.sub(c.num(1, c.in(0)), c.castLike(ratio, c.in(0))))}
}

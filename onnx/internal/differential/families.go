package differential

import (
	"maps"
	"reflect"
	"slices"

	"fmp/onnx"
	"fmp/onnx/op"
)

// Families lists the families of graphs, in alphabetical order.
func Families() []string { return slices.Sorted(maps.Keys(families)) }

// differentiable are the families whose gradients are looked at. Quantised values have no slope,
// and grad has no rule for every mode of Resize.
var differentiable = []string{"control", "elementwise", "indexing", "matmul", "mixed", "movement",
	"normalization", "recurrent", "reduction", "signal", "window"}

// families holds the operators of each family with their recipes.
var families = map[string]map[string]recipe{
	"elementwise": elementwise, "reduction": reductions, "movement": movement, "indexing": indexing,
	"window": windows,
	"matmul": products, "normalization": normalizations, "quantize": quantized,
	"resize":    {"Resize": resize, "Upsample": upsample},
	"recurrent": recurrent,
	"signal":    signals, "control": {},
}

// init adds the family mixed, which chains operators of several families.
func init() {
	mixed := map[string]recipe{}
	for _, f := range []map[string]recipe{elementwise, reductions, movement, indexing, products,
		normalizations} {
		maps.Copy(mixed, f)
	}
	families["mixed"] = mixed
}

// tensors are a node's inputs, nil for an optional one that is left out.
type tensors = []*onnx.Tensor

// none says that the recipe has nothing for the operator set.
func none() (tensors, []onnx.Attr, int) { return nil, nil, -1 }

// each gives one recipe to several operators.
func each(r recipe, names ...string) map[string]recipe {
	m := map[string]recipe{}
	for _, n := range names {
		m[n] = r
	}
	return m
}

// join is one table of several, in which a later one replaces an earlier one's recipes.
func join(ms ...map[string]recipe) map[string]recipe {
	out := map[string]recipe{}
	for _, m := range ms {
		maps.Copy(out, m)
	}
	return out
}

// unary draws one tensor.
func unary(attrs ...func(g *generator) onnx.Attr) recipe {
	return func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		as := g.drawn(attrs)
		return tensors{g.tensor(d, g.shape(0, 4)...)}, as, 0
	}
}

// drawn gives each attribute half of the time, and draws no other.
func (g *generator) drawn(attrs []func(g *generator) onnx.Attr) (as []onnx.Attr) {
	for _, a := range attrs {
		if g.IntN(2) == 0 {
			as = append(as, a(g))
		}
	}
	return as
}

// number, whole and text draw an attribute of a float, an integer or a string.
func number(name string, lo, hi float64) func(g *generator) onnx.Attr {
	return func(g *generator) onnx.Attr { return onnx.FloatAttr(name, float32(lo+(hi-lo)*g.Float64())) }
}

// whole draws one of the numbers listed.
func whole(name string, of ...int) func(g *generator) onnx.Attr {
	return func(g *generator) onnx.Attr { return onnx.IntAttr(name, pick(g, of...)) }
}

// text draws one of the words listed.
func text(name string, of ...string) func(g *generator) onnx.Attr {
	return func(g *generator) onnx.Attr { return onnx.StrAttr(name, pick(g, of...)) }
}

// binary draws two tensors that can be broadcast. One in three pairs is exchanged, so that the
// first operand is broadcast as well.
func binary(attrs ...func(g *generator) onnx.Attr) recipe {
	return func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		in, as, n := unary(attrs...)(g, d)
		other := g.broadcastable(in[0].Shape)
		in = append(in, g.tensor(d, other...))
		if g.IntN(3) == 0 {
			in[0], in[1] = in[1], in[0]
		}
		return in, as, n
	}
}

// nonzero keeps integers from being divided by zero. It replaces every zero of the second tensor,
// floats among them.
func nonzero(r recipe) recipe {
	return func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		in, as, n := r(g, d)
		t := in[1]
		for i := range t.Len() {
			if t.At(i) == 0 {
				one := g.tensor(d, 1)
				for one.At(0) == 0 {
					one = g.tensor(d, 1)
				}
				set(t, i, one)
			}
		}
		return in, as, n
	}
}

// set copies the one element of v to element i of t. Reflection serves all element types; t and v
// must be of the same.
func set(t *onnx.Tensor, i int, v *onnx.Tensor) {
	reflect.ValueOf(t.Data).Index(i).Set(reflect.ValueOf(v.Data).Index(0))
}

// castable are the types that a cast goes to: bfloat16, strings and types of 4 bits are left out.
var castable = []onnx.DType{onnx.Float32, onnx.Float64, onnx.Float16, onnx.Int8, onnx.Int16,
	onnx.Int32, onnx.Int64, onnx.Uint8, onnx.Uint16, onnx.Uint32, onnx.Uint64, onnx.Bool}

// elementwise are operators on each element alone, or on those of several operands at one place.
var elementwise = join(
	each(unary(), "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil",
		"Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish", "Identity",
		"IsNaN", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin",
		"Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "Dropout"),
	each(binary(), "Add", "Sub", "Mul", "And", "Or", "Xor", "Equal", "Greater", "GreaterOrEqual",
		"Less", "LessOrEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
	each(nonzero(binary()), "Div"),
	map[string]recipe{
		"Celu": unary(number("alpha", .2, 3)), "Elu": unary(number("alpha", .2, 3)),
		"LeakyRelu":       unary(number("alpha", 0, 1)),
		"ThresholdedRelu": unary(number("alpha", 0, 1)),
		"Selu":            unary(number("alpha", .2, 3), number("gamma", .2, 3)),
		"HardSigmoid":     unary(number("alpha", .05, 1), number("beta", 0, 1)),
		"Shrink":          unary(number("lambd", 0, 1), number("bias", 0, 1)),
		"IsInf":           unary(whole("detect_positive", 0, 1), whole("detect_negative", 0, 1)),
		"Gelu":            unary(text("approximate", "none", "tanh")),
		// Floats need fmod, since the operator's other remainder is of integers alone.
		"Mod": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
			in, _, n := nonzero(binary())(g, d)
			return in, []onnx.Attr{onnx.BoolAttr("fmod", d.IsFloat() || g.IntN(2) == 0)}, n
		},
		"BitShift": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
			in, _, n := binary()(g, d)
			return in, []onnx.Attr{text("direction", "LEFT", "RIGHT")(g)}, n
		},
		"PRelu": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
			x := g.tensor(d, g.shape(1, 4)...)
			return tensors{x, g.tensor(d, g.broadcastable(x.Shape)...)}, nil, 0
		},
		"Pow": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
			x := g.tensor(d, g.shape(0, 3)...)
			e := d
			if g.opset >= 12 && !g.double {
				e = pick(g, onnx.Float32, onnx.Int32, onnx.Int64, d)
			}
			s := g.broadcastable(x.Shape)
			// Integers to a negative power have no defined result.
			switch y := g.index(0, 4, s...); e {
			case onnx.Int64:
				return tensors{x, y}, nil, 0
			case onnx.Int32:
				narrow, _ := onnx.Zeros(e, s...)
				for i, v := range y.I64() {
					narrow.Data.([]int32)[i] = int32(v)
				}
				return tensors{x, narrow}, nil, 0
			}
			return tensors{x, g.tensor(e, s...)}, nil, 0
		},
		"Where": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
			t := g.number(op.Lookup("", "Where", g.opset).In[1].Types)
			s := g.shape(0, 4)
			return tensors{g.tensor(onnx.Bool, g.broadcastable(s)...), g.tensor(t, s...),
				g.tensor(t, g.broadcastable(s)...)}, nil, 0
		},
		"Clip": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
			x := g.tensor(d, g.shape(0, 4)...)
			if g.opset < 11 {
				return tensors{x}, g.some(onnx.FloatAttr("min", -.7), onnx.FloatAttr("max", .4)), 0
			}
			// Bounds are put in order, as engines may differ where the lower one is above the
			// upper.
			lo, hi := g.tensor(d), g.tensor(d)
			if lo.At(0) > hi.At(0) {
				lo, hi = hi, lo
			}
			return tensors{x, pick(g, lo, nil), pick(g, hi, nil)}, nil, 0
		},
		"Cast": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
			to := g.castType()
			return tensors{g.tensor(d, g.shape(0, 3)...)},
				[]onnx.Attr{onnx.IntAttr("to", int(to))}, 0
		},
		"CastLike": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
			to := g.castType()
			return tensors{g.tensor(d, g.shape(0, 3)...), g.tensor(to, g.shape(0, 1)...)}, nil, 0
		},
	},
	each(func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		s := g.shape(0, 4)
		in := tensors{g.tensor(d, s...)}
		for range g.IntN(4) {
			other := g.broadcastable(s)
			if g.opset < 8 {
				other = s // they broadcast from operator set 8 on
			}
			in = append(in, g.tensor(d, other...))
		}
		g.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
		return in, nil, 0
	}, "Max", "Min", "Mean", "Sum"),
)

// castType draws the type that a cast goes to. For gradients it is float64, since others have none
// or lose bits.
func (g *generator) castType() onnx.DType {
	if to := pick(g, castable...); !g.double {
		return to
	}
	return onnx.Float64
}

// number draws one of a set of element types.
func (g *generator) number(types op.TypeSet) onnx.DType {
	var of []onnx.DType
	for _, d := range castable {
		if types.Has(d) {
			of = append(of, d)
		}
	}
	if g.double {
		return onnx.Float64
	}
	return pick(g, of...)
}

// reductions work along axes, which are an attribute or an input by the operator set.
var reductions = join(
	each(func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x := g.tensor(d, g.shape(0, 4)...)
		axes := g.axes(len(x.Shape))
		attrs := g.some(onnx.BoolAttr("keepdims", g.IntN(2) == 0))
		return tensors{x, vector(axes)},
			append(attrs, g.some(onnx.BoolAttr("noop_with_empty_axes", g.IntN(2) == 0))...), 0
	}, "ReduceSum"),
	each(func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x := g.tensor(d, g.shape(0, 4)...)
		if x.Len() == 0 && d != onnx.Float32 { // the ONNX Runtime ends the program on some of them
			x, _, _ = g.along(d, 1, 4)
		}
		axes, attrs := g.axes(len(x.Shape)), g.some(onnx.BoolAttr("keepdims", g.IntN(2) == 0))
		if g.opset < 18 {
			if len(axes) > 0 {
				attrs = append(attrs, onnx.IntsAttr("axes", axes...))
			}
			return tensors{x}, attrs, 0
		}
		attrs = append(attrs, g.some(onnx.BoolAttr("noop_with_empty_axes", g.IntN(2) == 0))...)
		if g.IntN(4) == 0 {
			return tensors{x}, attrs, 0
		}
		return tensors{x, vector(axes)}, attrs, 0
	}, "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
		"ReduceLogSum", "ReduceLogSumExp"),
	each(func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x := g.tensor(d, g.shape(1, 4)...)
		return tensors{x}, g.some(onnx.IntAttr("axis", g.axis(len(x.Shape))),
			onnx.BoolAttr("keepdims", g.IntN(2) == 0), onnx.BoolAttr("select_last_index",
				g.IntN(2) == 0)), 0
	}, "ArgMax", "ArgMin"),
	each(func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x := g.tensor(d, g.shape(1, 4)...)
		return tensors{x}, []onnx.Attr{onnx.IntAttr("axis", g.axis(len(x.Shape)))}, 0
	}, "Softmax", "LogSoftmax", "Hardmax"),
	map[string]recipe{
		"CumSum": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
			x := g.tensor(d, g.shape(1, 4)...)
			return tensors{x, onnx.Scalar(int64(g.axis(len(x.Shape))))},
				g.some(onnx.IntAttr("exclusive", 1), onnx.IntAttr("reverse", 1)), 0
		},
		"TopK": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
			x, a, _ := g.along(d, 1, 3) // the ONNX Runtime ends the program where there is no element
			n := x.Shape[(a+len(x.Shape))%len(x.Shape)]
			k := g.IntN(n + 1)
			attrs := append(g.some(onnx.IntAttr("largest", g.IntN(2))), onnx.IntAttr("axis", a))
			if g.opset < 10 {
				return tensors{x}, append(attrs, onnx.IntAttr("k", max(k, 1))), 2
			}
			return tensors{x, onnx.Vector(int64(k))}, attrs, 2
		},
	},
)

// recurrent layers of random sizes with random extras.
var recurrent = map[string]recipe{"RNN": layer(1, 1), "GRU": layer(3, 2), "LSTM": layer(4, 3)}

// layer draws W [dirs, gates hidden, features] and R [dirs, gates hidden, hidden], with acts
// activations a direction. Each optional input is left out half of the time: bias, lengths, states
// and the LSTM's
// peepholes.
func layer(gates, acts int) recipe {
	return func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		steps, batch, features, hidden := 1+g.IntN(4), 1+g.IntN(3), 1+g.IntN(3), 1+g.IntN(3)
		dirs, direction := 1, pick(g, "forward", "reverse", "bidirectional")
		if direction == "bidirectional" {
			dirs = 2
		}
		attrs := []onnx.Attr{onnx.IntAttr("hidden_size", hidden),
			onnx.StrAttr("direction", direction)}
		in := tensors{g.tensor(d, steps, batch, features), g.tensor(d, dirs, gates*hidden, features),
			g.tensor(d, dirs, gates*hidden, hidden)}
		optional := tensors{g.tensor(d, dirs, 2*gates*hidden), nil,
			g.tensor(d, dirs, batch, hidden)}
		lens := make([]int32, batch)
		for i := range lens {
			lens[i] = int32(1 + g.IntN(steps))
		}
		optional[1] = onnx.Vector(lens...)
		if gates == 4 {
			optional = append(optional, g.tensor(d, dirs, batch, hidden),
				g.tensor(d, dirs, 3*hidden))
			attrs = append(attrs, g.some(onnx.IntAttr("input_forget", 1))...)
		}
		if gates == 3 {
			attrs = append(attrs, g.some(onnx.IntAttr("linear_before_reset", 1))...)
		}
		for i := range optional {
			if g.IntN(2) == 0 {
				optional[i] = nil
			}
		}
		if g.IntN(4) == 0 {
			attrs = append(attrs, onnx.FloatAttr("clip", .5+g.Float32()))
		}
		if g.IntN(3) == 0 {
			names := make([]string, acts*dirs)
			for i := range names {
				names[i] = pick(g, "Relu", "Tanh", "Sigmoid", "Softsign", "Softplus",
					"LeakyRelu", "Elu", "HardSigmoid", "ThresholdedRelu")
				// the ONNX Runtime's RNN takes alphas by direction, and reads beyond a list of
				// those that are needed
				if gates == 1 {
					names[i] = pick(g, "Relu", "Tanh", "Sigmoid", "Softsign", "Softplus")
				}
			}
			// The ONNX Runtime takes 0 for an alpha that is not given, and not the operator's
			// default.
			var alphas, betas []float32
			for _, name := range names {
				if slices.Contains([]string{"LeakyRelu", "Elu", "HardSigmoid", "ThresholdedRelu"}, name) {
					alphas = append(alphas, .1+g.Float32())
				}
				if name == "HardSigmoid" {
					betas = append(betas, g.Float32())
				}
			}
			attrs = append(attrs, onnx.Attr{Name: "activations", Kind: onnx.AttrStrings, Strs: names})
			if alphas != nil { // of an empty list the ONNX Runtime ends the program
				attrs = append(attrs, onnx.FloatsAttr("activation_alpha", alphas...))
			}
			if betas != nil {
				attrs = append(attrs, onnx.FloatsAttr("activation_beta", betas...))
			}
		}
		outputs := 2
		if gates == 4 {
			outputs = 3
		}
		return append(in, optional...), attrs, outputs
	}
}

// signals has a DFT of one side take real numbers forward and complex ones backward, as the
// standard does.
var signals = join(
	map[string]recipe{
		"DFT": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
			s := append(g.shape(2, 3), 1+g.IntN(2))
			for i := range s {
				s[i] = max(1, s[i])
			}
			a := 1 + g.IntN(len(s)-2)
			inverse := g.IntN(2) == 0
			attrs := []onnx.Attr{onnx.BoolAttr("inverse", inverse),
				onnx.BoolAttr("onesided", inverse == (s[len(s)-1] == 2) && g.IntN(2) == 0)}
			// the ONNX Runtime does not come back from an inverse transform of one bin to the
			// length that follows from it, 0
			if inverse {
				s[a] = max(2, s[a])
			}
			in := tensors{g.tensor(d, s...), pick(g, nil, onnx.Scalar(int64(1+g.IntN(6))))}
			switch { // the default is 1, and from 20 on -2
			case g.opset >= 20 && a == len(s)-2:
				return append(in, pick(g, nil, onnx.Scalar(int64(a)))), attrs, 0
			case g.opset >= 20:
				return append(in, onnx.Scalar(int64(a))), attrs, 0
			case a == 1:
				return in, append(attrs, g.some(onnx.IntAttr("axis", a))...), 0
			}
			return in, append(attrs, onnx.IntAttr("axis", a)), 0
		},
		// The signal is [batch, n, 1], real; frames are at most as long. Where the window is left
		// out, the frame's length stands alone.
		"STFT": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
			n := 4 + g.IntN(8)
			length := 1 + g.IntN(n)
			in := tensors{g.tensor(d, 1+g.IntN(2), n, 1), onnx.Scalar(int64(1 + g.IntN(4))),
				pick(g, nil, g.tensor(d, length)), onnx.Scalar(int64(length))}
			return in, g.some(onnx.IntAttr("onesided", g.IntN(2))), 0
		},
	},
	each(func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		size := onnx.Scalar(int64(1 + g.IntN(9)))
		if d == onnx.Int32 {
			size = onnx.Scalar(int32(1 + g.IntN(9)))
		}
		return tensors{size}, g.some(onnx.IntAttr("periodic", g.IntN(2)),
			onnx.IntAttr("output_datatype", int(pick(g, onnx.Float32, onnx.Float64)))), 0
	}, "HannWindow", "HammingWindow", "BlackmanWindow"),
)

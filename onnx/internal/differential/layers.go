package differential

import (
	"slices"

	"fmp/onnx"
)

// window draws the attributes of a window of n axes over sizes; the sizes are chosen so that it
// fits. Sizes are at least the window's extent (k - 1) d + 1, so that one window fits without
// padding. Pads are less than the kernel, since the ONNX Runtime refuses others in poolings. Of
// four cases one has no padding and one auto_pad; pads and auto_pad exclude each other.
func (g *generator) window(n int, dilated bool) (sizes []int, kernel []int, attrs []onnx.Attr) {
	strides, dilations, pads := make([]int, n), make([]int, n), make([]int, 2*n)
	for i := range n {
		k, dil := 1+g.IntN(3), 1
		if dilated && g.IntN(3) == 0 {
			dil = 2
		}
		kernel = append(kernel, k)
		strides[i], dilations[i] = 1+g.IntN(2), dil
		extent := (k-1)*dil + 1
		pads[i], pads[n+i] = g.IntN(k), g.IntN(k)
		sizes = append(sizes, extent+g.IntN(4))
	}
	attrs = append(g.some(onnx.IntsAttr("strides", strides...)),
		onnx.IntsAttr("kernel_shape", kernel...))
	if dilated {
		attrs = append(attrs, onnx.IntsAttr("dilations", dilations...))
	}
	switch g.IntN(4) {
	case 0:
	case 1:
		attrs = append(attrs, onnx.StrAttr("auto_pad", pick(g, "SAME_UPPER", "SAME_LOWER", "VALID")))
	default:
		attrs = append(attrs, onnx.IntsAttr("pads", pads...))
	}
	return sizes, kernel, attrs
}

// convolution draws one; the weights of a transposed one begin with the channels of the input. The
// weight is [group m, c, k...], and [group c, m, k...] of a transposed one.
func convolution(transposed bool) recipe {
	return func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		sizes, kernel, attrs := g.window(1+g.IntN(2), true)
		group, c, m := 1+g.IntN(2), 1+g.IntN(2), 1+g.IntN(2)
		x := g.tensor(d, append([]int{1 + g.IntN(2), group * c}, sizes...)...)
		weights := []int{group * m, c}
		if transposed {
			weights = []int{group * c, m}
		}
		w := g.tensor(d, append(weights, kernel...)...)
		return tensors{x, w, pick(g, nil, g.tensor(d, group*m))},
			append(attrs, onnx.IntAttr("group", group)), 0
	}
}

// windows draws dilations and ceil_mode of MaxPool from operator set 10 on, and dilations of the
// other poolings from 19.
var windows = join(
	map[string]recipe{"Conv": convolution(false), "ConvTranspose": convolution(true)},
	each(func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		sizes, _, attrs := g.window(1+g.IntN(2), g.opset >= 10)
		x := g.tensor(d, append([]int{1 + g.IntN(2), 1 + g.IntN(2)}, sizes...)...)
		if g.opset >= 10 {
			attrs = append(attrs, g.some(onnx.IntAttr("ceil_mode", 1))...)
		}
		// The indices are asked for of floats alone, whose elements are seldom equal.
		return tensors{x}, attrs, 1 + g.IntN(2)*boolInt(d.IsFloat())
	}, "MaxPool"),
	each(func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		sizes, _, attrs := g.window(1+g.IntN(2), g.opset >= 19)
		x := g.tensor(d, append([]int{1 + g.IntN(2), 1 + g.IntN(2)}, sizes...)...)
		attrs = append(attrs, g.some(onnx.IntAttr("count_include_pad", 1), onnx.IntAttr("p", 1+g.IntN(3)))...)
		if g.opset >= 10 {
			attrs = append(attrs, g.some(onnx.IntAttr("ceil_mode", 1))...)
		}
		return tensors{x}, attrs, 0
	}, "AveragePool", "LpPool"),
	each(func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x, _, _ := g.along(d, 3, 4)
		return tensors{x}, g.some(onnx.IntAttr("p", 1+g.IntN(3))), 0
	}, "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"),
)

// boolInt is 1 where b holds, as attributes have no booleans.
func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// products draws matrices with sizes of at least 1; those of a stack of them may be 0.
var products = map[string]recipe{
	"MatMul": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		m, k, n := 1+g.IntN(4), 1+g.IntN(4), 1+g.IntN(4)
		batch := g.shape(0, 2)
		a, b := append(slices.Clone(batch), m, k), append(g.broadcastable(batch), k, n)
		// A vector on the left is drawn without a stack, and one on the right with any.
		if len(batch) == 0 && g.IntN(4) == 0 {
			a = []int{k}
		} else if g.IntN(6) == 0 {
			b = []int{k}
		}
		return tensors{g.tensor(d, a...), g.tensor(d, b...)}, nil, 0
	},
	"Gemm": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		m, k, n := 1+g.IntN(4), 1+g.IntN(4), 1+g.IntN(4)
		ta, tb := g.IntN(2), g.IntN(2)
		a, b := []int{m, k}, []int{k, n}
		if ta == 1 {
			a = []int{k, m}
		}
		if tb == 1 {
			b = []int{n, k}
		}
		attrs := append(g.some(onnx.FloatAttr("alpha", float32(1+g.IntN(3))),
			onnx.FloatAttr("beta", float32(g.IntN(3)))), onnx.IntAttr("transA", ta),
			onnx.IntAttr("transB", tb))
		in := tensors{g.tensor(d, a...), g.tensor(d, b...), g.tensor(d, g.broadcastable([]int{m, n})...)}
		// C may be left out from operator set 11 on.
		if g.opset >= 11 && g.IntN(3) == 0 {
			in = in[:2]
		}
		return in, attrs, 0
	},
	"Einsum": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		i, j, k, b := 1+g.IntN(3), 1+g.IntN(3), 1+g.IntN(3), 1+g.IntN(3)
		t := func(s ...int) *onnx.Tensor { return g.tensor(d, s...) }
		type form struct {
			equation string
			in       tensors
		}
		// Products, sums, a diagonal, an outer product, an ellipsis, three operands, and results
		// that are not written out.
		f := pick(g, form{"ij,jk->ik", tensors{t(i, j), t(j, k)}},
			form{"bij,bjk->bik", tensors{t(b, i, j), t(b, j, k)}}, form{"ij->ji", tensors{t(i, j)}},
			form{"ij->", tensors{t(i, j)}}, form{"ij->j", tensors{t(i, j)}},
			form{"i,j->ij", tensors{t(i), t(j)}}, form{"...ij,...jk->...ik", tensors{t(b, i, j), t(j, k)}},
			form{"ii->i", tensors{t(i, i)}}, form{"bij,bkj->bik", tensors{t(b, i, j), t(b, k, j)}},
			form{"ij,ij->i", tensors{t(i, j), t(i, j)}},
			form{"ij,jk,kb->ib", tensors{t(i, j), t(j, k), t(k, b)}},
			form{"ij,jk", tensors{t(i, j), t(j, k)}}, form{"bi...->i...", tensors{t(b, i, j)}})
		return f.in, []onnx.Attr{onnx.StrAttr("equation", f.equation)}, 0
	},
}

// channels draws [batch, channels, sizes...] and a vector for each channel. Element i of positive
// is the vector that must be above 0, as a variance; -1 is none.
func channels(count int, positive int, attrs ...func(g *generator) onnx.Attr) recipe {
	return func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x, _, _ := g.along(d, 3, 4)
		in := tensors{x}
		for i := range count {
			v := g.tensor(d, x.Shape[1])
			if i == positive {
				for k := range v.Len() {
					one := g.tensor(d, 1)
					// Small variances would make large quotients, in which rounding grows.
					for one.At(0) <= 0.2 {
						one = g.tensor(d, 1)
					}
					set(v, k, one)
				}
			}
			in = append(in, v)
		}
		return in, g.drawn(attrs), 0
	}
}

// normalizations draw no axis of size 0: a mean of nothing is no number.
var normalizations = map[string]recipe{
	"BatchNormalization":    channels(4, 3, number("epsilon", 1e-5, .1), number("momentum", .5, 1)),
	"InstanceNormalization": channels(2, -1, number("epsilon", 1e-5, .1)),
	"LRN": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x, _, _ := g.along(d, 4, 4)
		// The size is odd, 1 or 3, so that the window has a middle.
		return tensors{x}, append(g.some(onnx.FloatAttr("alpha", .1), onnx.FloatAttr("beta", .6),
			onnx.FloatAttr("bias", 1.5)), onnx.IntAttr("size", 1+2*g.IntN(2))), 0
	},
	"MeanVarianceNormalization": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x, _, _ := g.along(d, 4, 4)
		return tensors{x}, nil, 0
	},
	"LpNormalization": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x, a, _ := g.along(d, 1, 4)
		return tensors{x}, append(g.some(onnx.IntAttr("p", 1+g.IntN(2))),
			onnx.IntAttr("axis", a)), 0
	},
	"LayerNormalization": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x, a, k := g.along(d, 2, 4)
		s := x.Shape[k:]
		return tensors{x, g.tensor(d, s...), pick(g, nil, g.tensor(d, s...))},
			append(g.some(onnx.FloatAttr("epsilon", .01)), onnx.IntAttr("axis", a)), 1
	},
	"GroupNormalization": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		if g.opset < 21 {
			return none() // the ONNX Runtime reads scales of each channel in operator set 18 as well
		}
		groups := 1 + g.IntN(3)
		// Channels are a multiple of the groups.
		c := groups * (1 + g.IntN(2))
		return tensors{g.tensor(d, 1+g.IntN(2), c, 2, 1+g.IntN(3)), g.tensor(d, c), g.tensor(d, c)},
			[]onnx.Attr{onnx.IntAttr("num_groups", groups)}, 0
	},
	"NegativeLogLikelihoodLoss": loss, "SoftmaxCrossEntropyLoss": loss,
}

// loss draws weights of float32 alone; ignore_index may be a class of the input or not.
func loss(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
	x, _, _ := g.along(d, 2, 4)
	s := append([]int{x.Shape[0]}, x.Shape[2:]...)
	in := tensors{x, g.index(0, x.Shape[1], s...), nil}
	if g.IntN(2) == 0 {
		in[2] = scale(g, x.Shape[1])
		if d != onnx.Float32 {
			in[2] = nil
		}
	}
	return in, g.some(onnx.StrAttr("reduction", pick(g, "none", "mean", "sum")),
		onnx.IntAttr("ignore_index", g.IntN(3))), 0
}

// scale draws scales from 0.05 to 0.3, away from 0, by which values are divided.
func scale(g *generator, shape ...int) *onnx.Tensor {
	t := onnx.ZerosF32(shape...)
	for i := range t.F32() {
		t.F32()[i] = .05 + g.Float32()/4
	}
	return t
}

// quantized draws zero points of the type of the values that they shift; a missing one is 0.
var quantized = map[string]recipe{
	"QuantizeLinear": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		if d != onnx.Float32 {
			return none()
		}
		x, a, k := g.along(d, 1, 4)
		// A scale for each position of an axis came in operator set 13.
		z := pick(g, onnx.Uint8, onnx.Int8)
		if g.opset < 13 || g.IntN(2) == 0 {
			return tensors{x, scale(g), pick(g, nil, g.tensor(z))}, nil, 0
		}
		return tensors{x, scale(g, x.Shape[k]), g.tensor(z, x.Shape[k])},
			[]onnx.Attr{onnx.IntAttr("axis", a)}, 0
	},
	"DequantizeLinear": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x, a, k := g.along(d, 1, 4)
		if g.opset < 13 || g.IntN(2) == 0 {
			return tensors{x, scale(g)}, nil, 0
		}
		return tensors{x, scale(g, x.Shape[k])}, []onnx.Attr{onnx.IntAttr("axis", a)}, 0
	},
	"DynamicQuantizeLinear": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		// The outputs are the bytes, their scale and their zero point.
		return tensors{g.tensor(d, g.shape(1, 3)...)}, nil, 3
	},
	"MatMulInteger": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		m, k, n := 1+g.IntN(4), 1+g.IntN(4), 1+g.IntN(4)
		e := pick(g, onnx.Uint8, onnx.Int8)
		return tensors{g.tensor(d, m, k), g.tensor(e, k, n), pick(g, nil, g.tensor(d)),
			pick(g, nil, g.tensor(e))}, nil, 0
	},
	"QLinearMatMul": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		m, k, n := 1+g.IntN(4), 1+g.IntN(4), 1+g.IntN(4)
		return tensors{g.tensor(d, m, k), scale(g), g.tensor(d), g.tensor(d, k, n),
			scale(g), g.tensor(d), scale(g), g.tensor(d)}, nil, 0
	},
	"ConvInteger": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		sizes, kernel, attrs := g.window(2, true)
		c := 1 + g.IntN(2)
		e := d
		return tensors{g.tensor(d, append([]int{1, c}, sizes...)...),
				g.tensor(e, append([]int{1 + g.IntN(2), c}, kernel...)...), pick(g, nil, g.tensor(d))},
			attrs, 0
	},
}

// resize draws scales of tenths and fractions, at which float32 and float64 round apart.
func resize(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
	side := 1 + g.IntN(5)
	if !g.double { // a side that a tenth makes whole: the last bit tells the size and the nearest pixel
		side = pick(g, side, 1+g.IntN(64))
	}
	x := g.tensor(d, 1+g.IntN(2), 1+g.IntN(2), side, 1+g.IntN(5))
	mode := pick(g, "nearest", "linear", "cubic")
	attrs := []onnx.Attr{onnx.StrAttr("mode", mode)}
	if g.opset < 11 {
		if mode == "cubic" {
			return none()
		}
		return tensors{x, onnx.Vector(1, 1, float32(1+g.IntN(3)), float32(1+g.IntN(3)))}, attrs, 0
	}
	attrs = append(attrs, onnx.StrAttr("coordinate_transformation_mode",
		pick(g, "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")))
	attrs = append(attrs, g.some(
		onnx.StrAttr("nearest_mode", pick(g, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
		onnx.FloatAttr("cubic_coeff_a", -.5),
		onnx.IntAttr("exclude_outside", boolInt(mode == "cubic")))...)
	roi := onnx.Vector[float32]()
	// roi is needed before operator set 13, if only as an empty vector.
	if g.opset >= 13 {
		roi = nil
	}
	if g.IntN(2) == 0 {
		scale := func() float32 {
			return pick(g, .5, 1, 1.5, 2, .3+2*g.Float32(), float32(1+g.IntN(20))/10)
		}
		return tensors{x, roi, onnx.Vector(1, 1, scale(), scale())}, attrs, 0
	}
	return tensors{x, roi, roi, vector([]int{x.Shape[0], x.Shape[1], 1 + g.IntN(8), 1 + g.IntN(8)})},
		attrs, 0
}

// upsample enlarges by whole factors, which are an attribute before operator set 9.
func upsample(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
	x := g.tensor(d, 1+g.IntN(2), 1+g.IntN(2), 1+g.IntN(4), 1+g.IntN(4))
	scales := []float32{1, 1, float32(1 + g.IntN(3)), float32(1 + g.IntN(3))}
	attrs := []onnx.Attr{onnx.StrAttr("mode", pick(g, "nearest", "linear"))}
	if g.opset < 9 {
		return tensors{x}, append(attrs, onnx.FloatsAttr("scales", scales...)), 0
	}
	return tensors{x, onnx.Vector(scales...)}, attrs, 0
}

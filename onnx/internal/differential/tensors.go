package differential

import (
	"math"
	"slices"

	"fmp/onnx"
)

// axesOf is axes as an attribute before the operator set since, as input 1 from then on.
func (g *generator) axesOf(x *onnx.Tensor, since int, axes []int) (tensors, []onnx.Attr, int) {
	if g.opset < since {
		return tensors{x}, []onnx.Attr{onnx.IntsAttr("axes", axes...)}, 0
	}
	return tensors{x, vector(axes)}, nil, 0
}

// movement are operators that place elements without computing with them, and those that make
// tensors of a size.
var movement = map[string]recipe{
	"Reshape": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		s := g.shape(0, 4)
		// The sizes are shuffled, and one may be -1, which the others then settle. Of no elements
		// they would settle nothing.
		to := slices.Clone(s)
		g.Shuffle(len(to), func(i, j int) { to[i], to[j] = to[j], to[i] })
		if k := g.IntN(len(to) + 1); k < len(to) && product(s) > 0 {
			to[k] = -1
		}
		if product(s) == 0 {
			to = slices.Clone(s) // a zero copies the size that stands there
		}
		return tensors{g.tensor(d, s...), vector(to)}, nil, 0
	},
	"Flatten": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x := g.tensor(d, g.shape(1, 4)...)
		return tensors{x}, g.some(onnx.IntAttr("axis", g.IntN(len(x.Shape)+1))), 0
	},
	"Squeeze": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		s := g.shape(1, 4)
		axes := g.axes(len(s))
		for i, a := range axes {
			at := (a + len(s)) % len(s)
			// the ONNX Runtime infers another shape for axes counted from the end, which there are
			// from 11 on
			if s[at] = 1; g.opset < 11 {
				axes[i] = at
			}
		}
		if len(axes) == 0 {
			return tensors{g.tensor(d, s...)}, nil, 0
		}
		return g.axesOf(g.tensor(d, s...), 13, axes)
	},
	"Unsqueeze": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		s := g.shape(0, 3)
		extra := 1 + g.IntN(2)
		// Axes are those of the result, each once; negative ones came in operator set 11.
		all := g.Perm(len(s) + extra)[:extra]
		if g.opset >= 11 && g.IntN(2) == 0 {
			all[0] -= len(s) + extra
		}
		return g.axesOf(g.tensor(d, s...), 13, all)
	},
	"Transpose": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x := g.tensor(d, g.shape(1, 4)...)
		return tensors{x}, g.some(onnx.IntsAttr("perm", g.Perm(len(x.Shape))...)), 0
	},
	"Concat": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		s := g.shape(1, 4)
		a := g.axis(len(s))
		// Negative axes came in operator set 11.
		if g.opset < 11 {
			a = (a + len(s)) % len(s)
		}
		var in tensors
		for range 1 + g.IntN(3) {
			t := slices.Clone(s)
			t[(a+len(s))%len(s)] = g.IntN(4)
			in = append(in, g.tensor(d, t...))
		}
		return in, []onnx.Attr{onnx.IntAttr("axis", a)}, 0
	},
	"Split": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		s := g.shape(1, 4)
		a := g.axis(len(s))
		// Negative axes came in operator set 11.
		if g.opset < 11 {
			a = (a + len(s)) % len(s)
		}
		// Equal parts need no sizes, but their number from operator set 18 on. Sizes are an
		// attribute before 13.
		n := 1 + g.IntN(3)
		sizes, sum := make([]int, n), 0
		equal := g.IntN(2) == 0
		for i := range sizes {
			if sizes[i] = 1 + g.IntN(3); equal && i > 0 {
				sizes[i] = sizes[0]
			}
			sum += sizes[i]
		}
		s[(a+len(s))%len(s)] = sum
		x, attrs := g.tensor(d, s...), []onnx.Attr{onnx.IntAttr("axis", a)}
		switch {
		case equal && g.opset >= 18:
			return tensors{x}, append(attrs, onnx.IntAttr("num_outputs", n)), n
		case equal:
			return tensors{x}, attrs, n
		case g.opset < 13:
			return tensors{x}, append(attrs, onnx.IntsAttr("split", sizes...)), n
		}
		return tensors{x, vector(sizes)}, attrs, n
	},
	"Expand": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		to := g.shape(0, 4)
		return tensors{g.tensor(d, g.broadcastable(to)...), vector(to)}, nil, 0
	},
	// A repeat of 0 makes an axis empty.
	"Tile": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x := g.tensor(d, g.shape(1, 3)...)
		return tensors{x, g.index(0, 4, len(x.Shape))}, nil, 0
	},
	// Channels are a multiple of b squared.
	"DepthToSpace": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		b := 1 + g.IntN(3)
		return tensors{g.tensor(d, 1+g.IntN(2), b*b*(1+g.IntN(2)), 1+g.IntN(3), 1+g.IntN(3))},
			append(g.some(onnx.StrAttr("mode", pick(g, "DCR", "CRD"))),
				onnx.IntAttr("blocksize", b)), 0
	},
	// Height and width are multiples of b.
	"SpaceToDepth": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		b := 1 + g.IntN(3)
		return tensors{g.tensor(d, 1+g.IntN(2), 1+g.IntN(3), b*(1+g.IntN(2)), b*(1+g.IntN(2)))},
			[]onnx.Attr{onnx.IntAttr("blocksize", b)}, 0
	},
	// Sizes are at most 4, so that diagonals from -3 to 3 may lie beside the matrix.
	"Trilu": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		return tensors{g.tensor(d, g.shape(2, 4)...), pick(g, nil, onnx.Scalar(int64(g.IntN(7)-3)))},
			g.some(onnx.IntAttr("upper", g.IntN(2))), 0
	},
	// reflect needs pads below the size, and edge and wrap pads up to it. Negative pads are drawn
	// in the mode constant alone, and cut no axis below size 0.
	"Pad": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x := g.tensor(d, g.shape(1, 4)...)
		mode := pick(g, "constant", "reflect", "edge", "wrap")
		if mode == "wrap" && g.opset < 19 {
			mode = "constant"
		}
		pads := make([]int, 2*len(x.Shape))
		for i := range pads {
			n := x.Shape[i%len(x.Shape)]
			switch pads[i] = g.IntN(3); {
			case mode == "constant":
				pads[i] -= g.IntN(2)
				if n < 2 {
					pads[i] = max(0, pads[i])
				}
			case mode == "reflect":
				pads[i] = min(pads[i], max(0, n-1))
			default:
				pads[i] = min(pads[i], n)
			}
		}
		attrs := []onnx.Attr{onnx.StrAttr("mode", mode)}
		if g.opset < 11 {
			return tensors{x}, append(attrs, onnx.IntsAttr("pads", pads...)), 0
		}
		return tensors{x, vector(pads), pick(g, nil, g.tensor(d))}, attrs, 0
	},
	// Bounds reach beyond either end, which are clamped; the largest integers stand for open ends.
	"Slice": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x := g.tensor(d, g.shape(1, 4)...)
		axes := g.axes(len(x.Shape))
		if len(axes) == 0 || g.opset < 10 {
			axes = []int{g.IntN(len(x.Shape))}
		}
		var starts, ends, steps []int
		for range axes {
			starts, ends = append(starts, g.IntN(11)-5),
				append(ends, pick(g, g.IntN(11)-5, math.MaxInt32, -math.MaxInt32))
			steps = append(steps, pick(g, 1, 1, 2, -1, -2, 3))
		}
		if g.opset < 10 {
			return tensors{x}, []onnx.Attr{onnx.IntsAttr("starts", starts...),
				onnx.IntsAttr("ends", ends...), onnx.IntsAttr("axes", axes...)}, 0
		}
		return tensors{x, vector(starts), vector(ends), vector(axes), pick(g, nil, vector(steps))},
			nil, 0
	},
	"Shape": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		return tensors{g.tensor(d, g.shape(0, 4)...)},
			g.some(onnx.IntAttr("start", g.IntN(7)-3), onnx.IntAttr("end", g.IntN(7)-3)), 0
	},
	"Size": unary(),
	"ConstantOfShape": func(g *generator, _ onnx.DType) (tensors, []onnx.Attr, int) {
		return tensors{vector(g.shape(0, 3))},
			g.some(onnx.TensorAttr("value", g.tensor(pick(g, castable...), 1))), 0
	},
	"EyeLike": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		return tensors{g.tensor(d, g.shape(2, 2)...)}, g.some(onnx.IntAttr("k", g.IntN(5)-2)), 0
	},
	// A step near 0 would make a range beyond memory, so that 100 elements are the most.
	"Range": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		start, limit, step := g.tensor(d), g.tensor(d), g.tensor(d)
		for step.At(0) == 0 {
			step = g.tensor(d)
		}
		if s := (limit.At(0) - start.At(0)) / step.At(0); s > 100 {
			return none()
		}
		return tensors{start, limit, step}, nil, 0
	},
}

// along draws a tensor of rank lo to hi, one of its axes, and that axis counted from the front. It
// draws again until no size is 0, since an index needs a place to name.
func (g *generator) along(d onnx.DType, lo, hi int) (x *onnx.Tensor, axis, front int) {
	x = g.tensor(d, g.shape(lo, hi)...)
	for i := range x.Shape {
		if x.Shape[i] == 0 {
			return g.along(d, lo, hi)
		}
	}
	axis = g.axis(len(x.Shape))
	return x, axis, (axis + len(x.Shape)) % len(x.Shape)
}

// indexing are operators that read or write the places which an operand names. A place out of
// bounds is an error of the run, but for OneHot, and is not drawn.
var indexing = map[string]recipe{
	"Gather": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x, a, k := g.along(d, 1, 3)
		n := x.Shape[k]
		lo := 0
		if g.opset >= 11 {
			lo = -n
		}
		return tensors{x, g.index(lo, n, g.shape(0, 2)...)}, []onnx.Attr{onnx.IntAttr("axis", a)}, 0
	},
	// Indices are at most as many as the data on the other axes, and 0 to 4 on the gathered one.
	"GatherElements": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x, a, k := g.along(d, 1, 3)
		s := slices.Clone(x.Shape)
		for i := range s {
			if s[i] = 1 + g.IntN(s[i]); i == k {
				s[i] = g.IntN(5)
			}
		}
		return tensors{x, g.index(-x.Shape[k], x.Shape[k], s...)},
			[]onnx.Attr{onnx.IntAttr("axis", a)}, 0
	},
	"GatherND": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x, _, _ := g.along(d, 1, 4)
		// batch_dims came in operator set 12, and leaves at least one axis to the indices.
		b := 0
		if g.opset >= 12 && len(x.Shape) > 1 {
			b = g.IntN(min(2, len(x.Shape)))
		}
		k := 1 + g.IntN(len(x.Shape)-b)
		s := append(append(slices.Clone(x.Shape[:b]), g.shape(0, 2)...), k)
		at := g.index(0, 1, s...)
		for i := range at.I64() {
			n := x.Shape[b+i%k]
			at.I64()[i] = int64(g.IntN(2*n) - n)
		}
		return tensors{x, at}, []onnx.Attr{onnx.IntAttr("batch_dims", b)}, 0
	},
	"ScatterElements": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x, a, k := g.along(d, 1, 3)
		s := slices.Clone(x.Shape)
		for i := range s {
			s[i] = 1 + g.IntN(s[i])
		}
		at := g.index(0, 1, s...)
		reduction := pick(g, "none", "add", "mul", "max", "min")
		if reduction == "none" || g.opset < 16 || g.opset < 18 && len(reduction) == 3 &&
			reduction[0] == 'm' && reduction != "mul" {
			reduction = "none" // each place once: which of two is written is not defined
		}
		inner := product(s[k+1:])
		for o := range product(s[:k]) {
			for i := range inner {
				places := g.Perm(x.Shape[k])
				for j := range s[k] {
					v := places[j]
					if reduction != "none" {
						v = g.IntN(2*x.Shape[k]) - x.Shape[k]
					}
					at.I64()[(o*s[k]+j)*inner+i] = int64(v)
				}
			}
		}
		attrs := []onnx.Attr{onnx.IntAttr("axis", a)}
		if reduction != "none" {
			attrs = append(attrs, onnx.StrAttr("reduction", reduction))
		}
		return tensors{x, at, g.tensor(d, s...)}, attrs, 0
	},
	"ScatterND": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x, _, _ := g.along(d, 1, 3)
		// Indices are tuples of one, which name rows. Without a reduction each row is named at most
		// once.
		n := 1 + g.IntN(x.Shape[0])
		reduction := pick(g, "none", "add", "mul", "max", "min")
		if g.opset < 16 || g.opset < 18 && (reduction == "max" || reduction == "min") {
			reduction = "none"
		}
		at := g.index(0, x.Shape[0], n, 1)
		if reduction == "none" {
			for i, v := range g.Perm(x.Shape[0])[:n] {
				at.I64()[i] = int64(v)
			}
		}
		var attrs []onnx.Attr
		if reduction != "none" {
			attrs = append(attrs, onnx.StrAttr("reduction", reduction))
		}
		return tensors{x, at, g.tensor(d, append([]int{n}, x.Shape[1:]...)...)}, attrs, 0
	},
	// Without an axis the condition runs over the flattened value.
	"Compress": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x, a, k := g.along(d, 1, 3)
		if g.IntN(3) == 0 {
			return tensors{x, g.tensor(onnx.Bool, 1+g.IntN(x.Len()))}, nil, 0
		}
		if g.opset < 11 {
			a = k
		}
		return tensors{x, g.tensor(onnx.Bool, 1+g.IntN(x.Shape[k]))},
			[]onnx.Attr{onnx.IntAttr("axis", a)}, 0
	},
	// Time and batch are the first two axes in either order, and each sequence has at least one
	// step.
	"ReverseSequence": func(g *generator, d onnx.DType) (tensors, []onnx.Attr, int) {
		x, _, _ := g.along(d, 2, 4)
		t := g.IntN(2)
		return tensors{x, g.index(1, x.Shape[t]+1, x.Shape[1-t])},
			[]onnx.Attr{onnx.IntAttr("time_axis", t), onnx.IntAttr("batch_axis", 1-t)}, 0
	},
	// Indices go one beyond either end, where they point nowhere.
	"OneHot": func(g *generator, _ onnx.DType) (tensors, []onnx.Attr, int) {
		s := g.shape(1, 2)
		depth := 1 + g.IntN(4)
		// The axis is one of the result's, which has one more than the indices.
		a := g.IntN(2*len(s)+2) - len(s) - 1
		return tensors{g.index(-depth-1, depth+1, s...), onnx.Scalar(int64(depth)),
				g.tensor(pick(g, onnx.Float32, onnx.Int64), 2)},
			g.some(onnx.IntAttr("axis", a)), 0
	},
	"NonZero": unary(),
	"TopK":    reductions["TopK"],
}

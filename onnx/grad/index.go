package grad

import (
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

func init() {
	register(vjpCompress, "Compress")
	register(vjpCenterCropPad, "CenterCropPad")
	register(vjpSlice, "Slice")
	register(vjpGather, "Gather")
	register(func(c *call) []string {
		x := c.in(0)
		axis := c.axis(x)
		return []string{c.scatterAdd(c.shapeOf(x), c.in(1), c.g(), axis, c.dtype(x))}
	}, "GatherElements")
	register(func(c *call) []string {
		// ScatterND has no batch_dims, by which the cotangents would have to go back.
		if c.attrs.Int("batch_dims") != 0 {
			try.Fail("batch_dims other than 0 is not supported")
		}
		return []string{c.op("ScatterND", []string{c.filled(c.in(0), 0), c.in(1), c.g()},
			onnx.StrAttr("reduction", "add"))}
	}, "GatherND")
	register(vjpScatter, "ScatterElements", "ScatterND")
	// Sends the cotangents of the values to where the second output says they stood.
	register(func(c *call) []string {
		x := c.in(0)
		axis := c.axis(x)
		at := c.ensureOutput(1, onnx.ValueInfo{DType: onnx.Int64, Shape: c.shape(c.out(0))})
		return []string{c.scatterAdd(c.shapeOf(x), at, c.g(), axis, c.dtype(x))}
	}, "TopK")
	register(vjpPad, "Pad")
	register(vjpOneHot, "OneHot")
	// Turning the same steps round again puts them back.
	register(func(c *call) []string {
		return []string{c.op("ReverseSequence", []string{c.g(), c.in(1)}, c.node.Attrs...)}
	}, "ReverseSequence")
}

// scatterAdd adds updates into zeros of the given shape at positions at along axis. Positions that
// stand several times add up, as the adjoint of reading one element several times. The reduction
// came in operator set 16.
func (e *emitter) scatterAdd(shape, at, updates string, axis int, d onnx.DType) string {
	return e.op("ScatterElements", []string{e.filledShape(shape, 0, d), at, updates},
		onnx.IntAttr("axis", axis), onnx.StrAttr("reduction", "add"))
}

// sliced is a Slice whose gradient is taken: its axes from 0, a step for each, and starts and ends
// where they are constant.
type sliced struct {
	axes, steps  []int
	starts, ends []int
	known        bool // starts and ends
}

// vjpSlice puts the cotangent back between zeros: by Pad where the step is 1, by scattering along
// the axis otherwise.
func vjpSlice(c *call) []string {
	x, y := c.in(0), c.out(0)
	r := c.rank(x)
	s := c.sliced(r)
	sx := c.shape(x)
	padding := s.known && allOnes(s.steps)
	for i, a := range s.axes {
		// A start counted from the end, or perhaps beyond it, needs the size.
		padding = padding && (sx[a].IsKnown() || s.starts[i] == 0 || s.starts[i] > 0 &&
			c.shape(y) != nil && s.ends[i] > s.starts[i])
	}
	if padding {
		return []string{c.padSlice(s, r)}
	}
	return []string{c.scatterSlice(s, r)}
}

// sliced reads the operands of a Slice. Starts and ends may be computed by the graph where their
// count is known; axes and steps must be constant.
func (c *call) sliced(rank int) *sliced {
	s := &sliced{}
	var known2 bool
	s.starts, s.known = c.constInts(c.in(1))
	s.ends, known2 = c.constInts(c.in(2))
	s.known = s.known && known2
	// Without axes the slice is of the first ones, as many as there are starts.
	if c.in(3) == "" {
		n := len(s.starts)
		if !s.known {
			shape := c.shape(c.in(1))
			if len(shape) != 1 || !shape[0].IsKnown() || shape[0].Size > rank {
				try.Fail("the number of sliced axes is not known, or over the rank %d", rank)
			}
			n = shape[0].Size
		}
		s.axes = span(0, n)
	} else if a, ok := c.constInts(c.in(3)); ok {
		s.axes = append([]int{}, a...)
	} else {
		try.Fail("the axes are worked out by the graph; make them constant")
	}
	s.axes = c.axes(c.in(0), s.axes...)
	s.steps = ones(len(s.axes))
	if in := c.in(4); in != "" {
		steps, ok := c.constInts(in)
		if !ok {
			try.Fail("the steps are worked out by the graph; make them constant")
		}
		s.steps = steps
	}
	if n := len(s.axes); len(s.steps) != n || s.known && (len(s.starts) != n || len(s.ends) != n) {
		try.Fail("starts, ends, axes and steps differ in length")
	}
	return s
}

// padSlice pads the cotangent of a slice of steps 1. ȳ gets zeros before and behind it, until it
// has the size of x.
func (c *call) padSlice(s *sliced, rank int) string {
	x, y := c.in(0), c.out(0)
	sx := c.shape(x)
	before, after := make([]int, rank), make([]string, rank)
	for i := range after {
		after[i] = c.ints(0)
	}
	for i, a := range s.axes {
		if sx[a].IsKnown() {
			n := sx[a].Size
			lo, hi := bound(s.starts[i], n), bound(s.ends[i], n)
			before[a] = lo
			// An end before the start is an empty slice, whose padding alone has the size n.
			after[a] = c.ints(n - lo - max(0, hi-lo))
			continue
		}
		before[a] = s.starts[i]
		// Behind a slice of an open size lies the input's size less the output's, less the start.
		rest := c.op("Sub", []string{c.dim(x, a),
			c.op("Gather", []string{c.un("Shape", y), c.ints(a)})})
		after[a] = c.op("Sub", []string{rest, c.ints(s.starts[i])})
	}
	return c.op("Pad", []string{c.g(), c.vec(append([]string{c.ints(before...)}, after...)...)})
}

// scatterSlice slices the positions of x as the node does x. The positions that are left tell to
// which elements of x those of ȳ belong.
func (c *call) scatterSlice(s *sliced, rank int) string {
	return c.scatterAxes(s.axes, rank, func(i int, all string) string {
		part := func(v string) string {
			return c.op("Slice", []string{v, c.ints(i), c.ints(i + 1), c.ints(0)})
		}
		return c.op("Slice", []string{all, part(c.in(1)), part(c.in(2)), c.ints(0),
			c.ints(s.steps[i])})
	})
}

// scatterAxes adds each element of the cotangent to the element of x that it is a copy of, axis by
// axis, from the last: a node that works on several axes is one node an axis after the other. pick
// has the node's work on the positions 0, 1, ... of its i-th axis, as a vector.
func (c *call) scatterAxes(axes []int, rank int, pick func(i int, all string) string) string {
	x, y, g := c.in(0), c.out(0), c.g()
	sizes := make([]string, rank) // of g so far
	for i := range sizes {
		sizes[i] = c.op("Gather", []string{c.un("Shape", y), c.ints(i)})
	}
	for i, a := range slices.Backward(axes) {
		n := c.dim(x, a)
		zero, one := c.constant(onnx.Scalar(int64(0))), c.constant(onnx.Scalar(int64(1)))
		all := c.op("Range", []string{zero, c.op("Squeeze", []string{n, c.ints(0)}), one})
		at := c.along(a, pick(i, all), sizes)
		sizes[a] = n
		g = c.scatterAdd(c.vec(sizes...), at, g, a, c.dtype(x))
	}
	return g
}

// along repeats a vector, which lies along an axis, to a tensor of the given sizes.
func (c *call) along(axis int, v string, sizes []string) string {
	line := ones(len(sizes))
	line[axis] = -1
	return c.op("Expand", []string{c.reshape(v, c.ints(line...)), c.vec(sizes...)})
}

// dims are the sizes of all axes of v, each a vector of one.
func (c *call) dims(v string) []string {
	out := make([]string, c.rank(v))
	for i := range out {
		out[i] = c.dim(v, i)
	}
	return out
}

// bound is a start or end of Slice with step 1 on an axis of n, between 0 and n.
func bound(v, n int) int {
	if v < 0 {
		v += n
	}
	return min(max(v, 0), n)
}

// vjpGather adds each row of the cotangent to the row that it was read from. Indices below 0 count
// from the end in both nodes, and are handed on as they are. Indices of any shape become one axis
// of x: g is [before, indices, after].
func vjpGather(c *call) []string {
	x, at, g := c.in(0), c.in(1), c.g()
	axis := c.axis(x)
	count := c.reshape(c.un("Size", at), c.ints(1))
	if s, ok := c.sizes(at); ok {
		count = c.ints(product(s))
	}
	parts := c.dims(x)
	parts[axis] = count
	flat := c.vec(parts...) // all indices on one axis
	where := c.along(axis, at, parts)
	return []string{c.scatterAdd(c.shapeOf(x), where, c.reshape(g, flat), axis, c.dtype(x))}
}

// vjpScatter: nothing passes to elements that are replaced. The highest and the lowest share their
// cotangent among all that are equal to them, as PyTorch does. A product gives each factor the
// product of the others, which is 0 where one of them is.
func vjpScatter(c *call) []string {
	x, at, updates, g := c.in(0), c.in(1), c.in(2), c.g()
	gather := map[string]string{"ScatterElements": "GatherElements",
		"ScatterND": "GatherND"}[c.node.Op]
	var axis []onnx.Attr
	if c.node.Op == "ScatterElements" {
		axis = []onnx.Attr{onnx.IntAttr("axis", c.attrs.Int("axis"))}
	}
	read := func(v string) string { return c.op(gather, []string{v, at}, axis...) }
	scatter := func(v, u, reduction string) string {
		return c.op(c.node.Op, []string{v, at, u},
			append(slices.Clone(axis), onnx.StrAttr("reduction", reduction))...)
	}
	d := c.dtype(x)
	equal := func(v, w string) string { return c.cast(c.op("Equal", []string{v, w}), d) }
	kind := c.attrs.Str("reduction")
	switch kind {
	case "none":
		return []string{scatter(g, c.filled(updates, 0), "none"), "", read(g)}
	// y = x + u at the places: both slopes are 1.
	case "add":
		return []string{g, "", read(g)}
	case "max", "min":
		y := c.out(0)
		mine, theirs := equal(x, y), equal(updates, read(y))
		// The divisor is the number of elements that are equal to the result, x's own among them.
		each := c.div(g, scatter(mine, theirs, "add"))
		return []string{c.mul(mine, each), "", c.mul(theirs, read(each))}
	case "mul":
		if c.twice {
			try.Do(errTwice)
		}
		none := equal(updates, c.num(0, updates))
		factors := c.add(updates, none) // 1 in place of 0
		// zeros counts the updates of 0 at each place. alone is 1 where no other update there is 0.
		zeros := scatter(c.filled(x, 0), none, "add")
		alone := equal(c.sub(read(zeros), none), c.num(0, updates))
		// That is ȳ x times the product of the other updates at the place.
		others := c.mul(alone, c.div(read(scatter(c.mul(g, x), factors, "mul")), factors))
		return []string{c.mul(g, scatter(c.filled(x, 1), updates, "mul")), "", others}
	}
	try.Fail("reduction %s has no rule", kind)
	return nil
}

// vjpPad cuts the padding off again. An element that edge, reflect or wrap repeats gets the sum of
// its copies' cotangents. The padding value's cotangent is all of ȳ less the part that is kept.
func vjpPad(c *call) []string {
	x, pads, g := c.in(0), c.in(1), c.g()
	r := c.rank(x)
	mode := c.attrs.Str("mode")
	axes := span(0, r)
	if in := c.in(3); in != "" {
		a, ok := c.constInts(in)
		if !ok {
			try.Fail("the axes are worked out by the graph; make them constant")
		}
		axes = c.axes(x, a...)
	}
	out := []string{"", "", "", ""}
	if mode == "constant" {
		// Negative pads cut, so that Pad undoes itself.
		back := c.op("Neg", []string{pads})
		if p, ok := c.constInts(pads); ok {
			n := make([]int, len(p))
			for i, v := range p {
				n[i] = -v
			}
			back = c.ints(n...)
		}
		in := []string{g, back}
		if c.in(3) != "" {
			in = append(in, "", c.in(3))
		}
		kept := c.op("Pad", in)
		if c.wants(0) {
			out[0] = kept
		}
		if c.wants(2) {
			out[2] = c.reshapeLike(c.sub(c.sumAll(g), c.sumAll(kept)), c.in(2))
		}
		return out
	}
	if mode != "edge" && mode != "reflect" && mode != "wrap" {
		try.Fail("mode %s has no rule; allowed are constant, edge, reflect and wrap", mode)
	}
	// Padding the positions 0, 1, ... in the same way tells where each element came from.
	out[0] = c.scatterAxes(axes, r, func(i int, all string) string {
		ends := c.op("Gather", []string{pads, c.ints(i, len(axes)+i)})
		return c.op("Pad", []string{all, ends}, onnx.StrAttr("mode", mode))
	})
	return out
}

// vjpCompress puts each cotangent back where the condition took it from. Only a run tells how many
// elements the condition takes, so that sizes are read from the result of NonZero.
func vjpCompress(c *call) []string {
	x, g := c.in(0), c.g()
	at := c.reshape(c.un("NonZero", c.in(1)), c.ints(-1))
	count := c.reshape(c.un("Size", at), c.ints(1))
	if _, ok := c.node.Attr("axis"); !ok {
		flat := c.scatterAdd(c.reshape(c.un("Size", x), c.ints(1)), at, g, 0, c.dtype(x))
		return []string{c.reshape(flat, c.shapeOf(x)), ""}
	}
	axis, parts := c.axis(x), c.dims(x)
	parts[axis] = count
	where := c.along(axis, at, parts)
	return []string{c.scatterAdd(c.shapeOf(x), where, g, axis, c.dtype(x)), ""}
}

// vjpCenterCropPad cuts where the node padded, and pads where it cut: about the same centre. The
// same operator with the input's sizes does both.
func vjpCenterCropPad(c *call) []string {
	to := c.shapeOf(c.in(0))
	axes, ok := c.node.Attr("axes")
	if !ok {
		return []string{c.op("CenterCropPad", []string{c.g(), to}), ""}
	}
	to = c.op("Gather", []string{to, c.constant(onnx.Vector(axes.Ints...))})
	return []string{c.op("CenterCropPad", []string{c.g(), to}, axes), ""}
}

// vjpOneHot: each of the two values gets the cotangents of the elements that hold it. The indices
// and the depth are integers, or floats that stand for them, and have no slope.
func vjpOneHot(c *call) []string {
	g, values := c.g(), c.in(2)
	total := func(off, on float32) string {
		mask := c.op("OneHot", []string{c.in(0), c.in(1),
			c.cast(c.constant(onnx.Vector(off, on)), c.dtype(values))},
			onnx.IntAttr("axis", c.attrs.Int("axis")))
		return c.reshape(c.sumAll(c.mul(g, mask)), c.ints(1))
	}
	return []string{"", "", c.concat(0, total(1, 0), total(0, 1))}
}

package shape

import (
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Operators that move elements without computing with them.
var movementRules = merge(map[string]rule{
	"Reshape": inferReshape, "Flatten": inferFlatten, "Concat": inferConcat, "Split": inferSplit,
	"Squeeze": inferSqueeze, "Unsqueeze": inferUnsqueeze, "Expand": inferExpand,
	"GatherElements": inferGatherElements, "Unique": inferUnique,
	"Compress":  func(c *call) { c.chosen(c.inf.unknownSize()) },
	"Transpose": shaped(inferTranspose), "Slice": shaped(inferSlice), "Tile": shaped(inferTile),
	"Gather": shaped(inferGather), "GatherND": shaped(inferGatherND), "Pad": shaped(inferPad),
	"CenterCropPad": shaped(inferCenterCropPad), "DepthToSpace": shaped(blocks),
	"SpaceToDepth": shaped(blocks),
}, each(typeFrom(0), "Scatter", "TensorScatter", "ScatterElements", "ScatterND", "Trilu",
	"ReverseSequence"))

// inferReshape: the sizes stand in the second input, before operator set 5 in an attribute. A size
// of 0 is the input's own there, unless allowzero is set; one -1 takes the rest of the elements.
// Where the sizes are not known, the length of their vector still tells the rank. Elements keep
// their order, so that followed ones are followed through the new shape.
func inferReshape(c *call) {
	x, want := c.in[0], c.arg(1) // an attribute before operator set 5
	c.set(0, x.dtype, nil)
	if want.data == nil {
		if len(want.shape) == 1 {
			if n, ok := want.shape[0].value(); ok && n <= onnx.MaxRank {
				c.set(0, x.dtype, c.unknownSizes(n))
			}
		}
		return
	}
	out := make([]expr, len(want.data))
	infer := -1
	for i, e := range want.data {
		v, known := e.value()
		switch {
		case known && v == 0 && c.attrs.Int("allowzero") == 0:
			switch {
			case !x.ranked():
				out[i] = c.inf.unknownSize()
			case i >= len(x.shape):
				try.Fail("size 0 of axis %d copies an axis that the input lacks", i)
			default:
				out[i] = x.shape[i]
			}
		case known && v == -1:
			if infer >= 0 {
				try.Fail("the shape has -1 twice")
			}
			infer = i
		case known && v < 0:
			try.Fail("the shape has the size %d", v)
		default:
			out[i] = c.size(e)
		}
	}
	c.fitReshape(out, infer)
	c.set(0, x.dtype, out)
	if x.ranked() && x.data != nil {
		c.follow(x.data)
	}
}

// fitReshape works out the size of axis infer (-1: there is none) of a shape for the input's
// elements, and checks their number. An exact quotient of polynomials settles symbols: [batch, 12]
// reshaped to [-1, 3] gives [4*batch, 3]. Where the division leaves a rest among symbols, the axis
// is an unknown size and no error. Numbers of elements that are not both known are not compared.
func (c *call) fitReshape(out []expr, infer int) {
	var total expr
	if c.in[0].ranked() {
		total = product(c.in[0].shape)
	}
	if infer < 0 {
		if total == nil {
			return
		}
		a, aok := total.value()
		b, bok := product(out).value()
		if aok && bok && a != b {
			try.Fail("%d elements cannot be reshaped to %s of %d", a,
				c.inf.shapeText(out), b)
		}
		return
	}
	rest := product(slices.Delete(slices.Clone(out), infer, infer+1))
	out[infer] = c.inf.unknownSize()
	if total == nil || rest == nil {
		return
	}
	if rest.is(0) {
		try.Fail("the size -1 cannot be worked out beside a size of 0")
	}
	if q, ok := total.over(rest); ok {
		out[infer] = q
	} else if t, known := total.value(); known {
		if r, known := rest.value(); known {
			try.Fail("%d elements cannot be reshaped to %s, a multiple of %d", t,
				c.inf.shapeText(out), r)
		}
	}
}

// inferFlatten: [d0 d1 ... d(a-1), da ... d(r-1)], of two sizes for any rank r; axis a may be r.
// With axis 0 the first size is 1, the product of no sizes.
func inferFlatten(c *call) {
	x := c.in[0]
	c.set(0, x.dtype, c.unknownSizes(2))
	if !x.ranked() {
		return
	}
	a := c.attrs.Int("axis")
	if a < 0 {
		a += len(x.shape)
	}
	if a < 0 || a > len(x.shape) {
		try.Fail("axis %d of a value of rank %d", c.attrs.Int("axis"), len(x.shape))
	}
	// A product beyond the bounds is nil, which [inference.learn] makes an unknown size.
	c.set(0, x.dtype, []expr{product(x.shape[:a]), product(x.shape[a:])})
}

// inferTranspose: out[i] = in[perm[i]]; without perm the axes come in reverse. Negative entries of
// perm are refused, as the standard has none. A perm of another length than the rank is an error.
func inferTranspose(c *call, x *fact) []expr {
	perm := c.attrs.Ints("perm")
	if perm == nil {
		out := slices.Clone(x.shape)
		slices.Reverse(out)
		return out
	}
	if len(perm) != len(x.shape) {
		try.Fail("perm %v has %d axes and the input %d", perm, len(perm),
			len(x.shape))
	}
	out, seen := make([]expr, len(perm)), make([]bool, len(perm))
	for i, p := range perm {
		if p < 0 || p >= len(perm) || seen[p] {
			try.Fail("perm %v is no permutation", perm)
		}
		seen[p] = true
		out[i] = x.shape[p]
	}
	return out
}

// inferConcat: sizes add up on the axis and must agree on the others. Known elements of vectors are
// joined as well: exporters put shapes together so. An input of unknown rank leaves the joined axis
// open, while the others still check each other.
func inferConcat(c *call) {
	d := try.Get(sameType(c.in...))
	c.set(0, d, nil)
	var out []expr
	ranked := true
	a := c.attrs.Int("axis")
	for i := range c.in {
		s := c.arg(i).shape
		if s == nil {
			ranked = false
			continue
		}
		x := try.Get(axis(a, len(s)))
		if out == nil {
			out = slices.Clone(s)
			continue
		}
		if len(s) != len(out) {
			try.Fail("inputs of rank %d and %d cannot be joined", len(out), len(s))
		}
		for j := range s {
			if j == x {
				out[j] = out[j].plus(s[j])
				continue
			}
			both, err := meet(out[j], s[j])
			if err != nil {
				try.Fail("axis %d: %w; only axis %d may", j, err, x)
			}
			out[j] = both
		}
	}
	if out == nil {
		return
	}
	if !ranked {
		x, _ := axis(a, len(out))
		out[x] = c.inf.unknownSize()
	}
	c.set(0, d, out)
	if ranked && len(out) == 1 {
		var data []expr
		for i := range c.in {
			if c.arg(i).data == nil {
				// A vector of unknown integers joins as new symbols, so that its neighbours stay
				// known. Longer ones than a shape can be are not followed.
				n, ok := c.arg(i).shape[0].value()
				if !ok || n > onnx.MaxRank || d.IsFloat() {
					return
				}
				data = append(data, c.fresh("~", n)...)
				continue
			}
			data = append(data, c.arg(i).data...)
		}
		c.follow(data)
	}
}

// inferSplit: parts of the given sizes, whose sum is the axis. Without sizes an axis of n is cut in
// k chunks of ceil(n / k), the last of which may be shorter. Before operator set 18 k must divide
// n. The number of parts is that of the node's outputs, whichever way sizes are given.
func inferSplit(c *call) {
	x := c.in[0]
	for i := range c.out {
		c.set(i, x.dtype, nil)
	}
	if !x.ranked() || len(c.out) == 0 {
		return
	}
	a := try.Get(axis(c.attrs.Int("axis"), len(x.shape)))
	sizes, given, known := c.argOrAttr("split", 1, 13)
	parts := make([]expr, len(c.out))
	switch {
	case given && !known:
		parts = c.unknownSizes(len(c.out))
	case given:
		if len(sizes) != len(c.out) {
			try.Fail("%d sizes are given for %d outputs", len(sizes), len(c.out))
		}
		sum := constant(0)
		for i, s := range sizes {
			if s < 0 {
				try.Fail("the size %d is negative", s)
			}
			parts[i] = constant(s)
			sum = sum.plus(parts[i])
		}
		agree(sum, x.shape[a], "the sum of the parts %v and axis %d", sizes, a)
	default:
		n := len(c.out)
		size, ok := x.shape[a].value()
		for i := range parts {
			switch {
			case ok && size%n != 0 && c.opset < 18:
				try.Fail("axis %d of size %d cannot be split in %d equal parts", a, size, n)
			case ok:
				// Part i begins at i chunks. The last parts may be smaller, or empty.
				chunk := (size + n - 1) / n
				parts[i] = constant(max(0, min(chunk, size-i*chunk)))
			default:
				parts[i] = c.inf.unknownSize()
				// A symbolic size is cut only where every coefficient is a multiple of n.
				if q, ok := x.shape[a].over(constant(n)); ok {
					parts[i] = q
				}
			}
		}
	}
	for i := range c.out {
		c.same(i, x)
		c.out[i].shape[a] = parts[i]
	}
}

// sliceSize is the number of indices of a slice of an axis of size n. Symbolic bounds give an
// expression only where 0 <= start <= end <= n follows from the signs. An end of math.MaxInt32 or
// more stands for the end of the axis, as exporters write it.
func (c *call) sliceSize(n, start, end expr, step int) expr {
	first, sok := start.value()
	last, eok := end.value()
	if size, ok := n.value(); ok && sok && eok {
		return constant(sliceCount(size, first, last, step))
	}
	// low is the least size that the axis can have, over all values of its symbols.
	low, _ := n.atLeast()
	if !sok || step < 1 {
		if step == 1 {
			// A symbolic start: provable where 0 <= start <= end <= n.
			e := end
			if eok && last >= math.MaxInt32 {
				e = n
			}
			if in(start, e) && in(e, n) {
				return e.minus(start)
			}
		}
		return c.inf.unknownSize()
	}
	// A position counted from the end is certain where the axis is certainly that long.
	if first < 0 {
		if -first > low {
			return c.inf.unknownSize()
		}
		start = n.plus(start)
	} else if first > low && !in(start, end) {
		return c.inf.unknownSize()
	}
	switch {
	case eok && last >= math.MaxInt32:
		end = n
	case eok && last < 0:
		if -last > low {
			return c.inf.unknownSize()
		}
		end = n.plus(end)
	}
	if !in(end, n) || !in(start, end) {
		return c.inf.unknownSize()
	}
	span := end.minus(start)
	if step == 1 {
		return span
	}
	// That is ceil(span / step).
	return span.plus(constant(step - 1)).floorOver(step)
}

// in says that 0 <= a <= b for certain.
func in(a, b expr) bool {
	la, ok := a.atLeast()
	lb, ok2 := b.minus(a).atLeast()
	return ok && ok2 && la >= 0 && lb >= 0
}

// sliceBounds clamps start and end of a slice with numpy's meaning to an axis of size n. With a
// negative step the end -1 after clamping stands before the first element. An end at the smallest
// integer does not count from the end; it stays before the axis.
func sliceBounds(n, start, end, step int) (int, int) {
	if start < 0 {
		start += n
	}
	if end < 0 && end > math.MinInt32 {
		end += n
	}
	if step > 0 {
		return min(max(start, 0), n), min(max(end, 0), n)
	}
	// A walk backward begins at n - 1 at most, and may end at -1, before the first element.
	return min(max(start, 0), n-1), min(max(end, -1), n-1)
}

// sliceCount is the number of indices of start, start + step, ... before end: ceil((end - start) /
// step) of the clamped bounds, or 0.
func sliceCount(n, start, end, step int) int {
	step = min(max(step, -math.MaxInt32), math.MaxInt32) // so that nothing below overflows
	start, end = sliceBounds(n, start, end, step)
	if step > 0 {
		if end <= start {
			return 0
		}
		return (end - start + step - 1) / step
	}
	if start <= end {
		return 0
	}
	// That is ceil((start - end) / -step), of a negative step.
	return (start - end - step - 1) / -step
}

// slicing is the operands of a Slice, as far as they are known: an element for each axis. Elements
// i of all four belong to one axis; a nil list is one that is left out or not known.
type slicing struct {
	starts, ends []expr
	axes, steps  []int
}

// inferSlice: sizes of the sliced axes by [call.sliceSize], the others as they are. The elements of
// a vector are sliced as well where both bounds are known.
func inferSlice(c *call, x *fact) []expr {
	s, ok := c.slicing()
	if !ok {
		return c.unknownSizes(len(x.shape))
	}
	c.complete(s)
	out := slices.Clone(x.shape)
	for i, a := range s.axes {
		if s.steps[i] == 0 {
			try.Fail("the step of axis %d is 0", a)
		}
		a, _ = axis(a, len(out))
		out[a] = c.sliceSize(out[a], s.starts[i], s.ends[i], s.steps[i])
	}
	if x.data == nil || len(x.shape) != 1 || len(s.axes) != 1 {
		return out
	}
	start, sok := s.starts[0].value()
	end, eok := s.ends[0].value()
	if sok && eok {
		data := []expr{}
		first, _ := sliceBounds(len(x.data), start, end, s.steps[0])
		for i := range sliceCount(len(x.data), start, end, s.steps[0]) {
			data = append(data, x.data[first+i*s.steps[0]])
		}
		c.follow(data)
	}
	return out
}

// slicing reads the operands of a Slice; false where they do not tell which axes are sliced, or
// how. From operator set 10 on the operands are inputs, steps among them; before, attributes
// without steps. A constant step or axis is needed, while bounds may be symbols.
func (c *call) slicing() (*slicing, bool) {
	s := &slicing{}
	if c.opset < 10 {
		s.axes = c.attrs.Ints("axes")
		if v := c.attrs.Ints("starts"); v != nil {
			s.starts = constants(v)
		}
		if v := c.attrs.Ints("ends"); v != nil {
			s.ends = constants(v)
		}
		return s, true
	}
	s.starts, s.ends = c.indices(1), c.indices(2)
	ok := true
	if c.has(3) {
		s.axes, ok = c.ints(3)
	}
	if c.has(4) && ok {
		s.steps, ok = c.ints(4)
	}
	return s, ok && (s.starts != nil || s.ends != nil || s.axes != nil)
}

// complete gives operands that are left out or not known their defaults, and checks that there are
// as many of each. Unknown starts and ends become symbols that may be negative, "~".
func (c *call) complete(s *slicing) {
	rank := len(c.in[0].shape)
	n := max(len(s.starts), len(s.ends), len(s.axes))
	if s.axes == nil {
		if n > rank {
			try.Fail("%d starts for a value of rank %d", n, rank)
		}
		s.axes = upTo(n)
	}
	if s.starts == nil {
		s.starts = c.fresh("~", n)
	}
	if s.ends == nil {
		s.ends = c.fresh("~", n)
	}
	if len(s.axes) != n || len(s.starts) != n || len(s.ends) != n || s.steps != nil &&
		len(s.steps) != n {
		try.Fail("%d starts, %d ends, %d axes and %d steps; they must be as many",
			len(s.starts), len(s.ends), len(s.axes), len(s.steps))
	}
	if s.steps == nil {
		s.steps = slices.Repeat([]int{1}, n)
	}
	try.Get(axesOf(s.axes, rank))
}

// constants are numbers as expressions, in a new slice.
func constants(v []int) []expr {
	out := make([]expr, len(v))
	for i, x := range v {
		out[i] = constant(x)
	}
	return out
}

// indices is input i as expressions, nil where nothing is known of it.
func (c *call) indices(i int) []expr {
	if v, ok := c.ints(i); ok {
		return constants(v)
	}
	return c.arg(i).data
}

// inferSqueeze drops the given axes, or all of size 1. Without axes an open size leaves even the
// rank open, as it may turn out to be 1. The elements stay in order, so that a followed vector of
// one becomes a followed scalar. An axis of unknown size that is given is taken to be 1.
func inferSqueeze(c *call) {
	x := c.in[0]
	c.set(0, x.dtype, nil)
	c.follow(x.data)
	axes, given, known := c.argOrAttr("axes", 1, 13)
	if !x.ranked() || !known {
		c.out[0].data = nil
		return
	}
	drop := try.Get(axesOf(axes, len(x.shape)))
	out := []expr{}
	for i, e := range x.shape {
		v, ok := e.value()
		switch {
		case given && drop[i]:
			if ok && v != 1 {
				try.Fail("axis %d of size %d cannot be squeezed", i, v)
			}
		case !given && ok && v == 1:
		case !given && !ok:
			c.set(0, x.dtype, nil)
			return
		default:
			out = append(out, e)
		}
	}
	c.set(0, x.dtype, out)
}

// inferUnsqueeze puts axes of size 1 at the given places of the result. Where these are not known,
// their number still tells the rank. Negative axes count in the result, whose rank is that of the
// input and the number of axes.
func inferUnsqueeze(c *call) {
	x := c.in[0]
	c.set(0, x.dtype, nil)
	axes, given, known := c.argOrAttr("axes", 1, 13)
	if !given {
		try.Fail("it has no axes")
	}
	if !x.ranked() {
		return
	}
	if !known {
		if s := c.arg(1).shape; len(s) == 1 {
			if n, ok := s[0].value(); ok && n <= onnx.MaxRank {
				c.set(0, x.dtype, c.unknownSizes(len(x.shape)+n))
			}
		}
		return
	}
	if len(axes) > onnx.MaxRank {
		try.Fail("%d axes; at most %d are allowed", len(axes), onnx.MaxRank)
	}
	rank := len(x.shape) + len(axes)
	at := try.Get(axesOf(axes, rank))
	out, j := make([]expr, rank), 0
	for i := range out {
		if at[i] {
			out[i] = constant(1)
			continue
		}
		out[i] = x.shape[j]
		j++
	}
	c.set(0, x.dtype, out)
	c.follow(x.data)
}

// inferExpand: the input is broadcast to a shape, and the shape to the input. A shape of lower rank
// than the input's keeps the input's leading axes.
func inferExpand(c *call) {
	x := c.in[0]
	out := try.Get(c.broadcast(x.shape, c.given(c.in[1])))
	c.set(0, x.dtype, out)
	// A single followed element that becomes a vector is followed in each of its places.
	if len(x.data) == 1 && len(out) == 1 {
		if n, ok := out[0].value(); ok && n <= maxFollowed {
			c.follow(slices.Repeat(x.data, n))
		}
	}
}

// inferTile: out[i] = in[i] · repeats[i]. A repeat of 0 makes the axis empty.
func inferTile(c *call, x *fact) []expr {
	rep := c.given(c.in[1])
	if rep == nil {
		return c.unknownSizes(len(x.shape))
	}
	if len(rep) != len(x.shape) {
		try.Fail("%d repeats for a value of rank %d", len(rep), len(x.shape))
	}
	out := make([]expr, len(rep))
	for i := range out {
		out[i] = x.shape[i].times(rep[i])
	}
	return out
}

// inferCenterCropPad: the given axes get the given sizes, whether they are cut or filled. It is of
// operator set 18 and later; axes left out are all of them.
func inferCenterCropPad(c *call, x *fact) []expr {
	axes := c.attrs.Ints("axes")
	if len(axes) == 0 {
		axes = upTo(len(x.shape))
	}
	try.Get(axesOf(axes, len(x.shape)))
	sizes := c.indices(1)
	if sizes == nil {
		return c.unknownSizes(len(x.shape))
	}
	if len(sizes) != len(axes) {
		try.Fail("%d sizes for %d axes; there must be one an axis",
			len(sizes), len(axes))
	}
	out := slices.Clone(x.shape)
	for i, a := range axes {
		a, _ = axis(a, len(out))
		if v, ok := sizes[i].value(); ok && v < 0 {
			try.Fail("axis %d is given size %d; allowed are 0 and up", a, v)
		}
		out[a] = c.size(sizes[i])
	}
	return out
}

// inferPad: out[a] = begin[a] + in[a] + end[a], in which negative pads cut. All begins stand before
// all ends. axes, input 3, came in operator set 18; without it there are two pads for every axis. A
// symbolic size that a negative pad cuts may be negative, and is then an unknown size.
func inferPad(c *call, x *fact) []expr {
	pads := c.indices(1)
	if v := c.attrs.Ints("pads"); c.opset < 11 && len(v) > 0 {
		pads = constants(v)
	}
	if pads == nil {
		return c.unknownSizes(len(x.shape))
	}
	axes := upTo(len(x.shape))
	if c.has(3) {
		var ok bool
		if axes, ok = c.ints(3); !ok {
			return c.unknownSizes(len(x.shape))
		}
		try.Get(axesOf(axes, len(x.shape)))
	}
	if len(pads) != 2*len(axes) {
		try.Fail("%d pads for %d axes; there must be two an axis",
			len(pads), len(axes))
	}
	out := slices.Clone(x.shape)
	for i, a := range axes {
		a, _ = axis(a, len(out))
		out[a] = out[a].plus(pads[i]).plus(pads[i+len(axes)])
		if v, ok := out[a].value(); ok && v < 0 {
			try.Fail("pads cut axis %d to size %d", a, v)
		}
		out[a] = c.size(out[a])
	}
	return out
}

// blocks moves blocks of b x b from channels to space of [N, C, H, W], or back. DepthToSpace: [N,
// C, H, W] -> [N, C/b^2, H b, W b]; SpaceToDepth is the inverse. The bound of b keeps its square
// within 32 bits.
func blocks(c *call, x *fact) []expr {
	b := c.attrs.Int("blocksize")
	if len(x.shape) != 4 || b < 1 || b > 1<<15 {
		try.Fail("blocksize %d of an input of rank %d; allowed are 1 or more and rank 4",
			b, len(x.shape))
	}
	by := []expr{constant(1), constant(b * b), constant(b), constant(b)}
	out := make([]expr, 4)
	// DepthToSpace divides channels and multiplies height and width; SpaceToDepth is the other way
	// about.
	for i, e := range x.shape {
		if (i == 1) == (c.node.Op == "DepthToSpace") && i > 0 {
			q, ok := e.over(by[i])
			if !ok {
				if v, known := e.value(); known {
					try.Fail("axis %d of size %d is no multiple of %s", i, v, by[i])
				}
				q = c.inf.unknownSize()
			}
			out[i] = q
			continue
		}
		out[i] = e.times(by[i])
	}
	return out
}

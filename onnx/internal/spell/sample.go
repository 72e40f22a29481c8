package spell

import (
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// Polynomials of the weights of the positions around one, by rows of powers of its fraction: of the
// nearest; of the one below and above; of two below and two above (Keys 1981, with a = -3/4).
var (
	nearest = [][]float32{{1}}
	linear  = [][]float32{{1, 0}, {-1, 1}}
	cubic   = [][]float32{{0, 1, 0, 0}, {-.75, 0, .75, 0}, {1.5, -2.25, 1.5, -.75},
		{-.75, 1.25, -1.25, .75}}
)

// sampler reads images [n, c, h, w] between their pixels.
type sampler struct {
	*speller
	weights [][]float32
	padding string // zeros, border or reflection
	align   bool   // reflection is about the centres of the outer pixels, else about their edges
}

// real casts to the type that is computed in; sub and div are Sub and Div.
func (s *speller) real(v string) string {
	return s.opInt("Cast", []string{v}, "to", int(s.d))
}
func (s *speller) sub(x, y string) string { return s.bi("Sub", x, y) }
func (s *speller) div(x, y string) string { return s.bi("Div", x, y) }

// row is a constant [1, k, 1].
func (s *speller) row(v []float32) string {
	return s.real(s.constant(onnx.NewTensor(v, 1, len(v), 1)))
}

// taps are the pixels [n, k, l] along an axis of a size around positions [n, l], and their weights.
// Pixels are held within the axis, so that one in the padding reads an element, whose weight zeros
// makes 0.
func (s sampler) taps(at, size string) (pixel, weight string) {
	at = s.bi("Unsqueeze", at, s.ints(1))
	first := s.un(map[bool]string{true: "Round", false: "Floor"}[len(s.weights) == 1], at)
	k := len(s.weights[0])
	offsets := make([]float32, k)
	for i := range offsets {
		offsets[i] = float32(i - (k-1)/2)
	}
	t := s.sub(at, first)
	// Horner's rule in t, the fraction of the position between its pixels.
	weight = s.add(s.row(s.weights[len(s.weights)-1]), s.mul(t, s.num(0)))
	for _, c := range slices.Backward(s.weights[:len(s.weights)-1]) {
		weight = s.add(s.mul(weight, t), s.row(c))
	}
	pixel = s.add(first, s.row(offsets))
	last := s.sub(size, s.num(1))
	switch s.padding {
	case "zeros":
		inside := s.bi("And", s.bi("GreaterOrEqual", pixel, s.num(0)),
			s.bi("LessOrEqual", pixel, last))
		weight = s.mul(weight, s.real(inside))
	case "reflection":
		low, span := s.num(-0.5), size
		if s.align {
			low, span = s.num(0), last
		}
		span = s.bi("Max", span, s.num(1))
		// Reflection is periodic in two spans: there and back is one period.
		d := s.un("Abs", s.sub(pixel, low))
		turns := s.un("Floor", s.div(d, s.add(span, span)))
		d = s.sub(d, s.mul(turns, s.add(span, span)))
		pixel = s.add(low, s.sub(span, s.un("Abs", s.sub(d, span))))
	}
	return s.bi("Max", s.bi("Min", pixel, last), s.num(0)), weight
}

// read gives the values [n, c, l] of images at rows y and columns x, each [n, l]. It gathers k²
// pixels for each position, k taps on an axis, and keeps them all in memory.
func (s sampler) read(image, y, x string) string {
	size := s.real(s.dims(image, 2, 4))
	width := s.pick(size, 1)
	rows, wy := s.taps(y, s.pick(size, 0))
	columns, wx := s.taps(x, width)
	one := func(v string, axis int64) string { return s.bi("Unsqueeze", v, s.ints(axis)) }
	pixel := s.add(s.mul(one(rows, 2), width), one(columns, 1)) // [n, k, k, l]
	pixel = s.opInt("Cast", []string{pixel}, "to", int(onnx.Int64))
	flat := s.shaped(image, s.dims(image, 0, 2), s.ints(-1))
	n, c := s.dims(image, 0, 1), s.dims(image, 1, 2)
	pixel = s.shaped(pixel, n, s.ints(1, -1))
	all := s.bi("Expand", pixel, s.opInt("Concat", []string{n, c, s.dims(pixel, 2, 3)}, "axis", 0))
	got := s.shaped(s.opInt("GatherElements", []string{flat, all}, "axis", 2), n, c,
		s.ints(int64(len(s.weights[0])*len(s.weights[0]))), s.dims(y, 1, 2))
	weight := s.shaped(s.mul(one(wy, 2), one(wx, 1)), n,
		s.ints(1, int64(len(s.weights[0])*len(s.weights[0]))), s.dims(y, 1, 2))
	return s.opInt("ReduceSum", []string{s.mul(got, weight), s.ints(2)}, "keepdims", 0)
}

// spellGridSample: x [n, c, h, w] at the positions of grid [n, oh, ow, 2], (x, y) in -1..1.
func spellGridSample(s *speller) []string {
	x, grid := s.node.Input(0), s.node.Input(1)
	if d := s.Shape(x); d != nil && len(d) != 4 {
		try.Fail("its input is of rank %d; allowed is 4", len(d))
	}
	// The mode is linear where no other is named: operator set 16 calls it bilinear.
	r := sampler{s, linear, s.attrs.Str("padding_mode"), s.attrs.Bool("align_corners")}
	switch s.attrs.Str("mode") {
	case "nearest":
		r.weights = nearest
	case "bicubic", "cubic":
		r.weights = cubic
	}
	size := s.real(s.dims(x, 2, 4))
	flat := s.shaped(grid, s.dims(grid, 0, 1), s.ints(-1, 2))
	// -1 and 1 are the centres of the outer pixels where corners are aligned, else their outer
	// edges.
	at := func(i int, size string) string {
		v := s.add(s.opInt("Gather", []string{flat, s.whole(i)},
			"axis", 2), s.num(1))
		if r.align {
			return s.mul(v, s.mul(s.sub(size, s.num(1)), s.num(0.5)))
		}
		return s.mul(s.sub(s.mul(v, size), s.num(1)), s.num(0.5))
	}
	y := r.read(x, at(1, s.pick(size, 0)), at(0, s.pick(size, 1)))
	return []string{s.shaped(y, s.dims(x, 0, 2), s.dims(grid, 1, 3))}
}

// spellDeformConv: a convolution whose kernel reads at positions moved by offsets, times a mask
// (Zhu et al. 2019, arXiv:1811.11168). The moved pixels become columns [n, groups, C/groups·k,
// positions], as im2col's, times the kernel.
func spellDeformConv(s *speller) []string {
	x, w, offset, mask := s.node.Input(0), s.node.Input(1), s.node.Input(2), s.node.Input(4)
	d := s.Shape(w)
	if len(d) != 4 || slices.ContainsFunc(d, func(n onnx.Dim) bool { return !n.IsKnown() }) {
		try.Fail("the shape of its weight is not known, or not of rank 4")
	}
	kh, kw := d[2].Size, d[3].Size
	if _, err := onnx.Elements([]int{d[0].Size, d[1].Size, kh, kw}); err != nil {
		try.Fail("its weight: %w", err)
	}
	k := int64(kh * kw)
	win := try.Get(op.WindowOf(s.attrs, 2, []int{kh, kw}))
	groups, parts := int64(s.attrs.Int("group")), int64(s.attrs.Int("offset_group"))
	if groups < 1 || parts < 1 {
		try.Fail("group is %d and offset_group %d; each is at least 1", groups, parts)
	}
	strides, dilations, pads := win.Strides, win.Dilations, win.Pads
	// The output has floor((size + pads - extent) / stride) + 1 positions on an axis.
	more := func(i int) int64 { return int64(pads[i] + pads[i+2] - win.Extent(i) + strides[i]) }
	sides := s.div(s.add(s.dims(x, 2, 4), s.ints(more(0), more(1))), s.ints(int64s(strides)...)) // oh, ow
	// Offsets are [n·parts, k, 2, oh, ow], rows before columns.
	moved := s.shaped(offset, s.mul(s.dims(x, 0, 1), s.ints(parts)), s.ints(k, 2), sides)
	taps := s.span(0, s.whole(kh*kw))
	at := func(axis int, along string, shape ...int64) string {
		v := s.opInt("Gather", []string{moved, s.whole(axis)}, "axis", 2)
		steps := s.mul(s.real(s.span(0, s.pick(s.dims(offset, 2, 4), axis))),
			s.num(float64(strides[axis])))
		start := s.sub(s.mul(s.real(s.bi(along, taps, s.ints(int64(kw)))),
			s.num(float64(dilations[axis]))), s.num(float64(pads[axis])))
		v = s.add(s.add(v, s.bi("Reshape", start, s.ints(1, -1, 1, 1))),
			s.bi("Reshape", steps, s.ints(shape...)))
		return s.shaped(v, s.dims(v, 0, 1), s.ints(-1))
	}
	image := s.shaped(x, s.ints(-1), s.div(s.dims(x, 1, 2), s.ints(parts)), s.dims(x, 2, 4))
	r := sampler{speller: s, weights: linear, padding: "zeros"}
	read := r.read(image, at(0, "Div", 1, 1, -1, 1), at(1, "Mod", 1, 1, 1, -1))
	// The mask is [n, parts k, oh, ow], one factor for each tap and position.
	if mask != "" {
		read = s.mul(read, s.shaped(mask, s.dims(read, 0, 1), s.ints(1, -1)))
	}
	inner := int64(d[1].Size) * k
	columns := s.shaped(read, s.dims(x, 0, 1), s.ints(groups, inner, -1))
	weight := s.bi("Reshape", w, s.ints(groups, -1, inner))
	y := s.shaped(s.bi("MatMul", weight, columns), s.dims(x, 0, 1), s.ints(int64(d[0].Size)),
		s.dims(offset, 2, 4))
	if b := s.node.Input(3); b != "" {
		y = s.add(y, s.bi("Reshape", b, s.ints(-1, 1, 1)))
	}
	return []string{y}
}

// spellRoiAlign: means of points in the cells of regions (He et al. 2017, arXiv:1703.06870), as a
// product with weights of rows and one with weights of columns; or, by mode max, the highest of the
// weighted pixels around all points. Points of a cell form a grid, so that the mean of bilinear
// values is one product on each axis.
func spellRoiAlign(s *speller) []string {
	x, rois := s.node.Input(0), s.node.Input(1)
	mode := s.attrs.Str("mode")
	height, width := s.attrs.Int("output_height"), s.attrs.Int("output_width")
	if height < 1 || width < 1 {
		try.Fail("output_height is %d and output_width %d; each is at least 1",
			height, width)
	}
	size := s.real(s.dims(x, 2, 4))
	images, of := x, s.node.Input(2)
	if d := s.Shape(x); mode != "max" && len(d) == 4 && d[0].IsKnown() && d[0].Size == 1 {
		// The products repeat the one image, where a copy for each region could take gigabytes.
		// Gathering ones checks the indices.
		rois = s.mul(rois, s.bi("Gather", s.real(s.constant(onnx.NewTensor([]float32{1}, 1, 1))), of))
	} else {
		images = s.bi("Gather", x, of)
	}
	rows, columns := s.cells(rois, 1, height, s.pick(size, 0)), s.cells(rois, 0, width,
		s.pick(size, 1))
	if mode == "max" {
		return []string{s.highest(images, rows, columns)}
	}
	y := s.bi("MatMul", s.shares(rows), images)
	return []string{s.bi("MatMul", y, s.op("Transpose", []string{s.shares(columns)}, onnx.IntsAttr("perm", 0, 1, 3, 2)))}
}

// points are those along an axis in the cells of regions.
type points struct {
	at string // [regions, cells, points], in pixels
	// of the same shape, whether a point is one of its cell's and not outside of the image
	there string
	// [regions, 1, points] or less, whether a point is one of its cell's, or the first of a cell without
	one   string
	count string // [regions, 1, 1] or a scalar, the points of a cell
	size  string // of the axis
}

// cells lays points along an axis, whose ends are the columns k and k + 2 of the regions. Points
// more than one pixel outside of the image count 0, and nearer ones take the edge's pixel.
func (s *speller) cells(rois string, k, cellCount int, size string) points {
	scale, offset := s.num(float64(s.attrs.Float("spatial_scale"))), 0.0
	half := s.attrs.Str("coordinate_transformation_mode") == "half_pixel"
	if half {
		offset = 0.5
	}
	end := func(i int) string {
		v := s.op("Slice", []string{rois, s.ints(int64(i)), s.ints(int64(i + 1)), s.ints(1)})
		// [regions, 1, 1]
		return s.bi("Unsqueeze", s.sub(s.mul(v, scale), s.num(offset)), s.ints(2))
	}
	from, length := end(k), ""
	if length = s.sub(end(k+2), from); !half {
		length = s.bi("Max", length, s.num(1))
	}
	width := s.div(length, s.num(float64(cellCount)))
	have := s.num(float64(s.attrs.Int("sampling_ratio")))
	n := have
	if s.attrs.Int("sampling_ratio") <= 0 {
		have = s.un("Ceil", width) // none in a region without extent, whose mean and highest are 0
		n = s.bi("Max", have, s.num(1))
	}
	zero, one := s.num(0), s.num(1)
	most := s.opInt("ReduceMax", []string{n}, "keepdims", 0)
	i := s.op("Range", []string{zero, most, one})
	cell := s.bi("Reshape", s.op("Range", []string{zero, s.num(float64(cellCount)), one}),
		s.ints(1, -1, 1))
	inCell := s.div(s.add(i, s.num(0.5)), n)
	at := s.add(from, s.mul(width, s.add(cell, inCell))) // [regions, cells, points]
	kept := s.bi("And", s.bi("GreaterOrEqual", at, s.num(-1)), s.bi("LessOrEqual", at, size))
	mine := s.bi("Less", i, n)
	kept = s.bi("And", kept, s.bi("Less", i, have))
	at = s.bi("Max", s.bi("Min", at, s.sub(size, one)), zero)
	return points{at: at, there: kept, one: mine, count: n, size: size}
}

// shares are the weights [regions, 1, cells, size] of pixels along an axis in the means of cells. A
// hat function max(0, 1 - |point - pixel|) is the linear weight of both neighbours at once.
func (s *speller) shares(c points) string {
	zero, one := s.num(0), s.num(1)
	last := func(v string) string { return s.bi("Unsqueeze", v, s.ints(3)) }
	pixels := s.op("Range", []string{zero, c.size, one})
	weight := s.un("Relu", s.sub(one, s.un("Abs", s.sub(last(c.at), pixels))))
	weight = s.opInt("ReduceSum", []string{s.mul(weight, s.real(last(c.there))), s.ints(2)},
		"keepdims", 0)
	return s.bi("Unsqueeze", s.div(weight, c.count), s.ints(1))
}

// highest is the highest of the weighted pixels around the points of each cell; a point outside of
// the image counts as 0.
func (s *speller) highest(images string, rows, columns points) string {
	// Of each point, the pixel before it and the one behind it, or twice the last: [regions, cells,
	// points, 2].
	ends := func(c points) (pixel, weight string) {
		at := s.bi("Unsqueeze", c.at, s.ints(3))
		first := s.un("Floor", at)
		pair := s.real(s.constant(onnx.Vector[float32](0, 1)))
		pixel = s.bi("Min", s.add(first, pair), s.sub(c.size, s.num(1)))
		weight = s.un("Abs", s.sub(s.sub(s.num(1), pair), s.sub(at, first))) // 1 - f and f
		return pixel, s.mul(weight, s.real(s.bi("Unsqueeze", c.there, s.ints(3))))
	}
	y, wy := ends(rows)
	x, wx := ends(columns)
	// Rows stand on axes 1 to 3, columns on 4 to 6.
	row := func(v string) string { return s.bi("Unsqueeze", v, s.ints(4, 5, 6)) }
	column := func(v string) string { return s.bi("Unsqueeze", v, s.ints(1, 2, 3)) }
	at := s.opInt("Cast", []string{s.add(s.mul(row(y), columns.size), column(x))},
		"to", int(onnx.Int64))
	shape := s.dims(at, 1, 7)
	n, c := s.dims(images, 0, 1), s.dims(images, 1, 2)
	flat := s.shaped(at, n, s.ints(1, -1))
	all := s.bi("Expand", flat, s.opInt("Concat", []string{n, c, s.dims(flat, 2, 3)}, "axis", 0))
	got := s.shaped(s.opInt("GatherElements", []string{s.shaped(images, n, c, s.ints(-1)), all},
		"axis", 2), n, c, shape)
	got = s.mul(got, s.bi("Unsqueeze", s.mul(row(wy), column(wx)), s.ints(1)))
	whole := func(c points) string { return s.bi("Expand", c.one, s.un("Shape", c.at)) }
	mine := s.bi("And", row(s.bi("Unsqueeze", whole(rows), s.ints(3))),
		column(s.bi("Unsqueeze", whole(columns), s.ints(3))))
	got = s.op("Where", []string{s.bi("Unsqueeze", mine, s.ints(1)), got,
		s.num(math.Inf(-1))})
	return s.maxOver(got, 3, 4, 6, 7)
}

// maxOver is the maximum over axes, without them.
func (s *speller) maxOver(v string, axes ...int) string {
	if s.Opset >= 18 {
		return s.opInt("ReduceMax", []string{v, s.ints(int64s(axes)...)}, "keepdims", 0)
	}
	return s.op("ReduceMax", []string{v}, onnx.IntAttr("keepdims", 0),
		onnx.IntsAttr("axes", axes...))
}

package grad

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

func init() {
	register(func(c *call) []string {
		return []string{c.reshape(c.g(), c.shapeOf(c.in(0)))}
	}, "Reshape", "Flatten", "Squeeze", "Unsqueeze")
	register(vjpTranspose, "Transpose")
	register(vjpConcat, "Concat")
	register(vjpSplit, "Split")
	register(func(c *call) []string {
		return []string{c.unbroadcast(c.g(), c.out(0), c.in(0))}
	}, "Expand")
	register(vjpTile, "Tile")
	register(vjpDepthToSpace, "DepthToSpace")
	register(vjpSpaceToDepth, "SpaceToDepth")
	register(vjpTrilu, "Trilu")
	register(vjpResize, "Resize", "Upsample")
	register(vjpCol2Im, "Col2Im")
}

// vjpTranspose puts the axes back by the inverse permutation.
func vjpTranspose(c *call) []string {
	perm := c.attrs.Ints("perm")
	if perm == nil { // the axes reversed, which is its own inverse
		return []string{c.un("Transpose", c.g())}
	}
	inverse := make([]int, len(perm))
	for i, p := range perm {
		if p < 0 || p >= len(perm) {
			try.Fail("perm %v is no permutation", perm)
		}
		inverse[p] = i
	}
	return []string{c.transpose(c.g(), inverse...)}
}

// axis is the attribute axis, counted from the front. A value of unknown rank is an error, as the
// axis could not be counted from the end.
func (c *call) axis(v string) int {
	c.rank(v)
	a := c.axes(v, c.attrs.Int("axis"))
	return a[0]
}

// vjpConcat cuts the cotangent into the pieces that were joined. Sizes that are not known are read
// from the inputs when the graph runs.
func vjpConcat(c *call) []string {
	if len(c.node.Inputs) == 1 {
		return []string{c.g()}
	}
	axis := c.axis(c.out(0))
	sizes := make([]string, len(c.node.Inputs))
	for i, x := range c.node.Inputs {
		sizes[i] = c.dim(x, axis)
	}
	return c.opN("Split", []string{c.g(), c.vec(sizes...)}, len(sizes), onnx.IntAttr("axis", axis))
}

// vjpSplit joins the cotangents of the pieces, zeros for one that nothing depends on.
func vjpSplit(c *call) []string {
	parts := make([]string, len(c.node.Outputs))
	for i := range parts {
		parts[i] = c.cotangent(i)
	}
	// A negative axis goes on as it is: Concat counts it from the same rank.
	return []string{c.concat(c.attrs.Int("axis"), parts...)}
}

// vjpTile sums over the repeats. allowzero keeps a size of 0 from copying an axis of ȳ.
func vjpTile(c *call) []string {
	x := c.in(0)
	r := c.rank(x)
	// [r0, d0, r1, d1, ...]
	shape := c.reshape(c.concat(1, c.unsqueeze(c.in(1), 1), c.unsqueeze(c.shapeOf(x), 1)),
		c.ints(-1))
	// Axes 0, 2, 4 and so on of that shape are the repeats.
	axes := make([]int, r)
	for i := range axes {
		axes[i] = 2 * i
	}
	return []string{c.sum(c.op("Reshape", []string{c.g(), shape}, onnx.IntAttr("allowzero", 1)),
		false, axes...)}
}

// vjpDepthToSpace moves the blocks back to channels.
func vjpDepthToSpace(c *call) []string {
	g, x := c.g(), c.in(0)
	b := c.attrs.Int("blocksize")
	if c.attrs.Str("mode") == "DCR" {
		return []string{c.op("SpaceToDepth", []string{g}, onnx.IntAttr("blocksize", b))}
	}
	// CRD: [N, C, b, b, H, W] became [N, C, H, b, W, b].
	apart := c.vec(c.dim(c.out(0), 0), c.dim(c.out(0), 1), c.dim(x, 2), c.ints(b),
		c.dim(x, 3), c.ints(b))
	return []string{c.reshape(c.transpose(c.reshape(g, apart), 0, 1, 3, 5, 2, 4), c.shapeOf(x))}
}

// vjpSpaceToDepth moves the channels back to blocks.
func vjpSpaceToDepth(c *call) []string {
	mode := cmp.Or(c.attrs.Str("mode"), "DCR") // an attribute since operator set 28
	size := onnx.IntAttr("blocksize", c.attrs.Int("blocksize"))
	return []string{c.op("DepthToSpace", []string{c.g()}, size, onnx.StrAttr("mode", mode))}
}

// vjpTrilu keeps the same triangle of the cotangent. Keeping a triangle is its own adjoint.
func vjpTrilu(c *call) []string {
	in := []string{c.g()}
	if k := c.in(1); k != "" {
		in = append(in, k)
	}
	return []string{c.op("Trilu", in, onnx.IntAttr("upper", c.attrs.Int("upper")))}
}

// vjpResize: enlarged by whole factors to the nearest element, each element became a block, over
// which the cotangent is summed. Anything else is a product with a matrix along each axis, which
// resizing the unit matrix gives. Both are adjoints of one linear map; the sum over blocks is the
// quicker form of it.
func vjpResize(c *call) []string {
	how, round := c.attrs.Str("coordinate_transformation_mode"), c.attrs.Str("nearest_mode")
	// These pairs of modes take output i from input floor(i / factor) for whole factors.
	repeats := (how == "asymmetric" && round == "floor") ||
		((how == "half_pixel" || how == "pytorch_half_pixel") &&
			(round == "round_prefer_floor" || round == "round_prefer_ceil"))
	factors := c.factors()
	if factors == nil || c.attrs.Str("mode") != "nearest" || c.node.Op == "Resize" && !repeats {
		return c.resizeAxes()
	}
	var parts []string
	var sum []int
	// An axis that grows becomes two, [d, f], of which the second is summed over.
	for i, f := range factors {
		parts = append(parts, c.dim(c.in(0), i))
		if f > 1 {
			parts = append(parts, c.ints(f))
			sum = append(sum, len(parts)-1)
		}
	}
	return []string{c.sum(c.reshape(c.g(), c.vec(parts...)), false, sum...)}
}

// factors returns the whole numbers that a Resize or Upsample enlarges each axis by; nil where they
// are others, or not known. Scales go before sizes, of which a ratio may be whole where the scale
// is not.
func (c *call) factors() []int {
	x, y := c.in(0), c.out(0)
	r := c.rank(x)
	factors, axes := ones(r), span(0, r)
	scales := c.in(2)
	if c.node.Op == "Upsample" {
		scales = c.in(1)
	}
	if c.attrs.Has("axes") {
		axes = c.attrs.Ints("axes")
	}
	if t, ok := c.constOf(scales); ok && t.Len() == len(axes) && t.F32() != nil {
		for i, s := range t.F32() {
			f := int(s)
			if float32(f) != s || f < 1 {
				return nil
			}
			factors[(axes[i]+r)%r] = f
		}
		return factors
	}
	sx, ok1 := c.sizes(x)
	sy, ok2 := c.sizes(y)
	if !ok1 || !ok2 {
		return nil
	}
	for i := range factors {
		if sx[i] == 0 || sy[i]%sx[i] != 0 {
			return nil
		}
		factors[i] = sy[i] / sx[i]
	}
	return factors
}

// resizeAxes multiplies the cotangent along each axis that changes. Column i of the matrix is unit
// vector i resized, so that ȳ times it along an axis is the adjoint. Memory is out · in elements
// for an axis, far below that of the whole map.
func (c *call) resizeAxes() []string {
	x, y, g := c.in(0), c.out(0), c.g()
	r := c.rank(x)
	// Each axis takes a letter of the Einsum, and Z is kept for the axis that changes.
	if r > 26 || c.node.Op != "Resize" ||
		c.attrs.Str("coordinate_transformation_mode") == "tf_crop_and_resize" ||
		c.attrs.Has("keep_aspect_ratio_policy") &&
			c.attrs.Str("keep_aspect_ratio_policy") != "stretch" {
		try.Fail("tf_crop_and_resize, keep_aspect_ratio_policy and Upsample by other " +
			"than whole factors have no rule")
	}
	axes := span(0, r)
	if c.attrs.Has("axes") {
		axes = slices.Clone(c.attrs.Ints("axes"))
	}
	scales, bySize := c.in(2), c.in(3) != ""
	known, constant := c.constOf(scales)
	sx, sy := c.shape(x), c.shape(y)
	attrs := slices.DeleteFunc(slices.Clone(c.node.Attrs),
		func(a onnx.Attr) bool { return a.Name == "axes" })
	letters := "abcdefghijklmnopqrstuvwxyz"[:r]
	for i, a := range axes {
		a = (a + r) % r
		if !bySize && c.attrs.Str("coordinate_transformation_mode") == "align_corners" {
			// Engines differ in the length of other outputs: in x scale, or that in whole numbers.
			scale := math.NaN()
			if constant && i < known.Len() {
				scale = known.At(i)
			}
			size := float64(float32(max(1, sx[a].Size)) * float32(scale))
			if size != math.Trunc(size) {
				try.Fail("align_corners by a scale that gives no whole size has no rule; give sizes " +
					"in place of scales")
			}
		}
		if constant && !bySize && i < known.Len() && known.At(i) == 1 || bySize && len(sy) == r &&
			sx[a] == sy[a] && sx[a] != (onnx.Dim{}) {
			continue
		}
		n := c.dim(x, a)
		// The unit matrix is an image [1, 1, n, n], which is resized along axis 2 alone.
		unit := c.op("EyeLike", []string{c.filledShape(c.vec(n, n), 0, onnx.Float32)})
		unit = c.unsqueeze(unit, 0, 1)
		in := []string{unit, ""}
		if bySize {
			in = append(in, "", c.vec(c.ints(1, 1), c.op("Gather", []string{c.in(3), c.ints(i)}), n))
		} else {
			one := onnx.Vector[float32](1)
			in = append(in, c.vec(c.constant(onnx.Vector[float32](1, 1)),
				c.op("Gather", []string{scales, c.ints(i)}), c.constant(one)))
		}
		// [out, in]
		matrix := c.cast(c.op("Squeeze", []string{c.op("Resize", in, attrs...), c.ints(0, 1)}),
			c.dtype(x))
		to := strings.Replace(letters, letters[a:a+1], "Z", 1)
		g = c.op("Einsum", []string{g, matrix},
			onnx.StrAttr("equation", letters+","+letters[a:a+1]+"Z->"+to))
	}
	return []string{g}
}

// vjpCol2Im cuts the cotangent into the blocks that were summed: a convolution by kernels of a
// single one. Kernel b has its one at position b of the block, so that channel b of the result
// holds that position.
func vjpCol2Im(c *call) []string {
	block, ok := c.constInts(c.in(2))
	if !ok {
		try.Fail("the block's shape is worked out by the graph; make it constant")
	}
	n, err := onnx.Elements(block)
	if err != nil {
		try.Fail("the block: %w", err)
	}
	x, unit := c.in(0), c.op("EyeLike", []string{c.filledShape(c.ints(n, n), 0, onnx.Float32)})
	kernel := c.reshape(unit, c.ints(append([]int{n, 1}, block...)...))
	image := c.reshape(c.g(), c.vec(c.ints(-1, 1), c.in(1)))
	weight := c.cast(kernel, c.dtype(x))
	return []string{c.reshape(c.op("Conv", []string{image, weight}, c.node.Attrs...), c.shapeOf(x))}
}

package grad

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fmp/onnx"
)

func init() {
	register(vjpReshape, "Reshape", "Flatten", "Squeeze", "Unsqueeze")
	register(vjpTranspose, "Transpose")
	register(vjpConcat, "Concat")
	register(vjpSplit, "Split")
	register(vjpExpand, "Expand")
	register(vjpTile, "Tile")
	register(vjpDepthToSpace, "DepthToSpace")
	register(vjpSpaceToDepth, "SpaceToDepth")
	register(vjpTrilu, "Trilu")
	register(vjpResize, "Resize", "Upsample")
	register(vjpCol2Im, "Col2Im")
}

func vjpReshape(c *call) ([]string, error) {
	return []string{c.reshape(c.g(), c.shapeOf(c.in(0)))}, nil
}

func vjpTranspose(c *call) ([]string, error) {
	perm := c.attrs.Ints("perm")
	if perm == nil { // the axes reversed, which is its own inverse
		return []string{c.un("Transpose", c.g())}, nil
	}
	inverse := make([]int, len(perm))
	for i, p := range perm {
		if p < 0 || p >= len(perm) {
			return nil, fmt.Errorf("perm %v is no permutation", perm)
		}
		inverse[p] = i
	}
	return []string{c.transpose(c.g(), inverse...)}, nil
}

// axis is the attribute axis, counted from the front.
func (c *call) axis(v string) (int, error) {
	if _, err := c.rank(v); err != nil {
		return 0, err
	}
	a, err := c.axes(v, c.attrs.Int("axis"))
	if err != nil {
		return 0, err
	}
	return a[0], nil
}

func vjpConcat(c *call) ([]string, error) {
	if len(c.node.Inputs) == 1 {
		return []string{c.g()}, nil
	}
	axis, err := c.axis(c.out(0))
	if err != nil {
		return nil, err
	}
	sizes := make([]string, len(c.node.Inputs))
	for i, x := range c.node.Inputs {
		sizes[i] = c.dim(x, axis)
	}
	return c.opN("Split", []string{c.g(), c.vec(sizes...)}, len(sizes), onnx.IntAttr("axis", axis)),
		nil
}

func vjpSplit(c *call) ([]string, error) {
	parts := make([]string, len(c.node.Outputs))
	for i := range parts {
		parts[i] = c.cotangent(i)
	}
	return []string{c.concat(c.attrs.Int("axis"), parts...)}, nil
}

func vjpExpand(c *call) ([]string, error) {
	return []string{c.unbroadcast(c.g(), c.out(0), c.in(0))}, nil
}

// vjpTile sums over the repeats.
func vjpTile(c *call) ([]string, error) {
	x := c.in(0)
	r, err := c.rank(x)
	if err != nil {
		return nil, err
	}
	// [r0, d0, r1, d1, ...]
	shape := c.reshape(c.concat(1, c.unsqueeze(c.in(1), 1), c.unsqueeze(c.shapeOf(x), 1)), c.ints(-1))
	axes := make([]int, r)
	for i := range axes {
		axes[i] = 2 * i
	}
	return []string{c.sum(c.op("Reshape", []string{c.g(), shape}, onnx.IntAttr("allowzero", 1)),
		false, axes...)}, nil
}

func vjpDepthToSpace(c *call) ([]string, error) {
	g, x := c.g(), c.in(0)
	b := c.attrs.Int("blocksize")
	if c.attrs.Str("mode") == "DCR" {
		return []string{c.op("SpaceToDepth", []string{g}, onnx.IntAttr("blocksize", b))}, nil
	}
	// CRD: [N, C, b, b, H, W] became [N, C, H, b, W, b].
	apart := c.vec(c.dim(c.out(0), 0), c.dim(c.out(0), 1), c.dim(x, 2), c.ints(b),
		c.dim(x, 3), c.ints(b))
	return []string{c.reshape(c.transpose(c.reshape(g, apart), 0, 1, 3, 5, 2, 4), c.shapeOf(x))}, nil
}

func vjpSpaceToDepth(c *call) ([]string, error) {
	mode := cmp.Or(c.attrs.Str("mode"), "DCR") // an attribute since operator set 28
	size := onnx.IntAttr("blocksize", c.attrs.Int("blocksize"))
	return []string{c.op("DepthToSpace", []string{c.g()}, size, onnx.StrAttr("mode", mode))}, nil
}

func vjpTrilu(c *call) ([]string, error) {
	in := []string{c.g()}
	if k := c.in(1); k != "" {
		in = append(in, k)
	}
	return []string{c.op("Trilu", in, onnx.IntAttr("upper", c.attrs.Int("upper")))}, nil
}

// vjpResize: enlarged by whole factors to the nearest element, each element became a block, over
// which the cotangent is summed. Anything else is a product with a matrix along each axis, which
// resizing the unit matrix gives.
func vjpResize(c *call) ([]string, error) {
	how, round := c.attrs.Str("coordinate_transformation_mode"), c.attrs.Str("nearest_mode")
	repeats := (how == "asymmetric" && round == "floor") ||
		((how == "half_pixel" || how == "pytorch_half_pixel") &&
			(round == "round_prefer_floor" || round == "round_prefer_ceil"))
	factors, err := c.factors()
	if err != nil || c.attrs.Str("mode") != "nearest" || c.node.Op == "Resize" && !repeats {
		return c.resizeAxes()
	}
	var parts []string
	var sum []int
	for i, f := range factors {
		parts = append(parts, c.dim(c.in(0), i))
		if f > 1 {
			parts = append(parts, c.ints(f))
			sum = append(sum, len(parts)-1)
		}
	}
	return []string{c.sum(c.reshape(c.g(), c.vec(parts...)), false, sum...)}, nil
}

// factors returns the whole numbers that a Resize or Upsample enlarges each axis by.
func (c *call) factors() ([]int, error) {
	x, y := c.in(0), c.out(0)
	r, err := c.rank(x)
	if err != nil {
		return nil, err
	}
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
				return nil,
					fmt.Errorf(
						"scale %v of axis %d has no rule; allowed are whole factors of 1 or more",
						s, axes[i])
			}
			factors[(axes[i]+r)%r] = f
		}
		return factors, nil
	}
	sx, ok1 := c.sizes(x)
	sy, ok2 := c.sizes(y)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("the scales are not constant")
	}
	for i := range factors {
		if sx[i] == 0 || sy[i]%sx[i] != 0 {
			return nil,
				fmt.Errorf("resizing axis %d from %d to %d has no rule; allowed are whole "+
					"factors of 1 or more", i, sx[i], sy[i])
		}
		factors[i] = sy[i] / sx[i]
	}
	return factors, nil
}

// resizeAxes multiplies the cotangent along each axis that changes.
func (c *call) resizeAxes() ([]string, error) {
	x, y, g := c.in(0), c.out(0), c.g()
	r, err := c.rank(x)
	if err != nil {
		return nil, err
	}
	if r > 26 || c.node.Op != "Resize" ||
		c.attrs.Str("coordinate_transformation_mode") == "tf_crop_and_resize" ||
		c.attrs.Has("keep_aspect_ratio_policy") &&
			c.attrs.Str("keep_aspect_ratio_policy") != "stretch" {
		return nil, fmt.Errorf("tf_crop_and_resize, keep_aspect_ratio_policy and Upsample by other " +
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
		if constant && !bySize && i < known.Len() && known.At(i) == 1 || bySize && len(sy) == r &&
			sx[a] == sy[a] && sx[a] != (onnx.Dim{}) {
			continue
		}
		n := c.dim(x, a)
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
	return []string{g}, nil
}

// vjpCol2Im cuts the cotangent into the blocks that were summed: a convolution by kernels of a
// single one.
func vjpCol2Im(c *call) ([]string, error) {
	block, ok := c.constInts(c.in(2))
	if !ok {
		return nil, fmt.Errorf("the block's shape is worked out by the graph; make it constant")
	}
	n, err := onnx.Elements(block)
	if err != nil {
		return nil, fmt.Errorf("the block: %w", err)
	}
	x, unit := c.in(0), c.op("EyeLike", []string{c.filledShape(c.ints(n, n), 0, onnx.Float32)})
	kernel := c.reshape(unit, c.ints(append([]int{n, 1}, block...)...))
	image := c.reshape(c.g(), c.vec(c.ints(-1, 1), c.in(1)))
	weight := c.cast(kernel, c.dtype(x))
	return []string{c.reshape(c.op("Conv", []string{image, weight}, c.node.Attrs...), c.shapeOf(x))},
		nil
}

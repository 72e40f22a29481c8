package kernel

import (
	"fmt"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Resize (and Upsample, its forerunner): out_k = floor(in_k scale_k), or sizes. The position x in
// the input of output position i, with s = out / in (or the scale that was given):
//
//	half_pixel            (i + 0.5) / s - 0.5
//	pytorch_half_pixel    the same, 0 where out = 1
//	asymmetric            i / s
//	align_corners         i (in - 1) / (in scale - 1)
//	tf_crop_and_resize    start (in - 1) + i (end - start) (in - 1) / (out - 1)
//
// mode nearest, linear or cubic; axes are treated one after another. Sizes and positions are the
// ONNX Runtime's and PyTorch's, of float32: 10 times .7 is 7 there, and 6.9999999 in float64.
// Positions of half_pixel_symmetric may differ by a last bit, and so the nearest pixel.
func init() {
	register(
		Def{Op: "Upsample", Since: 9, Until: 9, Half: true, New: newUpsample},
		Def{Op: "Upsample", Since: 7, Until: 8, Half: true, New: newUpsample},
		Def{Op: "Resize", Since: 10, Until: 10, Half: true, New: newUpsample},
		Def{Op: "Resize", Since: 11, Half: true, New: newResize},
	)
}

// resizing holds the attributes; cubic is the parameter a of [resizing.keys], and axes are nil for
// all.
type resizing struct {
	mode, transform, nearest, policy string
	cubic                            float64
	excludeOutside, antialias        bool
	byScale                          bool // scales are given, not sizes
	extrapolation                    float64
	axes                             []int
}

// newUpsample: mode = nearest or linear, positions asymmetric; nearest rounds down along axes that
// grow and up along those that shrink. Scales are an attribute before operator set 9, and input 1
// from then on.
func newUpsample(s *Spec) (Kernel, error) {
	r := resizing{mode: s.str("mode"), transform: "asymmetric", nearest: "simple",
		policy: "stretch"}
	if r.mode == "bilinear" {
		r.mode = "linear"
	}
	fixed := s.floats("scales")
	return r.kernel(s, func(c *Call) ([]float64, []int) {
		if t := c.in(1); t != nil {
			return converted(t, onnx.Float64).F64(), nil
		}
		return converted(onnx.Vector(fixed...), onnx.Float64).F64(), nil
	})
}

// newResize takes sizes where they are given, else scales. tf_half_pixel_for_nn, of Resize 11
// alone, is refused.
func newResize(s *Spec) (Kernel, error) {
	r := resizing{
		mode: s.str("mode"), transform: s.str("coordinate_transformation_mode"),
		nearest: s.str("nearest_mode"), cubic: s.float("cubic_coeff_a"),
		excludeOutside: s.bool("exclude_outside"), extrapolation: s.float("extrapolation_value"),
		policy: "stretch",
	}
	if s.Opset >= 18 {
		r.antialias, r.axes = s.bool("antialias"), s.ints("axes")
		r.policy = s.str("keep_aspect_ratio_policy")
	}
	if r.transform == "tf_half_pixel_for_nn" {
		return nil, fmt.Errorf("coordinate_transformation_mode %q is not supported", r.transform)
	}
	return r.kernel(s, func(c *Call) ([]float64, []int) {
		scales, sizes := c.in(2), c.in(3)
		if sizes != nil && sizes.Len() > 0 {
			return nil, try.Get(ints(sizes))
		}
		if scales == nil || scales.Len() == 0 {
			try.Fail("neither scales nor sizes are given")
		}
		return converted(scales, onnx.Float64).F64(), nil
	})
}

// kernel works the output's shape out at each call, and the taps of every axis: O(outputs of the
// axis · taps). Elements other than floats are only picked, never mixed.
func (r resizing) kernel(s *Spec,
	target func(*Call) (scales []float64, sizes []int)) (Kernel, error) {
	if !floats.Has(s.In[0]) && r.mode != "nearest" {
		return nil, fmt.Errorf("mode %s of element type %v is not supported", r.mode, s.In[0])
	}
	return func(c *Call) error {
		in := c.In[0].Shape
		scales, sizes := target(c)
		r := r
		r.byScale = sizes == nil
		ax := r.axes
		if ax == nil {
			ax = upTo(len(in))
		}
		ax = try.Get(axesOf(ax, len(in)))
		shape, scale := append([]int{}, in...), make([]float64, len(in))
		fillRange(scale, 1)
		if sizes != nil {
			if len(sizes) != len(ax) {
				return fmt.Errorf("sizes %v for %d axes", sizes, len(ax))
			}
			try.Do(r.fromSizes(in, ax, sizes, shape, scale))
		} else {
			if len(scales) != len(ax) {
				return fmt.Errorf("scales %v for %d axes", scales, len(ax))
			}
			for i, a := range ax {
				v := scales[i]
				// So written, NaN is refused too.
				if !(v > 0) || v*float64(in[a]) > onnx.MaxElements {
					return fmt.Errorf("scales %v are out of range", scales)
				}
				shape[a], scale[a] = in[a]*int(v), v
				if v != math.Trunc(v) {
					shape[a] = int(float32(in[a]) * float32(v))
				}
			}
		}
		roi := r.region(c, ax, len(in))
		out := try.Get(c.New(0, c.In[0].DType, shape))
		if out.Len() == 0 {
			return nil
		}
		if c.In[0].Len() == 0 {
			return fmt.Errorf("input of shape %v has nothing to resize to %v", in, shape)
		}
		taps := make([]axisTaps, len(in))
		for k := range in {
			taps[k] = r.taps(c, in[k], shape[k], scale[k], roi[k])
		}
		switch d := out.Data.(type) {
		case []float32:
			resize(c, d, data[float32](c.In[0]), in, shape, taps, r.extrapolation)
		case []float64:
			resize(c, d, data[float64](c.In[0]), in, shape, taps, r.extrapolation)
		default:
			pick(out, c.In[0], in, shape, taps, r.extrapolation)
		}
		return nil
	}, nil
}

// fromSizes: scale_k = size_k / in_k; where the aspect ratio is kept, one scale for all, and out_k
// = round(scale in_k). It writes shape and scale of the axes ax. not_larger takes the smallest
// scale, not_smaller the largest.
func (r resizing) fromSizes(in, ax, sizes, shape []int, scale []float64) error {
	common := 0.0
	for i, a := range ax {
		if sizes[i] < 0 || sizes[i] > onnx.MaxElements || in[a] == 0 {
			return fmt.Errorf("sizes %v of an input of shape %v are out of range", sizes, in)
		}
		shape[a], scale[a] = sizes[i], float64(sizes[i])/float64(in[a])
		switch {
		case i == 0:
			common = scale[a]
		case r.policy == "not_larger":
			common = min(common, scale[a])
		default:
			common = max(common, scale[a])
		}
	}
	if r.policy != "stretch" {
		for _, a := range ax {
			shape[a], scale[a] = int(math.Floor(float64(float32(common)*float32(in[a]))+0.5)),
				common
		}
	}
	return nil
}

// region is the start and end of the crop on each axis, as fractions. Without a crop, and on axes
// that are not named, it is 0 to 1. The input holds all starts before all ends.
func (r resizing) region(c *Call, ax []int, rank int) [][2]float64 {
	roi := slices.Repeat([][2]float64{{0, 1}}, rank)
	if r.transform != "tf_crop_and_resize" {
		return roi
	}
	t := c.in(1)
	if t == nil || t.Len() != 2*len(ax) {
		try.Fail("tf_crop_and_resize takes a roi of %d numbers", 2*len(ax))
	}
	for i, a := range ax {
		roi[a] = [2]float64{t.At(i), t.At(len(ax) + i)}
	}
	return roi
}

// tap lists weighted input positions; position -1 stands for the extrapolation value.
type tap struct {
	at     []int
	weight []float64
}

// axisTaps are the taps of the output positions of one axis: `each` positions and weights for every
// one, of which the last may have weight 0. They are the call's memory, 16 bytes a pair.
type axisTaps struct {
	each   int
	at     []int64
	weight []float64
}

// newAxisTaps has a single position of weight 0 throughout.
func newAxisTaps(c *Call, out, each int) axisTaps {
	t := axisTaps{each, scratch[int64](c, out, each), scratch[float64](c, out, each)}
	clear(t.at)
	clear(t.weight)
	return t
}

// set writes the taps of output position i, at most as many as have room.
func (t axisTaps) set(i int, of tap) {
	copy(t.weight[i*t.each:(i+1)*t.each], of.weight)
	for j, p := range of.at {
		t.at[i*t.each+j] = int64(p)
	}
}

// of returns the positions and weights of output position i.
func (t axisTaps) of(i int) ([]int64, []float64) {
	lo, hi := i*t.each, (i+1)*t.each
	return t.at[lo:hi], t.weight[lo:hi]
}

// beyond says that output position i has the extrapolation value.
func (t axisTaps) beyond(i int) bool { return t.at[i*t.each] < 0 }

// most is how many taps an output position has at most. They are counted before the first is made,
// so that the pool's limit bounds those of one position too.
func (r resizing) most(scale float64) int {
	switch {
	case r.mode == "nearest":
		return 1
	case r.antialias && scale < 1:
		return 2 + 2*r.before(scale)
	case r.mode == "linear":
		return 2
	}
	return 4
}

// taps lists the input positions that each output position of one axis is made of. They depend on
// one axis alone: a pixel's weight is the product of those of its coordinates.
func (r resizing) taps(c *Call, in, out int, scale float64, roi [2]float64) axisTaps {
	if scale == 1 && in == out && r.transform != "tf_crop_and_resize" {
		ts := newAxisTaps(c, out, 1)
		for i := range out {
			ts.set(i, tap{[]int{i}, []float64{1}})
		}
		return ts
	}
	ts := newAxisTaps(c, out, r.most(scale))
	simple := r.nearest == "simple"
	if simple {
		if r.nearest = "floor"; scale < 1 {
			r.nearest = "ceil"
		}
	}
	for i := range out {
		x := r.position(i, in, out, scale, roi)
		if r.transform == "tf_crop_and_resize" && !(x >= 0 && x <= float64(in-1)) {
			ts.set(i, tap{[]int{-1}, nil})
			continue
		}
		ts.set(i, r.tapsAt(x, in, scale))
	}
	return ts
}

// position is that in the input of output position i. It is in pixels, may lie outside of the axis,
// and follows the equations at the beginning of this file.
func (r resizing) position(i, in, out int, scale float64, roi [2]float64) float64 {
	f := func(v float64) float64 { return v }
	// The nearest pixel and the end of a crop are a matter of the last bit. Between pixels fixed
	// sizes are smooth, and float64 is nearer to the truth.
	if r.byScale || r.mode == "nearest" || r.transform == "tf_crop_and_resize" {
		f = func(v float64) float64 { return float64(float32(v)) }
	}
	at, s, last := float64(i), f(scale), float64(in-1)
	center := f((at + 0.5) / s)
	length := f(float64(in) * s) // of the output, before it was cut to a whole number
	if r.mode == "nearest" && !r.byScale {
		length = float64(out)
	}
	switch {
	case r.transform == "half_pixel_symmetric":
		offset := f(float64(in) / 2 * f(1-f(float64(out)/length)))
		return f(f(offset+center) - 0.5)
	case r.transform == "asymmetric":
		return f(at / s)
	case r.transform == "tf_crop_and_resize" && out == 1:
		return 0.5 * (roi[0] + roi[1]) * last
	case r.transform == "tf_crop_and_resize":
		along := f(f(at*f(roi[1]-roi[0]))*last) / float64(out-1)
		return f(f(roi[0]*last) + f(along))
	case r.transform != "half_pixel" && out == 1:
		return 0
	case r.transform == "align_corners":
		// length, not out: where they differ the standard's tests have it so (the ONNX Runtime has
		// not).
		return f(f(at*last) / f(length-1))
	}
	return f(center - 0.5) // half_pixel, pytorch_half_pixel
}

// tie is how near a half a position is taken for one, as by the ONNX Runtime: float32 seldom holds
// it.
const tie = 1e-6

// tapsAt are the taps of position x: one, two or four of them, or those of wideTaps.
func (r resizing) tapsAt(x float64, in int, scale float64) tap {
	inside := func(i int) int { return min(max(i, 0), in-1) }
	x = min(max(x, -4), float64(in)+4) // beyond, every tap is the edge
	if r.antialias && scale < 1 && r.mode != "nearest" {
		return r.wideTaps(x, in, scale)
	}
	switch r.mode {
	case "nearest":
		var i int
		switch r.nearest {
		case "round_prefer_floor":
			i = int(math.Ceil(x - 0.5 - tie))
		case "round_prefer_ceil":
			i = int(math.Floor(x + 0.5 + tie))
		case "floor":
			i = int(math.Floor(x))
		case "ceil":
			i = int(math.Ceil(x))
		}
		return tap{[]int{inside(i)}, []float64{1}}
	case "linear":
		x = min(max(x, 0), float64(in-1))
		i := int(x)
		f := x - float64(i)
		return tap{[]int{i, inside(i + 1)}, []float64{1 - f, f}}
	}
	i := int(math.Floor(x))
	f := x - math.Floor(x)
	return r.normalized(i-1, in, []float64{r.keys(f + 1), r.keys(f), r.keys(1 - f), r.keys(2 - f)},
		r.excludeOutside)
}

// keys is the cubic filter at a distance x >= 0 (Keys 1981, equation 15 for a = -1/2).
//
//	(a + 2) x³ - (a + 3) x² + 1    for x <= 1
//	a x³ - 5a x² + 8a x - 4a       for 1 < x < 2
func (r resizing) keys(x float64) float64 {
	a := r.cubic
	switch {
	case x <= 1:
		return ((a+2)*x-(a+3))*x*x + 1
	case x < 2:
		return ((a*x-5*a)*x+8*a)*x - 4*a
	}
	return 0
}

// normalized are taps from position first on. Those outside of the axis read its edge, or count
// nothing where they are excluded; sum makes the weights add up to 1. w is kept and changed.
func (r resizing) normalized(first, in int, w []float64, sum bool) tap {
	t, total := tap{weight: w}, 0.0
	for j := range w {
		p := first + j
		if r.excludeOutside && (p < 0 || p >= in) {
			w[j] = 0
		}
		total += w[j]
		t.at = append(t.at, min(max(p, 0), in-1))
	}
	if sum {
		for j := range w {
			w[j] /= total
		}
	}
	return t
}

// before is how many positions wideTaps has before the one on the left of x, and behind the one on
// its right.
func (r resizing) before(scale float64) int {
	radius := 1.0
	if r.mode == "cubic" {
		radius = 2
	}
	return int(math.Ceil(radius/scale)) - 1
}

// wideTaps are those of the filter stretched by 1/scale, so that every position of a larger input
// counts. They are of a triangle of radius 1, or the cubic filter of radius 2, about 2 radius /
// scale of them.
func (r resizing) wideTaps(x float64, in int, scale float64) tap {
	filter := func(d float64) float64 { return max(0, 1-d) }
	if r.mode == "cubic" {
		filter = r.keys
	}
	before := r.before(scale)
	left := int(math.Ceil(x)) - 1
	w := make([]float64, 2+2*before)
	for j := range w {
		w[j] = filter(math.Abs(float64(left-before+j)-x) * scale)
	}
	return r.normalized(left-before, in, w, true)
}

// resize applies the taps of one axis after another, from the first. An axis of taps t costs
// O(outputs of the axis · t · all other sizes). Sums are in float64 and on one thread. An output
// any coordinate of which lies outside the crop has the extrapolation value. Between two axes a
// tensor may be larger than the input and the output; no more than two are held at a time.
func resize[T floating](c *Call, out, x []T, in, shape []int, taps []axisTaps, extrapolation float64) {
	cur := scratch[float64](c, len(x))
	for i, v := range x {
		cur[i] = float64(v)
	}
	dims := append([]int{}, in...)
	for k := range in {
		outer, inner := product(dims[:k]), product(dims[k+1:])
		next := scratch[float64](c, outer, shape[k], inner)
		clear(next)
		for i := range shape[k] {
			at, weight := taps[k].of(i)
			for o := 0; o < outer; o++ {
				dst := next[(o*shape[k]+i)*inner : (o*shape[k]+i+1)*inner]
				for j, w := range weight {
					if w == 0 {
						continue // a neighbour that does not count may be infinite
					}
					p := int(at[j])
					src := cur[(o*dims[k]+p)*inner : (o*dims[k]+p+1)*inner]
					for e, v := range src {
						dst[e] += w * v
					}
				}
			}
		}
		c.drop(cur)
		cur, dims[k] = next, shape[k]
	}
	for i, v := range cur {
		out[i] = T(v)
	}
	if !slices.ContainsFunc(taps, func(t axisTaps) bool { return slices.Min(t.at) < 0 }) {
		return
	}
	pos := make([]int, len(shape))
	for e := range out {
		if unravel(pos, e, shape); outside(taps, pos) {
			out[e] = T(extrapolation)
		}
	}
}

// outside says that a coordinate of an output lies outside the crop.
func outside(taps []axisTaps, pos []int) bool {
	for k, p := range pos {
		if taps[k].beyond(p) {
			return true
		}
	}
	return false
}

// pick is the nearest mode for elements that are not floats. Outside of a crop it takes the
// extrapolation value, in their type, and of text the empty one.
func pick(out, x *onnx.Tensor, in, shape []int, taps []axisTaps, extrapolation float64) {
	st, pos, move := strides(in), make([]int, len(in)), movesOf(x.Data)
	beyond := try.Get(onnx.Zeros(out.DType, 1))
	castInto(beyond, onnx.Vector(extrapolation))
	for i, n := 0, out.Len(); i < n; i++ {
		if unravel(pos, i, shape); outside(taps, pos) {
			move.copy(out.Data, i, beyond.Data, 0, 1)
			continue
		}
		off := 0
		for k, p := range pos {
			off += int(taps[k].at[p]) * st[k]
		}
		move.copy(out.Data, i, x.Data, off, 1)
	}
}

package grad

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

func init() {
	register(vjpConv, "Conv")
	register(vjpConvTranspose, "ConvTranspose")
}

// window is how a convolution or pooling slides over the spatial axes. begin and end are those of
// op.Window until auto_pad fills them.
type window struct {
	op.Window
	dims       int   // number of spatial axes
	begin, end []int // padding at both ends of each axis
	group      int
}

// padded reports whether there is any padding.
func (w window) padded() bool {
	return slices.ContainsFunc(slices.Concat(w.begin, w.end), func(p int) bool { return p != 0 })
}

// ones is n times 1, the strides or the shape of a broadcast.
func ones(n int) []int { return slices.Repeat([]int{1}, n) }

// window reads the attributes that Conv, ConvTranspose and the poolings share. x is the tensor that
// slides under the window; weights is "" for poolings. The kernel's sizes multiply to no more than
// onnx.MaxElements.
func (c *call) window(x, weights string) window {
	r := c.rank(x)
	if r < 3 {
		try.Fail("%q has rank %d; a window needs batch, channels and at least one "+
			"spatial axis", x, r)
	}
	var kernel []int
	if weights != "" {
		if s, ok := c.sizes(weights); ok {
			kernel = s[2:]
		} else if !c.attrs.Has("kernel_shape") {
			try.Fail(
				"the kernel's size is not known: %q has no fixed shape and the node no kernel_shape", weights)
		}
	}
	o := try.Get(op.WindowOf(c.attrs, r-2, kernel))
	if _, err := onnx.Elements(o.Kernel); err != nil {
		try.Fail("the kernel: %w", err)
	}
	w := window{Window: o, dims: r - 2, group: max(1, c.attrs.Int("group"))} // poolings have none
	w.begin, w.end = slices.Clone(o.Pads[:w.dims]), slices.Clone(o.Pads[w.dims:])
	return w
}

// autoPad fills in the padding of Conv and the poolings that auto_pad asks for. SAME gives ceil(in
// / stride) positions, with the odd element of padding at the end for SAME_UPPER.
func (c *call) autoPad(w *window, x string) error {
	switch w.AutoPad {
	case "NOTSET":
		return nil
	case "VALID":
		w.begin, w.end = make([]int, w.dims), make([]int, w.dims)
		return nil
	}
	for i := range w.begin {
		size := 1 // with a stride of one the padding is the same for any
		if s := w.Strides[i]; s != 1 {
			d := c.shape(x)[2+i]
			if !d.IsKnown() {
				return fmt.Errorf("auto_pad %s with stride %d needs the size of spatial axis %d of %q; "+
					"export the model with it fixed", w.AutoPad, s, i, x)
			}
			size = d.Size
		}
		w.begin[i], w.end[i] = w.SamePads(size, i)
	}
	return nil
}

// attrs are the window as the attributes of a Conv. pads are all begins and then all ends.
func (w window) attrs(strides, begin, end []int) []onnx.Attr {
	return []onnx.Attr{
		onnx.IntsAttr("kernel_shape", w.Kernel...), onnx.IntsAttr("strides", strides...),
		onnx.IntsAttr("dilations", w.Dilations...),
		onnx.IntsAttr("pads", append(append([]int{}, begin...), end...)...),
		onnx.IntAttr("group", w.group),
	}
}

// allOnes holds of no numbers too.
func allOnes(v []int) bool {
	return !slices.ContainsFunc(v, func(x int) bool { return x != 1 })
}

// vjpConv: x̄ is the adjoint of the convolution, w̄ the correlation of x with ȳ, and b̄ = Σ ȳ over
// batch and positions. An input that is not wanted costs no nodes, which spares the data gradient
// of a first layer.
func vjpConv(c *call) []string {
	x, weights, g := c.in(0), c.in(1), c.g()
	w := c.window(x, weights)
	try.Do(c.autoPad(&w, x))
	out := []string{"", "", ""}
	if c.wants(0) {
		out[0] = c.convData(w, x, weights, g)
	}
	if c.wants(1) {
		out[1] = c.convWeights(w, x, g, c.out(0), weights)
	}
	if c.wants(2) {
		out[2] = c.sum(g, false, append([]int{0}, span(2, 2+w.dims)...)...)
	}
	return out
}

// convData is the data gradient of a convolution. With stride 1 it is the convolution of the
// cotangent with the kernel turned round and its channels exchanged, which is faster than
// ConvTranspose. Pads of the turned convolution are extent - 1 - pad at each end.
func (c *call) convData(w window, x, weights, g string) string {
	if allOnes(w.Strides) {
		begin, end := make([]int, w.dims), make([]int, w.dims)
		fits := true
		for i := range begin {
			begin[i], end[i] = w.Extent(i)-1-w.begin[i], w.Extent(i)-1-w.end[i]
			fits = fits && begin[i] >= 0 && end[i] >= 0
		}
		turned := c.turnKernel(w, weights)
		if fits {
			return c.op("Conv", []string{g, turned}, w.attrs(w.Strides, begin, end)...)
		}
		// Padding beyond the kernel's reach: the cotangent there is cut off.
		crop := make([]int, 2*(w.dims+2))
		for i := range begin {
			crop[2+i], crop[4+w.dims+i] = min(0, begin[i]), min(0, end[i])
			begin[i], end[i] = max(0, begin[i]), max(0, end[i])
		}
		g = c.op("Pad", []string{g, c.ints(crop...)})
		return c.op("Conv", []string{g, turned}, w.attrs(w.Strides, begin, end)...)
	}
	return c.spread(w, g, weights, x)
}

// spread is the adjoint of sliding a window over x: ConvTranspose of v, then cut or filled with
// zeros to the size of x. Several sizes of x give one number of windows, which is why the size of x
// is needed.
func (e *emitter) spread(w window, v, weights, x string) string {
	s := e.shape(x)
	zero := make([]int, w.dims)
	known := true
	for _, d := range s[2:] {
		known = known && d.IsKnown()
	}
	if known {
		attrs := w.attrs(w.Strides, w.begin, w.end)
		extra := make([]int, w.dims)
		ok := true
		for i := range extra {
			// Rows at the end of x that no window reached.
			extra[i] = (s[2+i].Size + w.begin[i] + w.end[i] - w.Extent(i)) % w.Strides[i]
			ok = ok && extra[i] >= 0 && s[2+i].Size+w.begin[i]+w.end[i] >= w.Extent(i)
		}
		if ok {
			return e.op("ConvTranspose", []string{v, weights},
				append(attrs, onnx.IntsAttr("output_padding", extra...))...)
		}
	}
	full := e.op("ConvTranspose", []string{v, weights}, w.attrs(w.Strides, zero, zero)...)
	axes := span(2, 2+w.dims)
	have := e.op("Gather", []string{e.un("Shape", full), e.ints(axes...)})
	want := e.op("Gather", []string{e.un("Shape", x), e.ints(axes...)})
	negBegin := make([]int, w.dims)
	for i, b := range w.begin {
		negBegin[i] = -b
	}
	// Fill (or cut) at the end: size + begin - have.
	after := e.sub(e.add(want, e.ints(w.begin...)), have)
	pads := e.vec(e.ints(0, 0), e.ints(negBegin...), e.ints(0, 0), after)
	return e.op("Pad", []string{full, pads})
}

// turnKernel makes [C, M/G, k...] reversed along every k from [M, C/G, k...]. Groups keep to
// themselves: the channels are exchanged within each of the G groups.
func (c *call) turnKernel(w window, weights string) string {
	r := 2 + w.dims
	v := weights
	if w.group == 1 {
		v = c.transpose(v, append([]int{1, 0}, span(2, r)...)...)
	} else {
		s, ok := c.sizes(weights)
		if !ok {
			try.Fail("the kernel %q of a grouped convolution has no fixed shape", weights)
		}
		k := s[2:]
		v = c.reshape(v, c.ints(append([]int{w.group, s[0] / w.group, s[1]}, k...)...))
		v = c.transpose(v, append([]int{0, 2, 1}, span(3, r+1)...)...)
		v = c.reshape(v, c.ints(append([]int{w.group * s[1], s[0] / w.group}, k...)...))
	}
	var axes, starts, ends, steps []int
	for i, k := range w.Kernel {
		if k > 1 {
			axes, starts, ends, steps = append(axes, 2+i), append(starts, -1), append(ends, -k-1),
				append(steps, -1)
		}
	}
	if len(axes) > 0 {
		v = c.op("Slice", []string{v, c.ints(starts...), c.ints(ends...), c.ints(axes...),
			c.ints(steps...)})
	}
	return v
}

// narrow is the number of columns below which a product of matrices leaves lanes of a vector idle.
const narrow = 16

// positionBytes are about those that the nodes of one position of a kernel take.
const positionBytes = 1 << 10

// convWeights is the weight gradient of a convolution of x that gave a value of the shape of y,
// with cotangent g: for every position of the kernel one product of matrices, [M, N·P] by [N·P, C],
// of the cotangent and of x shifted by that position, P being the output's positions. weights has
// the shape [M, C/G, k...]. w̄[m, c, k] = sum over n and p of ȳ[n, m, p] x[n, c, stride p +
// dilation k], x being padded. The graph grows with the positions of the kernel, which afford takes
// from the budget.
func (c *call) convWeights(w window, x, g, y, weights string) string {
	try.Get(c.afford(positionBytes, w.Kernel...))
	r := 2 + w.dims
	spatial := span(2, r)
	// Channels last: padding and a shift of x are then made of long runs.
	xl := c.transpose(x, append(append([]int{0}, spatial...), 1)...)
	if w.padded() {
		pads := append(append([]int{0}, w.begin...), append([]int{0, 0}, w.end...)...)
		xl = c.op("Pad", []string{xl, c.ints(append(pads, 0)...)})
	}
	sw, ok := c.sizes(weights)
	if !ok {
		try.Fail("the kernel %q has no fixed shape", weights)
	}
	m, cg, G := sw[0], sw[1], w.group
	gm := c.transpose(g, append([]int{1, 0}, spatial...)...) // [M, N, P...]
	if G == 1 {
		gm = c.reshape(gm, c.ints(m, -1))
	} else {
		gm = c.reshape(gm, c.ints(G, m/G, -1))
	}

	// End of the shifts at the kernel's origin: stride (size of y - 1) + 1, per spatial axis.
	sy := c.shape(y)
	ends := make([]string, w.dims)
	for i := range ends {
		if sy != nil && sy[2+i].IsKnown() {
			ends[i] = c.ints(w.Strides[i]*(sy[2+i].Size-1) + 1)
		} else {
			n := c.dim(y, 2+i)
			ends[i] = c.intOp("Add", c.intOp("Mul", c.intOp("Sub", n, c.ints(1)),
				c.ints(w.Strides[i])), c.ints(1))
		}
	}
	// Few channels make products that are too narrow: the shifts are then put side by side.
	beside := G == 1 && cg < narrow
	var parts []string
	position := make([]int, w.dims)
	for {
		starts := make([]int, w.dims)
		stop := make([]string, w.dims)
		for i, p := range position {
			starts[i] = p * w.Dilations[i]
			stop[i] = c.intOp("Add", ends[i], c.ints(starts[i]))
		}
		shift := xl
		if w.padded() || product(w.Kernel) > 1 || !allOnes(w.Strides) {
			shift = c.op("Slice", []string{xl, c.ints(starts...), c.vec(stop...),
				c.ints(span(1, 1+w.dims)...), c.ints(w.Strides...)})
		}
		switch {
		case beside:
			parts = append(parts, shift)
		case G == 1:
			// [M, C]
			parts = append(parts, c.op("MatMul", []string{gm, c.reshape(shift, c.ints(-1, cg))}))
		default:
			rows := c.reshape(shift, c.ints(-1, G, cg))
			// [G, M/G, C/G]
			parts = append(parts, c.op("MatMul", []string{gm, c.transpose(rows, 1, 0, 2)}))
		}
		if !advance(position, w.Kernel) {
			break
		}
	}
	if beside {
		k := product(w.Kernel)
		// [M, k...·C]
		all := c.op("MatMul", []string{gm,
			c.reshape(c.concat(1+w.dims, parts...), c.ints(-1, k*cg))})
		return c.reshape(c.transpose(c.reshape(all, c.ints(m, k, cg)), 0, 2, 1), c.ints(sw...))
	}
	for i, p := range parts {
		if G > 1 {
			p = c.reshape(p, c.ints(m, cg))
		}
		parts[i] = c.unsqueeze(p, 2)
	}
	return c.reshape(c.concat(2, parts...), c.ints(sw...))
}

// advance counts position up, last axis fastest; false after the last one.
func advance(position, limit []int) bool {
	for i := len(position) - 1; i >= 0; i-- {
		position[i]++
		if position[i] < limit[i] {
			return true
		}
		position[i] = 0
	}
	return false
}

// product is 1 of no numbers.
func product(v []int) int {
	p := 1
	for _, x := range v {
		p *= x
	}
	return p
}

// vjpConvTranspose: the node is the adjoint of a convolution with the same kernel, so its data
// gradient is that convolution, and its weight gradient that of the convolution with the two sides
// exchanged.
func vjpConvTranspose(c *call) []string {
	x, weights, g := c.in(0), c.in(1), c.g()
	w := c.window(x, weights)
	if c.attrs.Has("output_shape") {
		try.Fail("the attribute output_shape is not supported; give pads and output_padding")
	}
	extra := make([]int, w.dims)
	if c.attrs.Has("output_padding") {
		extra = c.attrs.Ints("output_padding")
	}
	if len(extra) != w.dims {
		try.Fail("output_padding %v for %d spatial axes", extra, w.dims)
	}
	switch w.AutoPad {
	case "VALID":
		w.begin, w.end = make([]int, w.dims), make([]int, w.dims)
	// The output is in · stride, from which the sum of the pads is output_padding + extent -
	// stride.
	case "SAME_UPPER", "SAME_LOWER":
		for i := range w.begin {
			total := max(0, extra[i]+w.Extent(i)-w.Strides[i])
			w.begin[i] = total / 2
			if w.AutoPad == "SAME_LOWER" {
				w.begin[i] = (total + 1) / 2
			}
			w.end[i] = total - w.begin[i]
		}
	}
	// With output_padding at the stride or above, the convolution of ȳ would give more positions
	// than x has.
	for i, e := range extra {
		if e >= w.Strides[i] {
			try.Fail("output_padding %v reaches the strides %v", extra, w.Strides)
		}
	}
	out := []string{"", "", ""}
	if c.wants(0) {
		out[0] = c.op("Conv", []string{g, weights}, w.attrs(w.Strides, w.begin, w.end)...)
	}
	if c.wants(1) {
		out[1] = c.convWeights(w, g, x, x, weights)
	}
	if c.wants(2) {
		out[2] = c.sum(g, false, append([]int{0}, span(2, 2+w.dims)...)...)
	}
	return out
}

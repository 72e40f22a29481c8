package kernel

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Conv: group = 1, window attributes as in newWindow; x [n, ci, in...], w [co, ci/group, size...],
// b [co]:
//
//	out[n, co, p...] = b[co] + sum_{c, q} w[co, c, q] x[n, c + ci/group · g, p · stride - begin + q · dilation]
//
// Computed as a matrix product: columns of x under the window (im2col), a tile of output positions
// at a time so that memory stays bounded, times w; 3x3 windows by fewer products (winograd), one
// channel at a time by none (depthwise). An operator that follows on each channel is applied to
// every tile (after).
func init() {
	register(Def{Op: "Conv", Since: 1, Half: true, New: newConv})
}

// columnBytes bounds the im2col tile of one thread.
const columnBytes = 512 << 10

// newConv keeps weights that are known twice: as the model has them, and laid out for products
// where Spec.Keep has room. Winograd's tiles need no second layout where they serve every size.
func newConv(s *Spec) (Kernel, error) {
	w, group := newGroups(s)
	f := &filters{group: group, tiles: newWinograd(s, w, group)}
	if m := s.constant(1); m != nil && len(m.Shape) > 0 && group == m.Shape[0] {
		f.tame = m.DType == onnx.Float32 && allFinite(m)
	}
	if m := s.constant(1); m != nil && m.DType == onnx.Float32 && len(m.Shape) > 1 &&
		(f.tiles == nil || !f.tiles.always()) &&
		s.keeps(group, padRows(m.Shape[0]/group), product(m.Shape[1:])) {
		f.weights = m
	}
	return numeric(s, convOf[float32](w, group, newAfter(s), f),
		convOf[float64](w, group, nil, nil))
}

// newGroups reads the attributes that all convolutions have.
func newGroups(s *Spec) (w window, group int) {
	if group = s.int("group"); group < 1 {
		try.Fail("group %d: at least 1 is expected", group)
	}
	return newWindow(s), group
}

// filters are the weights of a convolution as its products read them. Where they are known before
// the model runs, they are laid out once, when they are first wanted.
type filters struct {
	weights *onnx.Tensor // nil where they are not known, or too large to be kept
	group   int

	once sync.Once
	// every group's, [output channels, input channels and positions] as packLeft has it
	packed []float32
	tiles  *winograd // nil where the convolution cannot be done so
	masked atomic.Pointer[maskedTaps]
	swept  atomic.Pointer[sweeps]
	tame   bool // no weight is infinite or none, so that its product with the padding is zero
}

// sweeps returns how a window goes down planes, that of the last call where sizes are the same; nil
// where there is no kernel for it. Calls at a time may each make one; the last is kept, and all are
// alike.
func (f *filters) sweeps(w window, in, out []int) *sweeps {
	if f == nil || !f.tame || len(in) != 2 {
		return nil
	}
	s := f.swept.Load()
	if s == nil || s.in != [2]int(in) || s.out != [2]int(out) {
		if s = newSweeps(w, in, out); s != nil {
			f.swept.Store(s)
		}
	}
	return s
}

// maskedTaps returns a window's taps, those of the last call where sizes are the same; nil where it
// is not one for masks.
func (f *filters) maskedTaps(w window, in, out []int) *maskedTaps {
	if f == nil || !haveMasks() {
		return nil
	}
	m := f.masked.Load()
	if m == nil || m.in != planar(in, 1) || m.out != planar(out, 1) {
		if m = newMaskedTaps(w, in, out); m != nil {
			f.masked.Store(m)
		}
	}
	return m
}

// pack lays out the weights w in dst. dst has room for the rows of every group in whole panels.
func (f *filters) pack(dst []float32, w *onnx.Tensor) []float32 {
	og, k := w.Shape[0]/f.group, product(w.Shape[1:])
	packed := padRows(og) * k
	for g := range f.group {
		packLeft(dst[g*packed:(g+1)*packed], dense(w.F32()[g*og*k:(g+1)*og*k], og, k))
	}
	return dst
}

// convShape checks x and w against each other and fits the window. The window and the sizes that
// come back are the call's own.
func convShape(w window, group int, xs, ws []int) (window, []int, error) {
	if len(xs) < 3 || len(ws) != len(xs) {
		return w, nil, fmt.Errorf("input %v and weights %v: [n, channels, axes...] and as many axes "+
			"are expected", xs, ws)
	}
	if xs[1] != ws[1]*group || ws[0]%group != 0 {
		return w, nil, fmt.Errorf(
			"input %v, weights %v and group %d do not match: %d channels where the weights take %d",
			xs, ws, group, xs[1], ws[1]*group)
	}
	if w.size != nil && !slices.Equal(w.size, ws[2:]) {
		return w, nil, fmt.Errorf("kernel_shape %v differs from the weights' %v", w.size, ws[2:])
	}
	if slices.Contains(ws[2:], 0) {
		return w, nil, fmt.Errorf("weights %v: a window of at least 1 is expected", ws)
	}
	w.size = ws[2:]
	return w.fit(xs[2:])
}

// convolution is one call of a Conv.
type convolution[T floating] struct {
	*Call
	window                window
	group                 int
	then                  *after
	xs, sp                []int // the shape of x, and the size of the output's axes
	x, weights, bias, out []T
	channels, filters     int // of a group: input and output
	// elements of a plane of x, of a plane of the output, and of the window
	in, pos, taps int
	phases        *phases
	// One item of the work is one tile of one group of one image, or of a block of images where a
	// plane is small: independent of all others.
	tile, block int
	direct      bool // the columns are the input itself
	laid        bool // the columns of a tile are laid out as products read them
	sums        bool // the output holds a value that is added
	// every group's weights as [packLeft] has them, copied once for all tiles and images; nil:
	// multiplied by times
	left  []float32
	from  []float32 // every group's bias, in rows as left has them
	times func(a, b, c matrix[T])
}

// convOf is the kernel of type T; f, which may be nil for float64, is shared by all calls.
func convOf[T floating](win window, group int, then *after, f *filters) Kernel {
	return func(c *Call) error { return runConv[T](c, win, group, then, f) }
}

// runConv chooses the way. A channel of its own group goes by sweeps, masks or taps, 3x3 windows by
// Winograd's tiles, and all others by products of columns.
func runConv[T floating](c *Call, win window, group int, then *after, f *filters) error {
	v := newConvolution[T](c, win, group, then)
	switch {
	// Sums cannot begin in the value that is added: it is added afterwards.
	case v.sums && v.out == nil:
		try.Do(runConv[T](c, win, group, nil, f))
		return then.addLast(c)
	case len(v.out) == 0:
		return nil
	case v.channels == 1 && v.filters == 1 && len(v.xs) < 5:
		if s := f.sweeps(v.window, v.xs[2:], v.sp); s != nil &&
			(s.eights != nil || haveMasks() && !v.env.Reproducible) {
			s.run(any(v).(*convolution[float32]))
			return nil
		}
		if m := f.maskedTaps(v.window, v.xs[2:], v.sp); m != nil && !v.env.Reproducible {
			m.run(any(v).(*convolution[float32]))
			return nil
		}
		v.depthwise()
		return nil
	}
	// Panels or not is a matter of the weights alone, so that an image's result does not depend
	// on its batch.
	single, _ := any(v).(*convolution[float32])
	inPanels := single != nil && panels(v.filters, panelLeast, v.channels*v.taps)
	if inPanels && f.tiles.suits(v.sp) {
		f.tiles.run(single)
		return nil
	}
	v.arrange(inPanels)
	if inPanels {
		v.left = f.left(c)
		v.from = scratch[float32](c, group*padRows(v.filters))
		clear(v.from)
		for g := 0; g < group && v.bias != nil; g++ {
			copy(v.from[g*padRows(v.filters):], single.bias[g*v.filters:(g+1)*v.filters])
		}
	}
	v.products()
	return nil
}

// newConvolution checks shapes and bias, and makes the output. v.out stays nil where sums cannot
// begin in the value that is added.
func newConvolution[T floating](c *Call, win window, group int, then *after) *convolution[T] {
	xs, ws := c.In[0].Shape, c.In[1].Shape
	w, sp := try.Get2(convShape(win, group, xs, ws))
	v := &convolution[T]{Call: c, window: w, group: group, then: then, xs: xs, sp: sp,
		channels: ws[1], filters: ws[0] / group,
		in: product(xs[2:]), pos: product(sp), taps: product(w.size)}
	if b := c.in(2); b != nil {
		if b.Len() != ws[0] {
			try.Fail("bias has %d elements for %d output channels", b.Len(), ws[0])
		}
		v.bias = data[T](b)
	}
	v.sums = then != nil && then.sum
	shape, inPanels := append([]int{xs[0], ws[0]}, sp...),
		panels(v.filters, panelLeast, v.channels*v.taps)
	if out := then.target(c, shape, inPanels); out != nil {
		v.x, v.weights, v.out = data[T](c.In[0]), data[T](c.In[1]), data[T](out)
	}
	return v
}

// left returns the weights of every group laid out, from the model's constants where they are
// known.
func (f *filters) left(c *Call) []float32 {
	size := func(w *onnx.Tensor) int {
		return f.group * padRows(w.Shape[0]/f.group) * product(w.Shape[1:])
	}
	if f.weights == nil {
		w := c.In[1]
		return f.pack(scratch[float32](c, size(w)), w)
	}
	f.once.Do(func() { f.packed = f.pack(make([]float32, size(f.weights)), f.weights) })
	return f.packed
}

// arrange divides the work and chooses the product. A tile has about columnBytes of columns.
func (v *convolution[T]) arrange(inPanels bool) {
	k, elem := v.channels*v.taps, 4
	if _, ok := any(v).(*convolution[float64]); ok {
		elem = 8
	}
	v.tile, v.block = max(tileCols, columnBytes/elem/max(k, v.filters)/tileCols*tileCols), 1
	// Tiles are of about one size, since each reads all weights.
	tiles := max(1, (v.pos+v.tile/2)/v.tile)
	v.tile = min(v.pos, padColumns((v.pos+tiles-1)/tiles))
	v.direct = pointwise(v.window)
	v.laid = inPanels && !v.direct && haveRuns() && len(v.sp) <= 2
	if v.laid || !v.direct && !inPlanes(v.xs[2:], v.sp, v.window) {
		v.phases = try.Get(newPhases(v.window, v.xs[2:], v.sp))
	}
	if v.laid && v.tile == v.pos && v.phases.patches() { // which columns deals out faster
		v.laid = false
	}
	if inPanels && (v.direct || v.laid) { // no columns beside a slab's panels
		share := v.pos * v.xs[0] * v.group / max(1, v.env.Threads)
		v.tile = min(v.pos, panelWidth, max(tileCols, padColumns(share)))
	}
	switch {
	case inPanels:
		if !v.sums { // which begin in the output
			v.block = max(1, min(v.xs[0], tileCols/v.pos))
		}
	case !v.env.Reproducible && finite(dense(v.x, 1, len(v.x))):
		v.times = multiplyFinite[T] // looked at once, not once a tap
	default:
		v.times = multiplyPlain[T]
	}
}

// products multiplies tile by tile. Memory of columns and phases is made once for each piece of the
// work.
func (v *convolution[T]) products() {
	k := v.channels * v.taps
	tiles, blocks := (v.pos+v.tile-1)/v.tile, (v.xs[0]+v.block-1)/v.block
	v.Parallel(blocks*v.group*tiles, work(v.filters, k, v.tile, v.block)/4, func(lo, hi int) {
		var col, sum, split []T
		if v.phases != nil {
			split = scratch[T](v.Call, v.phases.len())
			clear(split)
		}
		if !v.direct && !v.laid || v.block > 1 {
			col = scratch[T](v.Call, k, v.tile, v.block)
		}
		if v.block > 1 {
			sum = scratch[T](v.Call, v.filters, v.tile, v.block)
		}
		for item := lo; item < hi; item++ {
			t, g, n := item%tiles, item/tiles%v.group, item/tiles/v.group*v.block
			if v.block > 1 { // tiles are whole planes
				v.images(n, g, col, sum, split)
			} else {
				v.part(n, g, t, col, split)
			}
		}
	})
}

// images computes group g of a block of images from n. Small planes of several images are columns
// of one product, so that the weights are read once for all of them. The sums are then copied to
// their planes.
func (v *convolution[T]) images(n, g int, col, sum, split []T) {
	images, k := min(v.block, v.xs[0]-n), v.channels*v.taps
	cols := images * v.pos
	for i := range images {
		v.columns(col[i*v.pos:], cols, v.planes(n+i, g), split, 0, v.pos)
	}
	dst := dense(sum[:v.filters*cols], v.filters, cols)
	v.multiply(dst, dense(col[:k*cols], k, cols), g, nil)
	for i := range images {
		to := v.out[((n+i)*v.group+g)*v.filters*v.pos:]
		for r := range v.filters {
			copy(to[r*v.pos:(r+1)*v.pos], sum[r*cols+i*v.pos:])
		}
	}
}

// part computes tile t of group g of image n. Its output is written in place: rows of dst lie a
// plane apart.
func (v *convolution[T]) part(n, g, t int, col, split []T) {
	p0, p1 := t*v.tile, min(v.pos, (t+1)*v.tile)
	src, k, cols := v.planes(n, g), v.channels*v.taps, p1-p0
	dst := matrix[T]{data: v.out[(n*v.group+g)*v.filters*v.pos+p0:], rows: v.filters,
		cols: cols, stride: v.pos}
	if v.direct {
		v.multiply(dst, matrix[T]{data: src[p0:], rows: k, cols: cols, stride: v.in}, g, nil)
		return
	}
	if v.laid {
		f, x := any(split).([]float32), any(src).([]float32)
		v.multiply(dst, matrix[T]{}, g,
			func(b []float32, s slab) { layRuns(b, s, v.phases, x, f, p0) })
		return
	}
	v.columns(col, cols, src, split, p0, p1)
	v.multiply(dst, dense(col[:k*cols], k, cols), g, nil)
}

// planes returns the planes of x that group g of image n reads.
func (v *convolution[T]) planes(n, g int) []T {
	size := v.channels * v.in
	return v.x[(n*v.group+g)*size : (n*v.group+g+1)*size]
}

// multiply sets dst to the bias plus the weights of group g times the columns, which lay writes
// where it is not nil, with the operators that follow.
func (v *convolution[T]) multiply(dst, columns matrix[T], g int, lay func([]float32, slab)) {
	k := v.channels * v.taps
	weights := dense(v.weights[g*v.filters*k:(g+1)*v.filters*k], v.filters, k)
	if v.left != nil {
		high := padRows(v.filters)
		p := newPacks(v.env.Reproducible)
		defer packPool.Put(p)
		p.bounds, p.bounded = v.then.bounds()
		p.lay, p.more = lay, v.sums
		p.multiply(v.left[g*high*k:(g+1)*high*k], any(weights).(matrix[float32]),
			any(columns).(matrix[float32]), any(dst).(matrix[float32]),
			v.from[g*high:(g+1)*high], v.end(g))
		return
	}
	start(dst, v.bias, g*v.filters)
	v.times(weights, columns, dst)
	if v.then != nil {
		v.then.apply(any(dst).(matrix[float32]), g*v.filters)
	}
}

// end returns the work of the operators that follow on a part of group g's output.
func (v *convolution[T]) end(g int) func(part matrix[float32], row, col int) {
	if v.then == nil {
		return nil
	}
	return func(part matrix[float32], row, _ int) { v.then.apply(part, g*v.filters+row) }
}

// start fills each row of dst with its bias, that of row 0 being bias[from], or zeros where there
// is none.
func start[T floating](dst matrix[T], bias []T, from int) {
	for r := range dst.rows {
		row := dst.data[r*dst.stride : r*dst.stride+dst.cols]
		if bias != nil {
			fillRange(row, bias[from+r])
		} else {
			clear(row)
		}
	}
}

// pointwise says that the columns are the input itself. That is a window of one element without
// stride or padding.
func pointwise(w window) bool {
	for k := range w.size {
		if w.size[k] != 1 || w.stride[k] != 1 || w.begin[k] != 0 || w.end[k] != 0 {
			return false
		}
	}
	return true
}

// inPlanes says that columns are read from the planes themselves. Three axes and more have no
// phases; two have none without strides where lines of the output are as long as the input's.
func inPlanes(in, out []int, w window) bool {
	return len(in) > 2 || len(in) == 2 && product(w.stride) == 1 && out[1] == in[1]
}

// columns writes im2col for output positions p0 <= p < p1 to rows that lie cols apart: col[c q +
// tap, p - p0] = x[c, p · stride - begin + tap · dilation], 0 in the padding. split is memory for
// phases, of zeros where their padding lies.
func (v *convolution[T]) columns(col []T, cols int, x, split []T, p0, p1 int) {
	w, in := v.window, v.xs[2:]
	tap, base := make([]int, len(in)), make([]int, len(in))
	single, _ := any(x).([]float32)
	whole := single != nil && v.phases != nil && p1-p0 == v.pos && v.phases.patches()
	for c := range v.channels {
		plane := x[c*v.in : (c+1)*v.in]
		if whole {
			patchColumns(v.phases, any(col).([]float32)[c*v.taps*cols:], cols, single[c*v.in:],
				any(split).([]float32))
			continue
		}
		if v.phases != nil {
			tapColumns(v.phases, col[c*v.taps*cols:], cols, plane, split, p0, p1)
			continue
		}
		for t := range v.taps {
			unravel(tap, t, w.size)
			row := col[(c*v.taps+t)*cols : (c*v.taps+t)*cols+p1-p0]
			if len(in) == 2 {
				shifted(row, plane, p0, v.sp[1], tap[0]*w.dilation[0]-w.begin[0],
					tap[1]*w.dilation[1]-w.begin[1])
			} else {
				v.lines(row, plane, p0, tap, base)
			}
		}
	}
}

// lines writes the elements that a tap reads of a plane for the output positions from p0 on: runs
// along the last axis share all other coordinates.
func (v *convolution[T]) lines(row, plane []T, p0 int, tap, base []int) {
	w, in, last := v.window, v.xs[2:], len(base)-1
	shift := tap[last]*w.dilation[last] - w.begin[last]
	unravel(base, p0, v.sp)
	for p := 0; p < len(row); {
		run := min(v.sp[last]-base[last], len(row)-p)
		off, inside := 0, true
		for k := 0; k < last; k++ {
			y := base[k]*w.stride[k] - w.begin[k] + tap[k]*w.dilation[k]
			if y < 0 || y >= in[k] {
				inside = false
				break
			}
			off = (off + y) * in[k+1]
		}
		seg := row[p : p+run]
		if !inside {
			clear(seg)
		} else {
			line(seg, plane[off:off+in[last]], base[last]*w.stride[last]+shift, w.stride[last])
		}
		p += run
		next(base, v.sp)
	}
}

// shifted copies a plane of lines of such a width, moved by the given lines and columns, from
// position p0 on; zeros come in at its ends. It is one copy of all lines, whose ends are cleared
// after.
func shifted[T floating](dst, plane []T, p0, width, lines, columns int) {
	from := p0 + lines*width + columns // where dst[0] lies in the plane
	skip := min(max(-from, 0), len(dst))
	n := skip
	if at := from + skip; skip < len(dst) && at < len(plane) {
		n += copy(dst[skip:], plane[at:])
	}
	clear(dst[:skip])
	clear(dst[n:])
	// Lines above and below the plane hold the elements that columns moved there.
	above, below := -lines*width-p0, len(plane)-lines*width-p0
	clear(dst[:min(max(above, 0), len(dst))])
	clear(dst[min(max(below, 0), len(dst)):])
	if columns == 0 {
		return
	}
	a, b := 0, min(-columns, width) // columns of a line that are not there
	if columns > 0 {
		a, b = max(width-columns, 0), width
	}
	for line := -(p0 % width); line < len(dst); line += width {
		for i := max(line+a, 0); i < min(line+b, len(dst)); i++ {
			dst[i] = 0
		}
	}
}

// line copies src[at], src[at+step], ... to dst, zeros where that is outside src. at may be
// negative, or beyond the end; step is at least 1.
func line[T floating](dst, src []T, at, step int) {
	i := 0
	for ; i < len(dst) && at < 0; i++ {
		dst[i] = 0
		at += step
	}
	n := len(dst)
	if at < 0 || at >= len(src) {
		clear(dst[i:])
		return
	}
	n = min(n, i+(len(src)-at+step-1)/step)
	if step == 1 {
		copy(dst[i:n], src[at:])
	} else {
		for j := i; j < n; j++ {
			dst[j] = src[at]
			at += step
		}
	}
	clear(dst[n:])
}

// next moves coordinates to the beginning of the next line.
func next(at, shape []int) {
	last := len(shape) - 1
	at[last] = 0
	for k := last - 1; k >= 0; k-- {
		if at[k]++; at[k] < shape[k] {
			return
		}
		at[k] = 0
	}
}

// unravel writes the coordinates of the i-th position of a shape, in row-major order. No size may
// be 0.
func unravel(at []int, i int, shape []int) {
	for k := len(shape) - 1; k >= 0; k-- {
		at[k] = i % shape[k]
		i /= shape[k]
	}
}

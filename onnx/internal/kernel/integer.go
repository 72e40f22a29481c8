package kernel

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// FastIntegers reports whether the processor multiplies bytes in vectors; without that a product of
// bytes takes 40 times as long as one of float32.
func FastIntegers() bool { return haveDots || haveWords }

// EnableIntegers has kernels of quantised operators work on bytes; see package integers.
func EnableIntegers() {
	for name, with := range map[string]func(s *Spec, k Kernel) (Kernel, error){
		"QuantizeLinear": quantizeRuns, "DequantizeLinear": dequantizeRuns, "MaxPool": maxOfBytes,
		"ConvInteger": convOfBytes,
		"QLinearConv": convOfBytes, "MatMulInteger": matMulOfBytes, "QLinearMatMul": matMulOfBytes,
	} {
		for _, d := range registry[name] {
			simple := d.New
			d.New = func(s *Spec) (Kernel, error) {
				return with(s, try.Get(simple(s)))
			}
		}
	}
}

// maxOfBytes is a MaxPool; k is run where it is none of bytes, where indices are wanted, or a
// window lies in the padding.
func maxOfBytes(s *Spec, k Kernel) (Kernel, error) {
	d := s.In[0]
	if !bytes.Has(d) {
		return k, nil
	}
	w := newWindow(s)
	w.ceil = s.bool("ceil_mode")
	return func(c *Call) error {
		win, sp, err := poolShape(w, c.In[0].Shape)
		if in := c.In[0].Shape; err != nil || c.wants(1) || len(in) > 4 || product(sp) == 0 ||
			!seesPlane(win, in[2:], sp) {
			return k(c)
		}
		out := try.Get(c.New(0, d, append(slices.Clone(c.In[0].Shape[:2]), sp...)))
		x, flip := bytesOf(c.In[0])
		o, _ := bytesOf(out)
		maxOfRuns(c, o, x, c.In[0].Shape, sp, win, flip, func(run, split []uint8, offsets []int) {
			tapMaximaBytes(run, split, offsets, flip)
		})
		return nil
	}, nil
}

// integerConv is a convolution of bytes whose sums are exact. Four channels of the padded planes
// lie interleaved, so that a step of the products reads, for a tap of the window and 32
// neighbouring outputs, one run of them.
type integerConv struct {
	group   int
	weights *onnx.Tensor // where they and their zero point are known before the model runs
	zero    *onnx.Tensor
	matrix  bool // x and the result have the channels last
	columns bool // and the weights are columns

	once sync.Once
	kept *byteFilters

	arranged atomic.Pointer[arrangement] // the last one
}

// constants keeps the weights, and their layout for products, where they are known and there is
// room.
func (v *integerConv) constants(s *Spec, weights, zero int) {
	w := s.constant(weights)
	if w == nil || len(w.Shape) < 2 || s.has(zero) && s.constant(zero) == nil ||
		s.Keep != nil && !s.Keep(float64(w.Len())*dotFilters) {
		return
	}
	v.weights, v.zero = w, s.constant(zero)
}

// transposed returns the bytes of a matrix [rows, cols] as those of one [cols, rows].
func transposed(of any, rows, cols int) any {
	if b, ok := of.([]int8); ok {
		return transposedOf(b, rows, cols)
	}
	return transposedOf(of.([]uint8), rows, cols)
}

func transposedOf[T any](b []T, rows, cols int) []T {
	out := make([]T, len(b))
	for r := range rows {
		for c := range cols {
			out[c*rows+r] = b[r*cols+c]
		}
	}
	return out
}

// across is how many filters a panel of weights has.
func (v *integerConv) across() int {
	if v.matrix && haveDots {
		return dotColumns
	}
	return dotFilters
}

// byteFilters are weights less their zero point.
type byteFilters struct {
	// by group: [panels of filters, quads of channels and taps, across, 4] of dotBytes
	panels []int8
	// of one channel a group: [channels, lines of the window, columns / 4, 4] of depthBytes
	depth []int8
	sums  []int32 // of the weights of a filter, by group in whole panels
}

// bytesOf returns the bytes of a tensor, and the bits to flip in them so that they are unsigned.
func bytesOf(t *onnx.Tensor) (b []uint8, flip uint8) {
	if v, ok := t.Data.([]int8); ok {
		if len(v) == 0 {
			return nil, 128
		}
		return unsafe.Slice((*uint8)(unsafe.Pointer(&v[0])), len(v)), 128
	}
	return data[uint8](t), 0
}

// withoutZero returns the weights less their zero points, or nil where one of them is no signed
// byte.
func withoutZero(w, zero *onnx.Tensor) []int8 {
	b, flip := bytesOf(w)
	q := quantum{zero: int32(flip), flip: flip}
	out := make([]int8, len(b))
	per := len(b)
	if zero != nil && zero.Len() > 1 {
		per = len(b) / zero.Len()
	}
	for i, v := range b {
		d := int32(v^flip) - q.zero
		if zero != nil {
			d -= int32(zero.At(i / per))
		}
		if d != int32(int8(d)) {
			return nil
		}
		out[i] = int8(d)
	}
	return out
}

// filters returns the weights as products read them; nil where they are no signed bytes.
func (v *integerConv) filters(w, zero *onnx.Tensor) *byteFilters {
	if w == nil {
		return nil
	}
	if v.weights == nil {
		return v.pack(w, zero)
	}
	v.once.Do(func() { v.kept = v.pack(v.weights, v.zero) })
	return v.kept
}

// pack lays out weights; nil where products cannot go over them, which are of one or two spatial
// axes.
func (v *integerConv) pack(w, zero *onnx.Tensor) *byteFilters {
	if v.columns {
		shape := []int{w.Shape[1], w.Shape[0], 1}
		w = &onnx.Tensor{DType: w.DType, Shape: shape, Data: transposed(w.Data, shape[1], shape[0])}
	}
	if w.Len() == 0 || len(w.Shape) > 4 || w.Shape[0]%v.group != 0 ||
		zero != nil && zero.Len() != 1 && zero.Len() != w.Shape[0] {
		return nil
	}
	d := withoutZero(w, zero)
	if d == nil {
		return nil
	}
	og, channels, taps := w.Shape[0]/v.group, w.Shape[1], product(w.Shape[2:])
	across := v.across()
	high := (og + across - 1) / across * across
	f := &byteFilters{sums: make([]int32, v.group*high)}
	for co := range w.Shape[0] {
		for _, x := range d[co*channels*taps : (co+1)*channels*taps] {
			f.sums[co/og*high+co%og] += int32(x)
		}
	}
	if channels == 1 && og == 1 && !v.matrix {
		wide := w.Shape[len(w.Shape)-1]
		fours := (wide + 3) / 4
		f.depth = make([]int8, w.Shape[0]*taps/wide*fours*4)
		for line := range w.Shape[0] * taps / wide {
			copy(f.depth[line*fours*4:], d[line*wide:(line+1)*wide])
		}
		f.depth = weightsOf(depthBytes(), f.depth)
		return f
	}
	steps := (channels + 3) / 4 * taps
	f.panels = make([]int8, v.group*high*steps*4)
	for co := range w.Shape[0] {
		g, r := co/og, co%og
		panel := f.panels[(g*high+r/across*across)*steps*4:]
		for c := range channels {
			for t := range taps {
				panel[((c/4*taps+t)*across+r%across)*4+c%4] = d[(co*channels+c)*taps+t]
			}
		}
	}
	f.panels = weightsOf(dotBytes(), f.panels)
	return f
}

// requantized is the map from a convolution's sums to the output: by output channel, quanta of the
// output in a quantum of the sums.
type requantized struct {
	bias  []int32
	scale func(channel int) float32
	saturation
}

// product sets out, of bytes or of int32, to the convolution of x, whose zero point is zero; false
// where the weights or the shapes are of another kind.
func (v *integerConv) product(c *Call, x, w, wz *onnx.Tensor, zero int32, q *requantized,
	out *onnx.Tensor, win window) bool {
	if out.Len() == 0 {
		return true
	}
	f := v.filters(w, wz)
	if f == nil {
		return false
	}
	src, flip := bytesOf(x)
	r := &integerRun{Call: c, f: f, x: src, flip: flip, xs: x.Shape, sp: out.Shape[2:],
		group: v.group, channels: w.Shape[1],
		filters: w.Shape[0] / v.group, last: v.matrix, in: product(x.Shape[2:]),
		pos: product(out.Shape[2:]), pad: uint8(zero)}
	across := v.across()
	r.high = (r.filters + across - 1) / across * across
	r.starts(q, zero+int32(flip))
	if r.elem = 1; out.DType == onnx.Int32 {
		r.elem = 4
		r.out = bytesOfWords(data[int32](out))
	} else {
		r.out, _ = bytesOf(out)
	}
	if f.depth != nil {
		return r.elem == 1 && (r.strips(win) || r.depthwise(win))
	}
	if across == dotColumns {
		r.rows()
		return true
	}
	if err := v.arrange(r, win); err != nil {
		return false
	}
	r.tiles()
	return true
}

// starts computes the numbers that sums start from, and their quanta.
func (r *integerRun) starts(q *requantized, zero int32) {
	n := r.group * r.high
	r.sums = dotSums{start: scratch[int32](r.Call, n), scale: scratch[float32](r.Call, n),
		saturation: q.saturation, whole: q.scale == nil}
	start, scale := r.sums.start, r.sums.scale
	if r.f.depth == nil && r.filters != r.high {
		clear(start)
		clear(scale)
	}
	for co := range r.group * r.filters {
		i := co
		if r.filters != r.high {
			i = co/r.filters*r.high + co%r.filters
		}
		start[i] = -zero * r.f.sums[i]
		if q.bias != nil {
			start[i] += q.bias[co]
		}
		if q.scale != nil {
			scale[i] = q.scale(co)
		}
	}
}

// integerRun is one call of an [integerConv].
type integerRun struct {
	*Call
	f                 *byteFilters
	sums              dotSums
	x, out            []uint8
	elem              int // bytes of an output
	flip, pad         uint8
	last              bool // channels are the last axis of x and of the output
	xs, sp            []int
	group             int
	channels, filters int // of a group
	high              int // filters in whole panels
	in, pos           int // elements of a plane of x, and of the output
	*arrangement
}

// arrangement is where tiles find the columns of every tap.
type arrangement struct {
	x, out []int   // the shapes that it is of
	phases *phases // nil where a plane is read as it lies
	// columns of every tap lie side by side: lines are so short that others would be mostly padding
	gathered     *gathering
	plane        int // elements of an interleaved plane
	across, wide int // outputs from first to last, and from line to line
	offsets      []int
}

// gatheredBytes bounds the columns of all taps that are gathered: they are a plane for every tap,
// and those that no cache holds are no faster to go over.
const gatheredBytes = 4 << 20

// arrange makes the run's arrangement, or takes that of the run before.
func (v *integerConv) arrange(r *integerRun, win window) (err error) {
	a := v.arranged.Load()
	if a != nil && v.weights != nil && slices.Equal(a.x, r.xs) && slices.Equal(a.out, r.sp) {
		r.arrangement, r.sums.furthest = a, slices.Max(a.offsets)
		return nil
	}
	r.arrangement = &arrangement{x: slices.Clone(r.xs), out: slices.Clone(r.sp)}
	r.across, r.wide, r.plane = r.pos, r.pos, (r.in+dotColumns-1)/dotColumns*dotColumns
	taps := []int{0}
	if !r.last && !pointwise(win) {
		if r.phases, err = newPhases(win, r.xs[2:], r.sp); err != nil {
			return err
		}
		p := r.phases
		// A tile reads up to fifteen columns after the last.
		r.wide, taps, r.plane = p.wide, p.offsets, (p.len()-2*tapRun+30)&^15
		r.across = (p.out[0]-1)*p.wide + p.out[1]
		// To gather a column takes as long as its products with some filters.
		step, planes := (r.pos+15)/16*64, len(p.offsets)*r.group*((r.channels+3)/4)
		if step <= gatheredBytes/planes && dotCost(r.across)*r.filters > dotCost(r.pos)*(r.filters+16) {
			g := &gathering{lines: p.out[0], n: 4 * p.out[1], from: 4 * p.wide, step: step}
			r.gathered, r.across, r.wide, taps = g, r.pos, r.pos, make([]int, len(taps))
			for t, off := range p.offsets {
				taps[t], g.offsets = t*g.step/4, append(g.offsets, 4*off)
			}
			r.plane = len(taps) * g.step / 4
		}
	}
	quads := (r.channels + 3) / 4
	if _, err := onnx.Elements([]int{quads, r.group, r.plane, 4}); err != nil {
		return err
	}
	for q := range quads {
		for _, t := range taps {
			r.offsets = append(r.offsets, 4*(q*r.plane+t))
		}
	}
	r.sums.furthest = slices.Max(r.offsets)
	v.arranged.Store(r.arrangement)
	return nil
}

// interleaved writes the planes of image n, four channels of a group side by side.
func (r *integerRun) interleaved(to []uint8, n int) {
	quads := (r.channels + 3) / 4
	if r.last {
		for p := range r.in {
			row := r.x[p*r.channels:][:r.channels]
			for q := range quads {
				dst := to[4*(q*r.plane+p):][:4]
				for i := range copy(dst, row[4*q:]) {
					dst[i] ^= r.flip
				}
			}
		}
		return
	}
	r.Parallel(r.group*quads, work(4*r.plane), func(lo, hi int) {
		var split []uint8
		var flat, padded []int32
		if p := r.phases; r.gathered != nil {
			flat, padded = scratch[int32](r.Call, r.in), scratch[int32](r.Call, p.len())
			fillRange(padded, int32(r.pad^r.flip)*0x01010101)
		} else if p != nil {
			split = scratch[uint8](r.Call, 4, r.plane)
			fillRange(split, r.pad)
		}
		for item := lo; item < hi; item++ {
			var rows [4][]uint8
			for i := range rows {
				// Channels that are not there have weights of zeros.
				c := item/quads*r.channels + min(item%quads*4+i, r.channels-1)
				rows[i] = r.x[(n*r.group*r.channels+c)*r.in:][:r.in]
				if split != nil {
					part := split[i*r.plane:][:r.plane]
					splitInto(r.phases, part, rows[i], 0, r.phases.high)
					rows[i] = part
				}
			}
			dst := to[item*r.plane*4:][:r.plane*4]
			if r.gathered != nil {
				four := bytesOfWords(flat)
				interleaveGo(four, &rows, r.flip, interleave(four, &rows, r.flip))
				splitInto(r.phases, padded, flat, 0, r.phases.high)
				r.gathered.gather(dst, bytesOfWords(padded))
				continue
			}
			interleaveGo(dst, &rows, r.flip, interleave(dst, &rows, r.flip))
		}
	})
}

// bytesOfWords is the memory of w, which may be empty.
func bytesOfWords(w []int32) []uint8 {
	return unsafe.Slice((*uint8)(unsafe.Pointer(unsafe.SliceData(w))), 4*len(w))
}

// chunkBytes bounds the interleaved bytes that panels of weights go over in turn, and the weights
// that columns go over, so that they stay in the cache.
const chunkBytes = 256 << 10

// tiles computes the outputs tile by tile.
func (r *integerRun) tiles() {
	quads, panels := (r.channels+3)/4, r.high/dotFilters
	from := scratch[uint8](r.Call, r.group, quads, r.plane, 4)
	chunk, most := max(1, chunkBytes/(4*quads*dotColumns))*dotColumns, 1
	if haveDots {
		most = min(panels, max(1, chunkBytes/(4*dotFilters*len(r.offsets))))
	}
	if r.phases != nil && r.gathered == nil { // whole lines, in a tile that stays in the cache
		chunk = min(chunk, chunkBytes/2/(most*dotFilters*r.elem))
		chunk = max(1, chunk/r.wide) * r.wide
		// A line that is longer than the tile may be is for fewer filters at a time.
		most = max(1, min(most, chunkBytes/2/(dotFilters*min(chunk, r.across)*r.elem)))
	}
	chunks := (r.across + chunk - 1) / chunk
	for n := range r.xs[0] {
		r.interleaved(from, n)
		r.Parallel(r.group*chunks*panels, work(min(chunk, r.across), len(r.offsets), dotFilters)/4,
			func(lo, hi int) {
				var tile []uint8
				if r.wide != r.pos || r.across != r.pos || r.last && r.pos > 1 {
					tile = scratch[uint8](r.Call, most*dotFilters, min(chunk, r.across), r.elem)
				}
				for item := lo; item < hi; {
					g, t, panel := item/panels/chunks, item/panels%chunks, item%panels
					some := min(most, hi-item, panels-panel)
					item += some
					rows, p0, p1 := min(some*dotFilters, r.filters-panel*dotFilters), t*chunk,
						min(r.across, (t+1)*chunk)
					a := r.f.panels[(g*r.high+panel*dotFilters)*len(r.offsets)*4*dotBytes():]
					b := from[g*quads*r.plane*4:]
					first := ((n*r.group+g)*r.filters + panel*dotFilters) * r.pos
					if r.last {
						first = panel * dotFilters
					}
					planes := r.out[first*r.elem:]
					c, stride := tile, p1-p0
					if tile == nil {
						c, stride = planes[p0*r.elem:], r.pos
					}
					cols := dotColumns
					if haveDots {
						cols = p1 - p0
					}
					for p := p0; p < p1; p += cols {
						dots(&r.sums, a, b[4*p:], r.offsets, g*r.high+panel*dotFilters, rows,
							min(cols, p1-p), c[(p-p0)*r.elem:], stride*r.elem)
					}
					if tile != nil {
						r.compact(planes, tile, rows, p0, p1)
					}
				}
			})
	}
}

// rows computes a product of rows that are read as they lie, each beside panels of columns.
func (r *integerRun) rows() {
	x, wide := r.x, (r.channels+3)/4*4
	if r.flip != 0 || wide != r.channels { // the weights of elements after a row are zeros
		x = scratch[uint8](r.Call, r.in, wide)
		for p := range r.in {
			copy(x[p*wide:], r.x[p*r.channels:][:r.channels])
		}
		flipped := identity()
		for i := range flipped {
			flipped[i] ^= r.flip
		}
		lookUp(x, x, &flipped)
	}
	panels, chunk := r.high/dotColumns, max(8, chunkBytes/wide&^7)
	r.Parallel((r.in+chunk-1)/chunk*panels, work(min(chunk, r.in), wide, dotColumns)/16,
		func(lo, hi int) {
			for item := lo; item < hi; item++ {
				first := item / panels * chunk
				dotRows(r, x, item%panels, first, min(chunk, r.in-first))
			}
		})
}

// compact copies lines of outputs from p0 to p1, between which lie columns that are no output's, to
// their planes.
func (r *integerRun) compact(planes, tile []uint8, rows, p0, p1 int) {
	e := r.elem
	if r.last {
		for f := range rows {
			src := tile[f*(p1-p0)*e:]
			if e == 1 {
				dst := planes[p0*r.filters+f:]
				for i, v := range src[:p1-p0] {
					dst[i*r.filters] = v
				}
				continue
			}
			for p := p0; p < p1; p++ {
				copy(planes[(p*r.filters+f)*e:][:e], src[(p-p0)*e:])
			}
		}
		return
	}
	width := r.phases.out[1] * e
	for f := range rows {
		copyLines(planes[f*r.pos*e+p0/r.wide*width:], tile[f*(p1-p0)*e:], (p1-p0+r.wide-1)/r.wide,
			width, width, r.wide*e)
	}
}

// depthwise convolves every channel with its own window.
func (r *integerRun) depthwise(win window) bool {
	// The padded plane is that of a window which goes on by one.
	steps := win
	steps.stride = slices.Repeat([]int{1}, len(win.stride))
	far := slices.Clone(r.sp)
	for i := range far {
		far[i] = (far[i]-1)*win.stride[i] + 1
	}
	p, err := newPhases(steps, r.xs[2:], far)
	if err != nil {
		return false
	}
	size, stride, dilation := planar(win.size, 1), planar(win.stride, 1), planar(win.dilation, 1)
	sp := planar(r.sp, 1)
	d := &depthTaps{lines: sp[0], width: sp[1], down: stride[0] * p.wide, stride: stride[1],
		dilation: dilation[1], flip: r.flip}
	for y := range size[0] {
		for x := 0; x < size[1]; x += 4 {
			d.offsets = append(d.offsets, y*dilation[0]*p.wide+x*dilation[1])
		}
	}
	d.last = (d.lines-1)*d.down + d.offsets[len(d.offsets)-1]
	channels, per := r.xs[1], 4*len(d.offsets)*depthBytes()
	length := max(p.len(), d.last+(d.width+15)*d.stride+3*d.dilation+64)
	r.Parallel(r.xs[0]*channels, work(r.pos, len(d.offsets)), func(lo, hi int) {
		split := scratch[uint8](r.Call, length)
		fillRange(split, r.pad)
		for plane := lo; plane < hi; plane++ {
			c := plane % channels
			splitInto(p, split, r.x[plane*r.in:(plane+1)*r.in], 0, p.high)
			depthPlane(d, r.out[plane*r.pos:(plane+1)*r.pos], split, r.f.depth[c*per:(c+1)*per],
				r.sums.start[c*dotFilters], r.sums.scale[c*dotFilters], r.sums.saturation)
		}
	})
	return true
}

// newIntegerMatMul is for a matrix of constant columns: the filters of a convolution of one tap.
func newIntegerMatMul(s *Spec, weights, zero int) *integerConv {
	v := &integerConv{group: 1, matrix: true, columns: s.Node.Op != "Gemm" || !s.bool("transB")}
	v.constants(s, weights, zero)
	return v
}

// suits returns the shape of a b, and how many columns it has.
func (v *integerConv) suits(a, b *onnx.Tensor) (shape []int, n int, ok bool) {
	last := len(a.Shape) - 1
	if last < 0 || len(b.Shape) != 2 || b.Len() == 0 {
		return nil, 0, false
	}
	k, n := v.sides(b)
	return append(slices.Clone(a.Shape[:last]), n), n, a.Shape[last] == k
}

// sides are the inner and the outer side of b.
func (v *integerConv) sides(b *onnx.Tensor) (k, n int) {
	if v.columns {
		return b.Shape[0], b.Shape[1]
	}
	return b.Shape[1], b.Shape[0]
}

// matMul sets out, of bytes or of int32, to a b as q has it; false where b less its zero point is
// of no signed bytes.
func (v *integerConv) matMul(c *Call, a, b, zb *onnx.Tensor, zero int32, q *requantized,
	out *onnx.Tensor) bool {
	k, n := v.sides(b)
	rows := a.Len() / k
	x := &onnx.Tensor{DType: a.DType, Shape: []int{1, k, rows}, Data: a.Data}
	w := &onnx.Tensor{DType: b.DType, Shape: []int{n, k, 1}, Data: b.Data}
	to := &onnx.Tensor{DType: out.DType, Shape: []int{1, n, rows}, Data: out.Data}
	return v.product(c, x, w, zb, zero, q, to, window{})
}

// operands are the places of the inputs of an operator on bytes.
type operands struct{ a, b, za, zb int }

func operandsOf(op string) operands {
	if op == "ConvInteger" || op == "MatMulInteger" {
		return operands{0, 1, 2, 3}
	}
	return operands{0, 3, 2, 5}
}

// output makes the output of sums that are not quantised, or of quanta of the type d.
func (o operands) output(c *Call, d onnx.DType, shape []int,
	then *after) (*onnx.Tensor, *requantized) {
	q := &requantized{}
	if o.b == 3 {
		step, last := stepOf(c, 1, 4), c.In[4].Len()-1
		out := float32(c.In[6].At(0))
		q.scale = func(channel int) float32 { return step(min(channel, last)) }
		q.saturation = saturationOf(d, c.In[7].At(0))
		if then != nil {
			q.lo, q.hi = max(q.lo, nearest(then.lo/out)), min(q.hi, nearest(then.hi/out))
		}
		if b := c.in(8); b != nil {
			q.bias = data[int32](b)
		}
	}
	return try.Get(c.New(0, d, shape)), q
}

func nearest(v float32) float32 { return float32(math.RoundToEven(float64(v))) }

// fit reports whether zero points, scales and a bias are of as many numbers as there are filters,
// or of one.
func (o operands) fit(in func(int) *onnx.Tensor, filters int) bool {
	one := func(i int) bool { return in(i) == nil || in(i).Len() == 1 }
	some := func(i int) bool {
		return one(i) || len(in(i).Shape) == 1 &&
			in(i).Len() == filters
	}
	if o.b == 3 && !(one(1) && one(6) && one(7) && some(4) &&
		(in(8) == nil || in(8).Len() == filters)) {
		return false
	}
	return one(o.za) && some(o.zb)
}

// convOfBytes is a ConvInteger, a QLinearConv, or a Conv with a QLinearConv's inputs; k is run
// where it is of another kind, and may be nil.
func convOfBytes(s *Spec, k Kernel) (Kernel, error) {
	win, group := newGroups(s)
	o, d, then := operandsOf(s.Node.Op), s.Out[0], newAfter(s)
	v := &integerConv{group: group}
	v.constants(s, o.b, o.zb)
	if k == nil && (v.filters(v.weights, v.zero) == nil || !o.fit(s.constant, v.weights.Shape[0])) {
		return nil, errors.New("weights that are no constant signed bytes are not supported")
	}
	return func(c *Call) error {
		x, w := c.In[o.a], c.In[o.b]
		fitted, sp, err := convShape(win, group, x.Shape, w.Shape)
		if err == nil && o.fit(c.in, w.Shape[0]) {
			out, q := o.output(c, d, append([]int{x.Shape[0], w.Shape[0]}, sp...), then)
			if v.product(c, x, w, c.in(o.zb), zeroOf(c.in(o.za)), q, out, fitted) {
				return nil
			}
			c.env.Pool.Put(out.Data)
			c.Out[0] = nil
		}
		if k == nil {
			return errors.Join(err, fmt.Errorf("a convolution of %v with %v", x, w))
		}
		return k(c)
	}, nil
}

// matMulOfBytes is a MatMulInteger, a QLinearMatMul, or a MatMul or Gemm with a QLinearMatMul's
// inputs and a bias.
func matMulOfBytes(s *Spec, k Kernel) (Kernel, error) {
	o, d := operandsOf(s.Node.Op), s.Out[0]
	v := newIntegerMatMul(s, o.b, o.zb)
	if v.weights == nil || len(v.weights.Shape) != 2 || v.filters(v.weights, v.zero) == nil {
		if k == nil {
			return nil, errors.New("weights that are no constant matrix of signed bytes are not supported")
		}
		return k, nil
	}
	if _, n := v.sides(v.weights); k == nil && !o.fit(s.constant, n) {
		return nil, errors.New("scales, zero points or a bias of another size than the columns are not supported")
	}
	return func(c *Call) error {
		a, b := c.In[o.a], c.In[o.b]
		ok := s.Node.Op != "Gemm" || len(a.Shape) == 2
		if shape, n, suits := v.suits(a, b); ok && suits && o.fit(c.in, n) {
			out, q := o.output(c, d, shape, nil)
			if v.matMul(c, a, b, c.in(o.zb), zeroOf(c.in(o.za)), q, out) {
				return nil
			}
			c.env.Pool.Put(out.Data)
			c.Out[0] = nil
		}
		if k == nil {
			return fmt.Errorf("a product of %v and %v", a, b)
		}
		return k(c)
	}, nil
}

// zeroOf is a zero point, 0 where it is left out.
func zeroOf(t *onnx.Tensor) int32 {
	if t == nil {
		return 0
	}
	return int32(t.At(0))
}

// quantizeRuns is a QuantizeLinear of float32 to bytes, or k.
func quantizeRuns(s *Spec, k Kernel) (Kernel, error) {
	q, d := newQuantization(s), s.Out[0]
	if !bytes.Has(d) || s.In[0] != onnx.Float32 {
		return k, nil
	}
	return func(c *Call) error {
		return q.runs(c, k, d, func(to, from *onnx.Tensor, lo, hi int, scale, zero float64) {
			b, _ := bytesOf(to)
			quantizeRow(b[lo:hi], from.F32()[lo:hi], float32(scale), saturationOf(d, zero))
		})
	}, nil
}

// dequantizeRuns is a DequantizeLinear of bytes to float32, or k.
func dequantizeRuns(s *Spec, k Kernel) (Kernel, error) {
	q, d := newQuantization(s), s.In[0]
	if !bytes.Has(d) || s.Out[0] != onnx.Float32 {
		return k, nil
	}
	return func(c *Call) error {
		return q.runs(c, k, onnx.Float32, func(to, from *onnx.Tensor, lo, hi int, scale, zero float64) {
			b, _ := bytesOf(from)
			dequantizeRow(to.F32()[lo:hi], b[lo:hi], quantumOf(d, scale, zero))
		})
	}, nil
}

// runs calls f on the runs of the input that have one scale and zero point, or runs k where they
// are by block or do not match.
func (q quantization) runs(c *Call, k Kernel, d onnx.DType,
	f func(to, from *onnx.Tensor, lo, hi int, scale, zero float64)) error {
	x, scale, zero := c.In[0], c.In[1], c.in(2)
	axis, run := q.axis, x.Len()
	if axis < 0 {
		axis += len(x.Shape)
	}
	switch {
	case q.block != 0 || scale.Len() == 0 || zero != nil && zero.Len() != scale.Len():
		return k(c)
	case scale.Len() > 1:
		if axis < 0 || axis >= len(x.Shape) || len(scale.Shape) != 1 ||
			scale.Len() != x.Shape[axis] {
			return k(c)
		}
		run = product(x.Shape[axis+1:])
	}
	out := try.Get(c.New(0, d, x.Shape))
	for lo := 0; lo < x.Len(); lo += run {
		i, z := lo/run%scale.Len(), 0.0
		if zero != nil {
			z = zero.At(i)
		}
		f(out, x, lo, lo+run, scale.At(i), z)
	}
	return nil
}

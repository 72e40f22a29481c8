package kernel

import (
	"slices"
	"unsafe"

	"fmp/onnx"
)

// starts computes the numbers that sums start from, and their quanta. sum w (x - zero) = sum w x -
// zero sum w: the second part, and the bias, are where sums start. zero is that of the flipped
// bytes. A filter's weights are summed when they are laid out, so that the correction costs no more
// than the filters.
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
		// Groups are filled up to whole panels: filter f of group g stands at g high + f.
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

// arrange makes the run's arrangement, or takes that of the run before. An arrangement depends on
// shapes alone and is only read once it is made. Calls at a time may each make one; the last is
// kept.
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

// interleaved writes the planes of image n, four channels of a group side by side. Four bytes side
// by side are one step of the products: channels beyond the last count by weights of zeros.
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

// bytesOfWords is the memory of w, which may be empty. It shares w's memory, in the machine's order
// of bytes.
func bytesOfWords(w []int32) []uint8 {
	return unsafe.Slice((*uint8)(unsafe.Pointer(unsafe.SliceData(w))), 4*len(w))
}

// chunkBytes bounds the interleaved bytes that panels of weights go over in turn, and the weights
// that columns go over, so that they stay in the cache.
const chunkBytes = 256 << 10

// tiles computes the outputs tile by tile. An item is one group, one chunk of columns and one panel
// of filters; neighbouring panels share their columns.
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
					// Items run over panels first, then over chunks of columns, and then over
					// groups.
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

// rows computes a product of rows that are read as they lie, each beside panels of columns. Rows of
// x are the channels themselves, so that nothing is interleaved. x is copied where its bytes must
// be flipped or its rows filled up to fours.
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

// depthwise convolves every channel with its own window. It is false where the padded plane would
// have too many elements, and nothing is written then.
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

package kernel

import "unsafe"

// A depthwise window goes down strips of sixteen columns of outputs. Of every line of the plane the
// bytes that four taps of each output read are put side by side once, in a vector for each four
// taps of a line; the sums of a line of outputs are products of several such vectors.

// depthStrip is a strip: where it begins in a line of the plane and of outputs, which of 64 bytes
// the line has there, and which outputs it has.
type depthStrip struct {
	src, dst      int
	load, outputs uint64
	fours         *depthFour
}

// depthFour says which bytes four taps of sixteen outputs read, and which of these are no padding.
type depthFour struct {
	inside uint64
	index  [64]uint8
}

// stripsTile holds the arguments of depthTileZ.
type stripsTile struct {
	planes       int
	dst, src     *uint8
	out, in      int // bytes from plane to plane
	strips       *depthStrip
	count        int
	groups       int
	weights      *int8
	start        *int32 // dotFilters apart, as scales are
	scale        *float32
	first        *uint8 // vectors of the plane's first line
	wide, lines  int    // bytes from line to line of the plane, and lines that are read
	offsets      *int   // of groups of taps, from the vectors of a line of outputs on
	vectors      *uint8 // those of the first
	height, down int    // lines of outputs, and bytes from line to line in vectors
	width, fours int    // bytes from line to line of outputs, and vectors of a line
	flip, pad    uint32
	saturation
}

// stripsBytes bounds the vectors of a plane that is smaller: those of a narrow one have 64 times
// its bytes.
const stripsBytes = 1 << 20

// depthStrips are the strips of a line of in bytes and of out outputs. All that read no padding
// share their vectors, and so do all that read nothing else: a long line has thousands, and a
// vector takes longer to make than its sums. A load begins at the strip's first byte within the
// line, so that it reads nothing before the plane.
func depthStrips(size, stride, dilation, begin, in, out int) []depthStrip {
	all := make([]depthStrip, (out+15)/16)
	fours := (size + 3) / 4
	var inner, outer *depthFour
	for i := range all {
		first := 16*i*stride - begin
		last, from := first+15*stride+(size-1)*dilation, max(0, min(first, in-1))
		var mixed *depthFour
		of := &mixed
		if first >= 0 && last < in {
			of = &inner
		} else if first >= in || last < 0 {
			of = &outer
		}
		if *of == nil {
			made := make([]depthFour, fours)
			for j := range 64 * fours {
				tap := j/64*4 + j%4
				at := first + j%64/4*stride + tap*dilation
				made[j/64].index[j%64] = uint8(at-from) & 63
				if tap < size && at >= 0 && at < in {
					made[j/64].inside |= 1 << (j % 64)
				}
			}
			*of = &made[0]
		}
		all[i] = depthStrip{from, 16 * i, ^uint64(0) >> max(0, 64-in+from),
			1<<min(16, out-16*i) - 1, *of}
	}
	return all
}

// strips convolves every channel with its own window; false where the outputs of a strip read more
// than 64 bytes of a line, where a plane has none, and where its vectors would take too much
// memory. Nothing is written where it is false, and [integerRun.depthwise] does the work.
func (r *integerRun) strips(win window) bool {
	size, stride, dilation := planar(win.size, 1), planar(win.stride, 1), planar(win.dilation, 1)
	begin, in, out := planar(win.begin, 0), planar(r.xs[2:], 1), planar(r.sp, 1)
	lines := min(in[0], (out[0]-1)*stride[0]+(size[0]-1)*dilation[0]-begin[0]+1)
	if !haveDots || 15*stride[1]+(size[1]-1)*dilation[1] > 63 || lines < 1 || in[1] < 1 {
		return false
	}
	fours := (size[1] + 3) / 4
	high := max(begin[0]+lines, (out[0]-1)*stride[0]+(size[0]-1)*dilation[0]+1)
	if high >= max(stripsBytes, r.in)/(64*fours) {
		return false
	}
	all := depthStrips(size[1], stride[1], dilation[1], begin[1], in[1], out[1])
	var offsets []int
	for tap := range size[0] * fours {
		offsets = append(offsets, 64*(tap/fours*dilation[0]*fours+tap%fours))
	}
	channels, groups := r.xs[1], len(offsets)
	r.Parallel(r.xs[0]*channels, work(r.pos, groups), func(lo, hi int) {
		vectors := scratch[uint8](r.Call, high+1, fours, 64)
		// Vectors begin at multiples of 64 bytes, the cache's lines: a load across two of them
		// takes longer.
		vectors = vectors[-uintptr(unsafe.Pointer(&vectors[0]))&63:]
		fillRange(vectors, r.pad^r.flip)
		for lo < hi {
			c := lo % channels
			n := min(hi-lo, channels-c)
			src, dst := r.x[lo*r.in:][:n*r.in], r.out[lo*r.pos:][:n*r.pos]
			weights := r.f.depth[4*groups*c:][:4*groups*n]
			start, scale := r.sums.start[c*dotFilters:][:n*dotFilters],
				r.sums.scale[c*dotFilters:][:n*dotFilters]
			depthTileZ(&stripsTile{planes: n, dst: &dst[0], src: &src[0], out: r.pos, in: r.in,
				strips: &all[0], count: len(all), groups: groups, weights: &weights[0],
				start: &start[0],
				scale: &scale[0], first: &vectors[64*fours*begin[0]], wide: in[1], lines: lines,
				offsets: &offsets[0], vectors: &vectors[0], height: out[0],
				down:  64 * fours * stride[0],
				width: out[1], fours: fours, flip: uint32(r.flip) * 0x01010101,
				pad: uint32(r.pad) * 0x01010101, saturation: r.sums.saturation})
			lo += n
		}
	})
	return true
}

package kernel

import "unsafe"

// A depthwise window goes down strips of sixteen columns of outputs. Of every line of the plane the
// bytes that four taps of each output read are put side by side once, in a vector for each four taps
// of a line; the sums of a line of outputs are products of several such vectors.

// depthStrip is a strip: where it begins in a line of the plane and of outputs, which of 64 bytes the
// line has there, and which outputs it has.
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

// strips convolves every channel with its own window; false where the outputs of a strip read more
// than 64 bytes of a line.
func (r *integerRun) strips(win window) bool {
	size, stride, dilation := planar(win.size, 1), planar(win.stride, 1), planar(win.dilation, 1)
	begin, in, out := planar(win.begin, 0), planar(r.xs[2:], 1), planar(r.sp, 1)
	lines := min(in[0], (out[0]-1)*stride[0]+(size[0]-1)*dilation[0]-begin[0]+1)
	if !haveDots || 15*stride[1]+(size[1]-1)*dilation[1] > 63 || lines < 1 {
		return false
	}
	fours := (size[1] + 3) / 4
	var all []depthStrip
	for x := 0; x < out[1]; x += 16 {
		from := max(0, min(x*stride[1]-begin[1], in[1]-1))
		of := make([]depthFour, fours)
		for i := range 64 * fours {
			tap := i/64*4 + i%4
			at := (x+i%64/4)*stride[1] - begin[1] + tap*dilation[1]
			of[i/64].index[i%64] = uint8(at-from) & 63
			if tap < size[1] && at >= 0 && at < in[1] {
				of[i/64].inside |= 1 << (i % 64)
			}
		}
		all = append(all, depthStrip{from, x, ^uint64(0) >> max(0, 64-in[1]+from), 1<<min(16, out[1]-x) - 1, &of[0]})
	}
	var offsets []int
	for tap := range size[0] * fours {
		offsets = append(offsets, 64*(tap/fours*dilation[0]*fours+tap%fours))
	}
	channels, groups := r.xs[1], len(offsets)
	high := max(begin[0]+lines, (out[0]-1)*stride[0]+(size[0]-1)*dilation[0]+1)
	r.Parallel(r.xs[0]*channels, work(r.pos, groups), func(lo, hi int) {
		vectors := Scratch[uint8](r.Call, high+1, fours, 64)
		vectors = vectors[-uintptr(unsafe.Pointer(&vectors[0]))&63:]
		fillRange(vectors, r.pad^r.flip)
		for lo < hi {
			c := lo % channels
			n := min(hi-lo, channels-c)
			src, dst := r.x[lo*r.in:][:n*r.in], r.out[lo*r.pos:][:n*r.pos]
			weights := r.f.depth[4*groups*c:][:4*groups*n]
			start, scale := r.sums.start[c*dotFilters:][:n*dotFilters], r.sums.scale[c*dotFilters:][:n*dotFilters]
			depthTileZ(&stripsTile{planes: n, dst: &dst[0], src: &src[0], out: r.pos, in: r.in,
				strips: &all[0], count: len(all), groups: groups, weights: &weights[0], start: &start[0],
				scale: &scale[0], first: &vectors[64*fours*begin[0]], wide: in[1], lines: lines,
				offsets: &offsets[0], vectors: &vectors[0], height: out[0], down: 64 * fours * stride[0],
				width: out[1], fours: fours, flip: uint32(r.flip) * 0x01010101,
				pad: uint32(r.pad) * 0x01010101, saturation: r.sums.saturation})
			lo += n
		}
	})
	return true
}

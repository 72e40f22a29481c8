package kernel

import (
	"slices"
	"unsafe"
)

// sweeps is how windows of 3x3 and 5x5 go down planes of two axes, with strides of one or two, in
// vectors of 16 columns: a strip of a plane after the other, or two narrow planes side by side; or
// in vectors of eight. A line of the input is read once for all lines of the output. Windows of 7x7
// have strips of 16 columns and a stride of one alone.
type sweeps struct {
	in, out         [2]int
	size, stride    int
	lead, tail, odd int // see sweep
	strips          []strip
	two             strip // of two planes; none where it holds no masks
	index, twoIndex [sweepLanes][16]uint32
	eights          []stripPair // for vectors of eight columns
}

// strip is a part of a line: its first column of input and of output, which may lie in the padding,
// and the masks of a sweep: columns of both vectors of a line, outputs, and those of maskTaps.
type strip struct {
	from, to int
	masks    [8]uint16
}

// sweepBytes is how much of the input a kernel reads before the outputs are finished by a curve,
// while they are in the cache.
const sweepBytes = 32 << 10

// sweepLanes is how many taps a line of a window has at most that are picked by an index.
const sweepLanes = 5

// sweep is the arguments of a kernel, by their places in sweep_amd64.s.
type sweep struct {
	src, src2         *float32 // the planes of the two vectors of a line
	from, from2       int      // bytes to the vectors of the first line
	step              int      // bytes from a line to the next
	dst, dst2         *float32 // outputs, of the second plane as well
	dstStep           int
	lead, lines, tail int // lines that end no output, all lines, and outputs that end after them
	odd               int // whether the first line is an odd one, counted with the padding
	weights, weights2 *float32
	end, end2         *finishing
	index             *[sweepLanes][16]uint32
	room              *float32 // for the weights of two planes
	masks             [8]uint16
	// at least 1; the kernel counts them down and adds the following bytes to the pointers
	planes     int
	planeStep  int // of src and src2
	outStep    int // of dst and dst2
	weightStep int
	endStep    int
	plain      bool // sums are neither scaled nor shifted; not read by the kernels
}

// newSweeps returns nil where there is no kernel for the window. w is fitted to planes of shape in.
// A vector of outputs reads at most 32 columns, two vectors, of a line.
func newSweeps(w window, in, out []int) *sweeps {
	if len(in) != 2 || !haveEights() || w.size[0] != w.size[1] || w.stride[0] != w.stride[1] ||
		w.dilation[0] != 1 || w.dilation[1] != 1 {
		return nil
	}
	s := &sweeps{in: [2]int(in), out: [2]int(out), size: w.size[0], stride: w.stride[0],
		odd: w.begin[0] % w.stride[0]}
	seven := s.size == 7 && s.stride == 1
	if !seven && (s.size != 3 && s.size != 5 || s.stride > 2) || slices.Max(w.begin) >= s.size {
		return nil
	}
	// Output y reads lines y stride - begin to y stride - begin + size - 1, and ends with the last
	// of them.
	s.lead = (s.size - 1 - w.begin[0]) / s.stride
	ends := (in[0]+w.begin[0]-s.size)/s.stride + 1
	if s.tail = out[0] - ends; in[0]+w.begin[0] < s.size || s.tail < 0 {
		return nil
	}
	if !seven {
		s.eights = s.stripPairs(w.begin[1])
		s.side(w.begin[1])
	}
	most := min(16, (32-s.size)/s.stride+1)
	n := (out[1] + most - 1) / most // strips, of about the same width
	for i, x := 0, 0; i < n; i++ {
		next := (i + 1) * out[1] / n
		p := strip{from: x*s.stride - w.begin[1], to: x}
		for c := range 32 {
			if at := p.from + c; at >= 0 && at < in[1] {
				p.masks[c/16] |= 1 << (c % 16)
			}
		}
		p.masks[2] = 1<<(next-x) - 1
		if s.size == 3 && s.stride == 1 {
			p.maskTaps(next-x, in[1])
		}
		s.strips, x = append(s.strips, p), next
	}
	for t := range min(s.size, sweepLanes) {
		for j := range 16 {
			// beyond the last output it does not matter
			s.index[t][j] = uint32(min(31, j*s.stride+t))
		}
	}
	return s
}

// maskTaps names the outputs, of which there are n, that each tap of three has within a line.
func (p *strip) maskTaps(n, width int) {
	for t := range 3 {
		for j := range n {
			if at := p.from + j + t; at >= 0 && at < width {
				p.masks[3+t] |= 1 << j
			}
		}
	}
}

// side sets two, where planes are narrow. Lanes alternate: output j of the first plane is lane 2j,
// that of the second 2j + 1. A plane's line must fit one vector of 16 columns, and its outputs half
// of one.
func (s *sweeps) side(begin int) {
	if s.in[1] > 16 || s.out[1] > 8 {
		return
	}
	s.two.masks[0], s.two.masks[1] = 1<<s.in[1]-1, 1<<s.out[1]-1
	for t := range s.size {
		for j := range s.out[1] {
			if at := j*s.stride + t - begin; at >= 0 && at < s.in[1] {
				s.twoIndex[t][2*j], s.twoIndex[t][2*j+1] = uint32(at), uint32(16+at)
				s.two.masks[2+t] |= 3 << (2 * j)
			}
		}
	}
}

// run convolves every channel with its own window. Threads divide planes, or pairs of them. A
// thread goes over several planes in one call of a kernel where one strip covers a plane.
func (s *sweeps) run(v *convolution[float32]) {
	if !haveMasks() || v.env.Reproducible {
		s.runEights(v)
		return
	}
	channels, group, most := v.xs[1], 1, 1
	if s.two.masks[0] != 0 && channels%2 == 0 {
		group = 2
	}
	if len(s.strips) == 1 {
		most = max(1, sweepBytes/4/v.in/group)
	}
	v.Parallel(v.xs[0]*channels/group, work(group, v.pos, v.taps)/16, func(lo, hi int) {
		ends, room := make([]finishing, min(channels, most*group)),
			scratch[float32](v.Call, 16*v.taps)
		for n := 0; lo < hi; lo += n {
			plane, channel := lo*group, lo*group%channels
			n = min(hi-lo, most, (channels-channel)/group)
			v.then.all(ends[:n*group], v.bias, channel)
			src, dst := v.x[plane*v.in:(plane+n*group)*v.in],
				v.out[plane*v.pos:(plane+n*group)*v.pos]
			weights := v.weights[channel*v.taps:][:n*group*v.taps]
			a := sweep{src: &src[0], step: 4 * s.in[1], dst: &dst[0], dstStep: 4 * s.out[1],
				lead: s.lead, lines: s.in[0], tail: s.tail,
				odd: s.odd, weights: &weights[0], end: &ends[0], room: &room[0], planes: n,
				planeStep: 4 * group * v.in,
				outStep:   4 * group * v.pos, weightStep: 4 * group * v.taps,
				endStep: group * int(unsafe.Sizeof(ends[0])),
				plain:   v.then == nil || v.then.scale == nil}
			if group == 2 {
				a.src2, a.dst2, a.weights2, a.end2 = &src[v.in], &dst[v.pos],
					&weights[v.taps], &ends[1]
				a.index, a.masks = &s.twoIndex, s.two.masks
				a.run(s.size, s.stride, true)
			} else {
				s.strip(&a, dst)
			}
			v.then.bend(dst)
		}
	})
}

// strip sweeps the strips of a plane one after the other, or the only strip of several planes.
// Offsets of a sweep are bytes: four a number.
func (s *sweeps) strip(a *sweep, dst []float32) {
	a.src2, a.dst2, a.weights2, a.end2, a.index = a.src, a.dst, a.weights, a.end, &s.index
	n := a.planes
	for i := range s.strips {
		p := &s.strips[i]
		a.from, a.from2, a.dst, a.masks, a.planes = 4*p.from, 4*(p.from+16), &dst[p.to], p.masks, n
		a.run(s.size, s.stride, false)
	}
}

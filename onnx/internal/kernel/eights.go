package kernel

import "slices"

// stripPair are two strips of a plane, of eight columns of output each, that are swept at once in
// vectors of eight: their first columns of input, which may lie in the padding, and of output, and
// which columns of each load lie in the plane. Strips overlap, or are the same, where a plane is
// not wide enough for two more.
type stripPair struct {
	from, to [2]int
	inside   *insides
}

// insides are masks of the columns that a kernel loads: -1 of one in the plane, 0 of padding.
type insides [12][8]int32

// eightSweep is the arguments of a kernel of eight columns, by their places in eights_amd64.s.
type eightSweep struct {
	src               *float32 // the plane
	from, from2       int      // bytes to the first line of each strip
	step              int      // bytes from a line to the next
	dst, dst2         *float32
	dstStep           int
	lead, lines, tail int // lines that end no output, all lines, and outputs that end after them
	odd               int // whether the first line is an odd one, counted with the padding
	weights           *float32
	end               *finishing
	inside            *insides
	room              *[vectorsOf][8]float32
}

// vectorsOf is how many vectors a kernel lays out: weights of 5x5, and the five numbers of a
// finishing.
const vectorsOf = 25 + 5

// stripPairs lays out strips, of which begin columns of padding lie before the plane. Load v is of
// strip v mod 2 from tap v / 2 on; where the stride is two, loads 2i and 2i + 1 are of one strip,
// side by side. Pairs whose loads all lie in the plane share their masks.
func (s *sweeps) stripPairs(begin int) (out []stripPair) {
	var starts []int // columns of output
	for x := 0; x < s.out[1]; x += 8 {
		starts = append(starts, max(0, min(x, s.out[1]-8)))
	}
	whole := new(insides)
	for v := range whole {
		for lane := range whole[v] {
			whole[v][lane] = -1
		}
	}
	in := new(insides)
	for x := range slices.Chunk(starts, 2) {
		p := stripPair{to: [2]int{x[0], x[len(x)-1]}}
		for i, x := range p.to {
			p.from[i] = x*s.stride - begin
		}
		for v := range in {
			strip, first := v%2, v/2
			if s.stride == 2 {
				strip, first = v/2%2, v/4*2+v%2*8
			}
			for lane := range in[v] {
				in[v][lane] = 0
				if at := p.from[strip] + first + lane; at >= 0 && at < s.in[1] {
					in[v][lane] = -1
				}
			}
		}
		if p.inside = whole; *in != *whole {
			p.inside, in = in, new(insides)
		}
		out = append(out, p)
	}
	return out
}

// runEights convolves every channel with its own window.
func (s *sweeps) runEights(v *convolution[float32]) {
	v.Parallel(v.xs[0]*v.xs[1], work(1, v.pos, v.taps)/8, func(lo, hi int) { s.planes(v, lo, hi) })
}

// planes convolves planes from lo to hi in their order. A line of less than eight columns is
// written with numbers behind its end, which the lines after it overwrite; a plane with too few of
// these before hi is written apart first, as others may have done the planes from hi on.
func (s *sweeps) planes(v *convolution[float32], lo, hi int) {
	channels, over := v.xs[1], max(0, 8-s.out[1])
	var room [vectorsOf][8]float32
	var end [1]finishing
	a := eightSweep{step: 4 * s.in[1], dstStep: 4 * s.out[1], lead: s.lead, lines: s.in[0],
		tail: s.tail, odd: s.odd, end: &end[0], room: &room}
	apart := scratch[float32](v.Call, v.pos+over)
	for plane := lo; plane < hi; plane++ {
		channel := plane % channels
		v.then.all(end[:], v.bias, channel)
		src, out := v.x[plane*v.in:(plane+1)*v.in], v.out[plane*v.pos:(plane+1)*v.pos]
		a.src, a.weights = &src[0], &v.weights[channel*v.taps:][:v.taps][0]
		dst := out
		if (hi-plane-1)*v.pos < over {
			dst = apart
		}
		for i := range s.eights {
			p := &s.eights[i]
			a.from, a.from2, a.inside = 4*p.from[0], 4*p.from[1], p.inside
			a.dst, a.dst2 = &dst[p.to[0]], &dst[p.to[1]]
			a.run(s.size, s.stride, v.env.Reproducible)
		}
		if &dst[0] != &out[0] {
			copy(out, apart)
		}
		v.then.bend(out)
	}
}

package kernel

// maskedTaps is a window on planes of one or two axes for vectors of outputs that run through the
// lines of a plane without a gap: masks keep a tap from the outputs for which it lies in the
// padding, so that planes need no copy with padding. A stride is met by phases as [phases] has
// them, without padding either, whose lines are as long as the output's. A tap in the padding adds
// nothing, which for finite weights is the same sum as with a zero there.
type maskedTaps struct {
	in, out [2]int
	stride  [2]int
	direct  bool         // a plane is its only phase
	split   []maskedPart // phases, in the order in which they lie
	len     int          // of all phases
	offsets []int        // of a tap, from an output's position to what it reads
	// [groups, taps and the outputs themselves, 4]: the outputs that a tap, or the plane, has, 16 a
	// vector
	masks []uint16
}

// maskedPart is the phase of a remainder of lines and one of columns.
type maskedPart struct{ line, column, high, wide, at int }

const (
	maskedGroup = 64      // outputs of a group, four vectors
	maskedMost  = 1 << 16 // outputs of a plane: masks of larger ones are not worth their memory
)

// newMaskedTaps returns nil where lines of the input do not lie as the output's do, or masks would
// be large. in and out are the sizes of the spatial axes. Its cost is taps times outputs of a
// plane; the result depends on shapes alone and may be shared by threads, which only read it. A
// mask is one bit a tap and output.
func newMaskedTaps(w window, in, out []int) *maskedTaps {
	m := &maskedTaps{in: planar(in, 1), out: planar(out, 1), stride: planar(w.stride, 1)}
	size, dilation, begin := planar(w.size, 1), planar(w.dilation, 1), planar(w.begin, 0)
	pos := m.out[0] * m.out[1]
	if pos > maskedMost || size[0]*size[1] > manyTaps {
		return nil
	}
	m.direct = m.stride == [2]int{1, 1}
	if m.direct && m.in[1] != m.out[1] {
		return nil
	}
	type reach struct{ remainder, shift int }
	// Tap i of output o reads the input at o stride + i dilation - begin: place o + shift of the
	// phase of that remainder.
	taps := func(axis, i int) reach {
		at := i*dilation[axis] - begin[axis]
		r := ((at % m.stride[axis]) + m.stride[axis]) % m.stride[axis]
		return reach{r, (at - r) / m.stride[axis]}
	}
	within := func(at, n int) bool { return at >= 0 && at < n }
	var reads [][]bool // by tap and output
	for i := range size[0] {
		y := taps(0, i)
		for j := range size[1] {
			x := taps(1, j)
			p := m.part(y.remainder, x.remainder)
			if p.wide > m.out[1] {
				return nil
			}
			m.offsets = append(m.offsets, p.at+y.shift*m.out[1]+x.shift)
			inside := make([]bool, pos)
			for o := range inside {
				inside[o] = within(o/m.out[1]+y.shift, p.high) && within(o%m.out[1]+x.shift, p.wide)
			}
			reads = append(reads, inside)
		}
	}
	if m.len == 0 { // all taps lie in the padding
		return nil
	}
	all := make([]bool, pos)
	fillRange(all, true)
	reads = append(reads, all)
	m.masks = make([]uint16, (pos+maskedGroup-1)/maskedGroup*len(reads)*4)
	for t, inside := range reads {
		for o, yes := range inside {
			if yes {
				m.masks[(o/maskedGroup*len(reads)+t)*4+o%maskedGroup/16] |= 1 << (o % 16)
			}
		}
	}
	return m
}

// planar returns a window's numbers of two axes, the first of them fill where it has one alone.
func planar(v []int, fill int) (two [2]int) {
	two[0] = fill
	copy(two[2-len(v):], v)
	return two
}

// part returns the phase of two remainders. It adds the phase where no tap has read it so far:
// phases that no tap reads take no memory.
func (m *maskedTaps) part(line, column int) maskedPart {
	for _, p := range m.split {
		if p.line == line && p.column == column {
			return p
		}
	}
	count := func(axis, r int) int { return max(0, (m.in[axis]-r+m.stride[axis]-1)/m.stride[axis]) }
	p := maskedPart{line: line, column: column, high: count(0, line),
		wide: count(1, column), at: m.len}
	m.split = append(m.split, p)
	m.len += p.high * m.out[1]
	return p
}

// phases writes a plane's phases to dst. Lines of a phase are as far apart as the output's. Numbers
// between them are left as they are: masks keep every tap from them. With a stride of 2, two phases
// of one remainder of lines are split in one pass.
func (m *maskedTaps) phases(dst, plane []float32) {
	for i := 0; i < len(m.split); i++ {
		p := m.split[i]
		if p.high == 0 {
			continue
		}
		down, from := m.stride[0]*m.in[1], p.line*m.in[1]
		if i+1 < len(m.split) && m.stride[1] == 2 && m.split[i+1].line == p.line && p.wide > 0 &&
			m.split[i+1].wide > 0 {
			even, odd := p, m.split[i+1]
			if even.column == 1 {
				even, odd = odd, even
			}
			n := deinterleave(p.high, min(even.wide, odd.wide), dst[even.at:], dst[odd.at:],
				m.out[1], plane[from:], down)
			for y := 0; n < even.wide && y < p.high; y++ {
				row := plane[from+y*down:][:m.in[1]]
				deinterleaveGo(dst[even.at+y*m.out[1]:][n:even.wide],
					dst[odd.at+y*m.out[1]:][n:odd.wide], row[2*n:])
			}
			i++
			continue
		}
		for y := range p.high {
			row, to := plane[from+y*down:][:m.in[1]], dst[p.at+y*m.out[1]:][:p.wide]
			for x := range to {
				to[x] = row[p.column+x*m.stride[1]]
			}
		}
	}
}

// run convolves every channel with its own window.
func (m *maskedTaps) run(v *convolution[float32]) {
	channels := v.xs[1]
	v.Parallel(v.xs[0]*channels, work(v.pos, v.taps)/8, func(lo, hi int) {
		var split []float32
		if !m.direct {
			split = scratch[float32](v.Call, m.len)
		}
		for plane := lo; plane < hi; plane++ {
			channel, src, dst := plane%channels, v.x[plane*v.in:(plane+1)*v.in],
				v.out[plane*v.pos:(plane+1)*v.pos]
			if !m.direct {
				m.phases(split, src)
				src = split
			}
			f := v.then.of(channel)
			if v.bias != nil {
				f.start = v.bias[channel]
			}
			tapSumsMasked(m, dst, src, v.weights[channel*v.taps:(channel+1)*v.taps], &f)
			v.then.bend(dst)
		}
	})
}

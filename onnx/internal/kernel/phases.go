package kernel

import (
	"slices"

	"fmp/onnx"
)

// phases are a plane with its padding, split by the remainders of its lines and columns that a
// strided window begins at or reaches: in each of them, a phase, the elements that a tap reads for
// neighbouring outputs lie side by side, and those for all of the output, line after line, is one
// run. Between the lines of a run lie columns that are no output's.
type phases struct {
	out        [2]int // outputs: lines and columns
	high, wide int    // of a phase
	lines      []int  // the remainders of lines
	columns    []part // by remainder of columns
	// where a tap reads for the first output, in the order of the window's elements
	offsets   []int
	in, begin [2]int
	stride    [2]int
}

// part is a line's share of a phase: elements from, from + stride, ... go to consecutive places
// from first on.
type part struct{ from, first, count int }

// newPhases is for windows on planes of one or two axes. in and out are the sizes of the spatial
// axes, w is fitted to them. It costs O(taps); an error says that the phases would have too many
// elements.
func newPhases(w window, in, out []int) (*phases, error) {
	p := &phases{stride: planar(w.stride, 1), begin: planar(w.begin, 0), in: planar(in, 1),
		out: planar(out, 1)}
	size, dilation := planar(w.size, 1), planar(w.dilation, 1)
	remainders := func(axis int) (all []int, at map[int]int) {
		at = map[int]int{}
		for i := range min(size[axis], p.stride[axis]) { // they come back after so many taps
			r := i * dilation[axis] % p.stride[axis]
			if _, ok := at[r]; !ok {
				at[r] = len(all)
				all = append(all, r)
			}
		}
		return all, at
	}
	lines, line := remainders(0)
	p.lines = lines
	columns, column := remainders(1)
	p.high = p.out[0] + (size[0]-1)*dilation[0]/p.stride[0]
	p.wide = p.out[1] + (size[1]-1)*dilation[1]/p.stride[1]
	if _, err := onnx.Elements([]int{len(lines) * len(columns), p.high, p.wide}); err != nil {
		return nil, err
	}
	for _, r := range columns {
		step := p.stride[1]
		c := part{first: max(0, (p.begin[1]-r+step-1)/step)}
		c.from = c.first*step + r - p.begin[1]
		if c.from < p.in[1] {
			c.count = max(0, min(p.wide-c.first, (p.in[1]-c.from+step-1)/step))
		}
		p.columns = append(p.columns, c)
	}
	for i := range size[0] {
		y := i * dilation[0]
		for j := range size[1] {
			x := j * dilation[1]
			phase := line[y%p.stride[0]]*len(p.columns) + column[x%p.stride[1]]
			p.offsets = append(p.offsets, (phase*p.high+y/p.stride[0])*p.wide+x/p.stride[1])
		}
	}
	return p, nil
}

// len is the length of all phases, and of the elements that the loops over taps may read after
// them.
func (p *phases) len() int { return len(p.lines)*len(p.columns)*p.high*p.wide + 2*tapRun }

// run is the length of a run over all outputs, a multiple of tapRun.
func (p *phases) run() int {
	return ((p.out[0]-1)*p.wide + p.out[1] + tapRun - 1) / tapRun * tapRun
}

// splitInto writes lines from lo to hi of a plane's phases to dst, but for the padding, which dst
// holds. The padding is written once by the caller, and stays for all planes of one shape.
func splitInto[T number](p *phases, dst, plane []T, lo, hi int) {
	width, step := p.in[1], p.stride[1]
	for i := range p.lines {
		at, from, lines := p.share(i, lo, hi)
		if lines <= 0 || splitFast(p, any(dst), any(plane), at, from, lines) {
			continue
		}
		for y := range lines {
			src := plane[from+y*p.stride[0]*width:][:width]
			for j, c := range p.columns {
				row := dst[at+y*p.wide+j*p.high*p.wide+c.first:][:c.count]
				if step == 1 {
					copy(row, src[c.from:])
					continue
				}
				for k := range row {
					row[k] = src[c.from+k*step]
				}
			}
		}
	}
}

// share returns where those of a phase's lines from lo to hi that lie in the plane begin, in the
// phases and in the plane, and how many they are.
func (p *phases) share(i, lo, hi int) (at, src, lines int) {
	down, first := p.stride[0], p.lines[i]-p.begin[0]
	from := max(lo, (-first+down-1)/down)
	to := min(hi, (p.in[0]-first+down-1)/down)
	return (i*len(p.columns)*p.high + from) * p.wide, (from*down + first) * p.in[1], to - from
}

// splitFast is [splitInto] of lines that lie in one phase, of bytes, or whose even and odd elements
// lie in two; false where they are others. A stride of 1 in float32 is left to the copies of
// splitInto.
func splitFast(p *phases, to, of any, at, from, lines int) bool {
	a, down, dst, src := p.columns[0], p.stride[0]*p.in[1], []uint8(nil), []uint8(nil)
	if d, ok := to.([]uint8); ok {
		dst, src = d[at:], of.([]uint8)[from:]
	}
	switch {
	case a.count == 0 || p.stride[1] > 2:
		return false
	case dst != nil && p.stride[1] == 1:
		copyLines(dst[a.first:], src[a.from:], lines, a.count, p.wide, down)
		return true
	case dst != nil && len(p.columns) == 1:
		h := byTurns{lines: lines, evens: a.count, to: p.wide, from: down}
		h.copy(dst[a.first:], nil, src[a.from:])
		return true
	case p.stride[1] == 1 || p.columns[len(p.columns)-1].count == 0:
		return false
	}
	b := p.columns[len(p.columns)-1]
	first, second := a.first, p.high*p.wide+b.first
	if a.from > b.from {
		first, second, a, b = second, first, b, a
	}
	if dst != nil {
		h := byTurns{lines: lines, evens: a.count, odds: b.count, to: p.wide, from: down}
		h.copy(dst[first:], dst[second:], src)
		return true
	}
	wide, ok := to.([]float32)
	if !ok {
		return false
	}
	n := min(a.count, b.count)
	if len(p.columns) == 1 { // without odd ones, which even ones are written over
		n, second = min(n, (p.in[1]-a.from)/2), first
		b.count = 0
	}
	even, odd, line := wide[at+first:], wide[at+second:], of.([]float32)[from+a.from:]
	n = deinterleave(lines, n, even, odd, p.wide, line, down)
	for y := 0; n < max(a.count, b.count) && y < lines; y++ {
		deinterleaveGo(even[y*p.wide:][n:a.count], odd[y*p.wide:][n:max(n, b.count)],
			line[y*down+2*n:])
	}
	return true
}

// tapColumns writes, for every tap, the elements that it reads of a plane for outputs from p0 to p1
// to rows that lie cols apart. Only the lines of the phases that these outputs read are split.
func tapColumns[T floating](p *phases, col []T, cols int, plane, split []T, p0, p1 int) {
	first, last := p0/p.out[1], (p1-1)/p.out[1]
	splitInto(p, split, plane, first, last+1+p.high-p.out[0])
	for t, off := range p.offsets {
		row := col[t*cols : t*cols+p1-p0]
		for y := first; y <= last; y++ {
			from, to := max(p0, y*p.out[1]), min(p1, (y+1)*p.out[1])
			copy(row[from-p0:to-p0], split[off+y*p.wide+from-y*p.out[1]:])
		}
	}
}

// patchColumns is tapColumns for all outputs of windows that lie side by side, as [phases.patches]
// has them: of the lines that a line of taps reads, every other element goes one way, and of either
// half again.
//
//go:noinline
func patchColumns(p *phases, col []float32, cols int, plane, room []float32) {
	high, wide := p.stride[0], p.stride[1]
	n := p.out[1] * wide
	for y := range high {
		for line := range p.out[0] {
			copy(room[line*n:][:n], plane[(line*high+y)*p.in[1]:])
		}
		inTurn(wide, col[y*wide*cols:], cols, room[:p.out[0]*n], room[p.out[0]*n:])
	}
}

// inTurn deals src out to rows of dst, a power of two, which lie apart.
func inTurn(rows int, dst []float32, apart int, src, room []float32) {
	n := len(src) / 2
	even, odd := dst, dst[apart:]
	if rows > 2 {
		even, odd = room, room[n:]
	}
	done := deinterleave(1, n, even, odd, n, src, 2*n)
	deinterleaveGo(even[done:n], odd[done:n], src[2*done:])
	if rows > 2 {
		inTurn(rows/2, dst, 2*apart, even[:n], room[2*n:])
		inTurn(rows/2, dst[apart:], 2*apart, odd[:n], room[2*n:])
	}
}

// patches reports whether windows lie side by side on two axes, without padding, and their lines
// have a power of two of columns and fit the room of phases. Each tap then reads every output's
// element once.
func (p *phases) patches() bool {
	high, wide := p.stride[0], p.stride[1]
	return p.begin == [2]int{} && p.high == p.out[0] && p.wide == p.out[1] &&
		len(p.lines) == high && len(p.columns) == wide && len(p.offsets) == high*wide &&
		wide > 1 && high >= min(3, wide) && wide&(wide-1) == 0 &&
		p.out[0]*high <= p.in[0] && p.out[1]*wide <= p.in[1]
}

// tapPiece is a run of outputs of one line, at most a vector of them: the lanes that they have, and
// where the first lane lies from a tap's place for the first output, and in a slab's panels.
type tapPiece struct {
	from, to int
	lanes    uint64
}

// layRuns writes a slab of the columns of planes x to b, in panels. Output p0 is the first
// column's. It stands for im2col and packColumns in one: columns never lie in memory as a matrix.
// Row k of the columns is tap k mod taps of channel k / taps.
func layRuns(b []float32, s slab, p *phases, x, split []float32, p0 int) {
	const vector = 16
	var room [64]tapPiece
	pieces, reach := room[:0], 0
	for v := 0; v < s.cols; v += vector {
		to := v/panelCols*panelCols*s.d + v%panelCols
		for i, n := 0, 0; i < min(vector, s.cols-v); i += n {
			at := p0 + s.j + v + i
			x := at % p.out[1]
			n = min(p.out[1]-x, vector-i, s.cols-v-i)
			from := at/p.out[1]*p.wide + x
			pieces = append(pieces, tapPiece{from: from - i, to: to, lanes: (1<<n - 1) << i})
			reach = from + n
		}
	}
	_, _ = split[slices.Max(p.offsets)+reach-1], b[s.d*padColumns(s.cols)-1]
	taps, size := len(p.offsets), p.in[0]*p.in[1]
	first, last := (p0+s.j)/p.out[1], (p0+s.j+s.cols-1)/p.out[1]
	for k, n := 0, 0; k < s.d; k += n {
		c, t := (s.l+k)/taps, (s.l+k)%taps
		n = min(taps-t, s.d-k)
		splitInto(p, split, x[c*size:(c+1)*size], first, last+1+p.high-p.out[0])
		tapRuns(b[k*panelCols:], split, p.offsets[t:t+n], pieces)
	}
}

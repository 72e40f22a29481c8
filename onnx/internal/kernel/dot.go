package kernel

import (
	endian "encoding/binary"
	"math"

	"fmp/onnx"
)

// dotFilters and dotColumns are the filters of a panel of weights, and the columns of a tile of
// sums.
const dotFilters, dotColumns = 8, 32

// longerTiles returns how many tiles of 49 columns, in place of 48, take the last columns of a
// number of them: such a column costs an eighth of the vector that the last ones would take.
func longerTiles(cols int) int {
	if rest := cols % 48; rest < 8 && rest <= cols/48 {
		return rest
	}
	return 0
}

// dotCost is how many columns a product of that many takes as long as.
func dotCost(cols int) int {
	if !haveDots {
		return (cols + 7) / 8 * 8
	}
	if n := longerTiles(cols); n > 0 {
		return cols/48*48 + 2*n
	}
	return (cols + 15) / 16 * 16
}

// saturation bounds sums, in quanta, before the zero point is added: NaN becomes lo.
type saturation struct {
	lo, hi float32
	zero   int32
}

// saturationOf returns that of a type of bytes.
func saturationOf(d onnx.DType, zero float64) saturation {
	lo, hi := limits(d)
	return saturation{lo: float32(lo - zero), hi: float32(hi - zero), zero: int32(zero)}
}

// byte is the quantum that a number is nearest to, half to even. The zero point is added after
// rounding, in whole numbers, so that it moves no half.
func (s saturation) byte(v float32) uint8 {
	if !(v > s.lo) {
		v = s.lo
	}
	if v > s.hi {
		v = s.hi
	}
	return uint8(int32(math.RoundToEven(float64(v))) + s.zero)
}

// quantum is the number that a byte stands for: scale times the byte, flipped, less zero. Bytes
// that are signed are flipped by 128.
type quantum struct {
	scale float32
	zero  int32
	flip  uint8
}

// quantumOf is that of a type of bytes: Int8 or Uint8.
func quantumOf(d onnx.DType, scale, zero float64) quantum {
	q := quantum{scale: float32(scale), zero: int32(zero)}
	if d == onnx.Int8 {
		q.zero, q.flip = q.zero+128, 128
	}
	return q
}

// value is exact but for one rounding, as the difference has nine bits.
func (q quantum) value(b uint8) float32 {
	return float32(float32(int32(b^q.flip)-q.zero) * q.scale)
}

// dotSums are, by filter, the numbers that a convolution's sums start from, and the quanta of the
// output in a quantum of them.
type dotSums struct {
	start []int32
	scale []float32
	saturation
	furthest int  // the largest offset of a step
	whole    bool // sums are not quantised
}

// weightsOf returns weights of the given number of bytes each, 1 or 2. A weight of two bytes is a
// word: the byte, and its sign.
func weightsOf(size int, a []int8) []int8 {
	if size == 1 {
		return a
	}
	out := make([]int8, 2*len(a))
	for i, w := range a {
		out[2*i], out[2*i+1] = w, w>>7
	}
	return out
}

// dotsGo sums the products of four bytes a step, signed ones of a, [steps, dotFilters, 4], and
// unsigned ones of b, [columns, 4] at each offset: sums of 32 bits that wrap around. Their quanta
// go to rows of c that are stride bytes apart, or they do themselves, in the processor's order of
// bytes. An int32 holds the sums of 2^16 products of bytes, 255 · 128 each, without wrapping
// around.
func dotsGo(d *dotSums, a []int8, b []uint8, offsets []int, channel, filters, cols int,
	c []uint8, stride int) {
	var sums [dotColumns]int32
	for f := range filters {
		row := sums[:cols]
		fillRange(row, d.start[channel+f])
		for k, off := range offsets {
			w := a[(k*dotFilters+f)*4:][:4]
			w0, w1, w2, w3 := int32(w[0]), int32(w[1]), int32(w[2]), int32(w[3])
			four := b[off:][:4*cols]
			for i := range row {
				x := four[4*i:][:4]
				row[i] += w0*int32(x[0]) + w1*int32(x[1]) + w2*int32(x[2]) + w3*int32(x[3])
			}
		}
		for i, v := range row {
			if d.whole {
				endian.NativeEndian.PutUint32(c[f*stride+4*i:], uint32(v))
			} else {
				c[f*stride+i] = d.byte(float32(v) * d.scale[channel+f])
			}
		}
	}
}

// copyLinesGo copies lines of n bytes, to and from bytes apart.
func copyLinesGo(dst, src []uint8, lines, n, to, from int) {
	for y := range lines {
		copy(dst[y*to:][:n], src[y*from:][:n])
	}
}

// gathering is where the bytes of a window's taps lie in a plane: lines of n bytes, from bytes
// apart, from each offset on. They go to places step bytes apart, line after line.
type gathering struct {
	lines, n, from, step int
	offsets              []int
}

// gatherGo copies the lines of every tap: taps · lines · n bytes.
func (g *gathering) gatherGo(dst, src []uint8) {
	for t, off := range g.offsets {
		copyLinesGo(dst[t*g.step:], src[off:], g.lines, g.n, g.n, g.from)
	}
}

// byTurns are lines whose bytes go to two others by turns: how many to either, and bytes from line
// to line of these and of the source.
type byTurns struct{ lines, evens, odds, to, from int }

// copyGo copies from a source that begins with an even byte.
func (h *byTurns) copyGo(even, odd, src []uint8) {
	for y := range h.lines {
		src, n := src[y*h.from:], 0
		if h.odds > 0 {
			n = splitBytes(min(h.evens, h.odds), even[y*h.to:], odd[y*h.to:], src)
			deinterleaveGo(nil, odd[y*h.to:][n:h.odds], src[2*n:])
		}
		for i := n; i < h.evens; i++ {
			even[y*h.to+i] = src[2*i]
		}
	}
}

// interleaveGo sets dst to the flipped elements of four rows side by side, from one of them on.
func interleaveGo(dst []uint8, rows *[4][]uint8, flip uint8, from int) {
	for i := from; i < len(rows[0]); i++ {
		to := dst[4*i:][:4]
		to[0], to[1], to[2], to[3] = rows[0][i]^flip, rows[1][i]^flip, rows[2][i]^flip,
			rows[3][i]^flip
	}
}

// quantizeGo sets dst to the quanta that src / scale is nearest to.
func quantizeGo(dst []uint8, src []float32, scale float32, s saturation) {
	for i, v := range src {
		dst[i] = s.byte(v / scale)
	}
}

// dequantizeGo sets dst to the numbers that bytes stand for.
func dequantizeGo(dst []float32, src []uint8, q quantum) {
	for i, v := range src {
		dst[i] = q.value(v)
	}
}

// depthTaps is the window of a depthwise convolution on a padded plane: offsets of groups of taps,
// up to four of one line each.
type depthTaps struct {
	lines, width int // outputs
	down, stride int // elements from line to line of outputs, and from output to output
	dilation     int // of columns
	offsets      []int
	last         int // where the last line's furthest group lies
	flip         uint8
}

// depthPlaneGo sets dst to the quantised sums of a plane. Weights of 0 are skipped: they fill
// groups of four up, and their bytes may lie beyond the plane.
func depthPlaneGo(d *depthTaps, dst, src []uint8, weights []int8, start int32,
	scale float32, s saturation) {
	for y := range d.lines {
		for x := range d.width {
			sum := start
			for g, off := range d.offsets {
				at := off + y*d.down + x*d.stride
				for t, w := range weights[4*g:][:4] {
					if w != 0 {
						sum += int32(w) * int32(src[at+t*d.dilation]^d.flip)
					}
				}
			}
			dst[y*d.width+x] = s.byte(float32(sum) * scale)
		}
	}
}

// pairing is a sum or product of quantised numbers, quantised again.
type pairing struct {
	a, b    quantum
	scale   float32
	product bool
	saturation
}

// pairedGo sets dst to the sums or products of a and b.
func pairedGo(dst, a, b []uint8, p *pairing) {
	for i := range dst {
		x, y := p.a.value(a[i]), p.b.value(b[i])
		if p.product {
			x = float32(x * y)
		} else {
			x += y
		}
		dst[i] = p.byte(x / p.scale)
	}
}

// lookUpGo sets dst to the table's entries for src.
func lookUpGo(dst, src []uint8, table *[256]uint8) {
	for i, v := range src {
		dst[i] = table[v]
	}
}

// tapMaximaBytesGo sets dst[i] to the largest src[offsets[t] + i] of bytes that are unsigned once
// they are flipped. Bytes stay as they are stored; the flip serves the comparison alone.
func tapMaximaBytesGo(dst, src []uint8, offsets []int, flip uint8) {
	copy(dst, src[offsets[0]:])
	for _, off := range offsets[1:] {
		for i, v := range src[off:][:len(dst)] {
			if v^flip > dst[i]^flip {
				dst[i] = v
			}
		}
	}
}

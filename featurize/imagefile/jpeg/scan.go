package jpeg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	mathbits "math/bits"
	"slices"
)

// scan is one scan's header (T.81, B.2.3) and the state between its blocks. run is EOBRUN (T.81,
// G.1.2.2), of progressive scans of AC coefficients alone. dc and ac are the tables of codes of
// each component, in the order of parts.
type scan struct {
	parts      []*part
	dc, ac     [4]*huffman
	start, end int // of the coefficients, in zigzag order (Ss and Se)
	high, low  int // bits of successive approximation (Ah and Al)
	run        int // blocks that end at once
}

var (
	errPixels = fmt.Errorf("its pixels are cut off: %w", errCut)
	errHeader = errors.New("the header of a scan is corrupt")
)

// scan decodes a scan, whose header is b, from an offset of the file on. Behind it d.next is the
// place of the next marker. A scan of a sequential file holds whole blocks, one of a progressive
// file some bits of some coefficients. It costs O(blocks), however few bits the scan has: hence
// [MaxScans].
func (d *decoder) scan(b []byte, at int) error {
	s, err := d.scanHeader(b)
	if err != nil {
		return err
	}
	for _, p := range s.parts {
		// Only the first scan of DC coefficients shows a component: a file without it is an error.
		p.seen = p.seen || s.start == 0 && s.high == 0
		p.dc = 0
	}
	d.begin(at)
	across, down := d.most()
	// A scan of one component has no MCUs: it holds the blocks that show pixels, row by row (T.81,
	// A.2.2).
	wide, high, alone := ceil(d.Width, 8*across), ceil(d.Height, 8*down), len(s.parts) == 1
	if alone {
		wide, high = s.parts[0].wide, s.parts[0].high
	}
	for y := range high {
		for x := range wide {
			err := d.restart(s, y*wide+x)
			if err == nil && alone {
				err = d.one(s, 0, x, y)
			} else if err == nil {
				err = d.several(s, x, y)
			}
			if err != nil {
				return err
			}
		}
		// ctx is looked at once a row of MCUs, as blocks are many and short.
		if err := d.ctx.Err(); err != nil {
			return err
		}
	}
	d.finish()
	return nil
}

// several decodes the blocks of an MCU (T.81, A.2.3). x and y count MCUs across and down.
func (d *decoder) several(s *scan, x, y int) error {
	for i, p := range s.parts {
		// Blocks of a component lie row by row.
		for v := range p.V {
			for h := range p.H {
				if err := d.one(s, i, x*p.H+h, y*p.V+v); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// scanHeader reads a scan's header. The bytes are the number of components and, for each, its
// identifier and the numbers of its two tables. Ss and Se follow, and a byte of Ah and Al. b is the
// segment without its length. Bounds on all fields are checked here, so that blocks need no checks
// of them.
func (d *decoder) scanHeader(b []byte) (*scan, error) {
	if len(b) < 1 || b[0] < 1 || b[0] > 4 || len(b) != 4+2*int(b[0]) {
		return nil, errHeader
	}
	s := &scan{}
	n := int(b[0])
	s.start, s.end, s.high, s.low = int(b[1+2*n]), int(b[2+2*n]), int(b[3+2*n]>>4), int(b[3+2*n]&15)
	// Sequential files state these fields as well, and readers ignore them.
	if !d.Progressive {
		s.start, s.end, s.high, s.low = 0, 63, 0, 0
	}
	// A scan refines by one bit (Ah = Al + 1); DC goes without AC, and AC scans are of one
	// component (T.81, G.1.1.1).
	if s.start > s.end || s.end > 63 || s.low > 13 || s.high != 0 && s.high != s.low+1 ||
		d.Progressive && (s.start == 0 && s.end != 0 || s.start > 0 && n > 1) {
		return nil, errHeader
	}
	blocks := 0
	for i := range n {
		p := d.component(int(b[1+2*i]))
		if p == nil {
			return nil, fmt.Errorf("a scan is of component %d, which there is not", b[1+2*i])
		}
		if slices.Contains(s.parts, p) {
			return nil, errHeader
		}
		blocks += p.H * p.V
		if err := d.tables(s, p, b[2+2*i]); err != nil {
			return nil, err
		}
	}
	// An MCU has at most ten blocks (T.81, B.2.3).
	if n > 1 && blocks > 10 {
		return nil, errHeader
	}
	return s, nil
}

// component returns the component of an identifier; nil where there is none.
func (d *decoder) component(id int) *part {
	for i := range d.parts {
		if d.parts[i].ID == id {
			return &d.parts[i]
		}
	}
	return nil
}

// tables adds a component with its tables to a scan. which has the number of the DC table in its
// upper four bits, and of the AC table in the lower.
func (d *decoder) tables(s *scan, p *part, which byte) error {
	i, td, ta := len(s.parts), which>>4, which&15
	if td > 3 || ta > 3 {
		return errHeader
	}
	s.parts = append(s.parts, p)
	// The table in force at a component's first scan counts; one of the same number that comes
	// later is another's.
	if p.quantizer == nil {
		if p.quantizer = d.quantizer[p.table]; p.quantizer == nil {
			return fmt.Errorf("component %d has no quantization table", p.ID)
		}
	}
	s.dc[i], s.ac[i] = d.codes[0][td], d.codes[1][ta]
	if s.start == 0 && s.high == 0 && s.dc[i] == nil || s.end > 0 && s.ac[i] == nil {
		return fmt.Errorf("component %d has no table of codes", p.ID)
	}
	// Coefficients are passed over where fewer points are wanted, or blocks lie outside the part.
	if !d.Progressive && (p.last < 63 || d.shown.Dx() < d.Width || d.shown.Dy() < d.Height) {
		s.ac[i].skipping()
	}
	return nil
}

// restart begins a restart interval behind its marker (T.81, F.2.2.5), where the MCU of that number
// begins one. A marker that is missing or of another number is an error: MCUs were lost.
func (d *decoder) restart(s *scan, mcu int) error {
	if d.interval == 0 || mcu == 0 || mcu%d.interval != 0 {
		return nil
	}
	d.finish()
	// Restart markers count modulo eight.
	want := byte(restart + (mcu/d.interval-1)%8)
	at := d.next
	// Bytes 0xff may fill the space before a marker (T.81, B.1.1.2).
	for at < len(d.data) && d.data[at] == 0xff {
		at++
	}
	if at >= len(d.data) {
		return errPixels
	}
	if d.data[at] != want {
		return fmt.Errorf("its pixels are corrupt: marker %#x lies where restart %#x belongs",
			d.data[at], want)
	}
	d.begin(at + 1)
	for _, p := range s.parts {
		p.dc = 0
	}
	s.run = 0
	return nil
}

// finish passes over the rest of the data before the next marker. Encoders fill the last byte with
// ones. A longer rest is passed over a window at a time.
func (d *decoder) finish() {
	for !d.ended {
		d.at = d.size
		d.fill()
	}
}

// one decodes a block of the scan's i-th component. x and y count blocks of the component. The bits
// are asked for once it is decoded: a block has fewer than [slack] bytes. over is asked once a
// block: zeros in place of missing bits decode without harm.
func (d *decoder) one(s *scan, i, x, y int) error {
	p := s.parts[i]
	d.ready()
	var err error
	switch {
	case !d.Progressive:
		err = d.sequential(p, s.dc[i], s.ac[i], x, y)
	case s.start == 0:
		err = d.difference(s, p, s.dc[i], y*p.across+x)
	case s.high == 0:
		err = d.first(s, p, s.ac[i], y*p.across+x)
	default:
		err = d.refine(s, p, s.ac[i], y*p.across+x)
	}
	if d.over() {
		return errPixels
	}
	return err
}

// sequential decodes a block (T.81, F.2.2). A block outside of the part is decoded to its first
// coefficient, since later differences need it.
func (d *decoder) sequential(p *part, dc, ac *huffman, x, y int) error {
	shown, last := image.Pt(x, y).In(p.shown), p.last
	if !shown {
		last = 0
	}
	top, k, err := d.kept(p, last, dc, ac)
	if err == nil && k < 64 {
		err = d.passOver(ac, k)
	}
	if err != nil {
		return err
	}
	if shown {
		d.transform(p, top, x, y)
	}
	return nil
}

// A corrupt run of zeros leads beyond the 64.
var errMany = errors.New("its pixels are corrupt: a block has more than 64 coefficients")

// kept decodes the first coefficient of a block and those up to the last that is wanted. It returns
// the number of the last that is not zero, and that of the first which is still to be passed over,
// 64 where the block has ended. Each code says how many zeros precede a value, and how many bits
// behind the code hold it (T.81, F.2.2.2).
func (d *decoder) kept(p *part, last int, dc, ac *huffman) (top, k int, err error) {
	acc, n, at := d.acc, d.n, d.at // in registers
	// A code of up to 16 bits and a value of up to 15 need 31 bits.
	if n < 32 {
		acc |= binary.BigEndian.Uint64(d.buf[at:]) >> (n & 63)
		at += int(63-n) >> 3
		n |= 56
	}
	e := dc.look[acc>>(64-lookBits)]
	if e == 0 {
		e, err = dc.long(acc, 0)
	}
	quantizer := p.quantizer
	for ; err == nil; k++ {
		acc <<= e.length() & 63
		n -= e.length()
		k += e.run()
		if e&noValue == 0 {
			v := e.value()
			if size := e.size(); size > 0 {
				v = extend(acc>>((64-size)&63), size)
				acc <<= size & 63
				n -= size
			}
			if k == 0 {
				// DC differences add up over the blocks of a component in a scan, until a restart.
				p.dc += v
				d.block[0] = p.dc * quantizer[0]
			} else if k <= last {
				place := zigzag[k&63]
				d.block[place&63] = v * quantizer[place&63]
				top = k
			} else if k > 63 {
				err = errMany
			}
		} else if e.run() < 15 {
			// No value and a run below 15 end the block; a run of 15 is of 16 zeros.
			k = 64
			break
		}
		if k >= last {
			k++
			break
		}
		if n < 32 {
			acc |= binary.BigEndian.Uint64(d.buf[at:]) >> (n & 63)
			at += int(63-n) >> 3
			n |= 56
		}
		if e = ac.look[acc>>(64-lookBits)]; e == 0 {
			e, err = ac.long(acc, 1)
		}
	}
	d.acc, d.n, d.at = acc, n, at
	return top, k, err
}

// passOver passes over the coefficients of a block from the k-th on. The table of skips passes
// groups of codes; a code that is in no group is read by itself. Nothing is stored. It reads as
// many bits as decoding would.
func (d *decoder) passOver(ac *huffman, k int) (err error) {
	acc, n, at := d.acc, d.n, d.at
	for k < 64 {
		acc |= binary.BigEndian.Uint64(d.buf[at:]) >> (n & 63)
		at += int(63-n) >> 3
		n |= 56
		var s skip
		// Each lookup uses at most skipBits of the 56 bits that are certain.
		for range 56 / skipBits {
			s = ac.skips[acc>>(64-skipBits)]
			if k += s.passed(); k > 63 {
				break
			}
			acc <<= s.length() & 63
			n -= s.length()
		}
		if k < 64 {
			continue
		}
		// The group has the end of the block.
		if k > ends && k < ends+64 {
			acc <<= s.length() & 63
			n -= s.length()
			break
		}
		// The group fits no code, or passes more than the block has: one code is read in its place.
		k -= s.passed()
		acc |= binary.BigEndian.Uint64(d.buf[at:]) >> (n & 63)
		at += int(63-n) >> 3
		n |= 56
		e := ac.look[acc>>(64-lookBits)]
		if e == 0 {
			if e, err = ac.long(acc, 1); err != nil {
				break
			}
		}
		acc <<= (e.length() + e.size()) & 63
		n -= e.length() + e.size()
		if k += e.run() + 1; e&noValue != 0 && e.run() < 15 {
			break
		}
		if k > 64 && e&noValue == 0 {
			err = errMany
		}
	}
	d.acc, d.n, d.at = acc, n, at
	return err
}

// difference decodes the first coefficient of a block of a progressive file (T.81, G.1.2.1). It is
// the sum of the component's differences so far, times 2^Al; a refining scan sets its bit Al. Al is
// the number of low bits that later scans bring.
func (d *decoder) difference(s *scan, p *part, dc *huffman, block int) error {
	c := &p.coefficients[block*(p.last+1)]
	if s.high > 0 {
		if d.take(1) == 1 {
			*c |= 1 << s.low
		}
		return nil
	}
	_, v, err := d.code(dc, 0)
	p.dc += v
	*c = int16(p.dc << s.low)
	return err
}

// first decodes the upper bits of a block's coefficients (T.81, G.1.2.2). Coefficients that the
// points do not want are read, and not stored. block counts all blocks of the component, row by
// row. s.run counts blocks behind this one.
func (d *decoder) first(s *scan, p *part, ac *huffman, block int) error {
	if s.run > 0 {
		s.run--
		return nil
	}
	stored := p.coefficients[block*(p.last+1):][:p.last+1]
	for k := s.start; k <= s.end; k++ {
		e, v, err := d.code(ac, 1)
		if err != nil {
			return err
		}
		if e&noValue != 0 && e.run() < 15 {
			// EOBn: the next 2^n - 1 blocks, and as many more as n bits say, have no more
			// coefficients.
			s.run = 1<<e.run() - 1 + int(d.take(uint(e.run())))
			return nil
		}
		k += e.run()
		if e&noValue != 0 {
			continue
		}
		if k > s.end {
			return errMany
		}
		// Scans that refine have bits for all that are present, stored or not.
		p.present[block] |= 1 << k
		if k <= p.last {
			stored[k] = int16(v << s.low)
		}
	}
	return nil
}

// refine decodes a further bit of a block's coefficients (T.81, G.1.2.3). A code's zeros count
// absent coefficients alone; behind each that is present lies its bit. A coefficient that becomes
// present is 2^Al or -2^Al. The sign of a new coefficient comes with it, and bits of old ones have
// none.
func (d *decoder) refine(s *scan, p *part, ac *huffman, block int) error {
	stored := p.coefficients[block*(p.last+1):][:p.last+1]
	k := s.start
	for s.run == 0 && k <= s.end {
		e, v, err := d.code(ac, 1)
		if err != nil {
			return err
		}
		zeros := e.run()
		if e&noValue != 0 && zeros < 15 {
			s.run = 1<<zeros + int(d.take(uint(zeros)))
			break
		}
		if v != 0 && v != 1 && v != -1 {
			return errors.New("its pixels are corrupt: a coefficient is refined by " +
				"more than one bit")
		}
		k = d.pass(s, p, stored, block, k, zeros)
		if v != 0 {
			if k > s.end {
				return errMany
			}
			p.present[block] |= 1 << k
			if k <= p.last {
				stored[k] = int16(v << s.low)
			}
		}
		k++
	}
	if s.run > 0 {
		// A run of blocks has no new coefficients, and bits for those that are present.
		d.pass(s, p, stored, block, k, 64)
		s.run--
	}
	return nil
}

// pass refines the coefficients from k on that are present, and returns the number of the one
// behind as many that are not. zeros of 64 is more than a block has: all to the scan's end are
// refined.
func (d *decoder) pass(s *scan, p *part, stored []int16, block, k, zeros int) int {
	for {
		// gap is how many are absent before the next that is present, or before the scan's last.
		gap := min(mathbits.TrailingZeros64(p.present[block]>>k), s.end+1-k)
		if zeros < gap {
			return k + zeros
		}
		zeros -= gap
		if k += gap; k > s.end {
			return k
		}
		// Bits enlarge the amount, whichever its sign.
		if d.take(1) == 1 && k <= p.last {
			if stored[k] >= 0 {
				stored[k] += 1 << s.low
			} else {
				stored[k] -= 1 << s.low
			}
		}
		if k++; k > s.end {
			return k
		}
	}
}

// restore turns the coefficients of a progressive file into samples. Blocks outside of the part are
// passed over. The memory of the coefficients is given up. It is one inverse DCT a block, when all
// scans have been read.
func (d *decoder) restore(p *part) error {
	for y := p.shown.Min.Y; y < p.shown.Max.Y; y++ {
		for x := p.shown.Min.X; x < p.shown.Max.X; x++ {
			stored := p.coefficients[(y*p.across+x)*(p.last+1):][:p.last+1]
			top := 0
			for k, v := range stored {
				if v != 0 {
					at := zigzag[k]
					d.block[at] = int32(v) * p.quantizer[at]
					top = k
				}
			}
			d.transform(p, top, x, y)
		}
		if err := d.ctx.Err(); err != nil {
			return err
		}
	}
	p.coefficients, p.present = nil, nil
	return nil
}

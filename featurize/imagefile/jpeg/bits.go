package jpeg

import (
	"bytes"
	"encoding/binary"
)

const (
	window = 1 << 15 // bytes of a scan that are held at once
	// slack is more than a block has: 64 codes of 16 bits with values of 16.
	slack = 512
)

// bits reads the bits of a scan, up to the next marker. buf holds the bytes without those that are
// stuffed, and zeros behind the last. It does not copy the file. Reading past the end gives zeros,
// and [bits.over] tells.
type bits struct {
	acc  uint64 // bits not yet read, from the highest on
	n    uint   // how many of them are certain
	at   int    // the next byte of buf
	size int    // bytes in buf
	buf  [window + 2*slack]byte

	data  []byte // the file
	next  int    // its next byte
	ended bool   // the scan's data are all in buf
}

// begin begins to read at an offset of the file. Bits of an earlier scan are dropped.
func (b *bits) begin(at int) {
	b.acc, b.n, b.at, b.size, b.next, b.ended = 0, 0, 0, 0, at, false
	b.fill()
}

// fill gets more of the scan, without the zero behind each 0xff (T.81, B.1.1.5). Zeros follow the
// last byte. A marker ends the data, and so does the end of the file. next is then the place of the
// marker.
func (b *bits) fill() {
	if b.ended {
		return
	}
	b.size = copy(b.buf[:], b.buf[b.at:b.size])
	b.at = 0
	for b.size < window {
		rest := b.data[b.next:min(len(b.data), b.next+window-b.size)]
		i := bytes.IndexByte(rest, 0xff)
		if i < 0 {
			i = len(rest)
		}
		b.size += copy(b.buf[b.size:], rest[:i])
		b.next += i
		if i < len(rest) && b.next+1 < len(b.data) && b.data[b.next+1] == 0 {
			b.buf[b.size] = 0xff
			b.size++
			b.next += 2
		} else if i < len(rest) || b.next == len(b.data) {
			b.ended = true
			clear(b.buf[b.size:][:2*slack])
			return
		}
	}
	clear(b.buf[b.size:][:slack])
}

// ready gets the bytes of a whole block. It must be called before each block, since codes within a
// block are read without a check.
func (b *bits) ready() {
	if b.size-b.at < slack {
		b.fill()
	}
}

// over reports whether more bits were read than there are. Zeros behind the end are read in their
// place, so that one test a block is enough.
func (b *bits) over() bool { return 8*b.at-int(b.n) > 8*b.size }

// more gets at least 56 bits. Eight bytes are or-ed below the n certain bits. Of these, (63-n)/8
// whole bytes fit, after which n|56 bits are certain. Bits below them are or-ed again by the next
// call, with equal ones.
func (b *bits) more() {
	b.acc |= binary.BigEndian.Uint64(b.buf[b.at:]) >> (b.n & 63)
	b.at += int(63-b.n) >> 3
	b.n |= 56
}

// take reads up to 16 bits. They are the value's, the first read highest. n is at most 16, as no
// value has more bits.
func (b *bits) take(n uint) uint64 {
	if n == 0 {
		return 0
	}
	if b.n < n {
		b.more()
	}
	v := b.acc >> ((64 - n) & 63)
	b.acc <<= n & 63
	b.n -= n
	return v
}

// code reads a code and its value, if it has one. class is 0 for DC and 1 for AC, as in [huffman].
// An error is a code that the table has not. A value without bits is 0, or the entry's own.
func (b *bits) code(h *huffman, class int) (e entry, value int32, err error) {
	if b.n < 32 {
		b.more()
	}
	e = h.look[b.acc>>(64-lookBits)]
	if e == 0 {
		if e, err = h.long(b.acc, class); err != nil {
			return 0, 0, err
		}
	}
	b.acc <<= e.length() & 63
	b.n -= e.length()
	if size := e.size(); size > 0 {
		return e, extend(b.take(size), size), nil
	}
	return e, e.value(), nil
}

package jpeg

import "errors"

const (
	lookBits = 10 // bits by which codes are looked up, and values with them
	skipBits = 12 // bits by which several codes are skipped at once
)

// An entry of a table: bits 0 to 4 are the length of a code, with its value's where the entry holds
// that; bits 5 to 8 the run of zeros before the value; bits 9 to 12 the bits of a value that follow
// the code; bit 13 says that there is no value; the upper half is the value.
type entry uint32

const noValue entry = 1 << 13

func (e entry) length() uint { return uint(e & 31) }
func (e entry) run() int     { return int(e >> 5 & 15) }
func (e entry) size() uint   { return uint(e >> 9 & 15) }
func (e entry) value() int32 { return int32(e) >> 16 }

// A skip is codes and their values that fit in skipBits: bits 0 to 4 are their bits, and the others
// the coefficients that they pass. The end of a block counts as passing ends; where no code fits,
// or the codes pass more than a block, none is passed and ends+64 is said.
type skip uint16

const ends = 128

func (s skip) length() uint { return uint(s & 31) }
func (s skip) passed() int  { return int(s >> 5) }

// huffman is a table of codes (T.81, annexes C and F).
type huffman struct {
	look    [1 << lookBits]entry
	skips   *[1 << skipBits]skip // made where skipped says so
	skipped bool
	symbols [256]byte
	// last[l] is the largest code of l bits, aligned to 16 bits, plus one; first[l] takes a code to
	// its symbol's place.
	last  [18]int32
	first [17]int32
}

var (
	errTable = errors.New("a table of codes is corrupt")
	errCode  = errors.New("its pixels are corrupt: a code is in no table")
)

// set makes the table of the number of codes of each length and their symbols, which are sizes of
// differences where the class is 0. Codes of a length follow each other; the first of l+1 bits is
// twice the one behind the last of l (T.81, annex C). Counts that no prefix code has, and DC sizes
// above 15, are errors.
func (h *huffman) set(counts []byte, symbols []byte, class int) error {
	h.look, h.skipped = [1 << lookBits]entry{}, false
	copy(h.symbols[:], symbols)
	code, k := int32(0), 0
	for l := 1; l <= 16; l++ {
		h.first[l] = int32(k) - code
		for range counts[l-1] {
			if code >= 1<<l || class == 0 && symbols[k] > 15 {
				return errTable
			}
			if l <= lookBits {
				h.enter(code, l, h.symbols[k], class)
			}
			code++
			k++
		}
		h.last[l] = code << (16 - l)
		code <<= 1
	}
	// No 16 bits reach it: it ends the search of long.
	h.last[17] = 1 << 30
	return nil
}

// enter sets the entries that begin with a code of l bits. These are 2^(lookBits-l), one for each
// value of the bits that follow the code. The next lookBits bits of a
// scan find one of them.
func (h *huffman) enter(code int32, l int, symbol byte, class int) {
	from := int(code) << (lookBits - l)
	for i := range 1 << (lookBits - l) {
		h.look[from+i] = entryOf(symbol, l, class, uint(i), uint(lookBits-l))
	}
}

// entryOf returns the entry for a code of l bits, which rest of n bits follows. It holds the value
// as well where the value's bits are among the n.
func entryOf(symbol byte, l, class int, rest, n uint) entry {
	run, size := entry(symbol>>4), uint(symbol&15)
	if class == 0 {
		run, size = 0, uint(symbol)
	}
	e := entry(l) | run<<5
	switch {
	case size == 0 && class == 1:
		e |= noValue
	case size > n || size == 0:
		e |= entry(size) << 9
	default:
		e += entry(size) | entry(uint16(extend(uint64(rest>>(n-size)), size)))<<16
	}
	return e
}

// extend returns the value of bits of a size (T.81, F.2.2.1). It is b where the first of the s bits
// is 1, and b - 2^s + 1 where it is 0.
func extend(bits uint64, size uint) int32 {
	v := int32(bits)
	if v < 1<<(size-1) {
		v += -1<<size + 1
	}
	return v
}

// long finds a code of more than lookBits bits at the beginning of acc.
func (h *huffman) long(acc uint64, class int) (entry, error) {
	top := int32(acc >> 48)
	l := 1
	for top >= h.last[l] {
		l++
	}
	if l > 16 {
		return 0, errCode
	}
	// Code c of l bits has the symbol of number c + first[l].
	return entryOf(h.symbols[(top>>(16-l)+h.first[l])&255], l, class, 0, 0), nil
}

// skipping makes the table of codes that are skipped. It costs 2^skipBits entries of at most
// skipBits codes each, once for each table that is read.
func (h *huffman) skipping() {
	if h.skipped {
		return
	}
	if h.skipped = true; h.skips == nil {
		h.skips = new([1 << skipBits]skip)
	}
	for i := range h.skips {
		var s skip
		for used := uint(0); ; {
			e := h.look[i<<used&(1<<skipBits-1)>>(skipBits-lookBits)]
			n := e.length() + e.size()
			if e == 0 || used+n > skipBits {
				break
			}
			used += n
			s += skip(n)
			if e&noValue != 0 && e.run() < 15 {
				s += ends << 5
				break
			}
			// A block has 63 coefficients behind its first.
			if s.passed()+e.run() > 62 {
				s = 0
				break
			}
			s += skip(e.run()+1) << 5
		}
		if s == 0 {
			s = (ends + 64) << 5
		}
		h.skips[i] = s
	}
}

// Package imagefiletest makes hostile picture files for tests.
package imagefiletest

import "encoding/binary"

// Scans returns a grey progressive JPEG of w by h pixels in the given number of scans, of which all
// but the first take some 30 bytes and one visit to every block of the image. A decoder without a
// bound on scans takes scans times w h / 64 steps for a file of few bytes.
func Scans(w, h, scans int) []byte {
	out := []byte{0xff, 0xd8}
	segment := func(marker byte, body ...byte) {
		out = append(out, 0xff, marker)
		out = binary.BigEndian.AppendUint16(out, uint16(len(body)+2))
		out = append(out, body...)
	}
	segment(0xdb, append([]byte{0}, ones(64)...)...)
	segment(0xc2, 8, byte(h>>8), byte(h), byte(w>>8), byte(w), 1, 1, 0x11, 0)
	// Each table has one code, of one bit: no difference to the last block, and a run of 2^14 and
	// more blocks without coefficients.
	segment(0xc4, append(append([]byte{0x00, 1}, make([]byte, 15)...), 0)...)
	segment(0xc4, append(append([]byte{0x10, 1}, make([]byte, 15)...), 0xe0)...)
	blocks := (w + 7) / 8 * ((h + 7) / 8)
	segment(0xda, 1, 1, 0, 0, 0, 0)
	out = append(out, make([]byte, (blocks+7)/8)...)
	var data []byte
	var bits, n uint
	put := func(value, count uint) {
		for i := range count {
			bits = bits<<1 | value>>(count-1-i)&1
			if n++; n == 8 {
				if data = append(data, byte(bits)); byte(bits) == 0xff {
					data = append(data, 0)
				}
				bits, n = 0, 0
			}
		}
	}
	const run = 1<<15 - 1
	for left := blocks; left > 0; left -= run {
		put(run-1<<14, 15)
	}
	put(0xff, 8-n)
	for range scans - 1 {
		segment(0xda, 1, 1, 0, 1, 63, 0)
		out = append(out, data...)
	}
	return append(out, 0xff, 0xd9)
}

func ones(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 1
	}
	return b
}

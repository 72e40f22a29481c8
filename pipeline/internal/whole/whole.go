// Package whole adds numbers up exactly: as whole numbers of 128 bits in steps of 2^-40. Their sums
// do not depend on order and grouping, and differences undo them.
package whole

import (
	"encoding/binary"
	"hash"
	"math"
	"math/bits"
)

// Number is a whole number of 128 bits in two's complement, in steps of [Step].
type Number struct {
	High int64
	Low  uint64
}

const (
	// Bytes is the size of a number in a message.
	Bytes = 16
	// Step is the unit: a number of size 1 is rounded by less than 5e-13.
	Step = 1.0 / (1 << 40)
)

// Round rounds a number to steps; its size is at most 2^86. Beyond that the upper half overflows,
// so that callers bound their numbers first.
func Round(v float64) Number {
	size := math.RoundToEven(math.Abs(v) / Step)
	const top = 1 << 64
	high := math.Floor(size / top)
	w := Number{int64(high), uint64(size - high*top)} // both exact, as size has 53 bits
	if v < 0 {
		return w.Negative()
	}
	return w
}

// Negative returns the opposite.
func (w Number) Negative() Number {
	low, borrow := bits.Sub64(0, w.Low, 0)
	return Number{-w.High - int64(borrow), low}
}

// Add adds a number. Sums wrap around at 2^127 steps; bounds on clients and numbers keep them
// below.
func (w *Number) Add(v Number) {
	low, carry := bits.Add64(w.Low, v.Low, 0)
	w.Low = low
	w.High += v.High + int64(carry)
}

// Sub subtracts a number.
func (w *Number) Sub(v Number) { w.Add(v.Negative()) }

// Float returns the number, but for the rounding of its lower half. It is within 1e-15 of the
// number, relative to it.
func (w Number) Float() float64 {
	// The lower half of a small negative number has no bits to lose; the smallest number has no
	// opposite.
	if w.High < 0 && w.High > math.MinInt64 {
		return -w.Negative().Float()
	}
	return (float64(w.High)*(1<<64) + float64(w.Low)) * Step
}

// Append writes numbers, each of Bytes bytes, little-endian.
func Append(to []byte, numbers []Number) []byte {
	for _, w := range numbers {
		to = binary.LittleEndian.AppendUint64(to, w.Low)
		to = binary.LittleEndian.AppendUint64(to, uint64(w.High))
	}
	return to
}

// Read reads the numbers that Append wrote.
func Read(from []byte) []Number {
	out := make([]Number, len(from)/Bytes)
	for i := range out {
		b := from[i*Bytes:]
		out[i] = Number{int64(binary.LittleEndian.Uint64(b[8:])), binary.LittleEndian.Uint64(b)}
	}
	return out
}

// Hash hashes numbers as little-endian uint64, as checksums of messages do.
func Hash(h hash.Hash, values ...uint64) {
	for _, v := range values {
		h.Write(binary.LittleEndian.AppendUint64(nil, v))
	}
}

// HashText hashes bytes after their length.
func HashText(h hash.Hash, b []byte) {
	Hash(h, uint64(len(b)))
	h.Write(b)
}

package merge

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// whole is a whole number of 128 bits in two's complement: sums of these do not depend on their order.
type whole struct {
	high int64
	low  uint64
}

// wholeBytes is the size of a whole in a message.
const wholeBytes = 16

// step is the unit of sums, 2^-40: a number of size 1 is rounded by less than 5e-13.
const step = 1.0 / (1 << 40)

// toWhole rounds a number to steps; its size is at most 2^86.
func toWhole(v float64) whole {
	size := math.RoundToEven(math.Abs(v) / step)
	const top = 1 << 64
	high := math.Floor(size / top)
	w := whole{int64(high), uint64(size - high*top)} // both exact, as size has 53 bits
	if v < 0 {
		return w.negative()
	}
	return w
}

func (w whole) negative() whole {
	low, borrow := bits.Sub64(0, w.low, 0)
	return whole{-w.high - int64(borrow), low}
}

func (w *whole) add(v whole) {
	low, carry := bits.Add64(w.low, v.low, 0)
	w.low = low
	w.high += v.high + int64(carry)
}

// float returns the sum as a number, but for the rounding of its lower half.
func (w whole) float() float64 {
	// The lower half of a small negative number has no bits to lose; the smallest number has no opposite.
	if w.high < 0 && w.high > math.MinInt64 {
		return -w.negative().float()
	}
	return (float64(w.high)*(1<<64) + float64(w.low)) * step
}

func appendWholes(to []byte, sums []whole) []byte {
	for _, w := range sums {
		to = binary.LittleEndian.AppendUint64(to, w.low)
		to = binary.LittleEndian.AppendUint64(to, uint64(w.high))
	}
	return to
}

func wholes(from []byte) []whole {
	out := make([]whole, len(from)/wholeBytes)
	for i := range out {
		b := from[i*wholeBytes:]
		out[i] = whole{int64(binary.LittleEndian.Uint64(b[8:])), binary.LittleEndian.Uint64(b)}
	}
	return out
}

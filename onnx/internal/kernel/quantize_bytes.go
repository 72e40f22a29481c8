package kernel

import "fmp/onnx"

// run is how many numbers in a row of a tensor have one scale: all of them, or those behind one
// position of the axis. It is 0 where scales are of blocks, or there is nothing. Shapes that do not
// fit are left to the general way, which reports them.
func (q quantization) run(x, scale *onnx.Tensor) int {
	switch {
	case q.block != 0:
		return 0
	case scale.Len() == 1:
		return x.Len()
	}
	ax, err := axisOf(q.axis, len(x.Shape))
	if err != nil {
		return 0
	}
	return product(x.Shape[ax+1:])
}

// toBytes quantises float32 to bytes, to the same values as the general way and in a tenth of its
// time; false where types are others, or a number is none. A part of out may be written where it
// returns false, and the general way writes it again.
func (q quantization) toBytes(out, x, scale *onnx.Tensor, zero func(k int) float64) bool {
	in, ok := x.Data.([]float32)
	scales, real := scale.Data.([]float32)
	run := q.run(x, scale)
	if !ok || !real || run == 0 {
		return false
	}
	lo, hi := limits(out.DType)
	switch o := out.Data.(type) {
	case []uint8:
		return out.DType == onnx.Uint8 && toByte(o, in, scales, run, zero, lo, hi)
	case []int8:
		return out.DType == onnx.Int8 && toByte(o, in, scales, run, zero, lo, hi)
	}
	return false
}

// toByte rounds half to even by adding 1.5 2^23, beyond which a float32 has no fraction. A number
// is held to the bounds before, which are whole, so that the result is that of saturation after.
// QuantizeLinear of the ONNX operators is y = saturate(round(x / scale) + zero point).
func toByte[T uint8 | int8](out []T, in, scales []float32, run int, zero func(k int) float64, lo,
	hi float64) bool {
	const whole = 3 << 22
	for row := 0; row*run < len(in); row++ {
		// Rows take the scales in turn: one for each position of the axis, over and over.
		k := row % len(scales)
		scale, z := scales[k], zero(k)
		// The bounds are those of the quotient, before the zero point is added.
		least, most, add := float32(lo-z), float32(hi-z), int32(z)
		to := out[row*run:][:run]
		for i, v := range in[row*run:][:run] {
			r := v / scale
			switch {
			case r > most:
				r = most
			case r >= least:
			case r < least:
				r = least
			default: // no number
				return false
			}
			// From 2^23 to 2^24 neighbouring float32 lie 1 apart, so that the sum itself rounds.
			r += whole
			to[i] = T(int32(r-whole) + add)
		}
	}
	return true
}

// fromBytes gives the numbers that bytes stand for, by a table of all 256; false where types are
// others. A difference of bytes times a float32 is exact in float64, so that one rounding is left.
func (q quantization) fromBytes(out []float32, x, scale *onnx.Tensor,
	zero func(k int) float64) bool {
	scales, real := scale.Data.([]float32)
	run := q.run(x, scale)
	if !real || run == 0 {
		return false
	}
	switch in := x.Data.(type) {
	case []uint8:
		return x.DType == onnx.Uint8 && fromByte(out, in, scales, run, zero)
	case []int8:
		return x.DType == onnx.Int8 && fromByte(out, in, scales, run, zero)
	}
	return false
}

// fromByte makes the table once for each run. DequantizeLinear of the ONNX operators is y = (x -
// zero point) scale. The table takes 1 KiB of the stack.
func fromByte[T uint8 | int8](out []float32, in []T, scales []float32, run int,
	zero func(k int) float64) bool {
	if run < 256 && len(scales) > 1 {
		return false // a table takes longer
	}
	var table [256]float32
	for row := 0; row*run < len(in); row++ {
		k := row % len(scales)
		z, scale := zero(k), float64(scales[k])
		for b := range table {
			table[b] = float32((float64(T(b)) - z) * scale)
		}
		to := out[row*run:]
		for i, v := range in[row*run : (row+1)*run] {
			to[i] = table[uint8(v)]
		}
	}
	return true
}

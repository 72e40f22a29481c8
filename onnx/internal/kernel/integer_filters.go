package kernel

import (
	"unsafe"

	"fmp/onnx"
)

// constants keeps the weights, and their layout for products, where they are known and there is
// room. weights and zero are places among the node's inputs. Without constants each call lays its
// weights out anew.
func (v *integerConv) constants(s *Spec, weights, zero int) {
	w := s.constant(weights)
	if w == nil || len(w.Shape) < 2 || s.has(zero) && s.constant(zero) == nil ||
		s.Keep != nil && !s.Keep(float64(w.Len())*dotFilters) {
		return
	}
	v.weights, v.zero = w, s.constant(zero)
}

// byteFilters are weights less their zero point.
type byteFilters struct {
	// by group: [panels of filters, quads of channels and taps, across, 4] of dotBytes
	panels []int8
	// of one channel a group: [channels, lines of the window, columns / 4, 4] of depthBytes
	depth []int8
	sums  []int32 // of the weights of a filter, by group in whole panels
}

// bytesOf returns the bytes of a tensor, and the bits to flip in them so that they are unsigned.
// The bytes are the tensor's own memory. Flipping the highest bit of a signed byte adds 128.
func bytesOf(t *onnx.Tensor) (b []uint8, flip uint8) {
	if v, ok := t.Data.([]int8); ok {
		if len(v) == 0 {
			return nil, 128
		}
		return unsafe.Slice((*uint8)(unsafe.Pointer(&v[0])), len(v)), 128
	}
	return data[uint8](t), 0
}

// withoutZero returns the weights less their zero points, or nil where one of them is no signed
// byte. A difference of bytes has nine bits, of which signed bytes hold eight. zero has one element
// for all weights, or one for each filter.
func withoutZero(w, zero *onnx.Tensor) []int8 {
	b, flip := bytesOf(w)
	q := quantum{zero: int32(flip), flip: flip}
	out := make([]int8, len(b))
	per := len(b)
	if zero != nil && zero.Len() > 1 {
		per = len(b) / zero.Len()
	}
	for i, v := range b {
		d := int32(v^flip) - q.zero
		if zero != nil {
			d -= int32(zero.At(i / per))
		}
		if d != int32(int8(d)) {
			return nil
		}
		out[i] = int8(d)
	}
	return out
}

// filters returns the weights as products read them; nil where they are no signed bytes. Kept
// weights are laid out at the first call, once for all goroutines. It may be called from several
// goroutines.
func (v *integerConv) filters(w, zero *onnx.Tensor) *byteFilters {
	if w == nil {
		return nil
	}
	if v.weights == nil {
		return v.pack(w, zero)
	}
	v.once.Do(func() { v.kept = v.pack(v.weights, v.zero) })
	return v.kept
}

// pack lays out weights; nil where products cannot go over them, which are of one or two spatial
// axes. Channels are filled up to four and filters to whole panels, with weights of zeros. It takes
// O(weights), filled up as said, and new memory of that size.
func (v *integerConv) pack(w, zero *onnx.Tensor) *byteFilters {
	if v.columns {
		shape := []int{w.Shape[1], w.Shape[0], 1}
		w = &onnx.Tensor{DType: w.DType, Shape: shape, Data: transposed(w.Data, shape[1], shape[0])}
	}
	if w.Len() == 0 || len(w.Shape) > 4 || w.Shape[0]%v.group != 0 ||
		zero != nil && zero.Len() != 1 && zero.Len() != w.Shape[0] {
		return nil
	}
	d := withoutZero(w, zero)
	if d == nil {
		return nil
	}
	og, channels, taps := w.Shape[0]/v.group, w.Shape[1], product(w.Shape[2:])
	across := v.across()
	high := (og + across - 1) / across * across
	f := &byteFilters{sums: make([]int32, v.group*high)}
	for co := range w.Shape[0] {
		for _, x := range d[co*channels*taps : (co+1)*channels*taps] {
			f.sums[co/og*high+co%og] += int32(x)
		}
	}
	if channels == 1 && og == 1 && !v.matrix {
		wide := w.Shape[len(w.Shape)-1]
		fours := (wide + 3) / 4
		f.depth = make([]int8, w.Shape[0]*taps/wide*fours*4)
		for line := range w.Shape[0] * taps / wide {
			copy(f.depth[line*fours*4:], d[line*wide:(line+1)*wide])
		}
		f.depth = weightsOf(depthBytes(), f.depth)
		return f
	}
	steps := (channels + 3) / 4 * taps
	f.panels = make([]int8, v.group*high*steps*4)
	for co := range w.Shape[0] {
		g, r := co/og, co%og
		panel := f.panels[(g*high+r/across*across)*steps*4:]
		for c := range channels {
			for t := range taps {
				panel[((c/4*taps+t)*across+r%across)*4+c%4] = d[(co*channels+c)*taps+t]
			}
		}
	}
	f.panels = weightsOf(dotBytes(), f.panels)
	return f
}

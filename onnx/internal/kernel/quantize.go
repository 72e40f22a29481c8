package kernel

import (
	"fmt"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Quantisation to and from 8-bit integers, and products of quantised tensors:
//
//	QuantizeLinear:   y = saturate(round(x / scale) + zero), rounding half to even
//	DequantizeLinear: x = (y - zero) scale
//
// scale and zero are scalars or one for each position on axis (default 1). MatMulInteger and
// ConvInteger give the int32 product of the differences from the zero points; QLinearMatMul
// quantises it again.
func init() {
	register(
		Def{Op: "QuantizeLinear", Since: 10, Until: 18, OutType: quantizedType, New: newQuantize},
		Def{Op: "QuantizeLinear", Since: 19, Half: true, OutType: quantizedType, New: newQuantize},
		Def{Op: "DequantizeLinear", Since: 10, Half: true, OutType: dequantizedType,
			New: newDequantize},
		Def{Op: "DynamicQuantizeLinear", Since: 11, New: newDynamicQuantize},
		Def{Op: "MatMulInteger", Since: 10, New: newMatMulInteger},
		Def{Op: "ConvInteger", Since: 10, New: newConvInteger},
		Def{Op: "QLinearMatMul", Since: 10, New: newQLinearMatMul},
		Def{Op: "QLinearConv", Since: 10, New: newQLinearConv},
	)
}

// quantizedType is the type of quantised values where no zero point gives it: output_dtype, else
// uint8.
func quantizedType(s *Spec) (onnx.DType, error) {
	if s.Opset >= 21 && s.int("output_dtype") != 0 {
		return s.dtype("output_dtype"), nil
	}
	return onnx.Uint8, nil
}

// dequantizedType is output_dtype, else the type of the scale.
func dequantizedType(s *Spec) (onnx.DType, error) {
	if d := s.dtype("output_dtype"); d != onnx.Undefined {
		return d, nil
	}
	return s.In[1], nil
}

// channel finds, for element i of a tensor, its entry in a scale or zero point. The parameter is
// one number, or one for each position on the axis; all other shapes end the kernel.
func channel(shape, param []int, axis int) func(i int) int {
	return blockwise(shape, param, axis, 0)
}

// blockwise is channel for parameters that, with block > 0, are of the tensor's shape but for axis,
// where one holds for block positions. The last block of an axis may be shorter. i counts elements
// in row-major order.
func blockwise(shape, param []int, axis, block int) func(i int) int {
	if product(param) == 1 && block == 0 {
		return func(int) int { return 0 }
	}
	ax := try.Get(axisOf(axis, len(shape)))
	inner := product(shape[ax+1:])
	if block == 0 {
		if len(param) != 1 || param[0] != shape[ax] {
			try.Fail("a scale of shape %v for axis %d of shape %v", param, ax, shape)
		}
		return func(i int) int { return i / inner % shape[ax] }
	}
	want := slices.Clone(shape)
	want[ax] = (shape[ax]-1)/block + 1
	if block < 0 || !slices.Equal(param, want) {
		try.Fail("a scale of shape %v for blocks of %d on axis %d of shape %v", param, block, ax,
			shape)
	}
	n, blocks := shape[ax], want[ax]
	return func(i int) int {
		row := i / inner
		return (row/n*blocks+row%n/block)*inner + i%inner
	}
}

// bounds of an integer type.
//
// limits are the least and the greatest number of the type; Uint8's for a type that is not named.
func limits(d onnx.DType) (lo, hi float64) {
	switch d {
	case onnx.Int8:
		return math.MinInt8, math.MaxInt8
	case onnx.Int16:
		return math.MinInt16, math.MaxInt16
	case onnx.Uint16:
		return 0, math.MaxUint16
	case onnx.Int4:
		return -8, 7
	case onnx.Uint4:
		return 0, 15
	case onnx.Int2:
		return -2, 1
	case onnx.Uint2:
		return 0, 3
	}
	return 0, math.MaxUint8
}

// quantized writes whole numbers, saturated to the type. v(i) is already rounded.
func quantized(out *onnx.Tensor, v func(i int) float64) {
	lo, hi := limits(out.DType)
	castEach(out, func(i int) float64 { return min(max(v(i), lo), hi) })
}

// quantization holds the attributes that QuantizeLinear and DequantizeLinear share.
type quantization struct{ axis, block int }

// newQuantization: the axis is 1 before operator set 13, and blocks come with 21.
func newQuantization(s *Spec) (q quantization) {
	q.axis = 1
	if s.Opset >= 13 {
		q.axis = s.int("axis")
	}
	if s.Opset >= 21 {
		q.block = s.int("block_size")
	}
	s.ignore("output_dtype", "precision")
	return q
}

// at finds the parameter of element i, and its zero point. The zero point must have as many
// elements as the scale; left out it is 0.
func (q quantization) at(x, scale,
	zero *onnx.Tensor) (at func(i int) int, zeroAt func(k int) float64) {
	at = blockwise(x.Shape, scale.Shape, q.axis, q.block)
	if zero == nil {
		return at, func(int) float64 { return 0 }
	}
	if zero.Len() != scale.Len() {
		try.Fail("scale has %d elements and the zero point %d", scale.Len(), zero.Len())
	}
	return at, zero.At
}

// newQuantize divides in float32, and rounds the ratio before the zero point is added. Floats of 8
// bits and less are rounded once, with the zero point in the sum.
func newQuantize(s *Spec) (Kernel, error) {
	q, saturate := newQuantization(s), true
	if s.Opset >= 19 {
		saturate = s.bool("saturate")
	}
	d := s.Out[0]
	if s.has(2) && s.Opset >= 21 && s.int("output_dtype") != 0 && s.dtype("output_dtype") != d {
		return nil, fmt.Errorf("output_dtype and the zero point are of different types")
	}
	return func(c *Call) error {
		x, scale := c.In[0], c.In[1]
		at, zero := q.at(x, scale, c.in(2))
		out := try.Get(c.New(0, d, x.Shape))
		if q.toBytes(out, x, scale, zero) {
			return nil
		}
		ratio := func(i, k int) float32 { return float32(x.At(i)) / float32(scale.At(k)) }
		if d.IsNarrowFloat() {
			code, o := onnx.Float32ToNarrow(d, saturate), data[uint8](out)
			for i := range o {
				k := at(i)
				o[i] = code(ratio(i, k) + float32(zero(k)))
			}
			return nil
		}
		quantized(out, func(i int) float64 {
			k := at(i)
			return math.RoundToEven(float64(ratio(i, k))) + zero(k)
		})
		return nil
	}, nil
}

// newDequantize multiplies in float64 and rounds once to float32.
func newDequantize(s *Spec) (Kernel, error) {
	q := newQuantization(s)
	return func(c *Call) error {
		x, scale := c.In[0], c.In[1]
		at, zero := q.at(x, scale, c.in(2))
		out := try.Get(c.New(0, onnx.Float32, x.Shape))
		o := out.F32()
		if q.fromBytes(o, x, scale, zero) {
			return nil
		}
		for i := range o {
			k := at(i)
			o[i] = float32((x.At(i) - zero(k)) * scale.At(k))
		}
		return nil
	}, nil
}

// DynamicQuantizeLinear: scale = (max(x, 0) - min(x, 0)) / 255, zero = saturate(round(-min /
// scale)). The range always holds 0, so that padding is exact.
func newDynamicQuantize(*Spec) (Kernel, error) {
	return func(c *Call) error {
		x := c.In[0].F32()
		var lo, hi float32
		for _, v := range x {
			lo, hi = min(lo, v), max(hi, v)
		}
		scale := (hi - lo) / 255
		if scale == 0 {
			scale = 1 // of zeros alone; so does the ONNX Runtime
		}
		zero := min(max(math.RoundToEven(float64(-lo/scale)), 0), 255)
		y := try.Get(c.New(0, onnx.Uint8, c.In[0].Shape))
		quantized(y, func(i int) float64 {
			return math.RoundToEven(float64(x[i]/scale)) + zero
		})
		s := try.Get(c.New(1, onnx.Float32, nil))
		s.F32()[0] = scale
		z := try.Get(c.New(2, onnx.Uint8, nil))
		z.U8()[0] = uint8(zero)
		return nil
	}, nil
}

// above is a tensor less its zero point (scalar, or one for each position on axis), as float64:
// whole and exact. Its memory is the call's, eight times that of bytes.
func above(c *Call, t, zero *onnx.Tensor, axis int) *onnx.Tensor {
	out := &onnx.Tensor{DType: onnx.Float64, Shape: t.Shape, Data: scratch[float64](c, t.Len())}
	castInto(out, t)
	if zero == nil {
		return out
	}
	at := channel(t.Shape, zero.Shape, axis)
	for i := range out.F64() {
		out.F64()[i] -= zero.At(at(i))
	}
	return out
}

// exactly runs a float64 kernel on the differences to the zero points; 8-bit products stay whole
// below 2^53. A product of two differences is below 2^16, hence 2^37 of them are added without
// rounding. The result's memory is the call's.
func exactly(c *Call, k Kernel, a, b *onnx.Tensor) *onnx.Tensor {
	sub := NewCall(c.env, 2, 1)
	sub.In[0], sub.In[1], sub.Want[0] = a, b, true
	defer func() {
		sub.free()
		if r := sub.Out[0]; r != nil {
			c.scratch = append(c.scratch, r.Data)
		}
	}()
	try.Do(k(sub))
	return sub.Out[0]
}

// intProduct is a product of inputs 0 and 1 less their zero points, in int32; axisA and axisB are
// those of zero points of several numbers. Sums beyond int32 become its bounds.
func intProduct(c *Call, k Kernel, za, zb *onnx.Tensor, axisA, axisB int) error {
	r := exactly(c, k, above(c, c.In[0], za, axisA), above(c, c.In[1], zb, axisB))
	out := try.Get(c.New(0, onnx.Int32, r.Shape))
	castInto(out, r)
	return nil
}

// newMatMulInteger takes zero points by row of a and by column of b.
func newMatMulInteger(*Spec) (Kernel, error) {
	return func(c *Call) error {
		return intProduct(c, matMulFloat[float64](nil, &lines{}), c.in(2),
			c.in(3), -2, -1)
	}, nil
}

// newConvInteger pads with zeros after the zero point is taken away, which is x's zero point
// before.
func newConvInteger(s *Spec) (Kernel, error) {
	w, group := newGroups(s)
	k := convOf[float64](w, group, nil, nil)
	return func(c *Call) error { return intProduct(c, k, c.in(2), c.in(3), 1, 0) }, nil
}

// stepOf returns how many quanta of the output one of the product is, by entry of the scale of
// input w; x is the other side's.
func stepOf(c *Call, x, w int) func(k int) float32 {
	out, from, scales := float32(c.In[6].At(0)), float32(c.In[x].At(0)), c.In[w]
	if s, ok := scales.Data.([]float32); ok {
		return func(k int) float32 { return float32(from*s[k]) / out }
	}
	return func(k int) float32 { return float32(from*float32(scales.At(k))) / out }
}

// QLinearConv: y = saturate(round((conv(x, w) + B) scale_x scale_w / scale_y) + zero_y), where
// scale_w and its zero point are scalars or one a channel of the result, and B is int32. Its inputs
// are x, scale_x, zero_x, w, scale_w, zero_w, scale_y, zero_y and B. Scales are multiplied and
// divided in float32, as stepOf has it.
func newQLinearConv(s *Spec) (Kernel, error) {
	w, group := newGroups(s)
	k, d := convOf[float64](w, group, nil, nil), s.Out[0]
	return func(c *Call) error {
		for _, i := range []int{1, 2, 6, 7} {
			if c.In[i].Len() != 1 {
				return fmt.Errorf("input %d has shape %v where a scalar is expected", i,
					c.In[i].Shape)
			}
		}
		r := exactly(c, k, above(c, c.In[0], c.In[2], 0), above(c, c.In[3], c.In[5], 0))
		channel := channel(r.Shape, c.In[4].Shape, 1)
		plane, bias := max(product(r.Shape[2:]), 1), c.in(8)
		if bias != nil && bias.Len() != r.Shape[1] {
			return fmt.Errorf("a bias of %d numbers for %d channels", bias.Len(), r.Shape[1])
		}
		out := try.Get(c.New(0, d, r.Shape))
		factor, zero := stepOf(c, 1, 4), c.In[7].At(0)
		quantized(out, func(i int) float64 {
			v := r.F64()[i]
			if bias != nil {
				v += bias.At(i / plane % r.Shape[1])
			}
			return math.RoundToEven(float64(float32(v)*factor(channel(i)))) + zero
		})
		return nil
	}, nil
}

// QLinearMatMul: y = saturate(round(a b · scale_a scale_b / scale_y) + zero_y), where scale_a and
// its zero point are scalars or one a row of a, scale_b and its one a column of b. Its inputs are
// a, scale_a, zero_a, b, scale_b, zero_b, scale_y and zero_y.
func newQLinearMatMul(s *Spec) (Kernel, error) {
	d := s.Out[0]
	if !bytes.Has(d) {
		return nil, fmt.Errorf("output of element type %v is not supported", d)
	}
	return func(c *Call) error {
		for i, t := range c.In {
			one := i > 5 || i < 3 && len(c.In[0].Shape) < 2 || i > 3 && len(c.In[3].Shape) < 2
			if i != 0 && i != 3 && one && t.Len() != 1 {
				return fmt.Errorf("input %d has shape %v where a scalar is expected", i, t.Shape)
			}
		}
		r := exactly(c, matMulFloat[float64](nil, &lines{}), above(c, c.In[0], c.In[2], -2),
			above(c, c.In[3], c.In[5], -1))
		row, column := channel(r.Shape, c.In[1].Shape, -2), channel(r.Shape, c.In[4].Shape, -1)
		out := try.Get(c.New(0, d, r.Shape))
		zero, step := c.In[7].At(0), float32(c.In[6].At(0))
		quantized(out, func(i int) float64 {
			factor := float32(float32(c.In[1].At(row(i)))*float32(c.In[4].At(column(i)))) / step
			return math.RoundToEven(float64(float32(r.F64()[i])*factor)) + zero
		})
		return nil
	}, nil
}

package onnx

import (
	"fmt"
	"math"
)

// HalfToFloat32 is the value of a Float16 (IEEE 754 binary16) or BFloat16 element, exactly; for other types
// it is not a number.
func HalfToFloat32(d DType, bits uint16) float32 {
	switch d {
	case BFloat16:
		return math.Float32frombits(uint32(bits) << 16)
	case Float16:
		sign, exp, frac := uint32(bits>>15)<<31, uint32(bits>>10)&0x1f, uint32(bits)&0x3ff
		switch exp {
		case 0: // zero and subnormals: frac times 2^-24
			v := float32(frac) / (1 << 24)
			return math.Float32frombits(math.Float32bits(v) | sign)
		case 0x1f: // infinity and NaN
			return math.Float32frombits(sign | 0x7f800000 | frac<<13)
		}
		return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
	}
	return float32(math.NaN())
}

// Float32ToFloat16 is the Float16 (IEEE 754 binary16) nearest to v, the even one of two that are equally near;
// what is beyond 65504 after rounding becomes infinity.
func Float32ToFloat16(v float32) uint16 {
	bits := math.Float32bits(v)
	sign, mag := uint16(bits>>16)&0x8000, bits&0x7fffffff
	switch {
	case mag > 0x7f800000:
		return sign | 0x7e00 // not a number
	case mag >= 0x477ff000:
		return sign | 0x7c00
	case mag < 0x38800000: // below 2^-14: a multiple of 2^-24
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(mag))*(1<<24)))
	}
	mag -= (127 - 15) << 23
	mag += 0xfff + mag>>13&1
	return sign | uint16(mag>>13)
}

// ToFloat32 turns a model of half precision into one of float32: initializers and constants are converted
// exactly, and inputs, outputs and casts of Float16 and BFloat16 become Float32, in subgraphs and functions
// too. It computes what the model does with less rounding. Other models stay as they are, and so does the
// model where an error is returned.
func ToFloat32(m *Model) error {
	c := Clone(m)
	graphToFloat32(c.Graph)
	for _, f := range c.Functions {
		nodesToFloat32(f.Nodes)
		for i := range f.Defaults {
			attrToFloat32(&f.Defaults[i], "")
		}
	}
	if err := Infer(c); err != nil {
		return fmt.Errorf("converting %q to float32: %w", m.Graph.Name, err)
	}
	*m = *c
	return nil
}

func isHalf(d DType) bool { return d == Float16 || d == BFloat16 }

func widened(t *Tensor) *Tensor {
	if t == nil || !isHalf(t.DType) {
		return t
	}
	bits, _ := t.Data.([]uint16)
	out := make([]float32, len(bits))
	for i, b := range bits {
		out[i] = HalfToFloat32(t.DType, b)
	}
	return &Tensor{DType: Float32, Shape: t.Shape, Data: out}
}

func graphToFloat32(g *Graph) {
	for name, t := range g.Initializers {
		g.Initializers[name] = widened(t)
	}
	for _, vs := range [][]ValueInfo{g.Inputs, g.Outputs, g.Values} {
		for i := range vs {
			if isHalf(vs[i].DType) {
				vs[i].DType = Float32
			}
		}
	}
	nodesToFloat32(g.Nodes)
}

func nodesToFloat32(nodes []*Node) {
	for _, n := range nodes {
		for i := range n.Attrs {
			attrToFloat32(&n.Attrs[i], n.Op)
		}
	}
}

func attrToFloat32(a *Attr, op string) {
	a.Tensor = widened(a.Tensor)
	for i, t := range a.Tensors {
		if isHalf(t.DType) {
			// The list is shared with the model that this one is a copy of.
			ts := append([]*Tensor{}, a.Tensors...)
			ts[i] = widened(t)
			a.Tensors = ts
		}
	}
	if a.Graph != nil {
		graphToFloat32(a.Graph)
	}
	for _, g := range a.Graphs {
		graphToFloat32(g)
	}
	// Attributes that name an element type.
	typed := a.Name == "to" && op == "Cast" || a.Name == "dtype" || a.Name == "output_datatype" || a.Name == "stash_type"
	if typed && a.Kind == AttrInt && isHalf(DTypeOf(a.Int)) {
		a.Int = int64(Float32)
	}
}

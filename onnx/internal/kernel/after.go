package kernel

import (
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// after is the work of a convolution on its output channel by channel, while that is in the cache:
// in this order a batch normalisation, v scale + shift, and bounds or a curve. The arithmetic is
// that of the operators themselves, to the bit but for the sign of a zero; in Winograd's tiles a
// channel's bias and shift are one, which may move the last bit.
type after struct {
	scale, shift []float32 // by channel; nil: none
	lo, hi       float32   // infinite: none
	curve        curve
	sum          bool // whether a tensor like the output is added, before the bounds
	ends         bool // whether there are bounds or a curve, behind which nothing more fits
}

// curve is a function of one number that ends the work on a convolution's output.
type curve int

const (
	bounds    curve = iota // min(max(x, lo), hi)
	hardSwish              // x min(max(x/6 + 1/2, 0), 1)
	logistic               // 1 / (1 + e^-x)
	swish                  // x / (1 + e^-x)
)

// newAfter returns the work of the nodes of s.After. It is nil where no node follows.
func newAfter(s *Spec) *after {
	if len(s.After) == 0 {
		return nil
	}
	a := &after{lo: float32(math.Inf(-1)), hi: float32(math.Inf(1))}
	for _, next := range s.After {
		a.add(next)
	}
	return a
}

// add puts the work of one more node behind that so far. CanFollow, CanSwish or CanSum took it
// before.
func (a *after) add(next *Spec) {
	switch next.Node.Op {
	case "Add":
		a.sum = true
	case "BatchNormalization":
		a.scale, a.shift = normalizing[float32](next.Const, next.float("epsilon"))
	case "Relu":
		a.lo, a.ends = 0, true
	case "Clip":
		// By the specification bounds default to the least and the greatest finite number.
		a.lo, a.hi = -math.MaxFloat32, math.MaxFloat32 // where a bound is left out
		if lo := next.constant(1); lo != nil {
			a.lo = data[float32](lo)[0]
		}
		if hi := next.constant(2); hi != nil {
			a.hi = data[float32](hi)[0]
		}
		a.ends = true
	case "HardSwish":
		a.curve, a.ends = hardSwish, true
	case "Sigmoid":
		a.curve, a.ends = logistic, true
	case "Mul": // of the value and its sigmoid
		a.curve, a.ends = swish, true
	}
}

// CanFollow reports whether a convolution with that number of channels, with s.After before it, can
// do next's work as well: one that [Prepare] took, on float32, with all but its first input known.
// A curve needs vectors, and bits that are the processor's own. A Clip whose bounds cross is left
// to its operator.
func CanFollow(s, next *Spec, channels int) bool {
	was := newAfter(s)
	if was == nil {
		was = &after{}
	}
	if next.In[0] != onnx.Float32 || was.ends {
		return false
	}
	for i := 1; i < len(next.In); i++ {
		if next.In[i] != onnx.Undefined && (next.In[i] != onnx.Float32 || next.constant(i) == nil) {
			return false
		}
	}
	switch next.Node.Op {
	case "BatchNormalization":
		for i := 1; i < 5; i++ {
			if next.constant(i).Len() != channels {
				return false
			}
		}
		// There is room for one scale and shift, which come before a sum.
		return was.scale == nil && !was.sum
	case "Relu":
		return true
	case "HardSwish", "Sigmoid":
		return vectorMath() && !next.Reproducible && !was.sum
	case "Clip": // bounds were attributes once
		if next.Opset < 11 {
			return false
		}
		a := &after{}
		for i := 1; i < len(next.In); i++ {
			if t := next.constant(i); t != nil && t.Len() != 1 {
				return false
			}
		}
		a.add(next)
		return a.lo <= a.hi
	}
	return false
}

// finishing is the map of a channel's sums: where they start, scale, shift and bounds.
type finishing struct{ start, scale, shift, lo, hi float32 }

// CanSwish reports whether a convolution with s.After before it can multiply its float32 output by
// that's sigmoid as well; the Mul stands for both in s.After.
func CanSwish(s *Spec) bool {
	was := newAfter(s)
	return vectorMath() && !s.Reproducible && (was == nil || !was.ends && !was.sum)
}

// CanSum reports whether a convolution with s.After before it can add another value to its float32
// output as well: one of constant weights for single positions, the sums of which begin there. Each
// product is then rounded at the size of that value, so that there are at most as many of them as a
// slab has. The Add stands for it in s.After, and its input is the call's last.
func CanSum(s *Spec) bool {
	was, w := newAfter(s), s.constant(1)
	return haveRuns() && !s.Reproducible && w != nil && len(w.Shape) > 2 && w.Shape[1] <= panelDepth &&
		product(w.Shape[2:]) == 1 && (was == nil || was.scale == nil && !was.ends && !was.sum)
}

// target makes the output of a convolution, in panels or not: where a value is to be added it is
// that, and nil where sums cannot begin there. a may be nil.
func (a *after) target(c *Call, shape []int, inPanels bool) *onnx.Tensor {
	if a == nil || !a.sum {
		return try.Get(c.New(0, c.In[0].DType, shape))
	}
	last := len(c.In) - 1
	if !inPanels || !slices.Equal(c.In[last].Shape, shape) {
		return nil
	}
	out := try.Get(c.over(0, last, onnx.Float32, shape))
	if c.Alias[0] < 0 {
		copy(out.F32(), c.In[last].F32())
	}
	return out
}

// addLast adds the call's last input to its output, and bounds that. The sum takes the buffer of
// the convolution's output where shapes agree. Inputs are restored as they were, on an error too.
func (a *after) addLast(c *Call) error {
	alone, in := c.Out[0], [2]*onnx.Tensor{c.In[0], c.In[1]}
	c.In[0], c.In[1], c.Out[0] = alone, c.In[len(c.In)-1], nil
	c.Overwrite[0], c.Overwrite[1] = true, false
	err := binaryOf(addRow[float32])(c)
	c.In[0], c.In[1] = in[0], in[1] // read again by those that count memory
	if c.Alias[0] < 0 {
		c.env.Pool.Put(alone.Data)
	}
	if c.Alias[0] = -1; err == nil {
		all := c.Out[0].F32()
		limit(all, all, 1, negativeZero, a.lo, a.hi)
	}
	return err
}

// of returns that of a channel without a bias; a may be nil. A curve comes after it.
func (a *after) of(channel int) finishing {
	// x + (-0) is x for every x, zeros of both signs among them; x + 0 makes 0 of -0.
	l := finishing{scale: 1, shift: negativeZero, lo: float32(math.Inf(-1)),
		hi: float32(math.Inf(1))}
	if a != nil {
		l.lo, l.hi = a.lo, a.hi
		if a.scale != nil {
			l.scale, l.shift = a.scale[channel], a.shift[channel]
		}
	}
	return l
}

// all sets ends to those of neighbouring channels, with a bias where there is one; a may be nil.
func (a *after) all(ends []finishing, bias []float32, channel int) {
	first := a.of(channel)
	for i := range ends {
		e := &ends[i] // number by number, which kernels read so
		e.start, e.scale, e.shift, e.lo, e.hi = 0, first.scale, first.shift, first.lo, first.hi
		if bias != nil {
			e.start = bias[channel+i]
		}
		if a != nil && a.scale != nil {
			e.scale, e.shift = a.scale[channel+i], a.shift[channel+i]
		}
	}
}

// run sets dst to the result for src, elements of one channel; they may be the same.
func (a *after) run(dst, src []float32, channel int) {
	l := a.of(channel)
	limit(dst[:len(src)], src, l.scale, l.shift, l.lo, l.hi)
	a.bend(dst[:len(src)])
}

// bounds returns a's bounds, and whether they are all of its work and kernels can end tiles with
// them; a may be nil.
func (a *after) bounds() (b [2]float32, only bool) {
	if !boundedTiles || a == nil || a.scale != nil || a.curve != bounds {
		return b, false
	}
	return [2]float32{a.lo, a.hi}, true
}

// bend replaces numbers, scaled, shifted and bounded, by those of the curve; a may be nil.
func (a *after) bend(v []float32) {
	if a != nil && a.curve != bounds {
		curveRow(a.curve, v, v)
	}
}

// apply works on rows, of which the first is a channel's. rows are changed in place.
func (a *after) apply(rows matrix[float32], channel int) {
	if finishRows(a, rows, channel) {
		return
	}
	for r := range rows.rows {
		row := rows.data[r*rows.stride : r*rows.stride+rows.cols]
		a.run(row, row, channel+r)
	}
}

package kernel

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Pad: mode = constant, reflect, edge or wrap; pads = [begin_0, ..., begin_r, end_0, ..., end_r]
// (of `axes` where given), negative ones cut; the constant is 0 by default:
//
//	out_k = in_k + begin_k + end_k
func init() {
	register(
		Def{Op: "Pad", Since: 1, Until: 10, Half: true, New: newPadByAttribute},
		Def{Op: "Pad", Since: 11, New: newPad},
	)
}

// newPadByAttribute is Pad before operator set 11, whose pads and value are attributes. The number
// is cast to the input's type when the node is prepared.
func newPadByAttribute(s *Spec) (Kernel, error) {
	mode := s.str("mode")
	name := "pads"
	if s.Opset == 1 {
		name = "paddings"
	}
	pads, v := s.ints(name), s.float("value")
	fillValue := try.Get(onnx.Zeros(s.In[0], 1))
	castInto(fillValue, onnx.Vector(v))
	return func(c *Call) error { return pad(c, mode, pads, nil, fillValue) }, nil
}

// newPad: pads, value and axes are inputs 1 to 3, read at every call.
func newPad(s *Spec) (Kernel, error) {
	mode := s.str("mode")
	zero := try.Get(onnx.Zeros(s.In[0], 1))
	if s.has(3) && s.Opset < 18 {
		return nil, fmt.Errorf("axes are defined from opset 18 on")
	}
	return func(c *Call) error {
		pads := try.Get(ints(c.In[1]))
		var axes []int
		if t := c.in(3); t != nil {
			axes = try.Get(ints(t))
		}
		v := zero
		if t := c.in(2); t != nil {
			if t.Len() != 1 {
				return fmt.Errorf("the constant has shape %v where a scalar is expected", t.Shape)
			}
			v = t
		}
		return pad(c, mode, pads, axes, v)
	}, nil
}

// pad maps positions axis by axis, O(sum of the sizes), before it copies rows. v is one element of
// the input's type.
func pad(c *Call, mode string, pads, axes []int, v *onnx.Tensor) error {
	in := c.In[0].Shape
	begin, shape := try.Get2(padding(in, pads, axes))
	out := try.Get(c.New(0, c.In[0].DType, shape))
	if out.Len() == 0 {
		return nil
	}
	if len(in) == 0 {
		copyRange(out.Data, 0, c.In[0].Data, 0, 1)
		return nil
	}
	// from[k][i] is the input position on axis k that output position i copies, -1 for the
	// constant.
	from := make([][]int, len(in))
	for k := range in {
		from[k] = make([]int, shape[k])
		for i := range from[k] {
			from[k][i] = try.Get(padded(int64(i)-int64(begin[k]), int64(in[k]), mode))
		}
	}
	padRowsFrom(out, c.In[0], v, from)
	return nil
}

// padding returns where the input begins in the output, and the output's shape. begin is negative
// where the input is cut. pads hold the begins of all axes before their ends.
func padding(in, pads, axes []int) (begin, shape []int, err error) {
	if axes == nil {
		axes = upTo(len(in))
	}
	ax, err := axesOf(axes, len(in))
	if err != nil {
		return nil, nil, err
	}
	if len(pads) != 2*len(ax) {
		return nil, nil, fmt.Errorf("pads %v: %d numbers are expected", pads, 2*len(ax))
	}
	begin, shape = make([]int, len(in)), append([]int{}, in...)
	for i, a := range ax {
		b, e := pads[i], pads[len(ax)+i]
		if b < -onnx.MaxElements || b > onnx.MaxElements || e < -onnx.MaxElements ||
			e > onnx.MaxElements {
			return nil, nil, fmt.Errorf("pads %v are out of range", pads)
		}
		size := int64(in[a]) + int64(b) + int64(e)
		if size < 0 || size > onnx.MaxElements {
			return nil, nil, fmt.Errorf("pads %v give axis %d of shape %v the size %d; allowed are 0 to %d",
				pads, a, in, size, onnx.MaxElements)
		}
		begin[a], shape[a] = b, int(size)
	}
	return begin, shape, nil
}

// padRowsFrom copies x to the rows of out by the positions of each axis, and v where one is -1;
// neighbours are copied together. Runs of the last axis are the same for every row, and are found
// once. The output has at least one axis and one element.
func padRowsFrom(out, x, v *onnx.Tensor, from [][]int) {
	shape, st, last := out.Shape, strides(x.Shape), len(x.Shape)-1
	runs := runsOf(from[last])
	pos := make([]int, len(shape))
	for i, rows := 0, out.Len()/shape[last]; i < rows; i++ {
		unravel(pos[:last], i, shape[:last])
		off, inside := 0, true
		for k := 0; k < last; k++ {
			f := from[k][pos[k]]
			inside = inside && f >= 0
			// Where a position is -1 the whole row is filled, and off is not read.
			off += f * st[k]
		}
		row := i * shape[last]
		if !inside {
			fill(out.Data, row, shape[last], v.Data, 0)
			continue
		}
		for _, r := range runs {
			if r.from < 0 {
				fill(out.Data, row+r.at, r.n, v.Data, 0)
			} else {
				copyRange(out.Data, row+r.at, x.Data, off+r.from, r.n)
			}
		}
	}
}

// padRun is n neighbours of a row that copy those from a position on, -1 for the constant.
type padRun struct{ at, from, n int }

// runsOf collects positions of one axis in runs. Reflection walks backwards, so that its positions
// make runs of one.
func runsOf(from []int) (runs []padRun) {
	for j := 0; j < len(from); {
		f, n := from[j], 1
		for j+n < len(from) && (f < 0 && from[j+n] < 0 || f >= 0 && from[j+n] == f+n) {
			n++
		}
		runs = append(runs, padRun{j, f, n})
		j += n
	}
	return runs
}

// padded is the position 0 <= p < n that position i, which may lie outside, stands for. It is -1
// outside in mode constant. wrap is i mod n; reflect has period 2(n - 1) and does not repeat the
// border; an axis of one position has that alone.
func padded(i, n int64, mode string) (int, error) {
	if i >= 0 && i < n {
		return int(i), nil
	}
	if mode == "constant" {
		return -1, nil
	}
	if n == 0 {
		return 0, fmt.Errorf("an empty axis cannot be padded in mode %s", mode)
	}
	switch mode {
	case "edge":
		return int(min(max(i, 0), n-1)), nil
	case "wrap":
		return int(((i % n) + n) % n), nil
	}
	if n == 1 {
		return 0, nil
	}
	period := 2 * (n - 1)
	i = ((i % period) + period) % period
	return int(min(i, period-i)), nil
}

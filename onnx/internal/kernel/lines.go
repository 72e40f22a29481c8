package kernel

import (
	"math"

	"fmp/onnx"
)

// lines is the work of a MatMul on each line of its output, while that is in the cache: sums start
// from a bias, and are scaled and put through GELU when they are done.
type lines struct {
	bias, scale []float32 // by column; nil: none
	gelu        bool
}

// lineRows is how many lines are done before the next: at 768 columns they fill a quarter of a
// second-level cache of 512 KB.
const lineRows = tileRows

// newLines returns the work of the nodes of s.After.
func newLines(s *Spec) *lines {
	l := &lines{}
	for _, next := range s.After {
		switch next.Node.Op {
		case "Add":
			l.bias = next.other().F32()
		case "Mul":
			if l.scale = next.other().F32(); len(next.other().Shape) == 0 {
				l.scale = make([]float32, s.Const[1].Shape[1])
				fillRange(l.scale, next.other().F32()[0])
			}
		case "Gelu":
			l.gelu = true
		}
	}
	return l
}

// other returns the operand of a sum or product of two that is known; nil where none is.
func (s *Spec) other() *onnx.Tensor {
	if t := s.constant(0); t != nil {
		return t
	}
	return s.constant(1)
}

// CanEndLines reports whether the product of s, a MatMul with s.After before it, can do next's work
// as well: an Add or Mul of a number for each column, known before the model runs, or GELU. Sums
// then start from the bias, which may move their last bit.
func CanEndLines(s, next *Spec) bool {
	w := s.constant(1)
	if s.Reproducible || !vectorMath() || s.In[0] != onnx.Float32 || w == nil || len(w.Shape) != 2 {
		return false
	}
	was := newLines(s)
	if was.gelu || next.Node.Op == "Gelu" {
		return !was.gelu
	}
	t := next.other()
	if t == nil || t.DType != onnx.Float32 || next.Opset < 7 {
		return false
	}
	column := len(t.Shape) == 1 && t.Shape[0] == w.Shape[1]
	switch next.Node.Op {
	case "Add":
		return column && was.bias == nil && was.scale == nil
	case "Mul":
		return was.scale == nil && (column || len(t.Shape) == 0)
	}
	return false
}

// beginLines sets a part of an output, from a column on, to where its sums start; l may be nil.
func beginLines[T floating](l *lines, part matrix[T], column int) {
	if l == nil {
		return
	}
	bias, _ := any(l.bias).([]T)
	for r := range part.rows {
		row := part.data[r*part.stride:][:part.cols]
		if bias == nil {
			clear(row)
		} else {
			copy(row, bias[column:])
		}
	}
}

// start returns where the sums of a part of an output start, from a column on; nil where it has set
// the part to that, as kernels of few columns, or of one line, need it.
//
//go:noinline
func (l *lines) start(part matrix[float32], column int, single bool) []float32 {
	switch {
	case single || part.cols <= fewColumns:
		beginLines(l, part, column)
		return nil
	case l.bias == nil:
		return noBias[:]
	}
	return l.bias[column:]
}

// endLines does the rest to a part of an output whose sums are done; l may be nil.
func endLines[T floating](l *lines, part matrix[T], column int) {
	out, ok := any(part).(matrix[float32])
	if l == nil || !ok || l.scale == nil && !l.gelu || endRows(l, out, column) {
		return
	}
	for r := range out.rows {
		row := out.data[r*out.stride:][:out.cols]
		if l.scale != nil {
			product32(row, row, l.scale[column:][:len(row)])
		}
		if l.gelu {
			geluRow(row, row)
		}
	}
}

// CanGelu reports whether GELU by its operator takes less time than by five others, to results that
// differ in the last bits.
func CanGelu(reproducible bool) bool { return vectorMath() && !reproducible }

// IsScalar reports whether t is one number without axes, within a part in a million of v.
func IsScalar(t *onnx.Tensor, v float64) bool {
	return t != nil && len(t.Shape) == 0 && t.DType == onnx.Float32 && math.Abs(t.At(0)-v) <= 1e-6*v
}

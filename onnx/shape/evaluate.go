package shape

import (
	"math"
	"slices"

	"fmp/onnx"
)

// evaluate computes a node of constants: the operators of which shapes and other constants are made. shape
// is that of the result, as inferred. It returns nil for an operator, or a case of one, that it leaves to
// an engine; what it returns is what the operator's definition says, to the rounding of the element type.
func evaluate(n *onnx.Node, opset int, in []*onnx.Tensor, shape []int) *onnx.Tensor {
	f, ok := evaluators[n.Op]
	if !ok {
		return nil
	}
	for _, t := range in {
		if t != nil && t.Len() > maxEvaluated {
			return nil
		}
	}
	out := f(&evaluation{node: n, opset: opset, in: in, shape: shape})
	if out == nil || onnx.CheckTensor(out) != nil || !slices.Equal(out.Shape, shape) {
		return nil
	}
	return out
}

// Constants of more elements than this are left to an engine.
const maxEvaluated = 1 << 20

type evaluation struct {
	node  *onnx.Node
	opset int
	in    []*onnx.Tensor // nil where left out
	shape []int
}

func (e *evaluation) arg(i int) *onnx.Tensor {
	if i < len(e.in) {
		return e.in[i]
	}
	return nil
}

var evaluators = map[string]func(e *evaluation) *onnx.Tensor{
	"Identity": reshaped, "Reshape": reshaped, "Squeeze": reshaped, "Unsqueeze": reshaped, "Flatten": reshaped,
	"Cast": evalCast, "Transpose": evalTranspose, "Expand": evalExpand, "Tile": evalTile, "Slice": evalSlice, "Gather": evalGather,
	"Concat": evalConcat, "Range": evalRange, "ConstantOfShape": evalConstantOfShape, "Where": evalWhere,
	"Shape": evalShape, "Size": evalSize,
	"Neg":        unary(func(x float64) float64 { return -x }, func(x int64) int64 { return -x }),
	"Abs":        unary(math.Abs, func(x int64) int64 { return max(x, -x) }),
	"Floor":      unary(math.Floor, nil),
	"Ceil":       unary(math.Ceil, nil),
	"Round":      unary(math.RoundToEven, nil),
	"Sqrt":       unary(math.Sqrt, nil),
	"Reciprocal": unary(func(x float64) float64 { return 1 / x }, nil),
	"Not":        unary(nil, func(x int64) int64 { return 1 - x }),
	"Add":        arithmetic(func(x, y float64) float64 { return x + y }, func(x, y int64) (int64, bool) { return x + y, true }),
	"Sub":        arithmetic(func(x, y float64) float64 { return x - y }, func(x, y int64) (int64, bool) { return x - y, true }),
	"Mul":        arithmetic(func(x, y float64) float64 { return x * y }, func(x, y int64) (int64, bool) { return x * y, true }),
	"Div": arithmetic(func(x, y float64) float64 { return x / y }, func(x, y int64) (int64, bool) {
		if y == 0 {
			return 0, false
		}
		return x / y, true
	}),
	"Mod": arithmetic(nil, func(x, y int64) (int64, bool) {
		if y == 0 {
			return 0, false
		}
		r := x % y
		if r != 0 && (r < 0) != (y < 0) {
			r += y
		}
		return r, true
	}),
	"Max":            arithmetic(maxNumber, func(x, y int64) (int64, bool) { return max(x, y), true }),
	"Min":            arithmetic(minNumber, func(x, y int64) (int64, bool) { return min(x, y), true }),
	"And":            arithmetic(nil, func(x, y int64) (int64, bool) { return x & y, true }),
	"Or":             arithmetic(nil, func(x, y int64) (int64, bool) { return x | y, true }),
	"Xor":            arithmetic(nil, func(x, y int64) (int64, bool) { return x ^ y, true }),
	"Equal":          comparison(func(x, y float64) bool { return x == y }, func(x, y int64) bool { return x == y }),
	"Less":           comparison(func(x, y float64) bool { return x < y }, func(x, y int64) bool { return x < y }),
	"LessOrEqual":    comparison(func(x, y float64) bool { return x <= y }, func(x, y int64) bool { return x <= y }),
	"Greater":        comparison(func(x, y float64) bool { return x > y }, func(x, y int64) bool { return x > y }),
	"GreaterOrEqual": comparison(func(x, y float64) bool { return x >= y }, func(x, y int64) bool { return x >= y }),
	"ReduceSum":      evalReduce, "ReduceProd": evalReduce, "ReduceMax": evalReduce, "ReduceMin": evalReduce,
}

func maxNumber(x, y float64) float64 { return math.Max(x, y) }

func minNumber(x, y float64) float64 { return math.Min(x, y) }

// floats and integers are the elements of t widened; nil for a tensor of another kind.
func floats(t *onnx.Tensor) []float64 {
	switch d := t.Data.(type) {
	case []float32:
		return convert[float64](d)
	case []float64:
		return d
	}
	return nil
}

func integers(t *onnx.Tensor) []int64 {
	switch d := t.Data.(type) {
	case []int64:
		return d
	case []int32:
		return convert[int64](d)
	case []int16:
		return convert[int64](d)
	case []int8:
		return convert[int64](d)
	case []uint8:
		return convert[int64](d)
	case []uint16:
		if t.DType == onnx.Uint16 {
			return convert[int64](d)
		}
	case []uint32:
		return convert[int64](d)
	case []bool:
		out := make([]int64, len(d))
		for i, v := range d {
			out[i] = int64(boolInt(v))
		}
		return out
	}
	return nil
}

type number interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

func convert[To, From number](d []From) []To {
	out := make([]To, len(d))
	for i, v := range d {
		out[i] = To(v)
	}
	return out
}

// fromFloats and fromIntegers narrow to an element type; nil for a type that they do not make.
func fromFloats(d onnx.DType, v []float64, shape []int) *onnx.Tensor {
	t := &onnx.Tensor{DType: d, Shape: shape}
	switch d {
	case onnx.Float32:
		t.Data = convert[float32](v)
	case onnx.Float64:
		t.Data = v
	default:
		return nil
	}
	return t
}

func fromIntegers(d onnx.DType, v []int64, shape []int) *onnx.Tensor {
	t := &onnx.Tensor{DType: d, Shape: shape}
	switch d {
	case onnx.Int64:
		t.Data = v
	case onnx.Int32:
		t.Data = convert[int32](v)
	case onnx.Int16:
		t.Data = convert[int16](v)
	case onnx.Int8:
		t.Data = convert[int8](v)
	case onnx.Uint8:
		t.Data = convert[uint8](v)
	case onnx.Uint16:
		t.Data = convert[uint16](v)
	case onnx.Uint32:
		t.Data = convert[uint32](v)
	case onnx.Bool:
		b := make([]bool, len(v))
		for i, x := range v {
			b[i] = x != 0
		}
		t.Data = b
	default:
		return nil
	}
	return t
}

func reshaped(e *evaluation) *onnx.Tensor {
	if t, err := e.in[0].Reshape(e.shape...); err == nil {
		return t
	}
	return nil
}

// strides of a row-major shape.
func strides(shape []int) []int {
	out := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		out[i] = n
		n *= shape[i]
	}
	return out
}

// walk calls visit with the offset that step gives for every index of shape in row-major order.
func walk(shape, step []int, start int, visit func(from int)) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	index := make([]int, len(shape))
	at := start
	for range n {
		visit(at)
		for i := len(shape) - 1; i >= 0; i-- {
			index[i]++
			at += step[i]
			if index[i] < shape[i] {
				break
			}
			at -= index[i] * step[i]
			index[i] = 0
		}
	}
}

// take makes a tensor of the elements of t at the offsets that a walk visits.
func take(t *onnx.Tensor, shape, step []int, start int) *onnx.Tensor {
	var from []int
	walk(shape, step, start, func(i int) { from = append(from, i) })
	return pick(t, shape, from)
}

func pick(t *onnx.Tensor, shape, from []int) *onnx.Tensor {
	out := &onnx.Tensor{DType: t.DType, Shape: shape}
	switch d := t.Data.(type) {
	case []float32:
		out.Data = at(d, from)
	case []float64:
		out.Data = at(d, from)
	case []int8:
		out.Data = at(d, from)
	case []int16:
		out.Data = at(d, from)
	case []int32:
		out.Data = at(d, from)
	case []int64:
		out.Data = at(d, from)
	case []uint8:
		out.Data = at(d, from)
	case []uint16:
		out.Data = at(d, from)
	case []uint32:
		out.Data = at(d, from)
	case []uint64:
		out.Data = at(d, from)
	case []bool:
		out.Data = at(d, from)
	case []string:
		out.Data = at(d, from)
	default:
		return nil
	}
	return out
}

func at[T any](d []T, from []int) []T {
	out := make([]T, len(from))
	for i, j := range from {
		out[i] = d[j]
	}
	return out
}

// spread is the strides with which a tensor of shape from is read as one of shape to by broadcasting.
func spread(from, to []int) []int {
	out := make([]int, len(to))
	s := strides(from)
	for i := range from {
		if from[i] != 1 {
			out[i+len(to)-len(from)] = s[i]
		}
	}
	return out
}

func broadcastTo(t *onnx.Tensor, shape []int) *onnx.Tensor {
	if slices.Equal(t.Shape, shape) {
		return t
	}
	if len(t.Shape) > len(shape) {
		return nil
	}
	return take(t, shape, spread(t.Shape, shape), 0)
}

func evalExpand(e *evaluation) *onnx.Tensor { return broadcastTo(e.in[0], e.shape) }

func evalTranspose(e *evaluation) *onnx.Tensor {
	x := e.in[0]
	perm := e.node.Ints("perm", nil)
	s := strides(x.Shape)
	step := make([]int, len(s))
	for i := range step {
		p := len(s) - 1 - i
		if perm != nil {
			p = perm[i]
		}
		step[i] = s[p]
	}
	return take(x, e.shape, step, 0)
}

func evalTile(e *evaluation) *onnx.Tensor {
	x := e.in[0]
	s := strides(x.Shape)
	// Axis i becomes two: repeats, which do not move, and the axis itself.
	var shape, step []int
	for i, d := range x.Shape {
		if d == 0 {
			return nil
		}
		shape = append(shape, e.shape[i]/d, d)
		step = append(step, 0, s[i])
	}
	t := take(x, shape, step, 0)
	if t != nil {
		t.Shape = e.shape
	}
	return t
}

func evalSlice(e *evaluation) *onnx.Tensor {
	x := e.in[0]
	var starts, ends, axes, by []int
	if e.opset < 10 {
		starts, ends, axes = e.node.Ints("starts", nil), e.node.Ints("ends", nil), e.node.Ints("axes", nil)
	} else {
		for i, to := range []*[]int{&starts, &ends, &axes, &by} {
			if t := e.arg(i + 1); t != nil {
				v, err := t.Ints()
				if err != nil {
					return nil
				}
				*to = v
			}
		}
	}
	step, start := strides(x.Shape), 0
	for i := range starts {
		a, k := i, 1
		if axes != nil {
			a, _ = axis(axes[i], len(x.Shape))
		}
		if by != nil {
			k = min(max(by[i], -math.MaxInt32), math.MaxInt32)
		}
		first, _ := sliceBounds(x.Shape[a], starts[i], ends[i], k)
		start += first * step[a]
		step[a] *= k
	}
	return take(x, e.shape, step, start)
}

func evalGather(e *evaluation) *onnx.Tensor {
	x := e.in[0]
	idx, err := e.in[1].Ints()
	if err != nil {
		return nil
	}
	a, _ := axis(e.node.Int("axis", 0), len(x.Shape))
	inner, outer := 1, 1
	for _, d := range x.Shape[:a] {
		outer *= d
	}
	for _, d := range x.Shape[a+1:] {
		inner *= d
	}
	var from []int
	for o := range outer {
		for _, j := range idx {
			if j < 0 {
				j += x.Shape[a]
			}
			if j < 0 || j >= x.Shape[a] {
				return nil
			}
			for i := range inner {
				from = append(from, (o*x.Shape[a]+j)*inner+i)
			}
		}
	}
	return pick(x, e.shape, from)
}

func evalConcat(e *evaluation) *onnx.Tensor {
	if len(e.shape) != 1 && len(e.in) > 1 {
		return nil
	}
	var is []int64
	var fs []float64
	for _, t := range e.in {
		if t == nil {
			return nil
		}
		is, fs = append(is, integers(t)...), append(fs, floats(t)...)
	}
	if d := e.in[0].DType; d.IsFloat() {
		return fromFloats(d, fs, e.shape)
	}
	return fromIntegers(e.in[0].DType, is, e.shape)
}

func evalCast(e *evaluation) *onnx.Tensor {
	x, to := e.in[0], onnx.DTypeOf(int64(e.node.Int("to", 0)))
	if f := floats(x); f != nil {
		if to.IsFloat() {
			return fromFloats(to, f, e.shape)
		}
		if to == onnx.Bool {
			out := make([]int64, len(f))
			for i, v := range f {
				out[i] = int64(boolInt(v != 0))
			}
			return fromIntegers(to, out, e.shape)
		}
		out := make([]int64, len(f))
		for i, v := range f {
			// Out of range the result is not defined.
			if !(math.Abs(v) < 1<<31) || v < 0 && (to == onnx.Uint8 || to == onnx.Uint16 || to == onnx.Uint32) {
				return nil
			}
			out[i] = int64(v)
		}
		return fromIntegers(to, out, e.shape)
	}
	if v := integers(x); v != nil {
		if to.IsFloat() {
			return fromFloats(to, convert[float64](v), e.shape)
		}
		return fromIntegers(to, v, e.shape)
	}
	return nil
}

func evalRange(e *evaluation) *onnx.Tensor {
	if v := [3][]int64{integers(e.in[0]), integers(e.in[1]), integers(e.in[2])}; len(v[0]) == 1 && len(v[2]) == 1 {
		out := make([]int64, e.shape[0])
		for i := range out {
			out[i] = v[0][0] + int64(i)*v[2][0]
		}
		return fromIntegers(e.in[0].DType, out, e.shape)
	}
	return nil
}

func evalConstantOfShape(e *evaluation) *onnx.Tensor {
	v := onnx.Scalar[float32](0)
	if a, ok := e.node.Attr("value"); ok && a.Tensor != nil {
		v = a.Tensor
	}
	if v.Len() != 1 {
		return nil
	}
	return take(v, e.shape, make([]int, len(e.shape)), 0)
}

func evalShape(e *evaluation) *onnx.Tensor {
	shape := e.in[0].Shape
	if len(e.shape) != 1 || e.shape[0] != len(shape) {
		return nil // with start and end, which inference follows
	}
	return onnx.Vector(convertInts(shape)...)
}

func convertInts(v []int) []int64 {
	out := make([]int64, len(v))
	for i, x := range v {
		out[i] = int64(x)
	}
	return out
}

func evalSize(e *evaluation) *onnx.Tensor { return onnx.Scalar(int64(e.in[0].Len())) }

func evalWhere(e *evaluation) *onnx.Tensor {
	p, x, y := broadcastTo(e.in[0], e.shape), broadcastTo(e.in[1], e.shape), broadcastTo(e.in[2], e.shape)
	if p == nil || x == nil || y == nil {
		return nil
	}
	cond, ok := p.Data.([]bool)
	if !ok {
		return nil
	}
	if a, b := integers(x), integers(y); a != nil && b != nil {
		out := make([]int64, len(cond))
		for i, c := range cond {
			if out[i] = b[i]; c {
				out[i] = a[i]
			}
		}
		return fromIntegers(x.DType, out, e.shape)
	}
	if a, b := floats(x), floats(y); a != nil && b != nil {
		out := make([]float64, len(cond))
		for i, c := range cond {
			if out[i] = b[i]; c {
				out[i] = a[i]
			}
		}
		return fromFloats(x.DType, out, e.shape)
	}
	return nil
}

func unary(f func(float64) float64, g func(int64) int64) func(e *evaluation) *onnx.Tensor {
	return func(e *evaluation) *onnx.Tensor {
		x := e.in[0]
		if v := floats(x); v != nil && f != nil {
			out := make([]float64, len(v))
			for i := range v {
				out[i] = f(v[i])
			}
			return fromFloats(x.DType, out, e.shape)
		}
		if v := integers(x); v != nil && g != nil {
			out := make([]int64, len(v))
			for i := range v {
				out[i] = g(v[i])
			}
			return fromIntegers(x.DType, out, e.shape)
		}
		return nil
	}
}

// operands broadcasts the two inputs of an elementwise operator.
func (e *evaluation) operands() (a, b *onnx.Tensor) {
	if len(e.in) != 2 || e.in[0] == nil || e.in[1] == nil || e.in[0].DType != e.in[1].DType {
		return nil, nil
	}
	return broadcastTo(e.in[0], e.shape), broadcastTo(e.in[1], e.shape)
}

func arithmetic(f func(x, y float64) float64, g func(x, y int64) (int64, bool)) func(e *evaluation) *onnx.Tensor {
	return func(e *evaluation) *onnx.Tensor {
		a, b := e.operands()
		if a == nil || b == nil {
			return nil
		}
		if x, y := floats(a), floats(b); x != nil && f != nil {
			// Arithmetic in float64 and one rounding is exact for float32 as well.
			out := make([]float64, len(x))
			for i := range x {
				out[i] = f(x[i], y[i])
			}
			return fromFloats(a.DType, out, e.shape)
		}
		if x, y := integers(a), integers(b); x != nil && g != nil {
			out := make([]int64, len(x))
			for i := range x {
				v, ok := g(x[i], y[i])
				if !ok {
					return nil
				}
				out[i] = v
			}
			return fromIntegers(a.DType, out, e.shape)
		}
		return nil
	}
}

func comparison(f func(x, y float64) bool, g func(x, y int64) bool) func(e *evaluation) *onnx.Tensor {
	return func(e *evaluation) *onnx.Tensor {
		a, b := e.operands()
		if a == nil || b == nil {
			return nil
		}
		if x, y := floats(a), floats(b); x != nil {
			out := make([]bool, len(x))
			for i := range x {
				out[i] = f(x[i], y[i])
			}
			return &onnx.Tensor{DType: onnx.Bool, Shape: e.shape, Data: out}
		}
		if x, y := integers(a), integers(b); x != nil {
			out := make([]bool, len(x))
			for i := range x {
				out[i] = g(x[i], y[i])
			}
			return &onnx.Tensor{DType: onnx.Bool, Shape: e.shape, Data: out}
		}
		return nil
	}
}

// evalReduce reduces integers to one element, as sizes are; floats, whose sum depends on the order, and
// single axes are left to an engine.
func evalReduce(e *evaluation) *onnx.Tensor {
	v := integers(e.in[0])
	n := 1
	for _, d := range e.shape {
		n *= d
	}
	if len(v) == 0 || n != 1 || e.node.Int("noop_with_empty_axes", 0) != 0 {
		return nil
	}
	r := v[0]
	for _, x := range v[1:] {
		switch e.node.Op {
		case "ReduceSum":
			r += x
		case "ReduceProd":
			r *= x
		case "ReduceMax":
			r = max(r, x)
		default:
			r = min(r, x)
		}
	}
	return fromIntegers(e.in[0].DType, []int64{r}, e.shape)
}

package kernel

import (
	"fmt"
	"math"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Reductions. axes (default all) come from an attribute or, in newer opsets, from input 1; keepdims
// = 1:
//
//	out_k = 1 on a reduced axis (dropped where keepdims = 0), in_k elsewhere
//
// noop_with_empty_axes = 1 makes an empty list of axes mean none. float32 is summed in float64.
func init() {
	for _, r := range []struct {
		op     string
		since  int // axes are an input from here on
		reduce reducer
	}{
		{"ReduceSum", 13, reducer{add: func(a, x float64) float64 { return a + x }}},
		{"ReduceMean", 18, reducer{add: func(a, x float64) float64 { return a + x },
			end: func(a float64, n int) float64 { return a / float64(n) }}},
		{"ReduceProd", 18, reducer{start: 1, add: func(a, x float64) float64 { return a * x }}},
		{"ReduceL1", 18, reducer{add: func(a, x float64) float64 { return a + math.Abs(x) }}},
		{"ReduceL2", 18, reducer{add: func(a, x float64) float64 { return a + x*x },
			end: func(a float64, _ int) float64 { return math.Sqrt(a) }}},
		{"ReduceSumSquare", 18, reducer{add: func(a, x float64) float64 { return a + x*x }}},
		{"ReduceLogSum", 18, reducer{add: func(a, x float64) float64 { return a + x },
			end: func(a float64, _ int) float64 { return logarithm(a) }}},
		{"ReduceLogSumExp", 18, reducer{logSumExp: true}},
		{"ReduceMax", 18, reducer{start: math.Inf(-1),
			add: func(a, x float64) float64 { return max(a, x) }}},
		{"ReduceMin", 18, reducer{start: math.Inf(1),
			add: func(a, x float64) float64 { return min(a, x) }}},
	} {
		r.reduce.op = r.op
		register(
			Def{Op: r.op, Since: 1, Until: r.since - 1, Half: true, New: r.reduce.byAttribute},
			Def{Op: r.op, Since: r.since, Half: true, New: r.reduce.byInput},
		)
	}
}

// reducer folds elements from the left: a = start; a = add(a, x) ...; end(a, number of elements).
type reducer struct {
	// the operator's name, by which integers choose their fold
	op        string
	start     float64
	add       func(a, x float64) float64
	end       func(a float64, n int) float64
	logSumExp bool
	// the bits of the largest or smallest integer, which an empty ReduceMax or ReduceMin gives
	nothing uint64
}

// byAttribute has no noop_with_empty_axes: an empty list means all axes.
func (r reducer) byAttribute(s *Spec) (Kernel, error) {
	axes, keep := s.ints("axes"), s.bool("keepdims")
	return r.kernel(s, keep, func(*Call) ([]int, bool) { return axes, len(axes) == 0 })
}

// byInput reads the axes at every call, since an input may change from run to run.
func (r reducer) byInput(s *Spec) (Kernel, error) {
	keep, noop := s.bool("keepdims"), s.bool("noop_with_empty_axes")
	return r.kernel(s, keep, func(c *Call) ([]int, bool) {
		if c.in(1) == nil {
			return nil, !noop
		}
		axes := try.Get(ints(c.In[1]))
		return axes, len(axes) == 0 && !noop
	})
}

// kernel takes the axes of a call from axesOf, whose second result says that all are meant. Narrow
// integers are folded in int64 and cut. An empty maximum thus needs the bounds of the node's own
// type, which int64 does not tell.
func (r reducer) kernel(s *Spec, keep bool, axesOf func(*Call) ([]int, bool)) (Kernel, error) {
	whole := func(c *Call) (reducePlan, []int) {
		axes, allAxes := axesOf(c)
		xs := c.In[0].Shape
		if allAxes {
			axes = upTo(len(xs))
		}
		p := planReduce(xs, axes)
		return p, p.shape(keep)
	}
	lo, hi := integerLimits(s.In[0])
	if r.nothing = uint64(lo); r.op == "ReduceMin" {
		r.nothing = hi
	}
	return numeric(s, reduceFloat[float32](r, whole), reduceFloat[float64](r, whole),
		reduceInt[int64](r, whole), reduceInt[uint64](r, whole))
}

// reducePlan walks, for each output, the inputs that fold into it, in row-major order.
type reducePlan struct {
	// the input's shape; whether an axis of it is reduced; outputs, and inputs of each
	in             []int
	reduced        []bool
	outputs, count int
	outDims, inner []int // sizes of kept and reduced axes, collapsed
	// their strides in the input, in elements
	outSt, innerSt []int
}

// planReduce divides the axes into kept and reduced ones; neighbours of either that lie as one
// become one.
func planReduce(shape, axes []int) reducePlan {
	p := reducePlan{in: shape, reduced: make([]bool, len(shape))}
	for _, a := range try.Get(axesOf(axes, len(shape))) {
		p.reduced[a] = true
	}
	st := strides(shape)
	var od, os, id, is []int
	for k, d := range shape {
		if p.reduced[k] {
			id, is = append(id, d), append(is, st[k])
		} else {
			od, os = append(od, d), append(os, st[k])
		}
	}
	p.outputs, p.count = product(od), product(id)
	var s [][]int
	p.outDims, s = collapse(od, os)
	p.outSt = s[0]
	p.inner, s = collapse(id, is)
	p.innerSt = s[0]
	return p
}

// shape is the output's: reduced axes have size 1 where they are kept.
func (p reducePlan) shape(keep bool) []int {
	out := []int{}
	for k, d := range p.in {
		switch {
		case !p.reduced[k]:
			out = append(out, d)
		case keep:
			out = append(out, 1)
		}
	}
	return out
}

// base is the offset of the first input of output i. It takes i apart in the mixed radix of
// outDims, from the last axis on.
func (p reducePlan) base(i int) int {
	off := 0
	for k := len(p.outDims) - 1; k >= 0; k-- {
		off += i % p.outDims[k] * p.outSt[k]
		i /= p.outDims[k]
	}
	return off
}

// each calls f with the offset of every input of output i. One collapsed axis needs no odometer.
// The order is the same for any number of threads.
func (p reducePlan) each(i int, f func(off int)) {
	if p.count == 0 {
		return
	}
	off := p.base(i)
	if len(p.inner) == 1 {
		for k := 0; k < p.count; k++ {
			f(off)
			off += p.innerSt[0]
		}
		return
	}
	od := newOdometer(p.inner, [][]int{p.innerSt}, 0)
	for k := 0; k < p.count; k++ {
		f(off + od.off[0])
		od.next()
	}
}

// planner finds the axes of a call, and the output's shape.
type planner func(*Call) (reducePlan, []int)

// reduceFloat folds in float64. A log-sum-exp is m + log sum e^(x - m), m being the largest
// element, so that no exponential overflows. Threads divide the outputs, so that no sum is split.
// Where the largest element of a log-sum-exp is infinite, so is the result; a NaN among the
// elements makes it NaN.
func reduceFloat[T floating](r reducer, whole planner) Kernel {
	return func(c *Call) error {
		p, shape := whole(c)
		out := try.Get(c.New(0, c.In[0].DType, shape))
		x, o := data[T](c.In[0]), data[T](out)
		c.Parallel(p.outputs, p.count*2, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				switch {
				case r.logSumExp:
					top := math.Inf(-1)
					p.each(i, func(off int) { top = max(top, float64(x[off])) })
					if math.IsInf(top, 0) {
						o[i] = T(top)
						continue
					}
					sum := 0.0
					p.each(i, func(off int) { sum += math.Exp(float64(x[off]) - top) })
					o[i] = T(top + math.Log(sum))
				case r.op == "ReduceSum" || r.op == "ReduceMean":
					all := 0.0
					switch b := p.base(i); {
					case p.count == 0 || len(p.inner) != 1 || p.innerSt[0] != 1:
						p.each(i, func(off int) { all += float64(x[off]) })
					// A long run is summed in several lanes side by side.
					case p.count >= sumLanes:
						all = sum(x[b : b+p.count])
					default:
						for _, v := range x[b : b+p.count] {
							all += float64(v)
						}
					}
					if r.op == "ReduceMean" {
						all /= float64(p.count)
					}
					o[i] = T(all)
				default:
					a := r.start
					p.each(i, func(off int) { a = r.add(a, float64(x[off])) })
					if r.end != nil {
						a = r.end(a, p.count)
					}
					o[i] = T(a)
				}
			}
		})
		return nil
	}
}

// reduceInt folds in T itself: exact, wrapping around as integers do. It runs on one thread.
// ReduceL2 and both logarithms end in float64, whose result is truncated.
func reduceInt[T integer](r reducer, whole planner) Kernel {
	return func(c *Call) error {
		p, shape := whole(c)
		if p.count == 0 && r.op == "ReduceMean" && p.outputs > 0 {
			// Integers have no NaN to give.
			return fmt.Errorf("the mean of no integers")
		}
		out := try.Get(c.New(0, c.In[0].DType, shape))
		x, o := data[T](c.In[0]), data[T](out)
		lo, hi := integerLimits(onnx.TypeOf[T]())
		for i := range o {
			var a T
			first, sum := true, 0.0
			switch {
			case r.op == "ReduceProd":
				a = 1
			// Of nothing they give the least and the greatest number of the node's own type.
			case p.count == 0 && (r.op == "ReduceMax" || r.op == "ReduceMin"):
				a = T(r.nothing)
			}
			p.each(i, func(off int) {
				v := x[off]
				switch r.op {
				case "ReduceProd":
					a *= v
				case "ReduceL1":
					a += abs(v)
				case "ReduceL2", "ReduceSumSquare":
					a += v * v
				case "ReduceMax":
					if first || v > a {
						a = v
					}
				case "ReduceMin":
					if first || v < a {
						a = v
					}
				case "ReduceLogSumExp":
					sum += math.Exp(float64(v))
				default:
					a += v
				}
				first = false
			})
			switch r.op {
			case "ReduceMean":
				// The mean of integers is truncated towards zero.
				a /= T(p.count)
			case "ReduceL2":
				a = T(math.Sqrt(float64(a)))
			case "ReduceLogSum":
				// of 0: the least number, on every machine
				a = bounded[T](math.Log(float64(a)), lo, hi)
			case "ReduceLogSumExp":
				a = bounded[T](logarithm(sum), lo, hi)
			}
			o[i] = a
		}
		return nil
	}
}

// integerLimits are the least and the greatest number of an integer type; false and true of
// booleans.
func integerLimits(d onnx.DType) (lo int64, hi uint64) {
	bits := 8 * d.Size()
	switch {
	case d == onnx.Bool:
		return 0, 1
	case unsigneds.Has(d):
		return 0, math.MaxUint64 >> (64 - bits)
	case signeds.Has(d):
		return math.MinInt64 >> (64 - bits), math.MaxInt64 >> (64 - bits)
	}
	return 0, 0
}

// bounded truncates f to an integer type, holds it to the bounds of that, and makes 0 of NaN. The
// comparisons come first, since Go leaves a conversion out of range to the machine.
func bounded[B integer](f float64, lo int64, hi uint64) B {
	switch {
	case f != f:
		return 0
	case f <= float64(lo):
		return B(lo)
	case f >= float64(hi):
		return B(hi)
	}
	return B(f)
}

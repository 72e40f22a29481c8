package kernel

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// Einsum: out[free letters] = sum over the other letters of the product of the inputs. Without "->"
// the output's letters are those that occur once, in alphabetical order; "..." stands for broadcast
// axes.
func init() {
	register(Def{Op: "Einsum", Since: 12, Half: true, New: newEinsum})
}

// einsumSpec is a parsed equation: a term of letters for each input.
type einsumSpec struct {
	terms []string // with "." for the ellipsis
	out   string
}

// newEinsum parses the equation once; sizes and the order of products are a call's.
func newEinsum(s *Spec) (Kernel, error) {
	equation := s.str("equation")
	var e einsumSpec
	e.terms, e.out = try.Get2(op.EinsumTerms(equation))
	if len(e.terms) != len(s.In) {
		return nil, fmt.Errorf("equation %q has %d terms for %d inputs", equation, len(e.terms),
			len(s.In))
	}
	return numeric(s, einsum(e, matMulFloat[float32](nil, &lines{}), sumOver[float32]),
		einsum(e, matMulFloat[float64](nil, &lines{}), sumOver[float64]),
		einsum(e, matMulInt[int64], sumOver[int64]), einsum(e, matMulInt[uint64], sumOver[uint64]))
}

// einsum is the kernel for one element type. It is no part of its callers' code.
//
// Letters of size 1 take no part, and one of size 0 makes all sums 0. A product of two operands may
// have as many elements as all inputs and the output together: intermediate values stay in
// proportion to those.
//
//go:noinline
func einsum(e einsumSpec, multiply Kernel, sum summing) Kernel {
	return func(c *Call) error {
		terms, out := e.expand(c)
		s := einsumRun{c: c, dtype: c.In[0].DType, multiply: multiply, sum: sum,
			size: letterSizes(c, terms), uses: map[rune]int{}}
		shape := s.sizes(out)
		vs, most := make([]einsumView, len(terms)), float64(try.Get(onnx.Elements(shape)))
		for i, t := range terms {
			vs[i] = s.view(c.In[i], t)
			most += float64(c.In[i].Len())
		}
		for _, r := range out + strings.Join(terms, "") {
			if n := s.size[r]; n == 0 {
				clearData(try.Get(c.New(0, s.dtype, shape)))
				return nil
			} else if n > 1 && !strings.ContainsRune(s.letters, r) {
				s.letters += string(r)
			}
		}
		s.out = s.chosen(func(r rune) bool { return strings.ContainsRune(out, r) })
		all := s.contract(vs, most)
		o, _ := s.ordered(all, s.out)
		c.take(o)
		c.Out[0] = &onnx.Tensor{DType: s.dtype, Shape: shape, Data: o}
		return nil
	}
}

// einsumView is an operand with a stride for each of its letters. A letter of size 1, or whose axis
// has size 1 here, is none of them.
type einsumView struct {
	data   any // a slice of the tensors' element type
	stride map[rune]int
	own    bool // whether the call made the numbers for this operand alone
}

// has reports whether the operand depends on a letter.
func (v einsumView) has(r rune) bool { return v.stride[r] != 0 }

// summing writes the sums of the products of operands vs to o: each over n positions, the last of
// dims, at the operands' strides st.
type summing func(c *Call, o any, vs []einsumView, n int, dims []int, st [][]int)

// einsumRun is the state of a call. Its plan is the same for all element types, and is compiled
// once.
type einsumRun struct {
	c            *Call
	dtype        onnx.DType
	multiply     Kernel // MatMul
	sum          summing
	size, uses   map[rune]int // of a letter: its size, and how many operands have it
	letters, out string       // those of sizes above 1; the result's first
}

// view has a diagonal for a letter that a term repeats. Its stride is the sum of those of both
// axes.
func (s *einsumRun) view(t *onnx.Tensor, term string) einsumView {
	v, own := einsumView{data: t.Data, stride: map[rune]int{}}, strides(t.Shape)
	for k, r := range term {
		if t.Shape[k] > 1 {
			if !v.has(r) {
				s.uses[r]++
			}
			v.stride[r] += own[k]
		}
	}
	return v
}

// chosen are the letters for which f holds, the result's first, in one order for all operands.
func (s *einsumRun) chosen(f func(r rune) bool) string {
	return strings.Map(func(r rune) rune {
		if f(r) {
			return r
		}
		return -1
	}, s.letters)
}

// sizes are the shape of a dense tensor with these letters for axes.
func (s *einsumRun) sizes(letters string) []int {
	dims := make([]int, 0, len(letters))
	for _, r := range letters {
		dims = append(dims, s.size[r])
	}
	return dims
}

// elements is the number of positions of all letters.
func (s *einsumRun) elements(letters string) int { return try.Get(onnx.Elements(s.sizes(letters))) }

// needed are the letters of some operands that the result or another operand has.
func (s *einsumRun) needed(vs ...einsumView) string {
	return s.chosen(func(r rune) bool {
		n := 0
		for _, v := range vs {
			if v.has(r) {
				n++
			}
		}
		return n > 0 && (n < s.uses[r] || strings.ContainsRune(s.out, r))
	})
}

// pairWindow is how many operands, the first, the next pair is chosen among. It bounds the search
// to 28 pairs a step, however many operands a hostile equation has.
const pairWindow = 8

// contract takes two operands after the other, those of least work whose product has at most `most`
// elements, after sums over the letters that one operand alone has. Where there is no such pair,
// all operands that are left are multiplied at once. It is greedy: the best order of all is a
// search that grows exponentially with the operands.
func (s *einsumRun) contract(vs []einsumView, most float64) einsumView {
	if len(vs) == 1 {
		return s.loop(vs, s.out)
	}
	for i, v := range vs {
		if keep := s.needed(v); len(keep) < len(v.stride) {
			vs[i] = s.replace(s.loop(vs[i:i+1], keep), v)
		}
	}
	// The last two make the result's own order of letters.
	for len(vs) > 2 {
		a, b, least := 0, 0, math.Inf(1)
		for j := range min(len(vs), pairWindow) {
			for i := range j {
				if work, made := s.cost(vs[i], vs[j]); work < least && made <= most {
					a, b, least = i, j, work
				}
			}
		}
		if b == 0 {
			return s.loop(vs, s.out)
		}
		vs[a] = s.replace(s.pair(vs[a], vs[b], s.needed(vs[a], vs[b])), vs[a], vs[b])
		vs = slices.Delete(vs, b, b+1)
	}
	return s.pair(vs[0], vs[1], s.out)
}

// cost is the multiplications of a pair, and the numbers that it makes.
func (s *einsumRun) cost(a, b einsumView) (work, made float64) {
	work, made = 1, 1
	for _, r := range s.letters {
		if a.has(r) || b.has(r) {
			work *= float64(s.size[r])
		}
	}
	for _, r := range s.needed(a, b) {
		made *= float64(s.size[r])
	}
	return work, made
}

// replace returns v, which has taken the place of others, whose memory is given back. The uses of
// letters are counted anew for the operands that are left.
func (s *einsumRun) replace(v einsumView, others ...einsumView) einsumView {
	for r := range v.stride {
		s.uses[r]++
	}
	for _, o := range others {
		for r := range o.stride {
			s.uses[r]--
		}
		if o.own {
			s.c.drop(o.data)
		}
	}
	return v
}

// smallProduct is the multiplications of one matrix product below which a loop over positions costs
// less.
const smallProduct = 64

// pair is the product of two operands, summed over the letters that are not kept, which both have.
// It is a batched matrix product: letters of both that are kept are its batch, those of one its
// rows or columns, and the rest its inner axis.
func (s *einsumRun) pair(a, b einsumView, keep string) einsumView {
	var batch, left, right string
	for _, r := range keep {
		switch {
		case a.has(r) && b.has(r):
			batch += string(r)
		case a.has(r):
			left += string(r)
		default:
			right += string(r)
		}
	}
	inner := s.chosen(func(r rune) bool { return a.has(r) && !strings.ContainsRune(keep, r) })
	m, n, k := s.elements(left), s.elements(right), s.elements(inner)
	if work(m, n, k) < smallProduct {
		return s.loop([]einsumView{a, b}, keep)
	}
	x, xCopied := s.ordered(a, batch+left+inner)
	y, yCopied := s.ordered(b, batch+inner+right)
	count := s.elements(batch)
	v := s.dense(s.matrices(&onnx.Tensor{DType: s.dtype, Shape: []int{count, m, k}, Data: x},
		&onnx.Tensor{DType: s.dtype, Shape: []int{count, k, n}, Data: y}), batch+left+right)
	if xCopied {
		s.c.drop(x)
	}
	if yCopied {
		s.c.drop(y)
	}
	return v
}

// matrices multiplies as MatMul does. The call's inputs are replaced meanwhile, as MatMul reads
// them there.
func (s *einsumRun) matrices(a, b *onnx.Tensor) any {
	c, in := s.c, s.c.In
	defer func() { c.In = in }()
	c.In = []*onnx.Tensor{a, b}
	try.Do(s.multiply(c))
	made := c.Out[0].Data
	c.Out[0], c.scratch = nil, append(c.scratch, made)
	return made
}

// dense is a view of the call's numbers that lie in the order of letters.
func (s *einsumRun) dense(x any, letters string) einsumView {
	v, st := einsumView{x, map[rune]int{}, true}, strides(s.sizes(letters))
	for k, r := range letters {
		v.stride[r] = st[k]
	}
	return v
}

// along are an operand's strides over letters.
func (v einsumView) along(letters string) []int {
	st := make([]int, 0, len(letters))
	for _, r := range letters {
		st = append(st, v.stride[r])
	}
	return st
}

// ordered are an operand's numbers in the order of letters, and whether they are a copy.
func (s *einsumRun) ordered(v einsumView, letters string) (x any, copied bool) {
	dims, st := s.sizes(letters), v.along(letters)
	if slices.Equal(st, strides(dims)) {
		return v.data, false
	}
	x = s.memory(letters)
	gather(s.c, &onnx.Tensor{Shape: dims, Data: x}, &onnx.Tensor{Data: v.data}, 0, st)
	return x, true
}

// memory is of all positions of letters, with arbitrary contents.
func (s *einsumRun) memory(letters string) any {
	return try.Get(s.c.buffer(s.dtype, s.elements(letters)))
}

// loop is the product of operands, position by position, summed over the letters that are not kept.
// It costs operands times positions of all their letters, and makes no intermediate values.
func (s *einsumRun) loop(vs []einsumView, keep string) einsumView {
	inner := s.chosen(func(r rune) bool {
		return !strings.ContainsRune(keep, r) &&
			slices.ContainsFunc(vs, func(v einsumView) bool { return v.has(r) })
	})
	dims, st := s.sizes(keep+inner), make([][]int, len(vs))
	for i, v := range vs {
		st[i] = v.along(keep + inner)
	}
	o := s.memory(keep)
	s.sum(s.c, o, vs, s.elements(inner), dims, st)
	return s.dense(o, keep)
}

// sumOver is the [summing] of numbers of type T. A sum is taken in T in row-major order of the
// letters, by one thread. It looks in between whether the run is to end.
func sumOver[T number](c *Call, o any, vs []einsumView, n int, dims []int, st [][]int) {
	out, in := o.([]T), make([][]T, len(vs))
	for j, v := range vs {
		in[j] = v.data.([]T)
	}
	c.Parallel(len(out), work(n, len(vs), 4), func(lo, hi int) {
		od := newOdometer(dims, st, lo*n)
		var sum T
		add := func(from, to int) {
			all := sum
			for range to - from {
				v := in[0][od.off[0]]
				for j := 1; j < len(in); j++ {
					v *= in[j][od.off[j]]
				}
				all += v
				od.next()
			}
			sum = all
		}
		for i := lo; i < hi; i++ {
			sum = 0
			c.pieces(0, n, len(in)*4, add)
			out[i] = sum
		}
	})
}

// expand gives the axes of an ellipsis letters of their own, '0' + distance from the right. The
// first of n axes is '0' + n, so that axes align at the right as in broadcasting.
func (e einsumSpec) expand(c *Call) (terms []string, out string) {
	dots := func(t string, n int) string {
		letters := ""
		for k := n; k > 0; k-- {
			letters += string(rune('0' + k))
		}
		return strings.Replace(t, ".", letters, 1)
	}
	wide := 0
	for i, t := range e.terms {
		shape := c.In[i].Shape
		if strings.Contains(t, ".") {
			n := len(shape) - len(t) + 1
			if n < 0 {
				try.Fail("input %d of shape %v does not fit %q", i, shape, t)
			}
			wide = max(wide, n)
			t = dots(t, n)
		}
		if len(t) != len(shape) {
			try.Fail("input %d of shape %v does not fit its term of %d axes", i, shape, len(t))
		}
		terms = append(terms, t)
	}
	return terms, dots(e.out, wide)
}

// letterSizes returns the size of each letter's axis; an axis of 1 is repeated.
func letterSizes(c *Call, terms []string) map[rune]int {
	size := map[rune]int{}
	for i, t := range terms {
		for k, r := range t {
			n := c.In[i].Shape[k]
			switch old, ok := size[r]; {
			// A letter takes the larger size, as axes of 1 are repeated.
			case !ok || old == 1:
				size[r] = n
			case n != old && n != 1:
				try.Fail("axis %q has sizes %d and %d", r, old, n)
			}
		}
	}
	return size
}

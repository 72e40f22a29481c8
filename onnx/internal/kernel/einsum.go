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

func newEinsum(s *Spec) (Kernel, error) {
	equation := s.str("equation")
	var e einsumSpec
	e.terms, e.out = try.Get2(op.EinsumTerms(equation))
	if len(e.terms) != len(s.In) {
		return nil, fmt.Errorf("equation %q has %d terms for %d inputs", equation, len(e.terms),
			len(s.In))
	}
	return numeric(s, einsum[float32](e, matMulFloat[float32](nil, &lines{})),
		einsum[float64](e, matMulFloat[float64](nil, &lines{})),
		einsum[int64](e, matMulInt[int64]), einsum[uint64](e, matMulInt[uint64]))
}

func einsum[T number](e einsumSpec, multiply Kernel) Kernel {
	return func(c *Call) error {
		terms, out := e.expand(c)
		s := einsumRun[T]{c: c, multiply: multiply, size: letterSizes(c, terms), uses: map[rune]int{}}
		shape := s.sizes(out)
		vs, most := make([]einsumView[T], len(terms)), float64(try.Get(onnx.Elements(shape)))
		for i, t := range terms {
			vs[i] = s.view(c.In[i], t)
			most += float64(c.In[i].Len())
		}
		for _, r := range out + strings.Join(terms, "") {
			if n := s.size[r]; n == 0 {
				clear(data[T](try.Get(c.New(0, c.In[0].DType, shape))))
				return nil
			} else if n > 1 && !strings.ContainsRune(s.letters, r) {
				s.letters += string(r)
			}
		}
		s.out = s.chosen(func(r rune) bool { return strings.ContainsRune(out, r) })
		all := s.contract(vs, most)
		o := s.ordered(all, s.out)
		c.take(o)
		c.Out[0] = &onnx.Tensor{DType: c.In[0].DType, Shape: shape, Data: o}
		return nil
	}
}

// einsumView is an operand with a stride for each of its letters. A letter of size 1, or whose axis
// has size 1 here, is none of them.
type einsumView[T number] struct {
	data   []T
	stride map[rune]int
	own    bool // whether the call made the numbers for this operand alone
}

func (v einsumView[T]) has(r rune) bool { return v.stride[r] != 0 }

// einsumRun is the state of a call.
type einsumRun[T number] struct {
	c            *Call
	multiply     Kernel       // MatMul
	size, uses   map[rune]int // of a letter: its size, and how many operands have it
	letters, out string       // those of sizes above 1; the result's first
}

// view has a diagonal for a letter that a term repeats.
func (s *einsumRun[T]) view(t *onnx.Tensor, term string) einsumView[T] {
	v, own := einsumView[T]{data: data[T](t), stride: map[rune]int{}}, strides(t.Shape)
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

func (s *einsumRun[T]) chosen(f func(r rune) bool) string {
	return strings.Map(func(r rune) rune {
		if f(r) {
			return r
		}
		return -1
	}, s.letters)
}

func (s *einsumRun[T]) sizes(letters string) []int {
	dims := make([]int, 0, len(letters))
	for _, r := range letters {
		dims = append(dims, s.size[r])
	}
	return dims
}

// elements is the number of positions of all letters.
func (s *einsumRun[T]) elements(letters string) int { return try.Get(onnx.Elements(s.sizes(letters))) }

// needed are the letters of some operands that the result or another operand has.
func (s *einsumRun[T]) needed(vs ...einsumView[T]) string {
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

// pairWindow is how many operands, the first, the next pair is chosen among.
const pairWindow = 8

// contract takes two operands after the other, those of least work whose product has at most `most`
// elements, after sums over the letters that one operand alone has. Where there is no such pair, all
// operands that are left are multiplied at once.
func (s *einsumRun[T]) contract(vs []einsumView[T], most float64) einsumView[T] {
	if len(vs) == 1 {
		return s.loop(vs, s.out)
	}
	for i, v := range vs {
		if keep := s.needed(v); len(keep) < len(v.stride) {
			vs[i] = s.replace(s.loop(vs[i:i+1], keep), v)
		}
	}
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
func (s *einsumRun[T]) cost(a, b einsumView[T]) (work, made float64) {
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

// replace returns v, which has taken the place of others, whose memory is given back.
func (s *einsumRun[T]) replace(v einsumView[T], others ...einsumView[T]) einsumView[T] {
	for r := range v.stride {
		s.uses[r]++
	}
	for _, o := range others {
		for r := range o.stride {
			s.uses[r]--
		}
		if o.own {
			s.drop(o.data)
		}
	}
	return v
}

func (s *einsumRun[T]) drop(b []T) {
	s.c.take(b)
	s.c.env.Pool.Put(b)
}

// smallProduct is the multiplications of one matrix product below which a loop over positions costs
// less.
const smallProduct = 64

// pair is the product of two operands, summed over the letters that are not kept, which both have.
func (s *einsumRun[T]) pair(a, b einsumView[T], keep string) einsumView[T] {
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
		return s.loop([]einsumView[T]{a, b}, keep)
	}
	x, y := s.ordered(a, batch+left+inner), s.ordered(b, batch+inner+right)
	v := s.dense(s.matrices(onnx.NewTensor(x, s.elements(batch), m, k),
		onnx.NewTensor(y, s.elements(batch), k, n)), batch+left+right)
	for _, copied := range [][]T{x, y} {
		if &copied[0] != &a.data[0] && &copied[0] != &b.data[0] {
			s.drop(copied)
		}
	}
	return v
}

// matrices multiplies as MatMul does.
func (s *einsumRun[T]) matrices(a, b *onnx.Tensor) []T {
	c, in := s.c, s.c.In
	defer func() { c.In = in }()
	c.In = []*onnx.Tensor{a, b}
	try.Do(s.multiply(c))
	made := data[T](c.Out[0])
	c.Out[0], c.scratch = nil, append(c.scratch, made)
	return made
}

// dense is a view of the call's numbers that lie in the order of letters.
func (s *einsumRun[T]) dense(x []T, letters string) einsumView[T] {
	v, st := einsumView[T]{x, map[rune]int{}, true}, strides(s.sizes(letters))
	for k, r := range letters {
		v.stride[r] = st[k]
	}
	return v
}

// along are an operand's strides over letters.
func (v einsumView[T]) along(letters string) []int {
	st := make([]int, 0, len(letters))
	for _, r := range letters {
		st = append(st, v.stride[r])
	}
	return st
}

// ordered are an operand's numbers in the order of letters.
func (s *einsumRun[T]) ordered(v einsumView[T], letters string) []T {
	dims, st := s.sizes(letters), v.along(letters)
	if slices.Equal(st, strides(dims)) {
		return v.data
	}
	x := s.memory(letters)
	gatherOf(s.c, x, dims, v.data, 0, st)
	return x
}

func (s *einsumRun[T]) memory(letters string) []T {
	return try.Get(s.c.buffer(onnx.TypeOf[T](), s.elements(letters))).([]T)
}

// loop is the product of operands, position by position, summed over the letters that are not kept.
func (s *einsumRun[T]) loop(vs []einsumView[T], keep string) einsumView[T] {
	inner := s.chosen(func(r rune) bool {
		return !strings.ContainsRune(keep, r) &&
			slices.ContainsFunc(vs, func(v einsumView[T]) bool { return v.has(r) })
	})
	dims, st := s.sizes(keep+inner), make([][]int, len(vs))
	for i, v := range vs {
		st[i] = v.along(keep + inner)
	}
	o, n := s.memory(keep), s.elements(inner)
	s.c.Parallel(len(o), work(n, len(vs), 4), func(lo, hi int) {
		od := newOdometer(dims, st, lo*n)
		var sum T
		add := func(from, to int) {
			all := sum
			for range to - from {
				v := vs[0].data[od.off[0]]
				for j := 1; j < len(vs); j++ {
					v *= vs[j].data[od.off[j]]
				}
				all += v
				od.next()
			}
			sum = all
		}
		for i := lo; i < hi; i++ {
			sum = 0
			s.c.pieces(0, n, len(vs)*4, add)
			o[i] = sum
		}
	})
	return s.dense(o, keep)
}

// expand gives the axes of an ellipsis letters of their own, '0' + distance from the right.
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
			case !ok || old == 1:
				size[r] = n
			case n != old && n != 1:
				try.Fail("axis %q has sizes %d and %d", r, old, n)
			}
		}
	}
	return size
}

package kernel

import (
	"fmt"
	"strings"

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
	return numeric(s, einsum[float32](e), einsum[float64](e), einsum[int64](e), einsum[uint64](e))
}

// einsum sums for every output over the letters that it lacks, in one order. It costs O(product of
// the sizes of all letters · inputs).
func einsum[T number](e einsumSpec) Kernel {
	return func(c *Call) error {
		terms, out := e.expand(c)
		size := letterSizes(c, terms)
		letters := out
		for _, t := range terms {
			for _, r := range t {
				if !strings.ContainsRune(letters, r) {
					letters += string(r)
				}
			}
		}
		dims := make([]int, len(letters))
		for k, r := range letters {
			dims[k] = size[r]
		}
		st := make([][]int, len(terms))
		for i, t := range terms {
			own := strides(c.In[i].Shape)
			st[i] = make([]int, len(letters))
			for k, r := range t {
				if c.In[i].Shape[k] != 1 {
					st[i][strings.IndexRune(letters, r)] += own[k]
				}
			}
		}
		res := try.Get(c.New(0, c.In[0].DType, dims[:len(out)]))
		xs := make([][]T, len(terms))
		for i := range xs {
			xs[i] = data[T](c.In[i])
		}
		o, n := data[T](res), product(dims[len(out):])
		c.Parallel(len(o), n*len(terms)*4, func(lo, hi int) {
			od := newOdometer(dims, st, lo*n)
			for i := lo; i < hi; i++ {
				var sum T
				for k := 0; k < n; k++ {
					v := xs[0][od.off[0]]
					for j := 1; j < len(xs); j++ {
						v *= xs[j][od.off[j]]
					}
					sum += v
					od.next()
				}
				o[i] = sum
			}
		})
		return nil
	}
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

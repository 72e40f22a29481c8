package kernel

import (
	"fmt"
	"sort"
	"strings"
)

// Einsum: out[free letters] = sum over the other letters of the product of the inputs. Without "->" the output's letters are
// those that occur once, in alphabetical order; "..." stands for broadcast axes.
func init() {
	register(Def{Op: "Einsum", Since: 12, Half: true, New: newEinsum})
}

type einsumSpec struct {
	terms    []string // with "." for the ellipsis
	out      string
	explicit bool
}

func newEinsum(s *Spec) (Kernel, error) {
	eq := strings.ReplaceAll(s.str("equation"), " ", "")
	left, right, explicit := strings.Cut(eq, "->")
	e := einsumSpec{explicit: explicit}
	term := func(t string) (string, error) {
		t = strings.Replace(t, "...", ".", 1)
		for i, r := range t {
			if r != '.' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') || strings.IndexRune(t, r) != i && r == '.' {
				return "", fmt.Errorf("equation %q is not understood", eq)
			}
		}
		return t, nil
	}
	for _, t := range strings.Split(left, ",") {
		t, err := term(t)
		if err != nil {
			return nil, err
		}
		e.terms = append(e.terms, t)
	}
	if len(e.terms) != len(s.In) {
		return nil, fmt.Errorf("equation %q has %d terms for %d inputs", eq, len(e.terms), len(s.In))
	}
	var err error
	if e.out, err = term(right); err != nil {
		return nil, err
	}
	joined := strings.Join(e.terms, "")
	if !explicit {
		letters := strings.Split(joined, "")
		sort.Strings(letters)
		if strings.Contains(joined, ".") {
			e.out = "."
		}
		for _, l := range letters {
			if l != "." && strings.Count(joined, l) == 1 {
				e.out += l
			}
		}
	}
	for i, r := range e.out {
		if !strings.ContainsRune(joined, r) || strings.IndexRune(e.out, r) != i {
			return nil, fmt.Errorf("equation %q: the output's %q is not one letter of an input", eq, r)
		}
	}
	return numeric(s, einsum[float32](e), einsum[float64](e), einsum[int64](e), einsum[uint64](e))
}

func einsum[T number](e einsumSpec) Kernel {
	return func(c *Call) error {
		// The ellipsis becomes letters of its own, '0' + distance from the right.
		wide := 0
		for i, t := range e.terms {
			if strings.Contains(t, ".") {
				wide = max(wide, len(c.In[i].Shape)-len(t)+1)
			}
		}
		expand := func(t string, n int) string {
			dots := ""
			for k := n; k > 0; k-- {
				dots += string(rune('0' + k))
			}
			return strings.Replace(t, ".", dots, 1)
		}
		size := map[rune]int{}
		terms := make([]string, len(e.terms))
		for i, t := range e.terms {
			shape := c.In[i].Shape
			if strings.Contains(t, ".") {
				if len(shape) < len(t)-1 {
					return fmt.Errorf("input %d of shape %v does not fit %q", i, shape, t)
				}
				t = expand(t, len(shape)-len(t)+1)
			}
			if len(t) != len(shape) {
				return fmt.Errorf("input %d of shape %v does not fit its term of %d axes", i, shape, len(t))
			}
			for k, r := range t {
				switch old, ok := size[r]; {
				case !ok || old == 1:
					size[r] = shape[k]
				case shape[k] != old && shape[k] != 1:
					return fmt.Errorf("axis %q has sizes %d and %d", r, old, shape[k])
				}
			}
			terms[i] = t
		}
		out := expand(e.out, wide)
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
		res, err := c.New(0, c.In[0].DType, dims[:len(out)])
		if err != nil {
			return err
		}
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

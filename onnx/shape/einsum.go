package shape

import (
	"strings"

	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// inferEinsum: a label's size is that of the axes that it names, broadcast against each other. Axes
// under ellipses are broadcast together, aligned at the right, and stand where the result has one.
// An operand of unknown rank leaves the shape open, since it may hold the sizes of any label. Axes
// of one label of size 1 are taken as broadcast, as in numpy's einsum.
func inferEinsum(c *call) {
	d := try.Get(sameType(c.in...))
	c.set(0, d, nil)
	terms, result := try.Get2(op.EinsumTerms(c.attrs.Str("equation")))
	if len(terms) != len(c.in) {
		try.Fail("equation %q has %d operands and the node %d", c.attrs.Str("equation"),
			len(terms), len(c.in))
	}
	sizes := map[rune]expr{}
	// An ellipsis that no term has stands for no axes.
	ellipsis := []expr{}
	for i, term := range terms {
		s := c.arg(i).shape
		if s == nil {
			return
		}
		labels := []rune(term)
		// extra is the number of axes under the ellipsis, which is the one label '.' of the term.
		// It may be 0: "...ij" takes a matrix as well.
		extra := len(s) - len(labels)
		if strings.Contains(term, ".") {
			extra++
		}
		if extra < 0 || extra > 0 && !strings.Contains(term, ".") {
			try.Fail("term %q for an operand of rank %d", term, len(s))
		}
		at := 0
		for _, r := range labels {
			if r == '.' {
				ellipsis = try.Get(c.broadcast(ellipsis, s[at:at+extra]))
				at += extra
				continue
			}
			if have, ok := sizes[r]; ok {
				// Sizes of one label agree, or one of them is 1.
				merged, err := c.broadcast([]expr{have}, []expr{s[at]})
				if err != nil {
					try.Fail("label %q: %w", r, err)
				}
				sizes[r] = merged[0]
			} else {
				sizes[r] = s[at]
			}
			at++
		}
	}
	out := []expr{}
	for _, r := range result {
		if r == '.' {
			out = append(out, ellipsis...)
		} else {
			out = append(out, sizes[r])
		}
	}
	c.set(0, d, out)
}

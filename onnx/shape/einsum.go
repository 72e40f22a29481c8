package shape

import (
	"fmt"
	"strings"

	"fmp/onnx/op"
)

func inferEinsum(c *call) error {
	d, err := sameType(c.in...)
	if err != nil {
		return err
	}
	c.set(0, d, nil)
	terms, result, err := op.EinsumTerms(c.attrs.Str("equation"))
	if err != nil {
		return err
	}
	if len(terms) != len(c.in) {
		return fmt.Errorf("equation %q has %d operands and the node %d", c.attrs.Str("equation"),
			len(terms), len(c.in))
	}
	sizes := map[rune]expr{}
	ellipsis := []expr{}
	for i, term := range terms {
		s := c.arg(i).shape
		if s == nil {
			return nil
		}
		labels := []rune(term)
		extra := len(s) - len(labels)
		if strings.Contains(term, ".") {
			extra++
		}
		if extra < 0 || extra > 0 && !strings.Contains(term, ".") {
			return fmt.Errorf("term %q for an operand of rank %d", term, len(s))
		}
		at := 0
		for _, r := range labels {
			if r == '.' {
				if ellipsis, err = c.broadcast(ellipsis, s[at:at+extra]); err != nil {
					return err
				}
				at += extra
				continue
			}
			if have, ok := sizes[r]; ok {
				merged, err := c.broadcast([]expr{have}, []expr{s[at]})
				if err != nil {
					return fmt.Errorf("label %q: %w", r, err)
				}
				// A label has one size, so that of the operands' symbols any one serves.
				if strings.Contains(merged[0].String(), "?") {
					merged[0] = have
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
	return nil
}

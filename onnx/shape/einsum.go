package shape

import (
	"fmt"
	"strings"
)

// EinsumTerms splits an equation into the labels of each operand and of the result; an ellipsis is the
// label '.'. Without an arrow the result has the labels that occur once, in alphabetical order.
func EinsumTerms(equation string) (operands []string, result string, err error) {
	eq := strings.ReplaceAll(equation, " ", "")
	eq = strings.ReplaceAll(eq, "...", ".")
	left, result, arrow := strings.Cut(eq, "->")
	operands = strings.Split(left, ",")
	count := map[rune]int{}
	for _, op := range append(append([]string{}, operands...), result) {
		dots := 0
		for _, r := range op {
			if r == '.' {
				dots++
			} else if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
				return nil, "", fmt.Errorf("equation %q holds %q; allowed are letters and an ellipsis", equation, r)
			}
		}
		if dots > 1 {
			return nil, "", fmt.Errorf("equation %q has two ellipses within a term", equation)
		}
	}
	for _, op := range operands {
		for _, r := range op {
			count[r]++
		}
	}
	if !arrow {
		if count['.'] > 0 {
			result = "."
		}
		for r := 'A'; r <= 'z'; r++ {
			if count[r] == 1 {
				result += string(r)
			}
		}
	}
	for _, r := range result {
		if count[r] == 0 && r != '.' {
			return nil, "", fmt.Errorf("equation %q: the result's %q is in no operand", equation, r)
		}
	}
	return operands, result, nil
}

func inferEinsum(c *call) error {
	if err := c.need(1); err != nil {
		return err
	}
	d, err := sameType(c.in...)
	if err != nil {
		return err
	}
	c.set(0, d, nil)
	terms, result, err := EinsumTerms(c.node.Str("equation", ""))
	if err != nil {
		return err
	}
	if len(terms) != len(c.in) {
		return fmt.Errorf("equation %q has %d operands and the node %d", c.node.Str("equation", ""), len(terms), len(c.in))
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

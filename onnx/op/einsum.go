package op

import (
	"fmt"
	"strings"
)

// EinsumTerms splits an equation into the labels of each operand and of the result; an ellipsis is
// the label '.'. Without an arrow the result has the labels that occur once, in alphabetical order.
// Spaces are skipped. An ellipsis in an operand stands first in a result that is not given.
func EinsumTerms(equation string) (operands []string, result string, err error) {
	eq := strings.ReplaceAll(equation, " ", "")
	eq = strings.ReplaceAll(eq, "...", ".")
	left, result, arrow := strings.Cut(eq, "->")
	operands = strings.Split(left, ",")
	count := map[rune]int{}
	for _, term := range append(append([]string{}, operands...), result) {
		dots := 0
		for _, r := range term {
			if r == '.' {
				dots++
			} else if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
				return nil, "", fmt.Errorf("equation %q holds %q; allowed are letters and an ellipsis",
					equation, r)
			}
		}
		if dots > 1 {
			return nil, "", fmt.Errorf("equation %q has two ellipses within a term", equation)
		}
	}
	for _, term := range operands {
		for _, r := range term {
			count[r]++
		}
	}
	if !arrow {
		if count['.'] > 0 {
			result = "."
		}
		// Capitals come before small letters, by their codes, as in NumPy.
		for r := 'A'; r <= 'z'; r++ {
			if count[r] == 1 {
				result += string(r)
			}
		}
	}
	// An ellipsis in the result alone stands for no axes, and is no error.
	for i, r := range result {
		if count[r] == 0 && r != '.' || strings.IndexRune(result, r) != i {
			return nil, "", fmt.Errorf("equation %q: the result's %q is in no operand, or stands twice",
				equation, r)
		}
	}
	return operands, result, nil
}

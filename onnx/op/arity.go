package op

import (
	"fmt"
	"strconv"
	"strings"

	"fmp/onnx"
)

// Arity reports whether a node has as many inputs and outputs as its operator has.
func (s *Schema) Arity(n *onnx.Node) error {
	if err := checkOperands("input", "inputs", n.Inputs, s.In, s.Input); err != nil {
		return err
	}
	return checkOperands("output", "outputs", n.Outputs, s.Out, s.Output)
}

// checkOperands holds a node's inputs or outputs against the formal parameters.
func checkOperands(what, plural string, names []string, params []Param,
	param func(int) (Param, bool)) error {
	given := func(i int) bool { return i < len(names) && names[i] != "" }
	for i := len(params); i < len(names); i++ {
		// Trailing ones that are left out are as good as none.
		if _, ok := param(i); !ok && given(i) {
			return fmt.Errorf("it has %d %s and takes %s", len(names), plural, allowed(params))
		}
	}
	for i, p := range params {
		if p.Variadic {
			if have := len(names) - i; have < p.Least {
				return fmt.Errorf("it has %d %s and takes %s", len(names), plural, allowed(params))
			}
			for j := i; j < len(names); j++ {
				if names[j] == "" && (what == "input" || j-i < p.Least) {
					return fmt.Errorf("its %s %d (%s) is left out, which is not optional",
						what, j, p.Name)
				}
			}
			continue
		}
		if !p.Optional && !given(i) {
			if i >= len(names) {
				return fmt.Errorf("it has %d %s and takes %s", len(names), plural, allowed(params))
			}
			return fmt.Errorf("its %s %d (%s) is left out, which is not optional", what, i, p.Name)
		}
	}
	return nil
}

// allowed describes how many operands there may be: "2 to 3 (X, W, B)".
func allowed(params []Param) string {
	if len(params) == 0 {
		return "none"
	}
	low, open := 0, false
	names := make([]string, len(params))
	for i, p := range params {
		names[i] = p.Name
		switch {
		case p.Variadic:
			low, open = i+p.Least, true
			names[i] += "..."
		case !p.Optional:
			low = i + 1
		}
	}
	count := strconv.Itoa(low)
	switch {
	case open:
		count = "at least " + count
	case low < len(params):
		count += " to " + strconv.Itoa(len(params))
	}
	return count + " (" + strings.Join(names, ", ") + ")"
}

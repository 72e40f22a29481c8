package op

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fmp/onnx"
)

// Fits reports whether a node has as many inputs and outputs as its operator has, words that the
// operator knows, and the inputs that these ask for. It looks at names and words, not at element
// types or shapes. The error has no name of the node, which the caller adds.
func (s *Schema) Fits(n *onnx.Node) error {
	if err := checkOperands("input", "inputs", n.Inputs, s.In, s.Input); err != nil {
		return err
	}
	if err := checkOperands("output", "outputs", n.Outputs, s.Out, s.Output); err != nil {
		return err
	}
	if err := s.words(n); err != nil || s.Name != "LinearAttention" {
		return err
	}
	return LinearAttention(n)
}

// LinearAttention reports a node of that operator whose update rule lacks an input, or has one that
// it does not read. An update_rule that a function's caller gives is not known yet, and passes.
func LinearAttention(n *onnx.Node) error {
	rule := "gated_delta"
	if a, ok := n.Attr("update_rule"); ok {
		if rule = a.Str; a.Ref != "" {
			return nil
		}
	}
	gated, delta := strings.Contains(rule, "gated"), strings.Contains(rule, "delta")
	if gated != (n.Input(4) != "") || delta != (n.Input(5) != "") {
		return fmt.Errorf("update_rule is %s, which takes decay where it gates and beta where it "+
			"corrects, and nothing else", rule)
	}
	return nil
}

// words reports a word of a node that its operator does not know, and a Split into more or fewer
// parts than it has outputs: some runtimes run such nodes as if they asked for something else.
func (s *Schema) words(n *onnx.Node) error {
	for _, a := range n.Attrs {
		values := a.Strs
		if a.Kind == onnx.AttrString {
			values = []string{a.Str}
		}
		for d, i := s.Attr(a.Name), 0; d != nil && d.Words != nil && a.Ref == "" && i < len(values); i++ {
			if !slices.Contains(d.Words, cmp.Or(values[i], `""`)) {
				return fmt.Errorf("%s is %q; allowed are %s", a.Name, values[i], strings.Join(d.Words, ", "))
			}
		}
		if a.Name == "num_outputs" && a.Ref == "" && a.Int != int64(len(n.Outputs)) {
			return fmt.Errorf("num_outputs is %d with %d outputs", a.Int, len(n.Outputs))
		}
	}
	return nil
}

// checkOperands holds a node's inputs or outputs against the formal parameters. An empty name is an
// operand that is left out. The error is of the first that does not fit.
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

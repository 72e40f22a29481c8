package shape

import (
	"testing"
)

func TestExprPrintsWhatItParses(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"0", "7", "n", "2*n", "a*b", "a*b + 3*c - 1", "floor((H + 1)/2)",
		"2*floor((H)/2) + 1", "-n + 4",
		"past + seq"} {
		e, ok := parseExpr(s)
		if !ok {
			t.Errorf("%q does not parse", s)
			continue
		}
		if got := e.String(); got != s {
			t.Errorf("%q prints as %q", s, got)
		}
	}
	for _, s := range []string{"", "a b", "a+", "a//2", "?", "~1", "$2", "(a", "a)", "n-",
		"99999999999999999999", "floor((a/2)"} {
		if e, ok := parseExpr(s); ok {
			t.Errorf("%q parses as %q", s, e)
		}
	}
}

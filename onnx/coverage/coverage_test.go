package coverage

import (
	"slices"
	"strings"
	"testing"

	"fmp/onnx/grad"
	"fmp/onnx/internal/kernel"
	"fmp/onnx/op"
)

// Each operator has each part, or a reason stands in the list; and nothing stands there that is not
// missing.
func TestEveryOperatorIsCoveredOrExcused(t *testing.T) {
	t.Parallel()
	ops := Standard()
	if len(ops) < 150 {
		t.Fatalf("only %d operators", len(ops))
	}
	type gap struct {
		name string
		part Part
	}
	reasons := map[gap]string{}
	for _, m := range missing {
		for _, name := range strings.Fields(m.operators) {
			g := gap{name, m.part}
			if !slices.Contains(ops, name) || reasons[g] != "" {
				t.Errorf("the list of missing %ss names %s, which is no operator, or names it twice", m.part, name)
			}
			reasons[g] = m.why
		}
	}
	for _, name := range ops {
		for _, part := range []Part{Shape, Kernel, Gradient} {
			has, why := Has(name, part), reasons[gap{name, part}]
			switch {
			case !has && why == "":
				t.Errorf("%s has no %s and no reason stands in the list", name, part)
			case has && why != "":
				t.Errorf("%s has a %s, and the list says that it has none: %s", name, part, why)
			}
		}
	}
}

// Nothing is implemented that the standard does not have, or in a version that it does not have it
// in.
func TestNothingIsMadeUp(t *testing.T) {
	t.Parallel()
	for _, name := range append(kernel.Ops(), grad.Operators()...) {
		if len(op.Versions("", name)) == 0 {
			t.Errorf("there is no operator %s", name)
		}
	}
}

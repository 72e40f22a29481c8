//go:build cgo

package differential

import (
	"testing"

	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
)

// Graphs of every family: what must agree does, but for what is known with its reason. The long run
// is `go run ./onnx/internal/differential/run`; its table stands in docs/differential.md.
func TestFamilies(t *testing.T) {
	count := 150
	if testing.Short() {
		count = 20
	}
	other := orttest.New(t)
	for _, family := range Families() {
		t.Run(family, func(t *testing.T) {
			tally := must.Get(Run(family, 1, 0, count, other, func(c *Case, d Disagreement) {
				if d.Known == "" {
					t.Errorf("%s: %s of %s: %s", c, d.Check, d.Op, d.Detail)
				}
			}))(t)
			// A generator that draws nothing valid would find nothing.
			if 2*tally.Compared["engine"] < count || tally.Compared["fold"] < count {
				t.Errorf("of %d graphs only %v were compared", count, tally.Compared)
			}
			for _, f := range differentiable {
				if f == family && 2*tally.Compared["gradient"] < count {
					t.Errorf("of %d gradients only %d were compared", count, tally.Compared["gradient"])
				}
			}
		})
	}
}

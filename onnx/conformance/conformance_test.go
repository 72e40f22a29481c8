package conformance

import (
	"context"
	"os"
	"testing"

	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
)

// operatorTests is where Debian's libonnx-testdata puts the ONNX operator tests.
const operatorTests = "/usr/share/libonnx-testdata/data"

// TestOperatorsOnPure is the standard's own tests on the pure engine: none may fail.
func TestOperatorsOnPure(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand models: not in short tests")
	}
	if _, err := os.Stat(operatorTests); err != nil {
		t.Skip("the operator tests are not here: apt-get install libonnx-testdata")
	}
	e, err := pure.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	results, err := RunAll(context.Background(), e, operatorTests, DefaultTolerance, nil)
	if err != nil {
		t.Fatal(err)
	}
	count := map[Verdict]int{}
	for _, r := range results {
		count[r.Verdict]++
		if r.Verdict == Failed {
			t.Errorf("%s %v (opset %d): %s", r.Name, r.Ops, r.Opset, r.Reason)
		}
		if r.Verdict == Unsupported {
			t.Logf("%s %v (opset %d): %s", r.Name, r.Ops, r.Opset, r.Reason)
		}
	}
	t.Logf("%v of %d", count, len(results))
	if count[Passed] < 300 {
		t.Errorf("%d passed, at least 300 are expected", count[Passed])
	}
}

// Package orttest provides tests with the ONNX Runtime where it is, and skips them where it is not:
// no library, or a test built without cgo, as for a machine of 32 bits.
package orttest

import (
	"os"
	"testing"

	"fmp/onnx/engine"
)

// New opens the ONNX Runtime with one thread an operator, closed when the test ends. Where there is
// none the test is skipped, and fails in continuous integration ($CI is set); make setup fetches
// one.
func New(t testing.TB) engine.Engine {
	t.Helper()
	e, missing, err := open()
	if missing && os.Getenv("CI") != "" && cgo {
		t.Fatalf("continuous integration leaves no test out: %v", err)
	}
	if missing {
		t.Skipf("needs the ONNX Runtime: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

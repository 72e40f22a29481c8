// Package orttest gives tests the ONNX Runtime where it is, and skips them where it is not.
package orttest

import (
	"errors"
	"testing"

	"fmp/onnx/engine"
	"fmp/onnx/engine/ort"
)

// New opens the ONNX Runtime with one thread an operator, closed when the test ends. Where no library is found the
// test is skipped; make setup fetches one.
func New(t testing.TB) engine.Engine {
	t.Helper()
	e, err := ort.New(engine.Options{Threads: 1})
	if errors.Is(err, ort.ErrNoLibrary) {
		t.Skipf("needs the ONNX Runtime: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

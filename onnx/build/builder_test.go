package build_test

import (
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
)

// TestOutputs: a node has at least one output.
func TestOutputs(t *testing.T) {
	for _, n := range []int{0, -1} {
		b := build.New("none")
		x := b.Input("x", onnx.Float32, 2)
		b.OpN("Relu", []build.Ref{x}, n)
		b.Output("y", x)
		must.Fail(b.Model())(t, "1 and up", n)
	}
}

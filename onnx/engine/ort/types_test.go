package ort

import (
	"testing"

	ortgo "github.com/yalue/onnxruntime_go"

	"fmp/onnx"
)

// TestNumbersOfTypes: every type has one number in either order of the runtime, and that of the
// standard where they agree.
func TestNumbersOfTypes(t *testing.T) {
	defer func(was bool) { reordered = was }(reordered)
	for _, reordered = range []bool{false, true} {
		seen := map[ortgo.TensorElementDataType]bool{}
		for d := onnx.Float32; d <= onnx.Int2; d++ {
			n := toRuntime(d)
			if seen[n] || fromRuntime(n) != d || (!reordered || d < onnx.Float8E8M0) && int(n) != int(d) {
				t.Errorf("reordered %v: %v is %d, which is %v", reordered, d, n, fromRuntime(n))
			}
			seen[n] = true
		}
		if reordered && (toRuntime(onnx.Uint2) != 24 || toRuntime(onnx.Int2) != 25 ||
			toRuntime(onnx.Float8E8M0) != 26) {
			t.Errorf("%d, %d, %d; want the order of 1.32", toRuntime(onnx.Uint2), toRuntime(onnx.Int2),
				toRuntime(onnx.Float8E8M0))
		}
	}
}

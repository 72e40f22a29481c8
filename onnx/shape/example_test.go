package shape_test

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/build"
)

// Shapes that cannot fit are found before anything runs.
func ExampleInfer() {
	b := build.New("mistake")
	x := b.Input("x", onnx.Float32, "batch", 3)
	b.Output("y", b.MatMul(x, b.Param("w", onnx.ZerosF32(4, 2))))
	_, err := b.Model()
	fmt.Println(err)
	// Output: building graph "mistake": node "matmul" (MatMul): inner sizes 3 and 4 differ (inputs: "x" float32[batch,3], "w" float32[4,2])
}

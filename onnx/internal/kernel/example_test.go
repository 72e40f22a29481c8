package kernel_test

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/internal/kernel"
)

// A node is computed without a model around it.
func ExampleEvaluate() {
	n := &onnx.Node{Op: "CumSum", Inputs: []string{"x", "axis"}, Outputs: []string{"y"}}
	out, err := kernel.Evaluate(n, 17,
		[]*onnx.Tensor{onnx.Vector[int64](1, 2, 3), onnx.Scalar(int64(0))})
	if err != nil {
		panic(err)
	}
	fmt.Println(out[0].I64())
	// Output: [1 3 6]
}

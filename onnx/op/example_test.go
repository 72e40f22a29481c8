package op_test

import (
	"fmt"

	"fmp/onnx/op"
)

// Softmax has had three versions; its axis was 1 at first.
func ExampleVersions() {
	for _, s := range op.Versions("", "Softmax") {
		fmt.Println(s.Since, s.Attr("axis").Default.Int, s.In[0].Types)
	}
	// Output:
	// 1 1 float32, float16 or float64
	// 11 1 float32, float16 or float64
	// 13 -1 float32, float16, float64 or bfloat16
}

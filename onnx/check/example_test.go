package check_test

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/check"
)

// A node that reads a value without a producer is named.
func ExampleModel() {
	m := onnx.NewModel(&onnx.Graph{
		Name:    "typing error",
		Inputs:  []onnx.ValueInfo{{Name: "images", DType: onnx.Float32, Shape: onnx.Shape(2)}},
		Nodes:   []*onnx.Node{{Name: "act", Op: "Relu", Inputs: []string{"image"}, Outputs: []string{"y"}}},
		Outputs: []onnx.ValueInfo{{Name: "y", DType: onnx.Float32, Shape: onnx.Shape(2)}},
	})
	fmt.Println(check.Model(m))
	// Output: checking model "typing error": node "act" (Relu): it reads "image", which nothing before it gives
}

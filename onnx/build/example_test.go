package build_test

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/build"
)

// A linear layer built from Go: sizes that are only known when it runs have names.
func ExampleBuilder() {
	b := build.New("linear")
	x := b.Input("x", onnx.Float32, "batch", 3)
	w := b.Param("w", onnx.NewTensor([]float32{1, 0, 0, 1, 1, 1}, 3, 2))
	b.Output("y", b.Relu(b.MatMul(x, w)))
	m, err := b.Model()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Graph.Outputs[0])
	// Output: y float32[batch,2]
}

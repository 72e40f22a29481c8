package serde_test

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/serde"
)

// A model is encoded to the bytes of a file and decoded again.
func Example() {
	b := build.New("threshold")
	b.Output("y", b.Relu(b.Input("x", onnx.Float32, "n")))
	m, err := b.Model()
	if err != nil {
		panic(err)
	}
	data, err := serde.Marshal(m)
	if err != nil {
		panic(err)
	}
	again, err := serde.Unmarshal(data)
	if err != nil {
		panic(err)
	}
	fmt.Println(again.Graph.Name, again.Graph.Nodes[0].Op, again.Opset())
	// Output: threshold Relu 17
}

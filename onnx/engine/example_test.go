package engine_test

import (
	"errors"
	"fmt"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
)

// Code that takes an [engine.Engine] runs on any of them; each names the nodes that it refuses.
func ExampleEngine() {
	m := onnx.NewModel(&onnx.Graph{
		Name:   "unknown",
		Inputs: []onnx.ValueInfo{{Name: "x", DType: onnx.Float32, Shape: onnx.Shape(2)}},
		Nodes: []*onnx.Node{{Name: "n1", Op: "Frobnicate", Inputs: []string{"x"},
			Outputs: []string{"y"}}},
		Outputs: []onnx.ValueInfo{{Name: "y", DType: onnx.Float32, Shape: onnx.Shape(2)}},
	})
	try := func(e engine.Engine) error {
		_, err := e.Load(m)
		return err
	}
	eng, err := pure.New(engine.Options{})
	if err != nil {
		panic(err)
	}
	var refused *pure.UnsupportedError
	fmt.Println(errors.As(try(eng), &refused), refused.Nodes[0].Node, refused.Nodes[0].Op)
	// Output: true n1 Frobnicate
}

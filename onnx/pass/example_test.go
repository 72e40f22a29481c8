package pass_test

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/pass"
)

// One model feeds another: here features go to a classifier.
func ExampleCompose() {
	layer := func(name, in, out string, from, to int) *onnx.Model {
		b := build.New(name)
		b.Output(out, b.MatMul(b.Input(in, onnx.Float32, "batch", from), b.Param("w", onnx.ZerosF32(from, to))))
		m, err := b.Model()
		if err != nil {
			panic(err)
		}
		return m
	}
	m, err := pass.Compose(layer("extractor", "image", "features", 8, 4),
		layer("head", "rows", "logits", 4, 2), map[string]string{"rows": "features"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Graph.Inputs[0])
	fmt.Println(m.Graph.Outputs[0])
	fmt.Println(m.Graph.InitializerNames())
	// Output:
	// image float32[batch,8]
	// logits float32[batch,2]
	// [head/w w]
}

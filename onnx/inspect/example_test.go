package inspect_test

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/inspect"
)

// A layer of 3 by 4 weights takes 24 operations a row.
func ExampleStats() {
	b := build.New("layer")
	x := b.Input("x", onnx.Float32, "rows", 3)
	b.Output("y", b.MatMul(x, b.Param("w", onnx.ZerosF32(3, 4))))
	m, err := b.Model()
	if err != nil {
		panic(err)
	}
	s, err := inspect.Stats(m, map[string]int{"rows": 10})
	if err != nil {
		panic(err)
	}
	fmt.Println(s.Parameters, s.Operators, s.FLOPs)
	// Output: 12 map[Identity:1 MatMul:1] 240
}

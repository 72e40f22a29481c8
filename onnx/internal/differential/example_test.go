package differential_test

import (
	"fmt"

	"fmp/onnx/internal/differential"
)

// A graph follows from its family, the seed and its number.
func ExampleDraw() {
	c, again := differential.Draw("control", 1, 0, false), differential.Draw("control", 1, 0, false)
	fmt.Println(len(c.Model.Graph.Nodes) == len(again.Model.Graph.Nodes),
		c.Model.Opset() == again.Model.Opset())
	// Output: true true
}

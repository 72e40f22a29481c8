package optim_test

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/optim"
)

// The update of a parameter is a model: parameter, gradient and moments in, parameter and moments
// out.
func ExampleModel() {
	w := onnx.ValueInfo{Name: "w", DType: onnx.Float32, Shape: onnx.Shape(2, 3)}
	m, err := optim.StepModel([]onnx.ValueInfo{w}, optim.SGD{Momentum: 0.9}, optim.Options{})
	if err != nil {
		panic(err)
	}
	for _, v := range m.Graph.Inputs {
		fmt.Println("in ", v)
	}
	for _, v := range m.Graph.Outputs {
		fmt.Println("out", v)
	}
	// Output:
	// in  w float32[2,3]
	// in  grad_w float32[2,3]
	// in  rate float32[]
	// in  m_w float32[2,3]
	// out grad_norm float32[]
	// out new_w float32[2,3]
	// out new_m_w float32[2,3]
}

// The rate rises over two steps and falls along half a cosine.
func ExampleWarmupCosine() {
	rate := optim.WarmupCosine(1, 0.1, 2)
	for t := range 5 {
		fmt.Printf("%.2f ", rate(t, 5))
	}
	// Output: 0.50 1.00 1.00 0.78 0.33
}

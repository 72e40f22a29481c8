package suggest_test

import (
	"fmt"

	"fmp/onnx/suggest"
)

func ExampleNearest() {
	fmt.Println(suggest.Nearest("Sofmax", []string{"Relu", "Softmax", "Softplus"}))
	// Output: Softmax
}

func ExampleOr() {
	fmt.Println(suggest.Or("float32", "float64", "int64"))
	// Output: float32, float64 or int64
}

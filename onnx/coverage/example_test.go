package coverage_test

import (
	"fmt"

	"fmp/onnx/coverage"
)

func ExampleHas() {
	fmt.Println(coverage.Has("Conv", coverage.Kernel), coverage.Has("Bernoulli", coverage.Kernel))
	fmt.Println(coverage.Cell("Bernoulli", coverage.Kernel))
	// Output:
	// true false
	// –
}

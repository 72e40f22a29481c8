package coverage_test

import (
	"fmt"

	"fmp/onnx/coverage"
)

func ExampleHas() {
	fmt.Println(coverage.Has("Conv", coverage.Kernel), coverage.Has("Bernoulli", coverage.Kernel))
	fmt.Println(coverage.Missing("Bernoulli", coverage.Kernel))
	// Output:
	// true false
	// draws at random: no two runs, and no two engines, agree
}

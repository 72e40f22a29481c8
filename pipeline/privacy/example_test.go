package privacy_test

import (
	"fmt"

	"fmp/pipeline/privacy"
)

// The noise of one release, and the epsilon of two releases of the same images with that noise
// each.
func ExampleSigma() {
	const delta = 1e-5
	sigma := privacy.Sigma(1, delta)
	fmt.Printf("epsilon 1 wants noise of %.3f times the sensitivity\n", sigma)
	fmt.Printf("two such releases have epsilon %.3f\n",
		privacy.Epsilon(sigma/1.4142135623730951, delta))
	// Output:
	// epsilon 1 wants noise of 3.731 times the sensitivity
	// two such releases have epsilon 1.465
}

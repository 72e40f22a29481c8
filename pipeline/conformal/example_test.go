package conformal_test

import (
	"fmt"

	"fmp/pipeline/conformal"
)

// Nine calibration images have these probabilities for their true class. A set of every class that has the threshold's probability or more
// holds the true class of a new image with a probability of 0.8 or more.
func ExampleThreshold() {
	scores := []float32{0.91, 0.40, 0.78, 0.95, 0.62, 0.88, 0.55, 0.97, 0.83}
	threshold, err := conformal.Threshold(scores, 0.8)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("threshold %.2f; level 0.8 wants %d images or more\n", threshold, conformal.Images(0.8))
	// Output: threshold 0.55; level 0.8 wants 4 images or more
}

package conformal_test

import (
	"fmt"

	"fmp/pipeline/conformal"
)

// Nine calibration images have these probabilities for their true class. A set of every class that
// has the threshold's probability or more holds the true class of a new image with a probability of
// 0.8 or more.
func ExampleDesign() {
	scores := []float32{0.91, 0.40, 0.78, 0.95, 0.62, 0.88, 0.55, 0.97, 0.83}
	var alike conformal.Design
	if err := alike.Enough([]int{len(scores)}, 0.8); err != nil {
		fmt.Println(err)
		return
	}
	threshold := alike.Table(scores, make([]int, len(scores)), 1).At(0.8)[0]
	fmt.Printf("threshold %.2f; level 0.8 wants %d images or more\n", threshold, conformal.Images(0.8))
	// Output: threshold 0.55; level 0.8 wants 4 images or more
}

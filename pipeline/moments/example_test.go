package moments_test

import (
	"fmt"

	"fmp/pipeline/moments"
)

// A client with images of two classes sends class means, the scatter of the features within its
// classes, and single images' features as calibration points.
func ExampleCompute() {
	var rows []float32
	var labels []int
	for i := range 40 {
		c := i % 2
		rows = append(rows, float32(4*c)+float32(i%5)/10, float32(i%7)/10)
		labels = append(labels, c)
	}
	means, within, err := moments.Compute(rows, 2, labels, 2, "shop-17")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d points of mass %.0f; the scatter has %d degrees of freedom\n", means.N,
		means.Mass(), within.Dof)
	// Output: 2 points of mass 32; the scatter has 30 degrees of freedom
}

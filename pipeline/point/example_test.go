package point_test

import (
	"fmt"

	"fmp/pipeline/point"
)

// Two clients hold points of two features and three classes; the server reads them as one set.
func ExamplePool() {
	a, err := point.FromLabelled([]float32{1, 2, 3, 4}, 2, []int{0, 2}, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := point.FromLabelled([]float32{5, 6}, 2, []int{1}, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	all, err := point.Pool(a, b)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, labels := all.Labelled()
	fmt.Println(all.N, "points of mass", all.Mass(), "with labels", labels)
	// Output: 3 points of mass 3 with labels [0 2 1]
}

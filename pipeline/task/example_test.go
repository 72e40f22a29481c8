package task_test

import (
	"fmt"

	"fmp/models/rng"
	"fmp/pipeline/task"
)

// Three clients draw four rows each of a bank of twenty rows of two classes, without replacement. A
// small alpha makes clients non-IID.
func ExampleBank_Partition() {
	features, labels := make([]float32, 20), make([]int, 20)
	for i := range labels {
		features[i], labels[i] = float32(i), i%2
	}
	bank, err := task.NewBank(features, 1, labels, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	rows, err := bank.Partition(rng.New(1, "clients"), 3, 4, 0.1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, set := range bank.Clients(rows) {
		_, labels := set.Labelled()
		fmt.Println("client", i, "has labels", labels)
	}
	// Output:
	// client 0 has labels [1 1 1 1]
	// client 1 has labels [1 1 1 1]
	// client 2 has labels [0 0 0 0]
}

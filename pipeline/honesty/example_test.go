package honesty_test

import (
	"context"
	"fmt"

	"fmp/pipeline/honesty"
)

// Five clients hold two classes whose means lie at +2 and -2 in each of four coordinates; the last
// one has named them the other way around.
func ExampleInfer() {
	const clients, classes, k = 5, 2, 4
	u := honesty.Uploads{Clients: clients, Classes: classes, K: k}
	for m := range clients {
		for c := range classes {
			mean := 2 - 4*float64(c)
			if m == clients-1 {
				mean = -mean
			}
			u.Masses = append(u.Masses, 50)
			for j := range k {
				u.Means = append(u.Means, mean+0.05*float64((m+j)%3-1))
			}
		}
	}
	states, err := honesty.Infer(context.Background(), u, []float64{4, 4, 4, 4}, 1, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for m, p := range states.Marginal() {
		fmt.Printf("client %d is honest with probability %.2f\n", m, p)
	}
	// Output:
	// client 0 is honest with probability 0.97
	// client 1 is honest with probability 0.98
	// client 2 is honest with probability 0.98
	// client 3 is honest with probability 0.97
	// client 4 is honest with probability 0.00
}

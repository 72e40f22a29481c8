package federate_test

import (
	"fmt"
	"strings"

	"fmp/pipeline/federate"
	"fmp/pipeline/point"
)

// A client sends two class means, behind which are 30 images; the server decodes and checks the
// message.
func ExampleDecode() {
	means, err := point.FromLabelled([]float32{0.5, 1, 1.5, -2, 0, 2}, 3, []int{0, 1}, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	means.W[0], means.W[1] = 10, 20
	u := &federate.Upload{Round: 1, Client: "shop-17", Model: strings.Repeat("ab", 32), N: 30,
		Points: means, Precision: federate.Half}
	data, err := u.Encode()
	if err != nil {
		fmt.Println(err)
		return
	}
	round := uint64(1)
	got, err := federate.Decode(data, federate.Expect{Model: u.Model, Round: &round})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(got.Client, "sent", got.Points.N, "class means of", got.N, "images in", got.Precision)
	round = 2
	_, err = federate.Decode(data, federate.Expect{Round: &round})
	fmt.Println(err)
	// Output:
	// shop-17 sent 2 class means of 30 images in float16
	// upload: round is 1; allowed: 2, the round that is being gathered
}

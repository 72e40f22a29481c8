package oneshot_test

import (
	"context"
	"fmt"
	"slices"

	"fmp/featurize/digits"
	"fmp/models"
	"fmp/onnx"
	"fmp/pipeline/oneshot"
	"fmp/pipeline/pool"
	"fmp/pipeline/shipped"
)

// Three clients with 30 pictures of digits each send one upload; the server makes a classifier of
// them, which reads most of 100 others.
func Example() {
	ctx := context.Background()
	graph, _, err := shipped.Load("digits", models.KindClient)
	if err != nil {
		panic(err)
	}
	drawn, err := digits.Draw(ctx, digits.Config{Variant: digits.Grey, Seed: 1, Train: 90, Test: 100})
	if err != nil {
		panic(err)
	}
	size := drawn.Side * drawn.Side
	var uploads [][]byte
	for m := range 3 { // at each client
		var labels []int
		for _, y := range drawn.Train.Labels[30*m : 30*(m+1)] {
			labels = append(labels, int(y))
		}
		pixels := onnx.NewTensor(drawn.Train.Pix[30*m*size:30*(m+1)*size], 30,
			drawn.Side, drawn.Side, 1)
		upload, err := oneshot.Compress(ctx, graph, fmt.Sprint("client ", m), 0, pixels, labels)
		if err != nil {
			panic(err)
		}
		uploads = append(uploads, upload)
	}
	// at the server
	classifier, err := oneshot.Aggregate(ctx, graph, uploads, pool.Options{Samples: 20})
	if err != nil {
		panic(err)
	}
	p, err := oneshot.Predict(ctx, classifier,
		onnx.NewTensor(drawn.Test.Pix, 100, drawn.Side, drawn.Side, 1))
	if err != nil {
		panic(err)
	}
	right := 0
	for i, y := range drawn.Test.Labels {
		row := p.F32()[10*i : 10*(i+1)]
		if slices.Index(row, slices.Max(row)) == int(y) {
			right++
		}
	}
	fmt.Println("probabilities of", p.Shape[0], "pictures; right on most:", right > 80)
	// Output: probabilities of 100 pictures; right on most: true
}

package train_test

import (
	"context"
	"fmt"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/optim"
	"fmp/onnx/train"
)

// points are n rows of [xor] with their classes as probabilities.
func points(n int) (train.Data, error) {
	all := map[string]*onnx.Tensor{"x": onnx.ZerosF32(n, 2), train.TargetInput: onnx.ZerosF32(n, 2)}
	for t := range n / 64 {
		for name, v := range xor(t) {
			if name == "labels" {
				name = train.TargetInput
			}
			copy(all[name].F32()[t*128:], v.F32())
		}
	}
	return train.Rows(all)
}

// A classifier is given a new last layer and is trained on rows, with a tenth of them held out.
func ExampleTuning_Train() {
	eng, err := pure.New(engine.Options{}) // or ort.New: the ONNX Runtime
	if err != nil {
		fmt.Println(err)
		return
	}
	defer eng.Close()
	model, err := network() // or serde.Load("model.onnx")
	if err != nil {
		fmt.Println(err)
		return
	}
	model, head, err := train.NewHead(model, "logits", 2, false, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("new:", head)
	data, err := points(640)
	if err != nil {
		fmt.Println(err)
		return
	}
	data, held, err := data.HoldOut(0.1, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	tuning := train.Tuning{
		Loss: train.Loss{Name: train.CrossEntropy}, Optimizer: optim.AdamW{},
		Update: optim.Options{ClipNorm: 1},
		Rate:   optim.WarmupCosine(0.05, 0, 10), Epochs: 10, Batch: 32, Patience: 3, Seed: 1,
	}
	for _, w := range train.Weights(model.Graph, "logits") { // or some of them, to freeze the others
		tuning.Weights = append(tuning.Weights, w.Name)
	}
	res, err := tuning.Train(context.Background(), eng, model, data, held)
	if err != nil {
		fmt.Println(err)
		return
	}
	after, err := tuning.Measure(context.Background(), eng, res.Model, held)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("more than 0.95 of the held-out rows are right:", after["acc"] > 0.95)
	// Output:
	// new: [head.weight head.bias]
	// more than 0.95 of the held-out rows are right: true
}

// Low-rank factors stand beside a matrix, and are added to it when they are trained.
func ExampleAddLoRA() {
	model, err := network()
	if err != nil {
		fmt.Println(err)
		return
	}
	adapted, factors, err := train.AddLoRA(model, []string{"hidden.weight", "out.weight"}, 1, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	values := map[string]*onnx.Tensor{}
	for _, f := range factors { // train them: here they are as they began
		values[f] = adapted.Graph.Initializers[f]
		fmt.Println(f, values[f])
	}
	fmt.Println(train.MergeLoRA(model, values))
	// Output:
	// hidden.weight/lora_a float32[2 1]
	// hidden.weight/lora_b float32[1 16]
	// out.weight/lora_a float32[16 1]
	// out.weight/lora_b float32[1 2]
	// <nil>
}

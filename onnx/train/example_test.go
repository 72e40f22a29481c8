package train_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/check"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/grad"
	"fmp/onnx/optim"
	"fmp/onnx/pass"
	"fmp/onnx/train"
)

// Somebody's ONNX model gets a loss, is differentiated, and is trained; out comes an ordinary ONNX
// model.
func Example() {
	if err := fineTune(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// gradients: [grad_hidden.weight grad_hidden.bias grad_out.weight grad_out.bias]
	// loss fell to less than a tenth: true
	// the trained model gives logits float32[batch,2]
}

func fineTune(ctx context.Context) error {
	model, err := network() // or serde.Load("model.onnx")
	if err != nil {
		return err
	}
	// or slices.Sorted(maps.Keys(train.Params(model, nil)))
	params := []string{"hidden.weight", "hidden.bias", "out.weight", "out.bias"}

	// The loss is a small model of its own, fed by the first one: mean cross-entropy with soft
	// labels.
	b := build.New("cross entropy")
	logits := b.Input("logits", onnx.Float32, "batch", 2)
	labels := b.Input("labels", onnx.Float32, "batch", 2)
	logp := b.Op("LogSoftmax", []build.Ref{logits}, onnx.IntAttr("axis", -1))
	each := b.ReduceSum(b.Mul(labels, logp), false, 1)
	b.Output("loss", b.Mul(b.ReduceMean(each, false, 0), b.F32(-1)))
	loss, err := b.Model()
	if err != nil {
		return err
	}
	whole, err := pass.Compose(model, loss, map[string]string{"logits": "logits"})
	if err != nil {
		return err
	}

	// Differentiated: a graph goes in, a graph with one more output a parameter comes out.
	gradient, err := grad.Build(whole,
		grad.Options{Outputs: []string{"loss"}, WRT: params, UnitCotangent: true})
	if err != nil {
		return err
	}
	var names []string
	for _, o := range gradient.Graph.Outputs {
		names = append(names, o.Name)
	}
	fmt.Println("gradients:", names)

	// A training step (forward, backward, AdamW) is one graph too, which any engine runs.
	adam := optim.AdamW{}
	graph, err := train.StepModel(whole, "loss", params, adam, optim.Options{ClipNorm: 1})
	if err != nil {
		return err
	}
	eng, err := pure.New(engine.Options{}) // or ort.New: the ONNX Runtime
	if err != nil {
		return err
	}
	defer eng.Close()
	trainable := func(name string) bool { return slices.Contains(params, name) }
	step, err := train.NewStep(eng, graph, adam, train.Params(whole, trainable))
	if err != nil {
		return err
	}
	defer step.Close()
	var first, last float64
	loop := train.Loop{ // Checkpoint, Log and Validate are there to be set
		Steps: 200, Rate: optim.WarmupCosine(0.05, 0, 10), Model: step,
		Step: func(_ context.Context, t int, rate float64) (train.Metrics, error) {
			out, err := step.Run(t, rate, xor(t))
			if err != nil {
				return nil, err
			}
			last = float64(out["loss"].F32()[0])
			if t == 0 {
				first = last
			}
			return train.Metrics{"loss": last}, nil
		},
	}
	if err := loop.Train(ctx); err != nil {
		return err
	}
	fmt.Println("loss fell to less than a tenth:", last < first/10)

	// The trained parameters go back into the model. serde.Save writes it.
	for _, name := range params {
		model.Graph.Initializers[name] = step.State()[name]
	}
	if err := check.Model(model); err != nil {
		return err
	}
	fmt.Println("the trained model gives", model.Graph.Outputs[0])
	return nil
}

// network is two linear layers, as an exporter would write them.
func network() (*onnx.Model, error) {
	r := rand.New(rand.NewPCG(1, 1))
	weight := func(shape ...int) *onnx.Tensor {
		t := onnx.ZerosF32(shape...)
		for i := range t.F32() {
			t.F32()[i] = float32(r.NormFloat64())
		}
		return t
	}
	b := build.New("network")
	x := b.Input("x", onnx.Float32, "batch", 2)
	h := b.Relu(b.Op("Gemm",
		[]build.Ref{x, b.Param("hidden.weight", weight(2, 16)), b.Param("hidden.bias", weight(16))}))
	b.Output("logits", b.Op("Gemm",
		[]build.Ref{h, b.Param("out.weight", weight(16, 2)), b.Param("out.bias", weight(2))}))
	return b.Model()
}

// xor is a batch of points in the plane whose class is the product of their signs.
func xor(t int) map[string]*onnx.Tensor {
	r := rand.New(rand.NewPCG(2, uint64(t)))
	x, y := onnx.ZerosF32(64, 2), onnx.ZerosF32(64, 2)
	for i := range 64 {
		s, u := float32(1-2*r.IntN(2)), float32(1-2*r.IntN(2))
		x.F32()[2*i] = s * (0.5 + r.Float32())
		x.F32()[2*i+1] = u * (0.5 + r.Float32())
		class := 0
		if s*u > 0 {
			class = 1
		}
		y.F32()[2*i+class] = 1
	}
	return map[string]*onnx.Tensor{"x": x, "labels": y}
}

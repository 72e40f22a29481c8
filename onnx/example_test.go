package onnx_test

import (
	"fmt"
	"os"
	"path/filepath"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
)

// A model is built, saved, loaded, checked and run. Somebody else's model begins at Load.
func Example() {
	dir, err := os.MkdirTemp("", "onnx")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "linear.onnx")

	b := onnx.NewBuilder("linear")
	x := b.Input("x", onnx.Float32, "batch", 3)
	b.Output("y", b.MatMul(x, b.Param("w", onnx.NewTensor([]float32{1, 0, 0, 1, 1, 1}, 3, 2))))
	m, err := b.Model()
	if err == nil {
		err = onnx.Save(path, m)
	}
	if err != nil {
		fmt.Println(err)
		return
	}

	if m, err = onnx.Load(path); err == nil {
		err = onnx.Check(m)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	eng, err := pure.New(engine.Options{}) // or ort.New: the ONNX Runtime
	if err != nil {
		fmt.Println(err)
		return
	}
	defer eng.Close()
	session, err := eng.Load(m)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
	out, err := engine.Eval(session, map[string]*onnx.Tensor{"x": onnx.NewTensor([]float32{1, 2, 3, 4, 5, 6}, 2, 3)})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out["y"].Shape, out["y"].F32())
	// Output: [2 2] [4 5 10 11]
}

// A linear layer built from Go: sizes that are only known when it runs have names.
func ExampleBuilder() {
	b := onnx.NewBuilder("linear")
	x := b.Input("x", onnx.Float32, "batch", 3)
	w := b.Param("w", onnx.NewTensor([]float32{1, 0, 0, 1, 1, 1}, 3, 2))
	b.Output("y", b.Relu(b.MatMul(x, w)))
	m, err := b.Model()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Graph.Outputs[0].Name, m.Graph.Outputs[0])
	// Output: y float32[batch,2]
}

// Shapes that cannot fit are found before anything runs.
func ExampleInfer() {
	b := onnx.NewBuilder("mistake")
	x := b.Input("x", onnx.Float32, "batch", 3)
	b.Output("y", b.MatMul(x, b.Param("w", onnx.ZerosF32(4, 2))))
	_, err := b.Model()
	fmt.Println(err)
	// Output: building graph "mistake": node "matmul" (MatMul): inner sizes 3 and 4 differ (inputs: "x" float32[batch,3], "w" float32[4,2])
}

// One model feeds another: here features go to a classifier.
func ExampleCompose() {
	layer := func(name, in, out string, from, to int) *onnx.Model {
		b := onnx.NewBuilder(name)
		b.Output(out, b.MatMul(b.Input(in, onnx.Float32, "batch", from), b.Param("w", onnx.ZerosF32(from, to))))
		m, err := b.Model()
		if err != nil {
			panic(err)
		}
		return m
	}
	m, err := onnx.Compose(layer("extractor", "image", "features", 8, 4), layer("head", "rows", "logits", 4, 2), map[string]string{"rows": "features"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Graph.Inputs[0].Name, m.Graph.Inputs[0])
	fmt.Println(m.Graph.Outputs[0].Name, m.Graph.Outputs[0])
	fmt.Println(m.Graph.InitializerNames())
	// Output:
	// image float32[batch,8]
	// logits float32[batch,2]
	// [head/w w]
}

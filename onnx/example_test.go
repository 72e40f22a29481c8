package onnx_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/run"
	"fmp/onnx/serde"
)

// A model is built, saved, opened and run. Somebody else's model begins at Open, which checks it.
func Example() {
	dir, err := os.MkdirTemp("", "onnx")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "linear.onnx")

	b := build.New("linear")
	x := b.Input("x", onnx.Float32, "batch", 3)
	b.Output("y", b.MatMul(x, b.Param("w", onnx.NewTensor([]float32{1, 0, 0, 1, 1, 1}, 3, 2))))
	m, err := b.Model()
	if err == nil {
		err = serde.Save(path, m)
	}
	if err != nil {
		fmt.Println(err)
		return
	}

	session, err := run.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
	features := onnx.NewTensor([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	out, err := session.Run(context.Background(), map[string]*onnx.Tensor{"x": features})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out["y"].Shape, out["y"].F32())
	// Output: [2 2] [4 5 10 11]
}

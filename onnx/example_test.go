package onnx_test

import (
	"fmt"
	"os"
	"path/filepath"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/check"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/serde"
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

	if m, err = serde.Load(path); err == nil {
		err = check.Model(m)
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

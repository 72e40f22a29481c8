package pure_test

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
)

// A model is loaded once and evaluated as often as its feeds come.
func Example() {
	b := build.New("double")
	x := b.Input("x", onnx.Float32, "n")
	b.Output("y", b.Add(x, x))
	m, err := b.Model()
	if err != nil {
		panic(err)
	}
	eng, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		panic(err)
	}
	defer eng.Close()
	session, err := eng.Load(m)
	if err != nil {
		panic(err)
	}
	defer session.Close()
	out, err := engine.Eval(session, map[string]*onnx.Tensor{"x": onnx.Vector[float32](1, 2.5)})
	if err != nil {
		panic(err)
	}
	fmt.Println(out["y"].F32())
	// Output: [2 5]
}

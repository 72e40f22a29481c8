package npy_test

import (
	"bytes"
	"fmt"

	"fmp/onnx"
	"fmp/onnx/npy"
)

// A tensor is written as numpy.save does and read again.
func Example() {
	var file bytes.Buffer
	if err := npy.Write(&file, onnx.NewTensor([]int64{1, 2, 3, 4, 5, 6}, 2, 3)); err != nil {
		panic(err)
	}
	t, err := npy.Read(&file)
	if err != nil {
		panic(err)
	}
	fmt.Println(t, t.I64())
	// Output: int64[2 3] [1 2 3 4 5 6]
}

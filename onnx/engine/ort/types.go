package ort

import (
	"fmt"

	ortgo "github.com/yalue/onnxruntime_go"

	"fmp/onnx"
)

// The runtime numbers the types of elements as the standard does. Later versions, 1.32 among them,
// have the newest three in another order: unsigned and signed numbers of two bits first.
var reordered bool

// numberTypes finds out the order of the runtime that is loaded: four elements of the first of the
// three take one byte where they have two bits, and four where they are exponents of eight.
func numberTypes() error {
	t, err := ortgo.NewCustomDataTensor(ortgo.NewShape(4), make([]byte, 1),
		ortgo.TensorElementDataType(onnx.Float8E8M0))
	if reordered = err == nil; reordered {
		if err := t.Destroy(); err != nil {
			return fmt.Errorf("a tensor of the ONNX Runtime: %w", plain(err))
		}
	}
	return nil
}

// toRuntime returns the runtime's number of a type, fromRuntime the type of a number. Both read
// reordered, which is set before any session is made.
func toRuntime(d onnx.DType) ortgo.TensorElementDataType {
	if reordered {
		switch d {
		case onnx.Uint2:
			return ortgo.TensorElementDataType(onnx.Float8E8M0)
		case onnx.Int2:
			return ortgo.TensorElementDataType(onnx.Uint2)
		case onnx.Float8E8M0:
			return ortgo.TensorElementDataType(onnx.Int2)
		}
	}
	return ortgo.TensorElementDataType(d)
}

func fromRuntime(n ortgo.TensorElementDataType) onnx.DType {
	for _, d := range []onnx.DType{onnx.Float8E8M0, onnx.Uint2, onnx.Int2} {
		if toRuntime(d) == n {
			return d
		}
	}
	return onnx.DType(n)
}

package models

import (
	"fmp/onnx"
)

// LastLayer returns the weights [classes, dx] of the linear layer that reads a value of dx numbers
// in a model; nil where there is none whose weights are float32 constants.
func LastLayer(m *onnx.Model, value string, dx int) *onnx.Tensor {
	for _, n := range m.Graph.Nodes {
		if n.Op != "Gemm" && n.Op != "MatMul" || len(n.Inputs) < 2 || n.Inputs[0] != value {
			continue
		}
		w := m.Graph.Initializers[n.Inputs[1]]
		if w == nil || w.DType != onnx.Float32 || len(w.Shape) != 2 {
			continue
		}
		flipped := false // [classes, dx]
		if a, ok := n.Attr("transB"); ok && n.Op == "Gemm" {
			flipped = a.Int != 0
		}
		if flipped && w.Shape[1] == dx {
			return w
		}
		if !flipped && w.Shape[0] == dx {
			out := onnx.ZerosF32(w.Shape[1], dx)
			for j := range dx {
				for c := range w.Shape[1] {
					out.F32()[c*dx+j] = w.F32()[j*w.Shape[1]+c]
				}
			}
			return out
		}
	}
	return nil
}

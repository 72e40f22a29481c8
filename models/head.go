package models

import (
	"maps"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/pass"
)

// LastLayer returns the weights [classes, dx] of the linear layer that reads a value of dx numbers
// in a model; nil where there is none whose weights are numbers that no input changes. Of several
// such layers the first one that fits is taken. The numbers are copied to float32. A layer may hold
// them as [dx, classes] or, flipped (transB), as [classes, dx]: the weight of class y and feature j
// is number y perClass + j perFeature. The engine computes weights that are no initializers. An
// error of it counts as no layer.
func LastLayer(eng engine.Engine, m *onnx.Model, value string, dx int) *onnx.Tensor {
	for _, n := range m.Graph.Nodes {
		if n.Op != "Gemm" && n.Op != "MatMul" || len(n.Inputs) < 2 || n.Inputs[0] != value {
			continue
		}
		w := fixed(eng, m, n.Inputs[1])
		if w == nil || !w.DType.IsFloat() || len(w.Shape) != 2 {
			continue
		}
		classes, perClass, perFeature := w.Shape[1], 1, w.Shape[1]
		if a, ok := n.Attr("transB"); ok && n.Op == "Gemm" && a.Int != 0 {
			classes, perClass, perFeature = w.Shape[0], w.Shape[1], 1
		}
		if w.Len() != classes*dx {
			continue
		}
		out := onnx.ZerosF32(classes, dx)
		for i := range out.F32() {
			out.F32()[i] = float32(w.At(i/dx*perClass + i%dx*perFeature))
		}
		return out
	}
	return nil
}

// fixed returns a value that is the same for all inputs, such as weights that a network stores in
// bytes; nil where it is none or the engine cannot compute it. m is not changed. Its inputs are
// taken away, so that a value that needs one cannot be computed.
func fixed(eng engine.Engine, m *onnx.Model, value string) *onnx.Tensor {
	if t := m.Graph.Initializers[value]; t != nil {
		return t
	}
	c, g := *m, *m.Graph
	g.Inputs, g.Optional, g.Values, g.Outputs = nil, nil, nil, []onnx.ValueInfo{{Name: value}}
	g.Initializers = maps.Clone(g.Initializers)
	pass.RemoveUnused(&g)
	c.Graph = &g
	s, err := eng.Load(&c)
	if err != nil {
		return nil
	}
	defer s.Close()
	out, err := engine.Eval(s, nil, value)
	if err != nil {
		return nil
	}
	return out[value]
}

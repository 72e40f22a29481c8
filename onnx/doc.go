// Package onnx holds ONNX models in memory: a [Model] is a [Graph] of [Node]s over named values,
// its initializers as [Tensor]s, the operator sets that it imports, and string metadata.
//
// Package run opens a model file and runs it:
//
//	s, err := run.Open("model.onnx")
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	out, err := s.Run(ctx, map[string]*onnx.Tensor{"image": onnx.NewTensor(pixels, 1, 3, 224, 224)})
//
// The other packages have one job each: op describes every operator, serde reads and writes files,
// build makes models from Go, check finds faults, shape infers types and shapes, pass rewrites,
// inspect counts, grad differentiates, optim and train fit parameters, and engine has the engines
// of run.
//
// Source of every operator's meaning: the ONNX operator specification
// (https://onnx.ai/onnx/operators/). Models are written in operator set 17, IR version 8.
package onnx

// Package onnxgo is a backend for onnx-go (github.com/owulveryck/onnx-go) that runs its models on
// the pure engine. A program that was written for onnx-go's own backend changes one import, and the
// call that makes the graph keeps its name:
//
//	import "fmp/onnx/engine/onnxgo" // was github.com/owulveryck/onnx-go/backend/x/gorgonnx
//
//	graph := onnxgo.NewGraph()
//	model := onnx.NewModel(graph)
//	err := model.UnmarshalBinary(data)
//	err = model.SetInput(0, input)
//	err = graph.Run()
//	output, err := model.GetOutputTensors()
//
// Its limits are those of onnx-go v0.5.0, the last one (2019-12-30): a model is handed over without
// its version of the operator set, without domains and functions, and attributes that are graphs
// are refused, so that there are neither loops nor conditions. [Graph].Opset says the version. A
// model of today is opened by package run in place of onnx-go, which has none of these limits.
//
// The tensor library behind onnx-go does not build for machines of 32 bits: there the package is
// empty.
package onnxgo

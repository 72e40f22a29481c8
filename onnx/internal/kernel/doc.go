// Package kernel holds the operators of the pure-Go engine: for each, its signature (which element
// types, which opsets) in one registry, and the code that computes it.
//
// A [Def] is looked up by operator name and opset, its attributes are parsed once by Def.New, and
// the [Kernel] that comes back is called once per run with the inputs' tensors. Shapes are worked
// out at that call, so the same kernel serves any batch size. One operator, or a close family, is
// one file; shape rules stand as equations in the comments.
//
// Results do not depend on the number of threads: work is divided among independent outputs, and
// every sum is taken in the same order however it is divided.
//
// Matrix products and convolutions go through gonum's BLAS in float64, and in float32 where they
// are small or the processor lacks vector instructions that we use; else through panels (panel.go),
// the one place with assembly.
//
// Source of every operator's meaning: the ONNX operator specification
// (https://onnx.ai/onnx/operators/).
package kernel

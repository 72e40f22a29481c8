// Package onnx builds, reads, checks, rewrites and saves ONNX models.
//
// A [Model] is the in-memory form of an ONNX file: a [Graph] of [Node]s over named values, its
// initializers as [Tensor]s, the operator sets it imports, and string metadata. [Load] and [Save]
// move it to and from the public wire format; [Builder] makes one from Go; [Infer] works out
// element types and shapes; [Check] says what is wrong with one; [Compose] feeds one into another.
//
// Packages below: onnx/engine runs models, onnx/grad differentiates them, onnx/optim updates
// parameters, each as ordinary graphs.
//
// Source of every operator's meaning: the ONNX operator specification
// (https://onnx.ai/onnx/operators/). What we write is opset 17, IR version 8.
package onnx

// Package onnx holds ONNX models in memory: a [Model] is a [Graph] of [Node]s over named values, its initializers as
// [Tensor]s, the operator sets that it imports, and string metadata.
//
// What is done with models is in the packages below, each with one job: op says what every operator is, serde reads
// and writes files, build makes models from Go, check finds what is wrong, shape infers types and shapes, pass
// rewrites, inspect counts, grad differentiates, optim and train fit parameters, and engine runs.
//
// Source of every operator's meaning: the ONNX operator specification
// (https://onnx.ai/onnx/operators/). What is written is operator set 17, IR version 8.
package onnx

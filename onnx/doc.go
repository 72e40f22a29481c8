// Package onnx holds ONNX models in memory: a [Model] is a [Graph] of [Node]s over named values, its initializers as
// [Tensor]s, the operator sets that it imports, and string metadata.
//
// The packages below work on models, each with one job: op describes every operator, serde reads
// and writes files, build makes models from Go, check finds faults, shape infers types and shapes, pass
// rewrites, inspect counts, grad differentiates, optim and train fit parameters, and engine runs.
//
// Source of every operator's meaning: the ONNX operator specification
// (https://onnx.ai/onnx/operators/). Models are written in operator set 17, IR version 8.
package onnx

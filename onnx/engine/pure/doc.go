// Package pure runs ONNX models in Go alone: no cgo, no shared library, on every platform that Go
// builds for.
//
// A model goes through two doors when it is loaded. Each node is matched with a kernel of package
// kernel, which checks its arity, element types and attributes (plan.go). Then the plan is fixed:
// the order of nodes, and after which of them each value is dropped. A node that no kernel
// implements is refused by node and operator when the model is loaded, with every reason at once
// ([UnsupportedError]); [Supports] asks without loading.
//
// The decoder is package serde's. onnx-go (github.com/owulveryck/onnx-go) is the second one, in a
// test of package onnxgo alone: of the standard's models the two readings must agree, node by node
// and weight by weight. It is no part of this package: it knows neither element types beyond four
// nor domains, functions or dynamic axes, so that a plan cannot be made from its graph, and with
// the tensor library behind it a client would have 15 MB in place of 7.
//
// Batch and set sizes are free from run to run. Buffers of dropped values are reused within a run
// and by the next. Results are the same to the bit for any number of threads.
package pure

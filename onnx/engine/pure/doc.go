// Package pure runs ONNX models in Go alone: no cgo, no shared library, on every platform that Go
// builds for.
//
// A model goes through three doors when it is loaded. onnx-go (github.com/owulveryck/onnx-go)
// decodes its bytes into a backend of ours, a weighted directed graph on gonum's graph packages
// (decode.go, backend.go); what came out is compared with our own reading of the model. Each node is
// matched with a kernel of package kernel, which checks its arity, element types and attributes
// (plan.go). Then the plan is fixed: the order of nodes, and after which of them each value is dropped.
//
// What onnx-go cannot decode or no kernel implements is refused by node and operator when the model
// is loaded, with every reason at once ([UnsupportedError]); [Supports] asks without loading.
//
// The build tag tiny leaves onnx-go out, and fills the graph from our own reading alone: for programs whose
// size counts.
//
// Batch and set sizes are free from run to run. Buffers of dropped values are reused within a run and
// by the next. Results are the same to the bit for any number of threads.
package pure

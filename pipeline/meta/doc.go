// Package meta trains the predictors and the embedding on tasks drawn from a corpus of features
// (arXiv:2605.18554).
//
// One step processes a batch of tasks. For each task it runs the forward graph on the engine
// (onnx/engine), fits the head in float64 (pipeline/erm), computes the loss and its derivative with
// respect to the head, propagates it back through the fit by the implicit gradient, and runs the
// gradient graph (onnx/grad) with that as its cotangent. The gradients are summed in the order of
// the tasks, and one run of the optimiser's graph (onnx/optim) updates the parameters.
//
// Every task draws from random streams named after its step and position, so that a resumed
// training equals an uninterrupted one, on any number of threads.
package meta

// Package meta trains the predictor and the embedding over tasks drawn from a corpus of features
// (arXiv:2605.18554).
//
// One step takes a batch of tasks. For each: the forward graph on the engine (onnx/engine), the fit of the head in
// float64 (pipeline/erm), the loss and its derivative with respect to the head, the implicit gradient back
// through the fit, and the gradient graph (onnx/grad) with that as its cotangent. The tasks' gradients are
// summed in their order, and one run of the optimiser's graph (onnx/optim) updates the parameters.
//
// Every task draws from streams named after its step and place, so that a resumed training equals an
// uninterrupted one, on any number of workers.
package meta

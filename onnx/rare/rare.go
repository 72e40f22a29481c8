// Package rare makes the pure engine know the operators that networks over images seldom have: DFT,
// STFT, MelWeightMatrix and the windows of signals, the two losses, NonMaxSuppression, MaxUnpool,
// Col2Im, Det, Unique and TensorScatter. It is imported for that alone:
//
//	import _ "fmp/onnx/rare"
//
// [fmp/onnx/run] imports it. The ONNX Runtime knows them by itself.
package rare

import "fmp/onnx/internal/kernel"

func init() { kernel.EnableRare() }

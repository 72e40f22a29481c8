// Package quantise writes models that compute in bytes, or whose weights are stored in few bits,
// from models in float32.
//
//	[Static]   QuantizeLinear and DequantizeLinear around products and their neighbours: unsigned bytes between operators, by the ranges that
//	           they have on some images; signed bytes for weights, with a scale for each output channel (one for a stack of matrices); int32 for biases
//	[Weights]  weights in 8 or 4 bits, each followed by a DequantizeLinear; the arithmetic stays in float32
//
// A number x is stored as q = round(x/s) + z, saturated, and read as (q - z) s. Batch normalisation
// is folded into the convolution before it first: s and z are then of the numbers that are
// multiplied. Operators between products stay in float32 where numbers lie in a few quanta, as
// scores with a mask do. A model that is quantised runs on any runtime of operator set 13 (21 with
// 4 bits); package integers has the pure engine run it on integers.
//
// Sources: B. Jacob et al., Quantization and Training of Neural Networks for Efficient
// Integer-Arithmetic-Only Inference, 2018 (equations 1, 3 and 4); R. Krishnamoorthi, Quantizing
// deep convolutional networks for efficient inference, 2018 (scales of channels).
package quantise

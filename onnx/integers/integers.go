// Package integers makes the pure engine run quantised networks on integers: products of bytes with
// exact sums, and tables, between QuantizeLinear and DequantizeLinear. It is imported for that
// alone, by fmp among others:
//
//	import _ "fmp/onnx/integers"
//
// It does so on processors with AVX2, better with AVX-VNNI or AVX-512 VNNI and VBMI. On others, or
// without it, the same networks are run on float32, whose outputs are a quantum apart here and
// there. So are they where [fmp/onnx/engine.Options].Reproducible is set.
package integers

import "fmp/onnx/engine/pure"

func init() {
	if pure.FastIntegers() {
		pure.EnableIntegers()
	}
}

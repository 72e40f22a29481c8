package op

import "fmp/onnx"

// Constant returns the value of a Constant node; nil where it has none of a type that a
// [onnx.Tensor] holds. The tensor of "value" and the elements of lists are the node's own and must
// not be changed. Lists are vectors, single values scalars.
func Constant(n *onnx.Node) *onnx.Tensor {
	for _, a := range n.Attrs {
		switch a.Name {
		case "value":
			return a.Tensor
		case "value_float":
			return onnx.Scalar(a.Float)
		case "value_floats":
			return onnx.Vector(a.Floats...)
		case "value_int":
			return onnx.Scalar(a.Int)
		case "value_ints":
			return onnx.Vector(a.Ints...)
		case "value_string":
			return onnx.Scalar(a.Str)
		case "value_strings":
			return onnx.Vector(a.Strs...)
		}
	}
	return nil
}

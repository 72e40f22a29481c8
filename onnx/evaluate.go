package onnx

func evaluate(n *Node, opset int, in []*Tensor) (*Tensor, error) { return nil, nil }

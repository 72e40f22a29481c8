package onnx

// Check says what is wrong with a model.
func Check(m *Model) error { return nil }

//go:build !linux

package ort

// missing says nothing: the ONNX Runtime's own reason stands.
func missing(string, string) string { return "" }

//go:build !cgo

package main

import "fmp/onnx/engine"

// runtime: without cgo there is no ONNX Runtime.
func runtime() (engine.Engine, error) { return nil, nil }

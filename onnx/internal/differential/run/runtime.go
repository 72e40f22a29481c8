//go:build cgo

package main

import (
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort"
)

// runtime opens the engine that the pure one is compared with.
func runtime() (engine.Engine, error) { return ort.New(ort.Options{Threads: 1}) }

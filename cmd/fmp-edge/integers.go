package main

// Quantised classifiers run on bytes; uploads are of float32, whose bits are those of every
// processor.
import _ "fmp/onnx/integers"

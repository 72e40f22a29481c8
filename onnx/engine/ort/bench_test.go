package ort

import (
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
)

// The cost of a call beside the model's own: a small model, its output made anew or filled in
// place.
func BenchmarkRun(b *testing.B) {
	s := open(b, newEngine(b, Options{Threads: 1}), linear(b))
	feeds := map[string]*onnx.Tensor{"x": onnx.ZerosF32(64, 2)}
	b.Run("allocated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			must.Do(b, s.Run(b.Context(), feeds, map[string]*onnx.Tensor{"y": nil}))
		}
	})
	b.Run("in place", func(b *testing.B) {
		b.ReportAllocs()
		fetch := map[string]*onnx.Tensor{"y": onnx.ZerosF32(64, 2)}
		for b.Loop() {
			must.Do(b, s.Run(b.Context(), feeds, fetch))
		}
	})
}

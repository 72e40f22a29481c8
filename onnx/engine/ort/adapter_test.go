package ort_test

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
	"fmp/onnx/run"
	"fmp/onnx/serde"
)

// Adapters give the runtime what they give by its own API, which onnxruntime_go does not have;
// onnx/run has the same test of the pure engine.
func TestAdapter(t *testing.T) {
	model := filepath.Join("..", "..", "serde", "testdata", "lora.onnx")
	adapter := must.Get(serde.LoadAdapter(model + "_adapter"))(t)
	s := must.Get(run.Open(model, run.On(orttest.New(t)), run.OptionalInputs()))(t)
	defer s.Close()
	for _, want := range [][]float32{{-.3224386, -.42128643, -.02477813, 2.342403, -22.852898, 11.103484},
		{-1.0833644, -.5113307, -.9218975, -.00652921, -1.8872017, .43653655}} {
		in := map[string]*onnx.Tensor{"x": onnx.NewTensor([]float32{0, 1, 2, 3, 4, 5, 6, 7}, 2, 4)}
		maps.Copy(in, adapter)
		out := must.Get(s.Run(t.Context(), in))(t)
		if got := out["y"].F32(); !slices.EqualFunc(got, want,
			func(a, b float32) bool { return a-b < 1e-5 && b-a < 1e-5 }) {
			t.Errorf("outputs %v, want %v", got, want)
		}
		adapter = nil
	}
}

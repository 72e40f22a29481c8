package run_test

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/run"
	"fmp/onnx/serde"
)

// adapted is a model of x W + x A B, of 2 x 4 to 2 x 3, with A and B optional, of 4 x 0 and 0 x 3
// where they are left out.
var adapted = filepath.Join("..", "serde", "testdata", "lora.onnx")

// One session runs with an adapter, without, and with another; onnxruntime 1.32 gives these numbers
// by its LoraAdapter.
func TestAdapters(t *testing.T) {
	s := must.Get(run.Open(adapted, run.OptionalInputs()))(t)
	defer s.Close()
	if v := s.Inputs(); len(v) != 3 || v[1].String() != "layer.lora_A float32[4,r]" {
		t.Errorf("inputs %v", v)
	}
	adapter := must.Get(serde.LoadAdapter(adapted + "_adapter"))(t)
	twice := maps.Clone(adapter)
	twice["layer.lora_A"] = onnx.NewTensor(slices.Concat(rows(adapter["layer.lora_A"].F32(), 2)...),
		4, 4)
	twice["layer.lora_B"] = onnx.NewTensor(slices.Repeat(adapter["layer.lora_B"].F32(), 2), 4, 3)
	base := []float32{-1.0833644, -.5113307, -.9218975, -.00652921, -1.8872017, .43653655}
	with := []float32{-.3224386, -.42128643, -.02477813, 2.342403, -22.852898, 11.103484}
	for _, c := range []struct {
		name    string
		adapter map[string]*onnx.Tensor
		factor  float32 // of what the adapter adds
	}{{"an adapter", adapter, 1}, {"none", nil, 0}, {"one of rank 4", twice, 2}} {
		in := map[string]*onnx.Tensor{"x": onnx.NewTensor([]float32{0, 1, 2, 3, 4, 5, 6, 7}, 2, 4)}
		maps.Copy(in, c.adapter)
		out, err := s.Run(t.Context(), in)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for i, y := range out["y"].F32() {
			if want := base[i] + c.factor*(with[i]-base[i]); y-want > 1e-5 || want-y > 1e-5 {
				t.Errorf("%s: output %d is %v, want %v", c.name, i, y, want)
			}
		}
	}
	closed := must.Get(run.Open(adapted))(t)
	defer closed.Close()
	x := onnx.ZerosF32(2, 4)
	feeds := map[string]*onnx.Tensor{"x": x, "layer.lora_A": adapter["layer.lora_A"]}
	must.Fail(closed.Run(t.Context(), feeds))(t, "run.OptionalInputs", "a session without optional inputs")
}

// rows are the rows of a matrix, each of them twice.
func rows(m []float32, width int) (out [][]float32) {
	for r := range slices.Chunk(m, width) {
		out = append(out, r, r)
	}
	return out
}

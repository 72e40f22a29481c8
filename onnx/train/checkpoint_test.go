package train

import (
	"os"
	"path/filepath"
	"testing"

	"fmp/onnx"
	"fmp/onnx/alloctest"
)

// FuzzCheckpoint: a checkpoint that is read has a step and, where the model takes it, tensors of the model's types and shapes;
// it takes at most 400 bytes of memory for each byte of the file.
func FuzzCheckpoint(f *testing.F) {
	path := filepath.Join(f.TempDir(), "c.onnx")
	if err := saveCheckpoint(path, "run", 12, map[string]*onnx.Tensor{"w": onnx.Vector[float32](1, 2, 3), "b": onnx.Scalar[float32](4)}); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		var step int
		var state map[string]*onnx.Tensor
		var ok bool
		var err error
		alloctest.AtMost(t, 400*len(data), func() { step, state, ok, err = loadCheckpoint(path, "run") })
		if err != nil {
			return
		}
		if !ok || step < 0 {
			t.Fatalf("ok %v, step %d", ok, step)
		}
		c := &carried{names: []string{"b", "w"}, now: map[string]*onnx.Tensor{"w": onnx.ZerosF32(3), "b": onnx.ZerosF32()}}
		if c.set(state) != nil {
			return
		}
		for name, want := range map[string]int{"w": 3, "b": 1} {
			if v := c.now[name]; v.DType != onnx.Float32 || v.Len() != want {
				t.Errorf("%s is %v", name, v)
			}
		}
	})
}

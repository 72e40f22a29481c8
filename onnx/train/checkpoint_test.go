package train

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/alloctest"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// TestDamagedCheckpointIsRefused: whatever bit of a checkpoint is turned over, it is refused or
// says what it said.
func TestDamagedCheckpointIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.onnx")
	must.Do(t, saveCheckpoint(path, "run", saved{12, nextValidation,
		map[string]*onnx.Tensor{"w": onnx.Vector[float32](1, 2, 3), "b": onnx.Scalar[float32](4)}}))
	good := must.Get(os.ReadFile(path))(t)
	refused := 0
	for i := range 8 * len(good) {
		bad := bytes.Clone(good)
		bad[i/8] ^= 1 << (i % 8)
		must.Do(t, os.WriteFile(path, bad, 0o644))
		s, ok, err := loadCheckpoint(path, "run")
		if err != nil {
			refused++
			continue
		}
		if !ok || s.t != 12 || s.next != nextValidation || len(s.state) != 2 ||
			!slices.Equal(s.state["w"].F32(), []float32{1, 2, 3}) ||
			!slices.Equal(s.state["b"].F32(), []float32{4}) {
			t.Fatalf("with bit %d of byte %d turned over it resumes from step %d with %v", i%8,
				i/8, s.t, s.state)
		}
	}
	if refused < 4*len(good) {
		t.Errorf("%d of %d damaged checkpoints were refused", refused, 8*len(good))
	}
}

// FuzzCheckpoint: a checkpoint that is read has a step and, where the model takes it, tensors of
// the model's types and shapes; it takes at most 400 bytes of memory for each byte of the file.
func FuzzCheckpoint(f *testing.F) {
	path := filepath.Join(f.TempDir(), "c.onnx")
	must.Do(f, saveCheckpoint(path, "run", saved{12, "",
		map[string]*onnx.Tensor{"w": onnx.Vector[float32](1, 2, 3), "b": onnx.Scalar[float32](4)}}))
	data := must.Get(os.ReadFile(path))(f)
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		// The digest keeps all but a few from what is behind it: it is made to fit.
		if m, err := serde.Unmarshal(data); err == nil && m.Metadata != nil {
			if sum, err := digest(m); err == nil {
				m.Metadata[keyDigest] = sum
				if fit, err := serde.Marshal(m); err == nil {
					data = fit
				}
			}
		}
		must.Do(t, os.WriteFile(path, data, 0o644))
		var s saved
		var ok bool
		var err error
		alloctest.AtMost(t, 400*len(data), func() { s, ok, err = loadCheckpoint(path, "run") })
		if err != nil {
			return
		}
		if !ok || s.t < 0 {
			t.Fatalf("ok %v, step %d", ok, s.t)
		}
		c := &carried{names: []string{"b", "w"},
			now: map[string]*onnx.Tensor{"w": onnx.ZerosF32(3), "b": onnx.ZerosF32()}}
		if c.set(s.state) != nil {
			return
		}
		for name, want := range map[string]int{"w": 3, "b": 1} {
			if v := c.now[name]; v.DType != onnx.Float32 || v.Len() != want {
				t.Errorf("%s is %v", name, v)
			}
		}
	})
}

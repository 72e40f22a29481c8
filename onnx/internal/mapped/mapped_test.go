//go:build unix

package mapped_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/internal/mapped"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

// TestWrittenTo: a session refuses to run once a file that holds its weights was written to; another
// file in its place changes nothing.
func TestWrittenTo(t *testing.T) {
	later := time.Now().Add(time.Hour)
	for _, c := range []struct {
		name    string
		change  func(path string) error
		refused bool
	}{
		{"as it was", func(string) error { return nil }, false},
		{"written", func(path string) error { return os.Chtimes(path, later, later) }, true},
		{"longer", func(path string) error { return os.Truncate(path, 64) }, true},
		{"cut short", func(path string) error { return os.Truncate(path, 4) }, true},
		{"removed", os.Remove, false},
		{"written by another name", func(path string) error {
			return errors.Join(os.Rename(path, path+"3"), os.Chtimes(path+"3", later, later))
		}, true},
		{"written from another folder", func(path string) error {
			t.Chdir(os.TempDir())
			return os.Chtimes(path, later, later)
		}, true},
		{"replaced", func(path string) error { return os.Rename(path+"2", path) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			path := filepath.Join(dir, "m.data")
			must.Do(t, os.WriteFile(path, make([]byte, 8), 0o600))
			must.Do(t, os.WriteFile(path+"2", bytes.Repeat([]byte{1}, 80), 0o600))
			f := must.Get(os.Open("m.data"))(t)
			data := must.Get(mapped.Open(f, "m.data"))(t)
			if again := must.Get(mapped.Open(f, "m.data"))(t); &again[0] != &data[0] {
				t.Error("the file is mapped twice")
			}
			must.Do(t, f.Close())
			w := onnx.ZerosF32(2)
			w.Data = unsafe.Slice((*float32)(unsafe.Pointer(&data[0])), 2)
			m := onnx.NewModel(modeltest.Graph("x:float32[2] yes:bool[]", "y:float32[2]", nil,
				modeltest.Node("If", "yes", "y",
					modeltest.Body("then_branch", modeltest.Graph("", "a:float32[2]",
						map[string]*onnx.Tensor{"w": w}, modeltest.Node("Add", "x w", "a"))),
					modeltest.Body("else_branch", modeltest.Graph("", "b:float32[2]", nil,
						modeltest.Node("Neg", "x", "b"))))))
			e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
			s := must.Get(e.Load(m))(t)
			must.Do(t, c.change(path))
			err := s.Run(t.Context(), map[string]*onnx.Tensor{"x": onnx.Vector[float32](1, 2),
				"yes": onnx.Scalar(true)}, map[string]*onnx.Tensor{"y": nil})
			if c.refused {
				must.Fail(err)(t, "written to", c.name)
			} else {
				must.Do(t, err)
			}
		})
	}
}

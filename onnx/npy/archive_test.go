package npy

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/alloctest"
	"fmp/onnx/must"
)

// archive is an .npz file of arrays.
func archive(t testing.TB, method uint16, arrays map[string]*onnx.Tensor) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for name, a := range arrays {
		w := must.Get(z.CreateHeader(&zip.FileHeader{Name: name, Method: method}))(t)
		must.Do(t, Write(w, a))
	}
	must.Do(t, z.Close())
	return buf.Bytes()
}

func TestArchive(t *testing.T) {
	t.Parallel()
	x := onnx.NewTensor([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		path := filepath.Join(t.TempDir(), "a.npz")
		data := archive(t, method,
			map[string]*onnx.Tensor{"x.npy": x, "target.npy": onnx.Vector[int64](1, 0)})
		must.Do(t, os.WriteFile(path, data, 0o600))
		got := must.Get(LoadArchive(path))(t)
		if len(got) != 2 || !slices.Equal(got["x"].F32(), x.F32()) ||
			!slices.Equal(got["x"].Shape, x.Shape) ||
			!slices.Equal(got["target"].I64(), []int64{1, 0}) {
			t.Errorf("method %d: read %v", method, got)
		}
	}
	for what, b := range map[string][]byte{
		"numpy.savez": []byte("no archive"), "1 to 1024": archive(t, zip.Store, nil),
		"names that end in .npy": archive(t, zip.Store, map[string]*onnx.Tensor{"x.txt": x}),
	} {
		must.Fail(ReadArchive(bytes.NewReader(b), int64(len(b))))(t, what)
	}
}

// FuzzArchive reads arrays or gives an error; memory is bounded by what the archive holds, at
// deflate's largest ratio, 1,032.
func FuzzArchive(f *testing.F) {
	x := onnx.NewTensor([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	f.Add(archive(f, zip.Store, map[string]*onnx.Tensor{"x.npy": x}))
	f.Add(archive(f, zip.Deflate, map[string]*onnx.Tensor{"x.npy": x, "y.npy": onnx.Vector[int64](1, 0)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var err error
		alloctest.AtMost(t, 24*1032*len(b)+maxArrays*16*maxText,
			func() { _, err = ReadArchive(bytes.NewReader(b), int64(len(b))) })
		_ = err
	})
}

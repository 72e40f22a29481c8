package npy

import (
	"archive/zip"
	"fmt"
	"io"
	"strings"

	"fmp/onnx"
	"fmp/onnx/regularfile"
)

// Bounds of an archive: arrays, and bytes of all of them uncompressed.
const (
	maxArrays  = 1024
	maxArchive = 16 << 30
)

// LoadArchive reads the arrays of the .npz file at path by name, as numpy.savez and numpy.savez_compressed write it.
func LoadArchive(path string) (map[string]*onnx.Tensor, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading tensors: %w; want a .npz file", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading tensors: %w", err)
	}
	out, err := ReadArchive(f, st.Size())
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return out, nil
}

// ReadArchive reads the arrays of an archive of the given size in bytes. An array that is no .npy file, that is there twice, or that is
// larger than the archive says is an error.
func ReadArchive(r io.ReaderAt, size int64) (map[string]*onnx.Tensor, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("npz: %w; want an archive that numpy.savez wrote", err)
	}
	if n := len(z.File); n == 0 || n > maxArrays {
		return nil, fmt.Errorf("npz: %d arrays; allowed are 1 to %d", n, maxArrays)
	}
	out, total := map[string]*onnx.Tensor{}, uint64(0)
	for _, f := range z.File {
		name, ok := strings.CutSuffix(f.Name, ".npy")
		if !ok || out[name] != nil {
			return nil, fmt.Errorf("npz: %q; want names that end in .npy, each once", f.Name)
		}
		if f.UncompressedSize64 > maxArchive-total {
			return nil, fmt.Errorf("npz: more than %d bytes of arrays", int64(maxArchive))
		}
		total += f.UncompressedSize64
		in, err := f.Open()
		if err != nil {
			return nil, fmt.Errorf("npz: array %q: %w", name, err)
		}
		t, err := Read(in)
		in.Close()
		if err != nil {
			return nil, fmt.Errorf("npz: array %q: %w", name, err)
		}
		out[name] = t
	}
	return out, nil
}

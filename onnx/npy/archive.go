package npy

import (
	"archive/zip"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
)

// Bounds of an archive: arrays, and bytes of all of them uncompressed.
const (
	maxArrays  = 1024
	maxArchive = 16 << 30
)

// LoadArchive reads the arrays of the .npz file at path by name, as numpy.savez and
// numpy.savez_compressed write it.
func LoadArchive(path string) (map[string]*onnx.Tensor, error) {
	return LoadArchiveWithin(path, maxArchive)
}

// LoadArchiveWithin is [LoadArchive] with a bound on the uncompressed bytes of all arrays, which is
// checked before any is read.
func LoadArchiveWithin(path string, most int64) (map[string]*onnx.Tensor, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading tensors: %w; want a .npz file", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading tensors: %w", err)
	}
	out, err := readArchive(f, st.Size(), most)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return out, nil
}

// ReadArchive reads the arrays of an archive of the given size in bytes. An array that is no .npy
// file, that is there twice, or that is larger than the archive says is an error.
func ReadArchive(r io.ReaderAt, size int64) (map[string]*onnx.Tensor, error) {
	return readArchive(r, size, maxArchive)
}

// readArchive adds the sizes up as the archive states them; the reader ends with an error at a
// longer entry.
func readArchive(r io.ReaderAt, size, most int64) (map[string]*onnx.Tensor, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("npz: %w; want an archive that numpy.savez wrote", err)
	}
	if n := len(z.File); n == 0 || n > maxArrays {
		return nil, fmt.Errorf("npz: %d arrays; allowed are 1 to %d", n, maxArrays)
	}
	out, total := map[string]*onnx.Tensor{}, uint64(0)
	// All sizes are added up before the first array is read.
	for _, f := range z.File {
		// The difference cannot wrap around, since total never exceeds most.
		if f.UncompressedSize64 > uint64(most)-total {
			return nil, fmt.Errorf("npz: more than %d bytes of arrays", most)
		}
		total += f.UncompressedSize64
	}
	for _, f := range z.File {
		name, ok := strings.CutSuffix(f.Name, ".npy")
		if !ok || out[name] != nil {
			return nil, fmt.Errorf("npz: %q; want names that end in .npy, each once", f.Name)
		}
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

// SaveArchive writes arrays by name to the .npz file at path, whole or not at all.
func SaveArchive(path string, arrays map[string]*onnx.Tensor) error {
	return atomicfile.Write(path, func(w io.Writer) error { return WriteArchive(w, arrays) })
}

// WriteArchive writes arrays as numpy.savez does, without compression, in the order of their names:
// the same arrays give the same bytes. Headers hold no time of writing, which would make the bytes
// differ.
func WriteArchive(w io.Writer, arrays map[string]*onnx.Tensor) error {
	if n := len(arrays); n == 0 || n > maxArrays {
		return fmt.Errorf("npz: %d arrays; allowed are 1 to %d", n, maxArrays)
	}
	z := zip.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(arrays)) {
		out, err := z.CreateHeader(&zip.FileHeader{Name: name + ".npy", Method: zip.Store})
		if err != nil {
			return fmt.Errorf("npz: array %q: %w", name, err)
		}
		if err := Write(out, arrays[name]); err != nil {
			return fmt.Errorf("npz: array %q: %w", name, err)
		}
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("npz: %w", err)
	}
	return nil
}

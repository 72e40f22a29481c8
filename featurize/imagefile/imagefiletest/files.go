package imagefiletest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"image"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"fmp/onnx/must"
)

// Write writes a file, and the folders on its path.
func Write(t testing.TB, path string, data []byte) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(t, os.WriteFile(path, data, 0o644))
}

// WriteApart is [Write] with the path behind the data, which decoders leave unread: a file of the
// same image that is no copy of others.
func WriteApart(t testing.TB, path string, data []byte) {
	t.Helper()
	Write(t, path, append(slices.Clone(data), path...))
}

// PNG returns a picture's file.
func PNG(t testing.TB, im image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, png.Encode(&b, im))
	return b.Bytes()
}

// JPEG returns a picture's file, of a quality, or of 0 for that of image/jpeg.
func JPEG(t testing.TB, im image.Image, quality int) []byte {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, jpeg.Encode(&b, im, &jpeg.Options{Quality: cmp.Or(quality, jpeg.DefaultQuality)}))
	return b.Bytes()
}

// IDX returns an IDX file of a magic number, sizes and data. Sizes and data need not fit: tests
// make wrong files.
func IDX(magic uint32, dims []uint32, data ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, magic)
	for _, d := range dims {
		b = binary.BigEndian.AppendUint32(b, d)
	}
	return append(b, data...)
}

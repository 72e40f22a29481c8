package imagefile

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/image/tiff"

	"fmp/featurize/imagefile/imagefiletest"
	codec "fmp/featurize/imagefile/jpeg"
	"fmp/onnx/must"
)

// small is a fit for tests that want no pixels.
var small = Fit{H: 2, W: 2, Ch: 3}

func decodeWhole(ctx context.Context, data []byte) (picture, error) {
	return decode(ctx, data, MaxBytes, MaxPixels, Fit{}, &codec.Memory{})
}

// TestManyScans: a JPEG of a million scans is refused after the first few, and one of as many scans
// as encoders write is read.
func TestManyScans(t *testing.T) {
	for _, n := range []int{1, 20, codec.MaxScans} {
		if im, err := decodeWhole(t.Context(), imagefiletest.Scans(200, 300, n)); err != nil ||
			im.Bounds() != image.Rect(0, 0, 200, 300) {
			t.Errorf("%d scans: %v", n, err)
		}
	}
	bomb := imagefiletest.Scans(4000, 4000, 30_000)
	start := time.Now()
	must.Fail(decodeWhole(t.Context(), bomb))(t, "more than 64 scans", len(bomb))
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("refused after %v", took)
	}
	path := filepath.Join(t.TempDir(), "a.jpg")
	must.Do(t, os.WriteFile(path, imagefiletest.Scans(64, 64, codec.MaxScans+1), 0o600))
	must.Fail(small.DecodeFile(t.Context(), path, make([]uint8, small.Size())))(t, "scans",
		"from a file")
}

// TestContextEnds: the decoder of every format stops when its context ends, and one of many scans
// between two of them.
func TestContextEnds(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	im := image.NewGray(image.Rect(0, 0, 300, 300))
	for name, encode := range map[string]func(*bytes.Buffer) error{
		"jpeg": func(b *bytes.Buffer) error { return jpeg.Encode(b, im, nil) },
		"png":  func(b *bytes.Buffer) error { return png.Encode(b, im) },
		"gif":  func(b *bytes.Buffer) error { return gif.Encode(b, im, nil) },
		"tiff": func(b *bytes.Buffer) error { return tiff.Encode(b, im, nil) },
	} {
		var b bytes.Buffer
		must.Do(t, encode(&b))
		if _, err := decodeWhole(t.Context(), b.Bytes()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := decodeWhole(ended, b.Bytes()); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v; want that the context has ended", name, err)
		}
	}
	within, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := decodeWhole(within, imagefiletest.Scans(16_000, 6_000, codec.MaxScans)) // takes seconds
	if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 3*time.Second {
		t.Errorf("stopped after %v: %v", took, err)
	}
}

// TestRereads: a decoder that asks for the same bytes again and again gets an error.
func TestRereads(t *testing.T) {
	b := within(t.Context(), make([]byte, 1<<20))
	p := make([]byte, 1<<16)
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		_, err = b.ReadAt(p, 0)
	}
	if err == nil || n < 32 || n > 64 {
		t.Errorf("after %d reads of 64 KiB of 1 MiB: %v", n, err)
	}
}

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
	"strings"
	"testing"
	"time"

	"golang.org/x/image/tiff"

	"fmp/featurize/imagefile/imagefiletest"
)

// TestManyScans: a JPEG of a million scans is refused after the first few, wherever the bytes of its markers
// lie, and one of as many scans as
// encoders write is read.
func TestManyScans(t *testing.T) {
	for _, n := range []int{1, 20, MaxScans} {
		if im, err := Decode(t.Context(), imagefiletest.Scans(200, 300, n)); err != nil || im.Bounds() != image.Rect(0, 0, 200, 300) {
			t.Errorf("%d scans: %v", n, err)
		}
	}
	bomb := imagefiletest.Scans(4000, 4000, 30_000)
	start := time.Now()
	_, err := Decode(t.Context(), bomb)
	if err == nil || !strings.Contains(err.Error(), "more than 64 scans") {
		t.Errorf("%d bytes of scans: %v", len(bomb), err)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("refused after %v", took)
	}
	path := filepath.Join(t.TempDir(), "a.jpg")
	if err := os.WriteFile(path, imagefiletest.Scans(64, 64, MaxScans+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeFile(t.Context(), path); err == nil || !strings.Contains(err.Error(), "scans") {
		t.Errorf("from a file: %v", err)
	}
	for _, size := range []int{1, 2, 3, 7, 4096} { // the marker may lie across two reads
		b := within(t.Context(), imagefiletest.Scans(16, 16, 10))
		p := make([]byte, size)
		for {
			n, err := b.Read(p)
			if n == 0 && err != nil {
				break
			}
			if bytes.Count(p[:n], startOfScan) > 1 {
				t.Fatalf("two scans in one read of %d bytes", size)
			}
		}
		if b.scans != 10 {
			t.Errorf("reads of %d bytes: %d scans; want 10", size, b.scans)
		}
	}
}

// TestContextEnds: the decoder of every format stops when its context ends, and one of many scans between two of them.
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
		if err := encode(&b); err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(t.Context(), b.Bytes()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Decode(ended, b.Bytes()); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v; want that the context has ended", name, err)
		}
	}
	within, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := Decode(within, imagefiletest.Scans(16_000, 6_000, MaxScans)) // takes seconds
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

// FuzzScans: whatever the file, the decoder never sees more scans than are counted, and every byte once.
func FuzzScans(f *testing.F) {
	f.Add(imagefiletest.Scans(16, 16, 3), uint8(5))
	f.Add([]byte{0xff, 0xd8, 0xff, 0xff, 0xda, 0xda, 0xff, 0xda}, uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		b := within(t.Context(), data)
		var got []byte
		p := make([]byte, int(size)+1)
		for {
			n, err := b.Read(p)
			got = append(got, p[:n]...)
			if err != nil {
				break
			}
		}
		want := bytes.Count(data, startOfScan)
		if !b.jpeg {
			want = 0
		}
		if want <= MaxScans && (!bytes.Equal(got, data) || b.scans != want) {
			t.Errorf("%d of %d bytes, %d of %d scans", len(got), len(data), b.scans, want)
		}
		if want > MaxScans && bytes.Count(got, startOfScan) > MaxScans {
			t.Errorf("%d scans are handed out", bytes.Count(got, startOfScan))
		}
	})
}

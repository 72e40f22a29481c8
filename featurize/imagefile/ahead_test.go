package imagefile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"fmp/onnx/must"
)

// folderOf writes images of two classes, of which each fifth is cut off.
func folderOf(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		im := image.NewGray(image.Rect(0, 0, 20+5*(i%7), 30))
		copy(im.Pix, drawn(30, im.Rect.Dx(), 1, uint64(i)))
		var b bytes.Buffer
		must.Do(t, png.Encode(&b, im))
		data := b.Bytes()
		if i%5 == 4 {
			data = data[:len(data)/2]
		}
		path := filepath.Join(dir, fmt.Sprint(i%2), fmt.Sprintf("%03d.png", i))
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)))
	}
	return dir
}

// TestAhead: whatever the number of images that are decoded at once, pixels, items and bad images
// are those of one by one, in their order; a context that ends, and a consumer that fails, end the
// reading.
func TestAhead(t *testing.T) {
	dir, fit := folderOf(t, 43), Fit{H: 8, W: 9, Ch: 3}
	read := func(ctx context.Context, threads int,
		use func() error) (pixels []uint8, items []Item, bad []error, err error) {
		src, _, err := Open(dir,
			Options{Fit: fit, Classes: Classes{N: 2}, MaxItems: 100, Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		bad, err = Read(ctx, src, fit, 4, true, func(p []uint8, i []Item) error {
			pixels, items = append(pixels, p...), append(items, i...)
			return use()
		})
		counted := 0
		for _, m := range MappingOf(src) {
			counted += m.Images
		}
		if err == nil && counted != len(items) {
			t.Errorf("%d images are counted by class, and %d were read", counted, len(items))
		}
		return pixels, items, bad, err
	}
	fine := func() error { return nil }
	wantPixels, wantItems, wantBad, err := read(t.Context(), 1, fine)
	if err != nil || len(wantItems) != 35 || len(wantBad) != 8 {
		t.Fatalf("one by one: %d images, %d bad, %v", len(wantItems), len(wantBad), err)
	}
	for _, threads := range []int{0, 2, 3, 100} {
		pixels, items, bad, err := read(t.Context(), threads, fine)
		if err != nil || !bytes.Equal(pixels, wantPixels) || !slices.Equal(items, wantItems) ||
			fmt.Sprint(bad) != fmt.Sprint(wantBad) {
			t.Errorf("%d at once: other images than one by one (%v)", threads, err)
		}
	}
	stop := errors.New("stop")
	if _, items, _, err := read(t.Context(), 3, func() error { return stop }); !errors.Is(err, stop) ||
		len(items) != 4 {
		t.Errorf("a consumer that fails: %d images, %v", len(items), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, _, _, err := read(ctx, 3, func() error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that ends: %v", err)
	}
}

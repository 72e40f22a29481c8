package imagefile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sync/semaphore"

	"fmp/featurize/imagefile/imagefiletest"
	"fmp/onnx/must"
)

// folderOf writes images of two classes, of which each fifth is cut off.
func folderOf(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		im := image.NewGray(image.Rect(0, 0, 20+5*(i%7), 30))
		copy(im.Pix, drawn(30, im.Rect.Dx(), 1, uint64(i)))
		data := imagefiletest.PNG(t, im)
		if i%5 == 4 {
			data = data[:len(data)/2]
		}
		imagefiletest.Write(t, filepath.Join(dir, fmt.Sprint(i%2), fmt.Sprintf("%03d.png", i)), data)
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
		src, _ := must.Get2(Open(dir,
			Options{Fit: fit, Classes: Classes{N: 2}, MaxItems: 100, Threads: threads}))(t)
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

// TestMemories: a picture in the memory of others has the pixels of one in its own, and the reader
// hands memory on, of pictures that are not too large.
func TestMemories(t *testing.T) {
	dir, fit := t.TempDir(), Fit{H: 40, W: 40, Ch: 3, Resize: "crop:0.875"}
	for i, size := range [][2]int{{640, 480}, {90, 70}, {501, 333}, {300, 300}, {640, 480}, {64, 900}} {
		im := scene(scenes["noise"], size[0], size[1], i%3 > 0)
		imagefiletest.Write(t, filepath.Join(dir, "0", fmt.Sprint(i, ".jpg")), imagefiletest.JPEG(t, im, 0))
	}
	src, _ := must.Get2(Open(dir,
		Options{Fit: fit, Classes: Classes{N: 2}, MaxItems: 100, Threads: 1}))(t)
	p := src.(*pictures)
	a := p.ahead(t.Context())
	for range p.files {
		got, want := make([]uint8, fit.Size()), make([]uint8, fit.Size())
		item := must.Get(a.Next(t.Context(), got))(t)
		must.Do(t, fit.DecodeFile(t.Context(), item.Name, want))
		if !bytes.Equal(got, want) {
			t.Errorf("%s: pixels are those of another memory", item.Name)
		}
	}
	a.stop()
	if len(a.kept) != 1 {
		t.Fatalf("%d memories are kept; want that of the one thread", len(a.kept))
	}
	m, file := <-a.kept, p.files[0].Name
	size := m.size()
	must.Get(fit.decodeFile(t.Context(), file, MaxPixels, make([]uint8, fit.Size()), m))(t)
	if m.size() != size {
		t.Errorf("memories of %d bytes have become %d by a picture that they held before", size, m.size())
	}
	m.file.Grow(maxKept)
	m.counted = 0 // by another reader
	a = &ahead{pictures: p, kept: make(chan *memories, 1)}
	a.kept <- m
	if d := a.decodeWithin(t.Context(), semaphore.NewWeighted(MaxMemory), p.files[1]); d.err != nil ||
		len(a.kept) > 0 {
		t.Errorf("%d bytes are kept, error %v; want %d at most", m.size(), d.err, maxKept)
	}
}

// TestKeptInAll: all memories that a reader keeps are within one bound, whatever their number, and one
// that has become too large makes room for others.
func TestKeptInAll(t *testing.T) {
	a := &ahead{kept: make(chan *memories, maxAhead)}
	of := func(size int) *memories {
		m := &memories{}
		m.file.Grow(size)
		return m
	}
	for range maxAhead {
		a.keep(of(maxKept / 4))
	}
	if len(a.kept) < 2 || len(a.kept) > 4 {
		t.Fatalf("%d memories of a quarter of the bound are kept", len(a.kept))
	}
	all := len(a.kept)
	for range 5 { // one that is handed on counts once
		a.keep(<-a.kept)
	}
	if len(a.kept) != all {
		t.Fatalf("%d memories are kept of %d that were handed on", len(a.kept), all)
	}
	m := <-a.kept
	m.file.Grow(maxKept)
	if a.keep(m); len(a.kept) != all-1 {
		t.Errorf("%d memories are kept; want one fewer than %d", len(a.kept), all)
	}
	if a.keep(of(maxKept / 4)); len(a.kept) != all {
		t.Errorf("%d memories are kept; want %d again", len(a.kept), all)
	}
}

// TestBufferOfFile: a file that is a little larger than the one before takes a buffer of its size.
func TestBufferOfFile(t *testing.T) {
	path, fit, m := filepath.Join(t.TempDir(), "0.jpg"), Fit{H: 8, W: 8, Ch: 3}, &memories{}
	data := imagefiletest.JPEG(t, image.NewGray(image.Rect(0, 0, 400, 300)), 0)
	for _, size := range []int{1 << 20, 1<<20 + 50000} {
		must.Do(t, os.WriteFile(path, append(data, make([]byte, size-len(data))...), 0o644))
		must.Get(fit.decodeFile(t.Context(), path, MaxPixels, make([]uint8, fit.Size()), m))(t)
		if got := m.file.Cap(); got > size+size/8 {
			t.Errorf("a file of %d bytes has a buffer of %d", size, got)
		}
	}
}

//go:build unix

package imagefile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// decoderOf puts a shell script in the place of a decoder, the only program on the PATH besides
// those of the system.
func decoderOf(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "heif-convert"),
		[]byte("#!/bin/sh\nPATH=/usr/bin:/bin\n"+script), 0o700))
	t.Setenv("PATH", dir)
	t.Setenv("TMPDIR", filepath.Join(dir, "tmp"))
	must.Do(t, os.Mkdir(filepath.Join(dir, "tmp"), 0o700))
}

// leavesNothing fails where the folder for temporary files is not empty.
func leavesNothing(t *testing.T) {
	t.Helper()
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestDecoderFails: whatever a decoder does, there is one error, which has its words, and no file
// stays.
func TestDecoderFails(t *testing.T) {
	for _, c := range []struct{ what, script, bad string }{
		{"fails", "printf 'bad\\n \\033[31mslice' >&2; exit 3",
			`heif-convert: exit status 3: "bad [31mslice"`},
		{"writes nothing", "echo fine", `it wrote no image: "fine"`},
		{"writes no PNG", "printf GIF89a > \"$2\"", "it wrote no PNG"},
		{"writes a cut PNG", "head -c 60 '" + odd(t, "rgb.png") + "' > \"$2\"",
			"its PNG: not a readable image"},
		{"says much", "yes | head -c 300000; exit 1", "exit status 1"},
	} {
		decoderOf(t, c.script)
		err := small.DecodeFile(t.Context(), "testdata/odd/photo.heic", make([]uint8, small.Size()))
		if err == nil || !strings.Contains(err.Error(), c.bad) ||
			!strings.HasPrefix(err.Error(), "testdata/odd/photo.heic: not a") {
			t.Errorf("%s: %v; want %s", c.what, err, c.bad)
		}
		if err != nil && len(err.Error()) > 2*decoderWords {
			t.Errorf("%s: an error of %d bytes", c.what, len(err.Error()))
		}
		leavesNothing(t)
	}
}

// TestDecoderNames: a decoder is given names that are ours, whatever the file's is, and the first
// of several images is taken.
func TestDecoderNames(t *testing.T) {
	decoderOf(t, `[ "$#" = 2 ] && [ "$1" = in.heic ] && [ "$2" = out.png ] && cmp -s in.heic '`+odd(t, "photo.heic")+`' || exit 9
cp '`+odd(t, "rgb.png")+`' out-1.png; cp '`+odd(t, "alpha.png")+`' out-2.png`)
	data := must.Get(os.ReadFile("testdata/odd/photo.heic"))(t)
	path := filepath.Join(t.TempDir(), "-o $(touch x);.heic")
	must.Do(t, os.WriteFile(path, data, 0o600))
	must.Do(t, small.DecodeFile(t.Context(), path, make([]uint8, small.Size())))
	leavesNothing(t)
	im := must.Get(decodeHEIF(t.Context(), data, MaxPixels))(t)
	if b := im.Bounds(); b.Dx() != 32 || b.Dy() != 16 {
		t.Errorf("an image of %v", b)
	}
	leavesNothing(t)
}

// TestDecoderNotHere: a program in the current folder is none.
func TestDecoderNotHere(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	must.Do(t, os.WriteFile("heif-convert", []byte("#!/bin/sh\ntouch run\n"), 0o700))
	for _, path := range []string{".", "", ":", dir + "/none:."} {
		t.Setenv("PATH", path)
		if p, err := HEIFDecoder(); err == nil || !strings.Contains(err.Error(), "libheif") {
			t.Errorf("PATH %q: %s, %v; want no decoder and the name of a package", path, p, err)
		}
	}
}

// TestDecoderIsKilled: a decoder that does not end is killed where the context is cancelled, and
// the error is the context's.
func TestDecoderIsKilled(t *testing.T) {
	decoderOf(t, "touch ../started; exec sleep 3600")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	src, _ := must.Get2(Open("testdata/odd/photo.heic",
		Options{Fit: Fit{H: 4, W: 4, Ch: 3}, Optional: true}))(t)
	go func() {
		for {
			if _, err := os.Stat(filepath.Join(os.Getenv("TMPDIR"), "started")); err == nil ||
				ctx.Err() != nil {
				cancel()
				return
			}
		}
	}()
	_, err := src.Next(ctx, make([]uint8, 48))
	var bad *BadImage
	if !errors.Is(err, context.Canceled) || errors.As(err, &bad) {
		t.Errorf("%v; want the context's error", err)
	}
	must.Do(t, os.Remove(filepath.Join(os.Getenv("TMPDIR"), "started")))
	leavesNothing(t)
}

// TestHEIFHeader: sizes are read and bounded before a decoder is run.
func TestHEIFHeader(t *testing.T) {
	decoderOf(t, "touch '"+t.TempDir()+"/run'; exit 1")
	for _, c := range []struct {
		file string
		w, h int
	}{{"photo.avif", 32, 16}, {"turned.avif", 32, 16}} {
		data := must.Get(os.ReadFile("testdata/odd/" + c.file))(t)
		if h, err := Header(bytes.NewReader(data)); err != nil || h.Width != c.w || h.Height != c.h {
			t.Errorf("%s: %dx%d, %v; want %dx%d", c.file, h.Width, h.Height, err, c.w, c.h)
		}
		at := bytes.Index(data, []byte("ispe"))
		for _, side := range []uint32{0, 15_000, 1 << 31} {
			big := bytes.Clone(data)
			binary.BigEndian.PutUint32(big[at+8:], side)
			binary.BigEndian.PutUint32(big[at+12:], side)
			if _, err := decodeHEIF(t.Context(), big, MaxPixels); !errors.Is(err, ErrSize) {
				t.Errorf("%s of %d pixels a side: %v", c.file, side, err)
			}
		}
	}
	leavesNothing(t)
}

// odd returns the absolute path of a file of odd formats.
func odd(t *testing.T, name string) string {
	t.Helper()
	return must.Get(filepath.Abs("testdata/odd/" + name))(t)
}

// FuzzHEIFHeader: boxes of any bytes are walked in bounded time, and the size is refused or
// bounded.
func FuzzHEIFHeader(f *testing.F) {
	for _, name := range []string{"photo.heic", "photo.avif", "turned.heic"} {
		data := must.Get(os.ReadFile("testdata/odd/" + name))(f)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if h := heifHeader(bytes.NewReader(data)); h.Width < 0 || h.Height < 0 || h.Memory < 0 {
			t.Errorf("%dx%d, %d bytes", h.Width, h.Height, h.Memory)
		}
	})
}

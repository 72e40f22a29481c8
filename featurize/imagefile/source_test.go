package imagefile

import (
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/featurize/imagefile/imagefiletest"
	"fmp/onnx/alloctest"
	"fmp/onnx/must"
)

// FuzzList: every label that is read is one of the model's, and a list takes at most 400 bytes of
// memory for each of its bytes.
func FuzzList(f *testing.F) {
	f.Add("path,label\na.png,1\n")
	f.Add("a.png,cat\n\"b,c.jpg\",dog\n")
	f.Add("a.png\n")
	f.Add("\"")
	f.Add("a\x00,1")
	f.Fuzz(func(t *testing.T, text string) {
		var files []Item
		var mapped []Mapped
		var err error
		alloctest.AtMost(t, 400*len(text), func() {
			files, mapped, err = readList(strings.NewReader(text), "dir",
				Options{Classes: Classes{Names: []string{"cat", "dog"}, N: 2}, MaxItems: 1000})
		})
		if err != nil {
			return
		}
		if len(files) == 0 || len(files) > len(text) {
			t.Fatalf("%d files from %d bytes", len(files), len(text))
		}
		for _, l := range files {
			if l.Label < 0 || l.Label > 1 || l.Name == "" {
				t.Fatalf("read %+v", l)
			}
		}
		for _, m := range mapped {
			if m.From != m.Class {
				t.Fatalf("%q is class %q", m.From, m.Class)
			}
		}
	})
}

// FuzzIDX: every label is one of the model's, every image that is promised is there or missed by
// name, and no more memory is taken than for the labels, one image of the file and one of the
// model, twelve bytes a pixel.
func FuzzIDX(f *testing.F) {
	idx := imagefiletest.IDX
	f.Add(idx(0x803, []uint32{2, 3, 4}, make([]byte, 24)...), idx(0x801, []uint32{2}, 0, 1),
		uint8(0), uint8(0))
	f.Add(idx(0x804, []uint32{1, 2, 2, 3}, make([]byte, 12)...), idx(0x801, []uint32{1}, 1),
		uint8(0), uint8(1))
	f.Add(idx(0x803, []uint32{3, 5, 5}, make([]byte, 75)...), idx(0x801, []uint32{3}, 0, 1, 1),
		uint8(1), uint8(2))
	f.Add(idx(0x803, []uint32{1 << 31, 1 << 31, 1 << 31}), idx(0x801, []uint32{1 << 31}), uint8(0), uint8(0))
	f.Add(idx(0x803, []uint32{1, 4096, 4096}), idx(0x801, []uint32{1}, 1), uint8(0), uint8(1))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, images, labels []byte, skip, count uint8) {
		for name, data := range map[string][]byte{"images": images, "labels": labels} {
			must.Do(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
		}
		dst := make([]uint8, 5*5)
		alloctest.AtMost(t, 32*len(labels)+3*4096*4096+12*25, func() {
			s, err := openIDX(filepath.Join(dir, "images"),
				Options{Fit: Fit{5, 5, 1, Stretch}, Classes: Classes{N: 2},
					Labels: filepath.Join(dir, "labels"), Skip: int(skip), Count: int(count),
					MaxItems: 1000})
			if err != nil {
				return
			}
			defer s.Close()
			if s.Len() < 1 || s.Len() > len(labels) {
				t.Errorf("%d images with %d bytes of labels", s.Len(), len(labels))
			}
			for range min(s.Len(), 4) {
				item, err := s.Next(t.Context(), dst)
				if err != nil {
					break
				}
				if y := item.Label; y < 0 || y > 1 {
					t.Errorf("label %d", y)
				}
			}
		})
	})
}

// TestNamesArePlainText: a picture whose name has control characters is a bad image, and its name
// is quoted.
func TestNamesArePlainText(t *testing.T) {
	dir := t.TempDir()
	data := must.Get(os.ReadFile("testdata/odd/rgb.bmp"))(t)
	for name, want := range map[string]bool{"plain.bmp": true, "\x1b[31m.bmp": false,
		"two\nlines.bmp": false, "\u202eturned.bmp": false, "latin\xe9.bmp": false} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			continue // a file system without such names
		}
		src, _ := must.Get2(Open(path, Options{Fit: Fit{H: 16, W: 32, Ch: 3}, Optional: true}))(t)
		_, err := src.Next(t.Context(), make([]uint8, 16*32*3))
		src.Close()
		var bad *BadImage
		if want != (err == nil) || err != nil &&
			(!errors.As(err, &bad) || strings.ContainsAny(err.Error(), "\x1b\n\u202e") ||
				strings.Contains(err.Error(), "UTF-8") != strings.HasPrefix(name, "latin")) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestTextsOfOtherEncodings: a list in UTF-16, and a folder whose accents are characters of their own,
// are refused by their reason.
func TestTextsOfOtherEncodings(t *testing.T) {
	o := Options{Classes: Classes{Names: []string{"caf\u00e9"}, N: 1}, MaxItems: 10}
	for text, want := range map[string]string{"\xff\xfea\x00": "in UTF-16", "\xfe\xff\x00a": "in UTF-16",
		"a.png,cafe\u0301\n": "accents", "a.png,tea\n": "no class"} {
		_, _, err := readList(strings.NewReader(text), "dir", o)
		if err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "accents") != (want == "accents") {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
}

// TestWhatFollowsTheImages: a file that goes on after the images that its header promises is
// refused, however much follows.
func TestWhatFollowsTheImages(t *testing.T) {
	dir := t.TempDir()
	labels := filepath.Join(dir, "labels")
	must.Do(t, os.WriteFile(labels, imagefiletest.IDX(0x801, []uint32{2}, 0, 1), 0o644))
	for name, c := range map[string]struct {
		more, count int
		want        string
	}{
		"nothing": {0, 0, ""}, "a byte": {1, 0, "goes on"}, "64 megabytes": {1 << 26, 0, "goes on"},
		"what is not read is not looked at": {1, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			images := filepath.Join(dir, "images.gz")
			f := must.Get(os.Create(images))(t)
			z, _ := gzip.NewWriterLevel(f, gzip.BestSpeed)
			z.Write(imagefiletest.IDX(0x803, []uint32{2, 3, 4}, make([]byte, 24)...))
			for block := make([]byte, 1<<20); c.more > 0; c.more -= min(c.more, len(block)) {
				z.Write(block[:min(c.more, len(block))])
			}
			must.Do(t, errors.Join(z.Close(), f.Close()))
			var err error
			alloctest.AtMost(t, 1<<20, func() {
				var s *idx
				if s, err = openIDX(images,
					Options{Fit: Fit{5, 5, 1, Stretch}, Classes: Classes{N: 2},
						Labels: labels, Count: c.count,
						MaxItems: 1000}); err != nil {
					return
				}
				defer s.Close()
				for range s.Len() {
					if _, err = s.Next(t.Context(), make([]uint8, 25)); err != nil {
						return
					}
				}
			})
			if c.want == "" && err != nil || c.want != "" &&
				(err == nil || !strings.Contains(err.Error(), c.want) ||
					!strings.Contains(err.Error(), images)) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

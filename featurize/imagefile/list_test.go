package imagefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/featurize/imagefile/imagefiletest"
	"fmp/onnx/must"
)

// TestListOfFolder: a list says which images of a folder count, and of which class; the others are
// named.
func TestListOfFolder(t *testing.T) {
	dir := t.TempDir()
	lay(t, dir, map[string]string{"a/1.bmp": "", "a/2.bmp": "", "3.bmp": "", "4.bmp": "", "a/.h.bmp": "",
		"links/l.bmp": ".." + string(filepath.Separator) + "a" + string(filepath.Separator) + "1.bmp",
		"links/h.bmp": ".." + string(filepath.Separator) + "a" + string(filepath.Separator) + ".h.bmp"})
	list := filepath.Join(t.TempDir(), "labels.csv")
	must.Do(t, os.WriteFile(list, []byte("path,label\na/1.bmp,dog\n3.bmp,cat\n"), 0o600))
	o := Options{Fit: Fit{H: 4, W: 4, Ch: 3}, Classes: Classes{Names: []string{"cat", "dog"}, N: 2},
		MaxItems: 9, Labels: list}
	src, others := must.Get2(Open(dir, o))(t)
	for _, want := range []int{1, 0} {
		item, err := src.Next(t.Context(), make([]uint8, o.Fit.Size()))
		if err != nil || item.Label != want {
			t.Errorf("%+v, %v; want class %d", item, err, want)
		}
	}
	if s := others.String(); src.Len() != 2 || others.N != 3 ||
		!strings.Contains(s, "links/h.bmp (not in the list)") ||
		!strings.Contains(s, "a/2.bmp (not in the list)") ||
		!strings.Contains(s, "4.bmp (not in the list)") {
		t.Errorf("%d images; left out: %v", src.Len(), others)
	}
}

// TestListOnce: an image counts once in a list, by whatever links it is named, unless who reads it sees to
// that.
func TestListOnce(t *testing.T) {
	dir := t.TempDir()
	lay(t, dir, map[string]string{"cat/1.bmp": "", "cat/2.bmp": "", "cat/l.bmp": "1.bmp", "alias": "cat"})
	o := Options{Classes: Classes{Names: []string{"cat", "dog"}, N: 2}, MaxItems: 9}
	for text, want := range map[string]string{
		"cat/1.bmp,cat\ncat/2.bmp,cat\n":      "",
		"cat/1.bmp,cat\ncat/../cat/1.bmp,cat": "counts once",
		"cat/1.bmp,cat\ncat/l.bmp,cat\n":      "counts once",
		"alias/1.bmp,cat\ncat/l.bmp,dog\n":    "of one class",
		"cat/1.bmp,cat\nalias/1.bmp,cat\n":    "counts once",
		"none/1.bmp,cat\nnone/1.bmp,cat\n":    "counts once",
	} {
		_, _, err := readList(strings.NewReader(text), dir, o)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
		repeats := o
		repeats.Repeats = true
		if files, _, err := readList(strings.NewReader(text), dir, repeats); err != nil || len(files) != 2 {
			t.Errorf("%q, with repeats: %d images, %v", text, len(files), err)
		}
	}
}

// TestLongList: a list is bounded behind its byte order mark, and never cut silently.
func TestLongList(t *testing.T) {
	o := Options{Classes: Classes{Names: []string{"cat"}, N: 1}, MaxItems: 9}
	line := func(n int) string { return strings.Repeat("a", n-len(".png,cat\n")) + ".png,cat\n" }
	for _, mark := range []string{"", "\xef\xbb\xbf"} {
		for _, c := range []struct {
			first, second int
			fits          bool
		}{{maxList - 50, 50, true}, {maxList - 50, 51, false}, {maxList - 2, 100, false}} {
			text := mark + line(c.first) + line(c.second)
			files, _, err := readList(strings.NewReader(text), "dir", o)
			if c.fits != (err == nil) || c.fits && len(files) != 2 {
				t.Errorf("%q, %d and %d bytes: %d images, %v", mark, c.first, c.second, len(files), err)
			}
		}
	}
}

// TestDICOM: a DICOM file is an image of a folder, by its extension and by its first bytes, and
// takes the road of others.
func TestDICOM(t *testing.T) {
	data := must.Get(os.ReadFile("testdata/odd/grey.dcm"))(t)
	dir := t.TempDir()
	for _, name := range []string{"cat/1.dcm", "cat/IM0002"} {
		imagefiletest.Write(t, filepath.Join(dir, name), data)
	}
	o := Options{Fit: Fit{H: 16, W: 32, Ch: 1}, Classes: Classes{Names: []string{"cat", "dog"}, N: 2},
		MaxItems: 9}
	src, others, err := Open(dir, o)
	if err != nil || src.Len() != 1 || !strings.Contains(others.String(), "cat/IM0002 (no image)") {
		t.Fatalf("%v, left out: %v", err, others)
	}
	alone := o
	alone.Optional = true
	one, _ := must.Get2(Open(filepath.Join(dir, "cat/IM0002"), alone))(t)
	for _, s := range []Source{src, one} {
		dst := make([]uint8, o.Fit.Size())
		must.Get(s.Next(t.Context(), dst))(t)
		for i, got := range dst { // the window of centre 150 and width 301 is 0 to 300 about
			if want := min(255, (8*(i%32)+4*(i/32))*255/300); int(got) < want-2 || int(got) > want+2 {
				t.Fatalf("pixel %d is %d; want about %d", i, got, want)
			}
		}
	}
}

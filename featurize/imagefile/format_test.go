package imagefile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/featurize/imagefile/imagefiletest"
	"fmp/onnx/must"
)

// hasDecoder reports whether HEIC and AVIF are decoded on this machine, and fails in continuous
// integration where they are not.
func hasDecoder(t *testing.T) bool {
	_, err := HEIFDecoder()
	if err != nil && os.Getenv("CI") != "" {
		t.Fatalf("continuous integration leaves no test out: %v", err)
	}
	if err != nil {
		t.Log("files are left out:", err)
	}
	return err == nil
}

// TestOddFiles: 35 files of 32 x 16 pixels, of which the quarters are red, green, blue and yellow,
// as other programs write them: each is shown as it was drawn, or is a bad image whose error says
// of what format it is.
func TestOddFiles(t *testing.T) {
	const (
		colour = iota // the four colours
		grey
		bilevel
		clear // as colour, with one clear pixel, which shows white
	)
	for _, c := range []struct {
		file string
		as   int
		bad  string // part of the error
	}{
		{file: "baseline.jpg"}, {file: "progressive.jpg"}, {file: "cmyk.jpg"},
		{file: "grey.jpg", as: grey}, {file: "turned.jpg"},
		{file: "rgb.png"}, {file: "rgb16.png"}, {file: "palette.png"}, {file: "alpha.png", as: clear},
		{file: "bilevel.png", as: bilevel},
		{file: "lossy.webp"}, {file: "lossless.webp"}, {file: "turned.webp"},
		{file: "alpha.webp", as: clear},
		{file: "still.gif"}, {file: "animated.gif"},
		{file: "raw.tif"}, {file: "lzw.tiff"}, {file: "deflate.tif"}, {file: "turned.tif"},
		{file: "rgb.bmp"}, {file: "palette.bmp"},
		{file: "photo.heic"}, {file: "photo.avif"}, {file: "turned.heic"}, {file: "turned.avif"},
		{file: "heic-inside.jpg"},
		{file: "cut.heic", bad: "not a readable HEIC image"},
		{file: "photo.jp2", bad: "a JPEG 2000 image"}, {file: "photo.ico", bad: "a ICO image"},
		{file: "photo.ppm", bad: "none of the formats that are read"},
		{file: "photo.tga", bad: "not a readable image"},
		{file: "animated.webp", bad: "an animated WebP image"},
		{file: "cmyk.tif", bad: "(tiff: unsupported feature: color model): save it as PNG"},
		{file: "jpeg.tif", bad: "that is not read (tiff: unsupported feature: compression value 7): save it as PNG"},
		{file: "cut.jpg", bad: "not a readable image"},
		{file: "text.jpg", bad: "none of the formats that are read (JPEG, PNG, WebP"},
	} {
		path := filepath.Join("testdata/odd", c.file)
		if head, err := os.ReadFile(path); err != nil {
			t.Fatal(err)
		} else if slices.Contains(heif, formatOf(head)) && !hasDecoder(t) {
			continue
		}
		src, _, err := Open(path, Options{Fit: Fit{H: 16, W: 32, Ch: 3}, Optional: true})
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		pix := make([]uint8, 16*32*3)
		_, err = src.Next(t.Context(), pix)
		if c.bad != "" {
			var bad *BadImage
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.bad) ||
				!strings.Contains(err.Error(), c.file) {
				t.Errorf("%s: %v; want a bad image: %s", c.file, err, c.bad)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		want := [4][3]int{{220, 30, 30}, {30, 200, 30}, {30, 30, 220}, {230, 220, 40}}
		switch c.as {
		case grey:
			want = [4][3]int{{87, 87, 87}, {130, 130, 130}, {52, 52, 52}, {202, 202, 202}}
		case bilevel:
			continue // dithered
		}
		for q, at := range [4][2]int{{8, 4}, {24, 4}, {8, 12}, {24, 12}} {
			for k, v := range want[q] {
				if got := int(pix[(at[1]*32+at[0])*3+k]); got < v-12 || got > v+12 {
					t.Errorf("%s: channel %d of quarter %d is %d, want %d", c.file, k, q, got, v)
				}
			}
		}
		if c.as == clear && (pix[0] < 240 || pix[1] < 240 || pix[2] < 240) {
			t.Errorf("%s: a clear pixel shows %v, want white", c.file, pix[:3])
		}
	}
}

// counted reads a source, and returns how many of its images can be read, and why others cannot.
func counted(t *testing.T, src Source, fit Fit) (seen int, bad []error) {
	t.Helper()
	bad = must.Get(Read(t.Context(), src, fit, 2, true, func(_ []uint8, items []Item) error {
		seen += len(items)
		return nil
	}))(t)
	return seen, bad
}

// TestFolderOfAnything: what is no image is named; an image of a format that is not read is an
// image of the folder.
func TestFolderOfAnything(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir) // without a decoder
	for name, from := range map[string]string{"a/1.HEIC": "photo.heic", "a/2.webp": "lossy.webp",
		"b/3.tif":    "raw.tif",
		"b/list.txt": "text.jpg", "b/film.mov": "text.jpg"} {
		data := must.Get(os.ReadFile(filepath.Join("testdata/odd", from)))(t)
		imagefiletest.Write(t, filepath.Join(dir, name), data)
	}
	o := Options{Fit: Fit{H: 4, W: 4, Ch: 3}, Classes: Classes{Names: []string{"a", "b"}, N: 2},
		MaxItems: 9}
	src, others := must.Get2(Open(dir, o))(t)
	if want := "2 files were left out: b/film.mov (no image), b/list.txt (no image)"; others.String() != want {
		t.Errorf("left out: %v; want %s", others, want)
	}
	if seen, bad := counted(t, src, o.Fit); seen != 2 || len(bad) != 1 ||
		!strings.Contains(bad[0].Error(), "1.HEIC: a HEIC image: no program") {
		t.Errorf("%d images, bad %v; want 2 and the HEIC file", seen, bad)
	}
	var l LeftOut
	for range 7 {
		l.Add("x", noImage)
	}
	if !strings.HasSuffix(l.String(), "x (no image), x (no image) and 2 more") {
		t.Errorf("seven files: %v", l)
	}
}

// TestHalvedColours: pictures with colours at half the resolution have the colours that libwebp (1.6.0) and
// libjpeg-turbo (3.2.0) make of them, by Pillow, within the rounding of conversions. Colours that are
// repeated are up to 66 to 121 levels apart here.
func TestHalvedColours(t *testing.T) {
	fit := Fit{H: 21, W: 33, Ch: 3}
	for name, reference := range map[string]string{"colours.webp": "colours.png", "colours420.jpg": "colours420.png",
		"colours422.jpg": "colours422.png"} {
		var pix [2][]uint8
		for i, name := range []string{name, reference} {
			pix[i] = make([]uint8, fit.Size())
			src, _ := must.Get2(Open("testdata/"+name, Options{Fit: fit, Optional: true}))(t)
			must.Get(src.Next(t.Context(), pix[i]))(t)
		}
		most := 0
		for i, v := range pix[0] {
			most = max(most, int(v)-int(pix[1][i]), int(pix[1][i])-int(v))
		}
		if t.Logf("%s: at most %d levels apart", name, most); most > 3 {
			t.Errorf("%s: colours are up to %d levels apart", name, most)
		}
	}
}

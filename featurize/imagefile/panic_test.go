package imagefile

import (
	"bytes"
	"image"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/featurize/imagefile/imagefiletest"
	"fmp/onnx/must"
)

func init() {
	image.RegisterFormat("fails", "FAILS",
		func(io.Reader) (image.Image, error) { panic("here") },
		func(r io.Reader) (image.Config, error) {
			if b, _ := io.ReadAll(r); string(b) == "FAILS at once" {
				panic("here")
			}
			return image.Config{ColorModel: color.GrayModel, Width: 4, Height: 4}, nil
		})
}

// TestDecoderPanics: a decoder that panics makes a bad image, and those after it are read.
func TestDecoderPanics(t *testing.T) {
	fit := Fit{H: 4, W: 4, Ch: 3}
	for _, data := range []string{"FAILS", "FAILS at once"} {
		dir := t.TempDir()
		lay(t, dir, map[string]string{"cat/2.bmp": "", "cat/3.bmp": ""})
		first := filepath.Join(dir, "cat/1.bmp")
		must.Do(t, os.WriteFile(first, []byte(data), 0o600))
		o := Options{Fit: fit, Classes: Classes{N: 1, Names: []string{"cat"}}, MaxItems: 9}
		src, _ := must.Get2(Open(dir, o))(t)
		if n, bad := counted(t, src, fit); n != 2 || len(bad) != 1 ||
			!strings.HasPrefix(bad[0].Error(), first+": not a readable image: ") {
			t.Errorf("%s: %d images are read, bad are %v", data, n, bad)
		}
		must.Fail(fit.Decode(t.Context(), []byte(data), make([]uint8, fit.Size())))(t, "", data)
	}
}

// TestSampled: whatever samples the components of a JPEG have relative to each other, it is read for a
// model of any size.
func TestSampled(t *testing.T) {
	for _, samples := range [][3][2]int{
		{{1, 1}, {2, 2}, {2, 2}}, {{1, 1}, {1, 2}, {4, 1}}, {{2, 1}, {1, 2}, {1, 1}}, {{2, 2}, {2, 1}, {1, 1}},
		{{4, 4}, {1, 1}, {1, 1}}, {{4, 2}, {2, 1}, {1, 1}}, {{2, 2}, {1, 1}, {1, 1}}, {{1, 4}, {1, 1}, {1, 1}},
	} {
		data := imagefiletest.Sampled(203, 150, samples, func(c, x, y int) uint8 { return uint8(90 + 50*c) })
		for _, side := range []int{1, 2, 5, 11, 22, 43, 90, 250} {
			fit := Fit{H: side, W: side, Ch: 3}
			pix := make([]uint8, fit.Size())
			if err := fit.Decode(t.Context(), data, pix); err != nil {
				t.Errorf("%v for %d pixels: %v", samples, side, err)
			} else if want := bytes.Repeat(pix[:3], side*side); !bytes.Equal(pix, want) {
				t.Errorf("%v for %d pixels: an even picture has other pixels than %v", samples, side, want[:3])
			}
		}
	}
}

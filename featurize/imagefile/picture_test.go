package imagefile

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"math"
	"os"
	"testing"

	"fmp/featurize/imagefile/imagefiletest"
	ours "fmp/featurize/imagefile/jpeg"
	"fmp/onnx/alloctest"
	"fmp/onnx/must"
)

// FuzzDecode: an image that passes has a size within the bounds and can be scaled. To decode takes
// at most 24 bytes of memory for each pixel that the header promises, both sides rounded up to 32,
// once that is within the bounds (a progressive JPEG in four colours is the worst: four bytes for
// each coefficient of whole blocks), at most 64 KiB above what [Info] says, and 64 for each byte of
// the file.
func FuzzDecode(f *testing.F) {
	grey, colour := image.NewGray(image.Rect(0, 0, 3, 2)), image.NewNRGBA64(image.Rect(0, 0, 9, 17))
	colour.Set(1, 1, color.NRGBA64{1, 2, 3, 4000})
	palette := image.NewPaletted(image.Rect(0, 0, 5, 5), color.Palette{color.White, color.Transparent})
	for _, im := range []image.Image{grey, colour, palette} {
		wide := imagefiletest.PNG(f, im)
		f.Add(bytes.Clone(wide))
		f.Add(imagefiletest.JPEG(f, im, 0))
		binary.BigEndian.PutUint32(wide[16:], 1<<30)
		f.Add(wide)
	}
	files := must.Get(os.ReadDir("testdata/odd"))(f)
	for _, e := range files {
		data := must.Get(os.ReadFile("testdata/odd/" + e.Name()))(f)
		f.Add(data)
	}
	const pixels = 1 << 18
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _, err := image.DecodeConfig(bytes.NewReader(data))
		h, unread := header(bytes.NewReader(data), pixels)
		if unread == nil { // more files are read than image's decoders do
			c, err = h.Config, nil
		}
		promised := 0
		if err == nil && c.Width > 0 && c.Height > 0 && c.Width <= MaxSide && c.Height <= MaxSide &&
			c.Width*c.Height <= pixels {
			promised = 24 * ((c.Width + 31) / 32 * 32 * ((c.Height + 31) / 32 * 32))
		}
		if unread == nil {
			promised = min(promised, int(h.Memory)+1<<16)
		}
		var im picture
		alloctest.AtMost(t, promised+64*len(data),
			func() { im, err = decode(t.Context(), data, MaxBytes, pixels, Fit{}, &ours.Memory{}) })
		if err != nil {
			return
		}
		s := im.Bounds()
		if s.Dx() < 1 || s.Dy() < 1 || s.Dx() > MaxSide || s.Dy() > MaxSide || s.Dx()*s.Dy() > pixels {
			t.Errorf("an image of %v passed", s)
		}
		if s.Dx()*s.Dy() <= 1<<14 { // scaling a large one tells nothing more
			Fit{5, 7, 3, Crop}.pixels(im, make([]uint8, 105))
		}
	})
}

// TestOverWhite: a pixel of 8 bits is shown at the nearest level to what it is over white, whatever
// its transparency, and one of 16 that is opaque by its high byte.
func TestOverWhite(t *testing.T) {
	im, pix := image.NewNRGBA(image.Rect(0, 0, 256, 256)), make([]uint8, 256*256*3)
	for i := range 256 * 256 {
		im.SetNRGBA(i%256, i/256, color.NRGBA{uint8(i % 256), 7, 255, uint8(i / 256)})
	}
	Fit{256, 256, 3, Stretch}.pixels(picture{Image: im}, pix)
	for i := range 256 * 256 {
		a := float64(i/256) / 255
		for k, v := range [3]float64{float64(i % 256), 7, 255} {
			if exact := a*v + (1-a)*255; math.Abs(float64(pix[3*i+k])-exact) > .5+1./256 {
				t.Fatalf("level %v at alpha %v is shown as %d, want %v", v, a, pix[3*i+k], exact)
			}
		}
	}
	if got := over(0x12ff, 0); got != 0x12 {
		t.Errorf("0x12ff is shown as %#x", got)
	}
}

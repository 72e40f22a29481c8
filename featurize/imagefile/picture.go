// Package imagefile reads images and labels from files: PNG, JPEG and IDX. All files are treated as hostile: sizes are
// checked against stated bounds before memory is allocated for them. It depends on little besides the standard library, as
// it is part of the program for small devices; featurize/dataset makes data sets of what it reads.
package imagefile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	_ "image/jpeg" // registers the decoder
	_ "image/png"  // registers the decoder
	"io"

	"golang.org/x/image/draw"

	"fmp/onnx/regularfile"
)

// Bounds on picture files.
const (
	// MaxBytes bounds the size of a file: 64 MiB.
	MaxBytes = 64 << 20
	// MaxPixels bounds the pixels of an image before it is decoded: 50 million.
	MaxPixels = 50_000_000
	// MaxSide bounds the height and width of an image before it is decoded.
	MaxSide = 20_000
)

// ErrSize is wrapped by the error for an image without pixels, or with more than the bound.
var ErrSize = errors.New("an image of such a size is not decoded")

// Header reads an image's size as displayed, and refuses an image that would take too much memory to decode.
func Header(r io.Reader) (image.Config, error) {
	b := bufio.NewReaderSize(r, exifWithin)
	head, _ := b.Peek(exifWithin) // shorter for a short file
	c, err := header(b, MaxPixels)
	if err == nil && readOrientation(head).swaps() {
		c.Width, c.Height = c.Height, c.Width
	}
	return c, err
}

func header(r io.Reader, pixels int) (image.Config, error) {
	c, _, err := image.DecodeConfig(r)
	if err != nil {
		return c, fmt.Errorf("not a readable PNG or JPEG image: %w", err)
	}
	if c.Width < 1 || c.Height < 1 || c.Width > MaxSide || c.Height > MaxSide || c.Width*c.Height > pixels {
		return c, fmt.Errorf("%w: %dx%d pixels; allowed are 1 to %d a side and %d in all", ErrSize, c.Width, c.Height, MaxSide, pixels)
	}
	return c, nil
}

// turned is a picture as it is stored, with its orientation; [Fit.Pixels] turns it upright.
type turned struct {
	image.Image
	by orientation
}

// DecodeFile reads a PNG or JPEG image after checking its size. Its orientation (EXIF) is left to [Fit.Pixels].
func DecodeFile(path string) (image.Image, error) { return DecodeFileWithin(path, MaxPixels) }

// DecodeFileWithin is DecodeFile with the given bound on the number of pixels, for devices with little memory.
func DecodeFileWithin(path string, pixels int) (image.Image, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	limit := min(MaxBytes, 4*pixels+1<<20) // no longer than its pixels as they are and a generous header
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	im, err := decode(data, limit, pixels)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return im, nil
}

// Decode decodes a PNG or JPEG image after checking its size.
func Decode(data []byte) (image.Image, error) { return decode(data, MaxBytes, MaxPixels) }

func decode(data []byte, limit, pixels int) (image.Image, error) {
	if len(data) > limit {
		return nil, fmt.Errorf("an image file of more than %d bytes", limit)
	}
	if _, err := header(bytes.NewReader(data), pixels); err != nil {
		return nil, err
	}
	im, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("not a readable PNG or JPEG image: %w", err)
	}
	if o := readOrientation(data); o != upright {
		return turned{im, o}, nil
	}
	return im, nil
}

// Resize is how an image of another shape is brought to a model's height and width.
type Resize string

// The ways to resize; all use Catmull-Rom interpolation.
const (
	// Stretch scales each axis by its own factor. It is the default.
	Stretch Resize = "stretch"
	// Crop takes the largest central part that has the model's aspect ratio.
	Crop Resize = "crop"
	// Pad keeps the whole image and adds equal black margins.
	Pad Resize = "pad"
)

// ParseResize reads a way to resize; "" is Stretch.
func ParseResize(s string) (Resize, error) {
	switch r := Resize(s); r {
	case "":
		return Stretch, nil
	case Stretch, Crop, Pad:
		return r, nil
	}
	return "", fmt.Errorf("resize is %q; allowed are %s, %s and %s", s, Stretch, Crop, Pad)
}

// Fit is the shape that images are brought to, and how: the single conversion from a picture to a model's pixels.
type Fit struct {
	H, W, Ch int // Ch is 1 (grey) or 3 (RGB)
	Resize   Resize
}

// Size returns H * W * Ch, the number of bytes of an image.
func (f Fit) Size() int { return f.H * f.W * f.Ch }

// Pixels turns src upright, resizes it, and writes [H, W, Ch], row-major, into dst. Transparent pixels show white. Colour is
// converted to grey by 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601), grey to three equal channels.
func (f Fit) Pixels(src image.Image, dst []uint8) {
	o := upright
	if t, ok := src.(turned); ok {
		src, o = t.Image, t.by
	}
	w, h := f.W, f.H // of the picture as it is stored
	if o.swaps() {
		w, h = h, w
	}
	from, to := src.Bounds(), image.Rect(0, 0, w, h)
	rgba := image.NewRGBA(to)
	switch sw, sh := from.Dx(), from.Dy(); f.Resize {
	case Crop:
		cw, ch := sw, sh
		if sw*h > sh*w {
			cw = max(1, (2*sh*w+h)/(2*h))
		} else {
			ch = max(1, (2*sw*h+w)/(2*w))
		}
		corner := from.Min.Add(image.Pt((sw-cw)/2, (sh-ch)/2))
		from = image.Rectangle{corner, corner.Add(image.Pt(cw, ch))}
	case Pad:
		pw, ph := w, h
		if sw*h > sh*w {
			ph = max(1, (2*sh*w+sw)/(2*sw))
		} else {
			pw = max(1, (2*sw*h+sh)/(2*sh))
		}
		draw.Draw(rgba, to, image.Black, image.Point{}, draw.Src)
		corner := image.Pt((w-pw)/2, (h-ph)/2)
		to = image.Rectangle{corner, corner.Add(image.Pt(pw, ph))}
	}
	draw.Draw(rgba, to, image.White, image.Point{}, draw.Src)
	if from.Size() == to.Size() {
		draw.Draw(rgba, to, src, from.Min, draw.Over)
	} else {
		draw.CatmullRom.Scale(rgba, to, src, from, draw.Over, nil)
	}
	for y := range f.H {
		for x := range f.W {
			sx, sy := o.stored(x, y, w, h)
			p, at := rgba.Pix[4*(sy*w+sx):], y*f.W+x
			if f.Ch == 1 {
				dst[at] = Grey(p[0], p[1], p[2])
			} else {
				copy(dst[3*at:3*at+3], p)
			}
		}
	}
}

// Raw returns raw pixels, [h, w, ch], as an image that shares their memory.
func Raw(pix []uint8, h, w, ch int) image.Image {
	if ch == 1 {
		return &image.Gray{Pix: pix, Stride: w, Rect: image.Rect(0, 0, w, h)}
	}
	return &rgb{h: h, w: w, pix: pix}
}

// rgb holds pixels of three channels, without the fourth of the standard library's images.
type rgb struct {
	h, w int
	pix  []uint8
}

func (p *rgb) ColorModel() color.Model { return color.RGBAModel }
func (p *rgb) Bounds() image.Rectangle { return image.Rect(0, 0, p.w, p.h) }
func (p *rgb) At(x, y int) color.Color { return p.RGBA64At(x, y) }

// RGBA64At is At without an allocation; package draw uses it where it exists.
func (p *rgb) RGBA64At(x, y int) color.RGBA64 {
	v := p.pix[3*(y*p.w+x):]
	return color.RGBA64{uint16(v[0]) * 0x101, uint16(v[1]) * 0x101, uint16(v[2]) * 0x101, 0xffff}
}

// Grey returns the grey of a colour (ITU-R BT.601), which leaves greys as they are.
func Grey(r, g, b uint8) uint8 {
	return uint8((299*int(r) + 587*int(g) + 114*int(b) + 500) / 1000)
}

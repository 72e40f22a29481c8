// Package imagefile reads images and labels from files: PNG, JPEG and IDX. All files are treated as hostile: sizes
// are checked against stated bounds before memory is taken for them. It needs little beside the standard library,
// as it is part of the program for small devices; featurize/dataset makes data sets of what it reads.
package imagefile

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // registers the decoder
	_ "image/png"  // registers the decoder
	"io"
	"os"

	"golang.org/x/image/draw"
)

// Bounds on picture files.
const (
	// MaxBytes bounds a file: 64 MiB.
	MaxBytes = 64 << 20
	// MaxPixels bounds the pixels of an image before it is decoded: 50 million.
	MaxPixels = 50_000_000
	// MaxSide bounds the height and width of an image before it is decoded.
	MaxSide = 20_000
)

// ErrSize is wrapped where an image has no pixels, or more than are decoded.
var ErrSize = errors.New("an image of such a size is not decoded")

// Header reads an image's size and refuses what would take too much memory to decode.
func Header(r io.Reader) (image.Config, error) { return header(r, MaxPixels) }

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

// DecodeFile reads a PNG or JPEG image after checking its size.
func DecodeFile(path string) (image.Image, error) { return DecodeFileWithin(path, MaxPixels) }

// DecodeFileWithin is DecodeFile with a bound of its own on the pixels, for devices of little memory.
func DecodeFileWithin(path string, pixels int) (image.Image, error) {
	f, err := os.Open(path)
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
	return im, nil
}

// Pixels scales an image to h x w pixels of ch channels (1 or 3), row-major into dst: Catmull-Rom
// interpolation, each axis by its own factor, over white. Colour becomes grey by 0.299 R + 0.587 G + 0.114 B
// (ITU-R BT.601), grey becomes three equal channels.
func Pixels(src image.Image, h, w, ch int, dst []uint8) {
	rgba := image.NewRGBA(image.Rect(0, 0, w, h))
	draw.Draw(rgba, rgba.Bounds(), image.White, image.Point{}, draw.Src)
	if src.Bounds().Dx() == w && src.Bounds().Dy() == h {
		draw.Draw(rgba, rgba.Bounds(), src, src.Bounds().Min, draw.Over)
	} else {
		draw.CatmullRom.Scale(rgba, rgba.Bounds(), src, src.Bounds(), draw.Over, nil)
	}
	for i := range h * w {
		p := rgba.Pix[4*i : 4*i+4]
		if ch == 1 {
			dst[i] = Grey(p[0], p[1], p[2])
			continue
		}
		copy(dst[3*i:3*i+3], p[:3])
	}
}

// Grey is the grey of a colour (ITU-R BT.601), which leaves greys as they are.
func Grey(r, g, b uint8) uint8 {
	return uint8((299*int(r) + 587*int(g) + 114*int(b) + 500) / 1000)
}

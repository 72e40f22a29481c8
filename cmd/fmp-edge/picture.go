package main

import (
	"image"
	"image/color"
)

// picture lets raw pixels, [h, w, ch], be read as an image.
type picture struct {
	h, w, ch int
	pix      []uint8
}

var _ image.Image = (*picture)(nil)

func (p *picture) ColorModel() color.Model { return color.RGBAModel }
func (p *picture) Bounds() image.Rectangle { return image.Rect(0, 0, p.w, p.h) }

func (p *picture) At(x, y int) color.Color {
	v := p.pix[(y*p.w+x)*p.ch:]
	if p.ch == 1 {
		return color.RGBA{v[0], v[0], v[0], 255}
	}
	return color.RGBA{v[0], v[1], v[2], 255}
}

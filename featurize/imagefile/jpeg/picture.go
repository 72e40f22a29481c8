package jpeg

import (
	"image"
	"image/color"
)

// picture returns the planes as an image. The planes become the image's own memory where package
// image has such an image. Others are brought to a sample a pixel in memory of its own. A plane's
// memory stays the decoder's [Memory], whose next picture overwrites it.
func (d *decoder) picture() (image.Image, error) {
	r := d.shown
	switch {
	case len(d.parts) == 1:
		p := &d.parts[0].plane
		return &image.Gray{Pix: p.Whole, Stride: p.Stride, Rect: r}, nil
	case len(d.parts) == 4:
		return d.inks(r)
	case d.RGB():
		im := image.NewRGBA(r)
		for i := range 3 {
			d.spread(i, im.Pix[i:], im.Stride, 4)
		}
		for i := 3; i < len(im.Pix); i += 4 {
			im.Pix[i] = 255
		}
		return im, nil
	}
	ratio, ok := d.ratio()
	if !ok {
		im := image.NewYCbCr(r, image.YCbCrSubsampleRatio444)
		for i, to := range [][]uint8{im.Y, im.Cb, im.Cr} {
			d.spread(i, to, im.YStride, 1)
		}
		return im, nil
	}
	luma, cb, cr := &d.parts[0].plane, &d.parts[1].plane, &d.parts[2].plane
	return &image.YCbCr{Y: luma.Whole, Cb: cb.Whole, Cr: cr.Whole, YStride: luma.Stride,
		CStride:        cb.Stride,
		SubsampleRatio: ratio, Rect: r}, nil
}

// ratio returns how many pixels across and down a sample of colour covers, and whether that is one
// number for both colours and one that package image has. The luma must have a sample for each
// pixel. Ratios are of luma against chroma. 8 bx + by makes one number of two, as both are at most
// 4.
func (h *Header) ratio() (image.YCbCrSubsampleRatio, bool) {
	lx, ly := h.Cover(0)
	bx, by := h.Cover(1)
	if rx, ry := h.Cover(2); lx != 1 || ly != 1 || bx != rx || by != ry {
		return 0, false
	}
	switch 8*bx + by {
	case 8*1 + 1:
		return image.YCbCrSubsampleRatio444, true
	case 8*2 + 1:
		return image.YCbCrSubsampleRatio422, true
	case 8*2 + 2:
		return image.YCbCrSubsampleRatio420, true
	case 8*1 + 2:
		return image.YCbCrSubsampleRatio440, true
	case 8*4 + 1:
		return image.YCbCrSubsampleRatio411, true
	case 8*4 + 2:
		return image.YCbCrSubsampleRatio410, true
	}
	return 0, false
}

// spread writes a component's sample for each pixel, step bytes apart. A sample that covers
// several pixels is repeated for them. No interpolation is made: a sample has no more than its own
// value. It takes one step a pixel.
func (d *decoder) spread(i int, to []uint8, stride, step int) {
	p := &d.parts[i].plane
	cx, cy := d.Cover(i)
	for y := range d.shown.Dy() {
		row, out := p.Whole[y/cy*p.Stride:], to[y*stride:]
		for x := range d.shown.Dx() {
			out[step*x] = row[x/cx]
		}
	}
}

// inks returns a picture of four components: CMYK as Adobe writes it, which is inverted, or YCCK,
// of which black alone is. Package image has ink 255 as full, and Adobe stores 0 as full.
func (d *decoder) inks(r image.Rectangle) (image.Image, error) {
	if !d.Adobe {
		return nil, UnsupportedError("it has four colours, and no Adobe segment that says which")
	}
	im := image.NewCMYK(r)
	for i := range 4 {
		d.spread(i, im.Pix[i:], im.Stride, 4)
	}
	for i := 0; i < len(im.Pix); i += 4 {
		p := im.Pix[i:][:4]
		if d.Transform != 0 {
			// C = 255 - C' of an ink C' as it is stored, and C' = 255 - R: C is R.
			p[0], p[1], p[2] = color.YCbCrToRGB(p[0], p[1], p[2])
		} else {
			p[0], p[1], p[2] = 255-p[0], 255-p[1], 255-p[2]
		}
		p[3] = 255 - p[3]
	}
	return im, nil
}

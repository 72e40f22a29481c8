package imagefile

import (
	"image"
	"image/color"
)

// reader reads parts of a picture's lines as planes of 8 bits: red, green and blue, or grey. It
// serves one goroutine, and reads as many pixels a call, whose planes spare is made for.
type reader struct {
	src      image.Image
	channels int
	// colours writes the red, green and blue of a part of line y, from x on, as long as the planes.
	colours func(x, y int, to [3][]uint8)
	// spare are the colours of a line of which grey is made; nil until a line wants them.
	spare [3][]uint8
}

// newReader returns the reader for a type of picture. Opaque pixels of bytes are copied, JPEGs
// converted by lines, and other pixels asked for one by one.
func newReader(src image.Image, channels int) *reader {
	r := &reader{src: src, channels: channels}
	switch p := src.(type) {
	case *image.Gray:
		r.colours = func(x, y int, to [3][]uint8) {
			for _, plane := range to {
				copy(plane, p.Pix[p.PixOffset(x, y):])
			}
		}
	case *rgb:
		r.colours = func(x, y int, to [3][]uint8) { split(p.pix[3*(y*p.w+x):], 3, to) }
	case *image.YCbCr:
		r.colours = func(x, y int, to [3][]uint8) { readYCbCr(p, x, y, to) }
	case *image.RGBA:
		r.colours = r.overWhite(p.Opaque(), p.PixOffset, p.Pix)
	case *image.NRGBA:
		r.colours = r.overWhite(p.Opaque(), p.PixOffset, p.Pix)
	}
	if r.colours == nil {
		r.colours = r.anyColours()
	}
	return r
}

// read reads as many pixels of line y, from x on, as the planes hold. x and y count from the bounds
// of the picture. Of a grey result the first plane alone is written.
func (r *reader) read(x, y int, to [3][]uint8) {
	if r.channels == 3 {
		r.colours(x, y, to)
		return
	}
	if p, ok := r.src.(*image.Gray); ok {
		copy(to[0], p.Pix[p.PixOffset(x, y):])
		return
	}
	for c := range r.spare {
		if r.spare[c] == nil {
			r.spare[c] = make([]uint8, len(to[0]))
		}
	}
	r.colours(x, y, r.spare)
	for i := range to[0] {
		to[0][i] = Grey(r.spare[0][i], r.spare[1][i], r.spare[2][i])
	}
}

// split parts pixels of size bytes, of which the first three are colours.
func split(pix []uint8, size int, to [3][]uint8) {
	red, green, blue := to[0], to[1], to[2]
	green, blue = green[:len(red)], blue[:len(red)]
	for i := range red {
		p := pix[i*size:][:3]
		red[i], green[i], blue[i] = p[0], p[1], p[2]
	}
}

// overWhite reads pixels of four bytes; nil where any is transparent.
func (r *reader) overWhite(opaque bool, offset func(x, y int) int, pix []uint8) func(x, y int,
	to [3][]uint8) {
	if !opaque {
		return nil
	}
	return func(x, y int, to [3][]uint8) { split(pix[offset(x, y):], 4, to) }
}

// anyColours reads pixels of any kind, over white. It asks for each pixel by itself, without an
// allocation where the picture can.
func (r *reader) anyColours() func(x, y int, to [3][]uint8) {
	at := func(x, y int) color.RGBA64 {
		red, green, blue, alpha := r.src.At(x, y).RGBA()
		return color.RGBA64{R: uint16(red), G: uint16(green), B: uint16(blue), A: uint16(alpha)}
	}
	if p, ok := r.src.(image.RGBA64Image); ok {
		at = p.RGBA64At
	}
	return func(x, y int, to [3][]uint8) {
		for i := range to[0] {
			c := at(x+i, y)
			white := 0xffff - c.A // colours are premultiplied
			to[0][i], to[1][i], to[2][i] = over(c.R, white), over(c.G, white), over(c.B, white)
		}
	}
}

// over returns a colour of 16 bits over white in 8: the nearest level where white shows, the high
// byte where none does, as image libraries read 16 bits a channel.
func over(c, white uint16) uint8 {
	if white == 0 {
		return uint8(c >> 8)
	}
	return uint8((uint32(c+white) + 128) / 257)
}

// readYCbCr reads a JPEG's pixels. A sample of the colours serves 1 << shift columns. Which lines
// it serves COffset knows.
func readYCbCr(p *image.YCbCr, x, y int, to [3][]uint8) {
	n := len(to[0])
	luma := p.Y[p.YOffset(x, y):][:n]
	red, green, blue := to[0][:n], to[1][:n], to[2][:n]
	last := p.COffset(x+n-1, y)
	from := p.COffset(x, y)
	cb, cr := p.Cb[from:last+1], p.Cr[from:last+1]
	shift := 0
	switch p.SubsampleRatio {
	case image.YCbCrSubsampleRatio422, image.YCbCrSubsampleRatio420:
		shift = 1
	case image.YCbCrSubsampleRatio411, image.YCbCrSubsampleRatio410:
		shift = 2
	}
	if shift == 1 {
		if x&1 == 1 {
			red[0], green[0], blue[0] = chromaOfBytes(cb[0], cr[0]).with(luma[0])
			luma, cb, cr, red, green, blue = luma[1:], cb[1:], cr[1:], red[1:], green[1:], blue[1:]
		}
		readPairs(luma, cb, cr, red, green, blue)
		return
	}
	if shift == 0 {
		readEach(luma, cb, cr, red, green, blue)
		return
	}
	// The line may begin within the columns of a sample.
	odd := x & (1<<shift - 1)
	for i, l := range luma {
		k := (i + odd) >> shift
		red[i], green[i], blue[i] = chromaOfBytes(cb[k], cr[k]).with(l)
	}
}

// readEachGo is readYCbCr for pixels that have a colour each.
func readEachGo(luma, cb, cr, red, green, blue []uint8) {
	for i, l := range luma {
		red[i], green[i], blue[i] = chromaOfBytes(cb[i], cr[i]).with(l)
	}
}

// readPairsGo is readYCbCr for two pixels of each colour.
func readPairsGo(luma, cb, cr, red, green, blue []uint8) {
	n := len(luma)
	red, green, blue = red[:n], green[:n], blue[:n]
	for k, v := range cb[:n/2] {
		c, i := chromaOfBytes(v, cr[k]), 2*k
		red[i], green[i], blue[i] = c.with(luma[i])
		red[i+1], green[i+1], blue[i+1] = c.with(luma[i+1])
	}
	if n%2 == 1 {
		red[n-1], green[n-1], blue[n-1] = chromaOfBytes(cb[n/2], cr[n/2]).with(luma[n-1])
	}
}

// chroma holds the amounts that a colour, less 128, adds to red, green and blue, in units of 2^-16:
// the numbers of [color.YCbCrToRGB].
// Red gets 1.402 Cr, green -0.344136 Cb - 0.714136 Cr, and blue 1.772 Cb (JFIF 1.02).
type chroma struct{ red, green, blue int32 }

// chromaOf returns the amounts of chroma, both less 128 already.
func chromaOf(cb, cr int16) chroma {
	b, r := int32(cb), int32(cr)
	return chroma{91881 * r, -22554*b - 46802*r, 116130 * b}
}

// chromaOfBytes returns the amounts of chroma as a picture stores it.
func chromaOfBytes(cb, cr uint8) chroma { return chromaOf(int16(cb)-128, int16(cr)-128) }

// with returns the colour of a luma, cut off at 0 and 255.
func (c chroma) with(luma uint8) (red, green, blue uint8) {
	// 255 becomes 24 bits of ones.
	y := int32(luma) * 0x10101
	return byteOf(y + c.red), byteOf(y + c.green), byteOf(y + c.blue)
}

// byteOf returns a number in units of 2^-16 as a byte. Negative numbers are 0, and those of more
// than 24 bits are 255.
func byteOf(v int32) uint8 {
	if uint32(v)&0xff000000 == 0 {
		return uint8(v >> 16)
	}
	return uint8(^(v >> 31))
}

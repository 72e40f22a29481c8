package imagefile

import (
	"encoding/binary"
	"image"
	"image/color"
	"io"
)

// frame holds the sizes in a JPEG's frame header that bound the memory of its decoding (ITU-T T.81, B.2.2).
type frame struct {
	known       bool
	progressive bool
	components  int
	samples     float64 // of all components, for a pixel
	adobe       bool    // an APP14 segment may say that the colours are RGB, which is decoded to a copy
}

// memory bounds the bytes that an image takes while it is decoded, its pixels included; the file itself comes on top.
func memory(r io.ReaderAt, format string, c image.Config, f frame) int64 {
	pixels := int64(c.Width) * int64(c.Height)
	switch format {
	case "jpeg":
		if !f.known { // the decoder found what the walk through the segments did not: the worst
			f = frame{progressive: true, components: 4, samples: 4}
		}
		whole := float64((c.Width+31)/32*32) * float64((c.Height+31)/32*32)
		n := whole * f.samples
		if f.progressive {
			n *= 5 // a coefficient of four bytes for each sample besides
		}
		if f.components == 4 || f.components == 3 && f.adobe {
			n += 4 * whole
		}
		return int64(n)
	case "png":
		n := pixels * bytesOf(c.ColorModel)
		var interlace [1]byte
		if k, _ := r.ReadAt(interlace[:], 28); k == 1 && interlace[0] != 0 {
			n *= 2
		}
		return n
	case "webp":
		if c.ColorModel == color.YCbCrModel {
			return 2 * pixels
		}
		return 12 * pixels // with transparency, or without loss
	case "tiff":
		return pixels * 2 * max(4, bytesOf(c.ColorModel)) // a strip may be the whole image
	}
	return pixels * bytesOf(c.ColorModel)
}

// bytesOf returns the bytes of a pixel of a colour model, 8 of those not named here.
func bytesOf(m color.Model) int64 {
	switch m {
	case color.GrayModel:
		return 1
	case color.Gray16Model:
		return 2
	case color.RGBAModel, color.NRGBAModel, color.CMYKModel, color.YCbCrModel:
		return 4
	}
	if _, ok := m.(color.Palette); ok {
		return 1
	}
	return 8
}

// readFrame reads the body of a frame header of the given marker.
func readFrame(marker byte, d []byte) (f frame) {
	if len(d) < 6 || len(d) < 6+3*int(d[5]) || d[5] < 1 || d[5] > 4 {
		return f
	}
	f.components = int(d[5])
	across, down, sum := 1, 1, 0
	for i := range f.components {
		hv := d[6+3*i+1]
		h, v := int(hv>>4), int(hv&15)
		across, down, sum = max(across, h), max(down, v), sum+h*v
	}
	f.known, f.progressive = true, marker == 0xc2
	f.samples = float64(sum) / float64(across*down)
	if f.components == 1 {
		f.samples = 1
	}
	return f
}

// Bounds on the walks through the segments, chunks and entries of a file.
const (
	mostSegments = 1 << 12
	mostExif     = 1 << 16
)

// at reads up to n bytes at an offset; fewer at the file's end.
func at(r io.ReaderAt, offset int64, n int) []byte {
	b := make([]byte, n)
	k, _ := r.ReadAt(b, offset) // what is cut off is found by the decoder
	return b[:k]
}

// walkJPEG reads the orientation and the frame header from the segments of a JPEG before its pixels.
func walkJPEG(r io.ReaderAt) (o orientation, f frame) {
	const (
		app1, app14 = 0xe1, 0xee
		startScan   = 0xda
	)
	o = upright
	found := false
	for offset, i := int64(2), 0; i < mostSegments; i++ {
		d := at(r, offset, 4)
		if len(d) < 4 || d[0] != 0xff {
			break
		}
		if d[1] == 0xff { // padding
			offset++
			continue
		}
		n := int(binary.BigEndian.Uint16(d[2:])) // counts itself
		if n < 2 || d[1] == startScan {
			break
		}
		switch m := d[1]; {
		case m == app1 && !found:
			if b := at(r, offset+4, n-2); len(b) == n-2 && len(b) > 6 && string(b[:6]) == "Exif\x00\x00" {
				o, found = tiffOrientation(b[6:]), true
			}
		case m == app14:
			f.adobe = true
		case m >= 0xc0 && m <= 0xc2:
			adobe := f.adobe
			f = readFrame(m, at(r, offset+4, n-2))
			f.adobe = f.adobe || adobe
		}
		offset += int64(2 + n)
	}
	return o, f
}

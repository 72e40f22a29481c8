package imagefile

import (
	"image"
	"image/color"
	"io"
)

// memory bounds the bytes that an image takes while it is decoded, its pixels included; the file
// itself comes on top. JPEGs and HEIF files have bounds of their own.
func memory(r io.ReaderAt, format string, c image.Config) int64 {
	pixels := int64(c.Width) * int64(c.Height)
	switch format {
	case "png":
		n := pixels * bytesOf(c.ColorModel)
		// An interlaced one is decoded in seven passes, each a picture beside the whole (ISO/IEC
		// 15948, 8.2). The header's last byte, at offset 28, tells.
		var interlace [1]byte
		if k, _ := r.ReadAt(interlace[:], 28); k == 1 && interlace[0] != 0 {
			n *= 2
		}
		return n
	case "webp":
		if c.ColorModel == color.YCbCrModel {
			return 5 * pixels // colours are enlarged
		}
		return 12 * pixels // with transparency, or without loss
	case "dicom":
		return 12 * pixels // the pixels as stored, twice while they are read, and the image
	case "tiff":
		return pixels*bytesOf(c.ColorModel) + tiffBlock(directory(r), c)
	}
	return pixels * bytesOf(c.ColorModel)
}

// tiffBlock bounds the bytes that the largest strip or tile of a TIFF takes beside the
// image, by its first directory. Its decoder lets a compressed one have 8 bytes a pixel, in
// a buffer that doubles beside the one before. Faxes have a bit a pixel, and uncompressed
// ones are parts of the file.
func tiffBlock(d []byte, c image.Config) int64 {
	const rows, across, down = 0x0116, 0x0142, 0x0143
	side := func(tag uint16) int64 {
		n, _ := tiffNumber(d, tag)
		if n-1 >= 2*MaxSide { // a side that is not told is the longest
			n = 2 * MaxSide
		}
		return int64(n)
	}
	block := int64(c.Width) * min(side(rows), int64(c.Height))
	if _, tiled := tiffNumber(d, across); tiled != 0 {
		block = side(across) * side(down)
	}
	switch how, told := tiffNumber(d, tiffCompression); {
	case how == 1 || told == 0:
		// a slice that grows by a quarter beside the one before
		return min(8*block, MaxBytes) * 9 / 4
	case isFax(how):
		return 3 * block
	}
	return 3 * 8 * block
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

// Bounds on the walks through the segments, chunks and entries of a file.
const (
	maxSegments = 1 << 12
	maxExif     = 1 << 16
)

// at reads up to n bytes at an offset; fewer at the file's end.
func at(r io.ReaderAt, offset int64, n int) []byte {
	b := make([]byte, n)
	k, _ := r.ReadAt(b, offset) // what is cut off is found by the decoder
	return b[:k]
}

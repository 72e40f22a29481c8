package imagefile

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/gif"
	"os"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// bmpOf returns a BMP of two pixels, of four bytes each, under a header of the fourth or the fifth version.
func bmpOf(header, compression, alpha uint32, pixels ...byte) []byte {
	b := make([]byte, 14+header)
	copy(b, "BM")
	for at, v := range map[int]uint32{2: 14 + header + 8, 10: 14 + header, 14: header, 18: 2, 22: 1, 26: 32<<16 | 1,
		30: compression} {
		binary.LittleEndian.PutUint32(b[at:], v)
	}
	if compression == 3 {
		for i, v := range []uint32{0xff0000, 0xff00, 0xff} {
			binary.LittleEndian.PutUint32(b[54+4*i:], v)
		}
	}
	if header > 40 {
		binary.LittleEndian.PutUint32(b[66:], alpha)
	}
	return slices.Concat(b, pixels)
}

// tiffOf returns an uncompressed grey TIFF of two pixels, and of the order that bits have in its bytes.
func tiffOf(fillOrder byte, pixels ...byte) []byte {
	d := append([]byte("II*\x00\x0a\x00\x00\x00"), pixels...)
	tags := [][2]byte{{0, 2}, {1, 1}, {2, 8}, {3, 1}, {6, 1}, {10, fillOrder}, {17, 8}, {21, 1}, {22, 1}, {23, 2}}
	d = append(d, byte(len(tags)), 0)
	for _, t := range tags {
		d = append(d, t[0], 1, 3, 0, 1, 0, 0, 0, t[1], 0, 0, 0)
	}
	return append(d, 0, 0, 0, 0)
}

// TestUnreadKinds: kinds of TIFF, BMP and JPEG that are not read are named, with a remedy. The file is
// whole, or may be.
func TestUnreadKinds(t *testing.T) {
	// an RGB TIFF of one pixel and some channels, of the given further tags
	rgb := func(samples byte, further ...[2]byte) []byte {
		tags := slices.Concat([][2]byte{{0, 1}, {1, 1}, {2, 8}, {3, 1}, {6, 2}, {17, 8}, {21, samples}, {22, 1},
			{23, samples}}, further)
		d := append([]byte("II*\x00\x08\x00\x00\x00"), byte(len(tags)), 0)
		for _, v := range tags {
			count, value := byte(1), []byte{v[1], 0, 0, 0}
			if v[0] == 2 {
				// each channel has 8 bits: the numbers lie behind the directory
				count, value = samples, []byte{byte(8 + 2 + 12*len(tags) + 4), 0, 0, 0}
			}
			tag := []byte{v[0], 1}
			d = append(append(d, append(tag, 3, 0, count, 0, 0, 0)...), value...)
		}
		d = append(d, 0, 0, 0, 0)
		for range samples {
			d = append(d, 8, 0)
		}
		return d
	}
	// a JPEG that begins with a frame of one pixel
	frame := func(marker, bits byte, components ...byte) []byte {
		n := byte(len(components) / 3)
		return slices.Concat([]byte{0xff, 0xd8, 0xff, marker, 0, 8 + 3*n, bits, 0, 1, 0, 1, n}, components)
	}
	const asPNG = "): save it as PNG"
	halfBytes := bytes.Replace(tiffOf(1, 0, 255), []byte{2, 1, 3, 0, 1, 0, 0, 0, 8}, []byte{2, 1, 3, 0, 1, 0, 0, 0, 4}, 1)
	inks := must.Get(os.ReadFile("testdata/odd/cmyk.jpg"))(t)
	words := bmpOf(40, 0, 0, 0, 0, 0, 0)
	words[28] = 16
	for name, c := range map[string]struct {
		data []byte
		want string // "" for an image that is read
	}{
		"RGB":             {rgb(3), ""},
		"alpha":           {rgb(4, [2]byte{82, 2}), ""},
		"planes":          {rgb(3, [2]byte{28, 2}), "(PlanarConfiguration 2), which is not read: save it as PNG"},
		"one plane":       {rgb(3, [2]byte{28, 1}), ""},
		"unsaid channel":  {rgb(4), "4 channels"},
		"unknown channel": {rgb(4, [2]byte{82, 0}), "is alpha (ExtraSamples 1 or 2): save it as PNG"},
		"five channels":   {rgb(5, [2]byte{82, 1}), "5 channels"},
		"BigTIFF":         {[]byte("II+\x00\x08\x00\x00\x00\x10\x00"), "a BigTIFF image, a format that is not read"},
		"TIFF of 4 bits":  {halfBytes, "BitsPerSample of 4" + asPNG},
		"BMP of 16 bits":  {words, "of a kind that is not read (bmp: unsupported BMP image" + asPNG},
		"RLE8":            {bmpOf(40, 1, 0), asPNG},
		"BI_BITFIELDS":    {bmpOf(124, 3, 0), asPNG},
		"arithmetic JPEG": {frame(0xc9, 8, 1, 0x11, 0), "Huffman codes" + asPNG},
		"lossless JPEG":   {frame(0xc3, 8, 1, 0x11, 0), "Huffman codes" + asPNG},
		"JPEG of 12 bits": {frame(0xc1, 12, 1, 0x11, 0), "have 12 bits; 8 are read" + asPNG},
		"two components":  {frame(0xc0, 8, 1, 0x11, 0, 2, 0x11, 0), "has 2 components; 1, 3 and 4 are read" + asPNG},
		"thirds":          {frame(0xc0, 8, 1, 0x31, 0, 2, 0x11, 0, 3, 0x11, 0), "and 4 are read" + asPNG},
		"nameless inks": {bytes.Replace(inks, []byte("Adobe"), []byte("adobe"), 1),
			"no Adobe segment that says which" + asPNG},
		"cut JPEG": {frame(0xc0, 8, 1, 0x11, 0), "not a readable image: it is cut off"},
	} {
		err := (Fit{H: 1, W: 1, Ch: 3}).Decode(t.Context(), c.data, make([]byte, 3))
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// gifOf returns a GIF of two pixels, of which its first frame has one, blue.
func gifOf(t *testing.T, at int) []byte {
	blue := color.Palette{color.RGBA{0, 0, 255, 255}, color.Black}
	var b bytes.Buffer
	must.Do(t, gif.EncodeAll(&b, &gif.GIF{Delay: []int{0}, Config: image.Config{ColorModel: blue, Width: 2, Height: 1},
		Image: []*image.Paletted{image.NewPaletted(image.Rect(at, 0, at+1, 1), blue)}}))
	return b.Bytes()
}

// TestSaid: images have the pixels that their files say, where decoders of golang.org/x/image and the
// standard library have others; nil is a bad image.
func TestSaid(t *testing.T) {
	red, blue, white := []byte{255, 0, 0}, []byte{0, 0, 255}, []byte{255, 255, 255}
	of := []byte{0, 0, 255, 0, 255, 0, 0, 255}
	for name, c := range map[string]struct {
		data []byte
		want []byte
	}{
		"BMP of version 3":                        {bmpOf(40, 0, 0, of...), slices.Concat(red, blue)},
		"BMP of version 4 without alpha":          {bmpOf(108, 0, 0, of...), slices.Concat(red, blue)},
		"BMP of version 5 without alpha":          {bmpOf(124, 0, 0, of...), slices.Concat(red, blue)},
		"BMP of version 4 with a mask unused":     {bmpOf(108, 0, 0xff000000, of...), slices.Concat(red, blue)},
		"BMP of version 5 with a mask unused":     {bmpOf(124, 0, 0xff000000, of...), slices.Concat(red, blue)},
		"BMP of version 4 with alpha":             {bmpOf(108, 3, 0xff000000, of...), slices.Concat(white, blue)},
		"BMP of version 5 with alpha":             {bmpOf(124, 3, 0xff000000, of...), slices.Concat(white, blue)},
		"TIFF":                                    {tiffOf(1, 0, 255), []byte{0, 0, 0, 255, 255, 255}},
		"TIFF whose bytes begin with the low bit": {tiffOf(2, 0, 255), nil},
		"GIF with a frame on its left":            {gifOf(t, 0), slices.Concat(blue, white)},
		"GIF with a frame on its right":           {gifOf(t, 1), slices.Concat(white, blue)},
	} {
		got := make([]byte, 6)
		if err := (Fit{H: 1, W: 2, Ch: 3}).Decode(t.Context(), c.data, got); err != nil {
			got = nil
			t.Log(name, err)
		}
		if !bytes.Equal(got, c.want) {
			t.Errorf("%s: %v; want %v", name, got, c.want)
		}
	}
}

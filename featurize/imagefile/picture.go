// Package imagefile reads images and labels from files: JPEG, PNG, WebP, GIF, TIFF, BMP, DICOM and
// IDX, and with a program of the machine HEIC and AVIF. All files are treated as hostile: sizes are
// checked against stated bounds before memory is allocated for them. It depends on little besides
// the standard library, as it is part of the program for small devices; featurize/dataset makes
// data sets of the images that it reads.
package imagefile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
	"math"
	"slices"

	"fmp/featurize/imagefile/jpeg"
	"fmp/models"
	"fmp/onnx/regularfile"
)

// Bounds on picture files.
const (
	// MaxBytes bounds the size of a file: 256 MiB.
	MaxBytes = 256 << 20
	// MaxPixels bounds the pixels of an image before it is decoded: 100 million.
	MaxPixels = 100_000_000
	// MaxSide bounds the height and width of an image before it is decoded.
	MaxSide = 20_000
	// MaxMemory bounds the bytes that an image takes while it is decoded: 1 GiB. An image of
	// [MaxPixels] takes 150 to 300 MB as a JPEG, 470 MB as a progressive one (without subsampled
	// colours 940 MB), 400 MB as a PNG of 8 bits and 800 MB of 16.
	MaxMemory = 1 << 30
)

// ErrSize is wrapped by the error for an image without pixels, or with more than the bound.
var ErrSize = errors.New("an image of such a size is not decoded")

// Info describes an image before it is decoded.
type Info struct {
	image.Config       // its size as displayed
	Memory       int64 // bytes that its decoding takes, at most
	by           orientation
	jpeg         *jpeg.Header
}

// read reads the size and the format of an image that is no HEIF. A JPEG is read by this program's
// own decoder, whose header has more than package image asks for.
func (h *Info) read(r io.ReaderAt, format *string) (err error) {
	if string(at(r, 0, 2)) != "\xff\xd8" {
		h.Config, *format, err = image.DecodeConfig(random(r))
		return err
	}
	*format = "jpeg"
	if h.jpeg, err = jpeg.ReadHeader(r); err == nil {
		h.Width, h.Height, h.ColorModel = h.jpeg.Width, h.jpeg.Height, colourModel(h.jpeg)
	}
	return err
}

// Header reads an image's size as displayed, and refuses an image that would take too much memory
// to decode. Pixels are not decoded: a file with a sound header may be corrupt.
func Header(r io.ReaderAt) (Info, error) {
	h, err := header(r, MaxPixels)
	if err == nil && h.by.swaps() {
		h.Width, h.Height = h.Height, h.Width
	}
	return h, err
}

// recovered makes a decoder's panic the error of one image: it must end neither a program nor,
// early, the time that a private round fixes. It is to be deferred.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("not a readable image: its decoder fails (%v), a fault of the "+
			"program; save it anew", p)
	}
}

// header reads an image's size as stored. Bounds are checked in this order: the format, the sides
// and the number of pixels, the memory.
func header(r io.ReaderAt, pixels int) (h Info, err error) {
	defer recovered(&err)
	format := formatOf(at(r, 0, 16))
	if slices.Contains(heif, format) {
		h = heifHeader(r)
	} else {
		err = h.read(r, &format)
	}
	if format == "tiff" {
		if fault := tiffFault(directory(r)); fault != nil {
			return h, fault
		}
	}
	if err != nil {
		return h, unread(at(r, 0, headBytes), err)
	}
	c := h.Config
	if c.Width < 1 || c.Height < 1 || c.Width > MaxSide || c.Height > MaxSide ||
		c.Width*c.Height > pixels {
		return h, fmt.Errorf("%w: %dx%d pixels; allowed are 1 to %d a side and %d in all", ErrSize,
			c.Width, c.Height, MaxSide, pixels)
	}
	switch {
	case h.jpeg != nil:
		h.by = tiffOrientation(h.jpeg.Exif)
		h.Memory = h.jpeg.Memory() + 2*int64(c.Width)*int64(c.Height) // with enlarged colours
	case h.Memory == 0:
		h.by, h.Memory = turning(r), memory(r, format, c)
	}
	if h.Memory > MaxMemory {
		return h, fmt.Errorf("%w: %dx%d pixels of %s take %d MB to decode; allowed are %d", ErrSize,
			c.Width, c.Height, format, h.Memory/1e6, MaxMemory/1_000_000)
	}
	return h, nil
}

// colourModel returns the colour model of a JPEG.
func colourModel(h *jpeg.Header) color.Model {
	switch {
	case len(h.Components) == 1:
		return color.GrayModel
	case len(h.Components) == 4:
		return color.CMYKModel
	case h.RGB():
		return color.RGBAModel
	}
	return color.YCbCrModel
}

// random returns the file behind r as package image takes it without a buffer of its own: a TIFF
// may have its directory anywhere, and is otherwise read into memory up to there. It reads as if
// the file had no end: reads past it give none.
func random(r io.ReaderAt) *file { return &file{io.NewSectionReader(r, 0, math.MaxInt64)} }

type file struct{ *io.SectionReader }

// Peek returns the next n bytes without advancing.
func (f *file) Peek(n int) ([]byte, error) {
	now, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	b := at(f, now, n)
	if len(b) < n {
		return b, io.EOF
	}
	return b, nil
}

// picture is a picture as it is stored, and how it is turned upright. A JPEG may be reduced: it has
// then no image.
type picture struct {
	image.Image
	*reduced
	by orientation
	// size is that of a picture of which a part alone is decoded, and 0 otherwise.
	size image.Point
}

// whole returns the bounds of the picture, of which a part may be decoded. Parts are asked for in
// its coordinates.
func (p picture) whole() image.Rectangle {
	if p.size != (image.Point{}) {
		return image.Rectangle{Max: p.size}
	}
	return p.Bounds()
}

// DecodeFile reads an image after checking its size, and writes its pixels as [Fit.Pixels] does,
// upright (EXIF). HEIC and AVIF are decoded by a program of the machine ([HEIFDecoder]), which is
// killed where ctx is cancelled.
func (f Fit) DecodeFile(ctx context.Context, path string, dst []uint8) error {
	_, err := f.decodeFile(ctx, path, MaxPixels, dst, &memories{})
	return err
}

// memories are those that a picture takes over from the one before: fresh ones take the time of
// their pages, and of the collector. They serve one picture at a time.
type memories struct {
	file    bytes.Buffer
	samples jpeg.Memory
	counted int64 // bytes of them among those that are held
}

// maxKept bounds the bytes of all memories that a reader keeps for other pictures.
const maxKept = 32 << 20

// size returns the bytes that are held.
func (m *memories) size() int { return m.file.Cap() + m.samples.Size() }

// decodeFile is DecodeFile with the given bound on the number of pixels, for devices with little
// memory; it returns the sha256 of the file as well. A file longer than its image can be is
// refused. dst has [Fit.Size] bytes.
func (f Fit) decodeFile(ctx context.Context, path string, pixels int, dst []uint8,
	m *memories) (digest [sha256.Size]byte, err error) {
	file, err := regularfile.Open(path)
	if err != nil {
		return digest, err
	}
	defer file.Close()
	b := &m.file
	b.Reset()
	limit := int64(longest(pixels))
	if st, err := file.Stat(); err == nil {
		want := int(min(limit, st.Size())) + bytes.MinRead
		if b.Cap() < want { // a buffer that grows doubles, beside the memory that it had
			*b = bytes.Buffer{}
		}
		b.Grow(want)
	}
	if _, err := b.ReadFrom(io.LimitReader(file, limit+1)); err != nil {
		return digest, fmt.Errorf("%s: %w", path, err)
	}
	data := b.Bytes()
	if len(data) >= 12 && slices.Contains(heif, formatOf(data[:12])) {
		*b = bytes.Buffer{} // a program that is killed may leave its reader behind
		im, err := decodeHEIF(ctx, data, pixels)
		if err != nil {
			return digest, fmt.Errorf("%s: %w", path, err)
		}
		f.Pixels(im, dst)
		return sha256.Sum256(data), nil
	}
	return f.decodeBytes(ctx, path, data, pixels, dst, &m.samples)
}

// decodeBytes is decodeFile for the contents of a file. The data are the caller's, and are not
// changed.
func (f Fit) decodeBytes(ctx context.Context, path string, data []byte, pixels int, dst []uint8,
	m *jpeg.Memory) (digest [sha256.Size]byte, err error) {
	if err := f.decodeInto(ctx, data, longest(pixels), pixels, dst, m); err != nil {
		return digest, fmt.Errorf("%s: %w", path, err)
	}
	return sha256.Sum256(data), nil
}

// decodeInto decodes an image of at most the given bytes and pixels, and writes its pixels. A
// decoder's panic is an error here.
func (f Fit) decodeInto(ctx context.Context, data []byte, limit, pixels int, dst []uint8,
	m *jpeg.Memory) (err error) {
	defer recovered(&err)
	p, err := decode(ctx, data, limit, pixels, f, m)
	if err == nil {
		f.pixels(p, dst)
	}
	return err
}

// longest returns the bytes of the longest file of an image of the given number of pixels: its
// pixels as they are, and a generous header. Eight bytes are a pixel of four channels of 16 bits.
func longest(pixels int) int { return min(MaxBytes, 8*pixels+1<<20) }

// Decode decodes an image after checking its size, and writes its pixels as [Fit.Pixels] does,
// upright (EXIF). It stops soon after ctx has ended. HEIC and AVIF are refused: they are decoded
// from files. dst has [Fit.Size] bytes. It is safe for several goroutines.
func (f Fit) Decode(ctx context.Context, data []byte, dst []uint8) error {
	return f.decodeInto(ctx, data, MaxBytes, MaxPixels, dst, &jpeg.Memory{})
}

// Decoded is an image that is decoded as far as a fit wants it, and not yet resized.
type Decoded struct {
	picture
	fit Fit
}

// Read is the first half of [Fit.Decode]. The second half takes no context: it is short.
func (f Fit) Read(ctx context.Context, data []byte) (*Decoded, error) {
	p, err := decode(ctx, data, MaxBytes, MaxPixels, f, &jpeg.Memory{})
	return &Decoded{p, f}, err
}

// Pixels is the second half of [Fit.Decode], to be called once.
func (d *Decoded) Pixels(dst []uint8) { d.fit.pixels(d.picture, dst) }

// Covers returns how many pixels of the image a decoded one covers, across and down.
func (d *Decoded) Covers() (across, down float64) {
	if d.reduced == nil {
		return 1, 1
	}
	return d.planes[0].Across, d.planes[0].Down
}

// decode decodes an image of at most the given bytes and pixels, no further than a fit wants it;
// the zero fit wants it whole. The picture may lie in m, which the next call with it overwrites.
func decode(ctx context.Context, data []byte, limit, pixels int, f Fit,
	m *jpeg.Memory) (picture, error) {
	if len(data) > limit {
		return picture{}, fmt.Errorf("an image file of more than %d bytes", limit)
	}
	h, err := header(bytes.NewReader(data), pixels)
	if err != nil {
		return picture{}, err
	}
	if len(data) > 12 && string(data[8:12]) == "WEBP" &&
		int64(binary.LittleEndian.Uint32(data[4:]))+8 > int64(len(data)) {
		// a decoder takes memory by the size that a file promises
		return picture{}, errors.New("not a readable image: the WebP file is cut off")
	}
	p := picture{by: h.by}
	if h.jpeg != nil {
		p.size = image.Pt(h.Width, h.Height)
		p.Image, p.reduced, err = decodeJPEG(ctx, data, f.points(h.jpeg, h.by), f.part(p), m)
	} else {
		p.Image, err = decodeOther(ctx, data)
	}
	if err != nil && ctx.Err() != nil {
		return picture{}, ctx.Err() // a decoder may wrap it in text
	}
	if im, ok := p.Image.(*image.YCbCr); ok && h.jpeg != nil &&
		f.nearWhole(h.Width, h.Height, h.by) {
		enlarge(im)
	}
	if err != nil {
		return picture{}, unread(data[:min(headBytes, len(data))], err)
	}
	return p, nil
}

// decodeJPEG decodes a part of a JPEG, at whole resolution where points is nil.
func decodeJPEG(ctx context.Context, data []byte, points []jpeg.Points,
	part image.Rectangle, m *jpeg.Memory) (image.Image, *reduced, error) {
	if points == nil {
		im, err := jpeg.Part(ctx, data, part, m)
		return im, nil, err
	}
	h, planes, err := jpeg.Reduce(ctx, data, points, part, m)
	return nil, &reduced{h, planes}, err
}

// decodeOther decodes an image of a format that has registered its decoder. Decoders of package
// image know no context: the reader ends for them.
func decodeOther(ctx context.Context, data []byte) (image.Image, error) {
	im, format, err := image.Decode(within(ctx, data))
	if err != nil {
		return nil, err
	}
	if im.Bounds().Empty() {
		return nil, fmt.Errorf("%w: no pixels", ErrSize)
	}
	switch format {
	case "webp":
		fullRange(im)
	case "tiff":
		tiffBits(im, data)
	case "bmp":
		if of, ok := im.(*image.NRGBA); ok && binary.LittleEndian.Uint32(data[30:]) == 0 {
			// BI_RGB: masks are not valid, and the fourth byte is unused.
			for i := 3; i < len(of.Pix); i += 4 {
				of.Pix[i] = 255
			}
		}
	case "gif":
		if of, ok := im.(*image.Paletted); ok {
			im = frame{of, image.Rect(0, 0, int(binary.LittleEndian.Uint16(data[6:])),
				int(binary.LittleEndian.Uint16(data[8:])))}
		}
	}
	return im, nil
}

// frame is the first frame of a GIF on its screen, which is transparent where the frame is not.
type frame struct {
	*image.Paletted
	screen image.Rectangle
}

func (f frame) Bounds() image.Rectangle { return f.screen }
func (f frame) At(x, y int) color.Color { return f.RGBA64At(x, y) }
func (f frame) RGBA64At(x, y int) (c color.RGBA64) {
	if (image.Point{x, y}).In(f.Rect) {
		c = f.Paletted.RGBA64At(x, y)
	}
	return c
}

// fullRange stretches the planes of a lossy WebP, whose colours it enlarges to the size of the
// luma. Its luma is 16 to 235 and its chroma 16 to 240 (RFC 6386, section 9.2, after ITU-R BT.601);
// the decoder hands them over as they are, in a type whose range is 0 to 255. Y' = (Y - 16)
// 255/219, and C' = (C - 128) 255/224 + 128, cut off at 0 and 255.
func fullRange(im image.Image) {
	var p *image.YCbCr
	switch im := im.(type) {
	case *image.YCbCr:
		p = im
	case *image.NYCbCrA:
		p = &im.YCbCr
	default: // without loss: RGB
		return
	}
	enlarge(p)
	stretch := func(plane []uint8, from, zero, width float64) {
		var table [256]uint8
		for v := range table {
			table[v] = uint8(min(255, max(0, math.Round((float64(v)-from)*255/width+zero))))
		}
		for i, v := range plane {
			plane[i] = table[v]
		}
	}
	stretch(p.Y, 16, 0, 219)
	stretch(p.Cb, 128, 128, 224)
	stretch(p.Cr, 128, 128, 224)
}

// Resize is how an image of another shape is brought to a model's height and width.
type Resize string

// The ways to resize; all use Catmull-Rom interpolation, antialiased.
const (
	// Stretch scales each axis by its own factor. It is the default.
	Stretch Resize = "stretch"
	// Crop takes the largest central part that has the model's aspect ratio; crop:0.875 that share
	// of its height and width.
	Crop Resize = "crop"
	// Pad keeps the whole image and adds equal black margins.
	Pad Resize = "pad"
)

// ParseResize reads a way to resize; "" is Stretch. An unknown way is an error that names all.
func ParseResize(s string) (Resize, error) {
	_, crop := models.CropShare(s)
	switch r := Resize(s); {
	case s == "":
		return Stretch, nil
	case crop, r == Stretch, r == Pad:
		return r, nil
	}
	return "", fmt.Errorf("resize is %q; allowed are %s, %s, %[3]s:SHARE (a share of it above 0 and "+
		"at most 1, %[3]s:0.875 say) and %s", s, Stretch, Crop, Pad)
}

// Fit is the shape that images are brought to, and how: the single conversion from a picture to a
// model's pixels.
type Fit struct {
	H, W, Ch int // Ch is 1 (grey) or 3 (RGB)
	Resize   Resize
}

// Size returns H * W * Ch, the number of bytes of an image.
func (f Fit) Size() int { return f.H * f.W * f.Ch }

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

// Grey returns the grey of a colour (ITU-R BT.601), which leaves greys as they are. Weights are in
// thousandths, and halves go up.
func Grey(r, g, b uint8) uint8 { return uint8((299*int(r) + 587*int(g) + 114*int(b) + 500) / 1000) }

// Package dicom reads the image of a DICOM file (PS3.10): explicit or implicit VR, little
// endian, uncompressed or as baseline JPEG, one frame, grey of 8 or 16 bits or colour of 8.
// Other transfer syntaxes are refused by name. No value of the header is read but the transfer
// syntax, the group of the image's pixels (0028) and the shape of the presentation. A patient's
// name is skipped where it stands.
//
// A grey value v becomes y in 0 to 65535 by the modality's rescaling and the window (PS3.3 C.11.1,
// C.11.2):
//
//	x = slope v + intercept                         (0028,1053) and (0028,1052); 1 and 0 without
//	y = ((x - (c - 0.5))/(w - 1) + 0.5) 65535        LINEAR, clipped
//	y = ((x - c)/w + 0.5) 65535                      LINEAR_EXACT, clipped
//	y = 65535/(1 + exp(-4 (x - c)/w))                SIGMOID
//
// c and w are the first window's centre (0028,1050) and width (0028,1051).
// An enhanced image has them in its functional groups (5200,9229 and 5200,9230), which are read.
// Without a window y goes from the least to the greatest x of the image; a table in its place
// (0028,3010) is refused. MONOCHROME1 is inverted after, and an inverse presentation (2050,0020) of
// MONOCHROME2 refused. Padding (0028,0120, to 0028,0121 where that is given) is no part of the
// image (PS3.3 C.7.5.1.1.2): it has no part in the least and the greatest x, and is black.
package dicom

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
	"math"
	"strconv"
	"strings"

	"fmp/featurize/imagefile/jpeg"
)

// Magic is the beginning of a DICOM file, as package image writes it: 128 bytes of anything, then
// the letters.
var Magic = strings.Repeat("?", preamble) + "DICM"

const (
	preamble = 128
	// maxElements bounds the elements of a header, those in sequences included.
	maxElements = 100_000
	// maxText bounds a value that is read.
	maxText = 1 << 10
	// memory bounds the bytes of a pixel of a JPEG while it is decoded.
	memory = 8
	// maxDepth bounds sequences in sequences.
	maxDepth = 16
)

// Transfer syntaxes that are read.
const (
	implicitVR   = "1.2.840.10008.1.2"      // Implicit VR Little Endian
	explicitVR   = "1.2.840.10008.1.2.1"    // Explicit VR Little Endian
	jpegBaseline = "1.2.840.10008.1.2.4.50" // JPEG Baseline (Process 1)
)

// refused names transfer syntaxes that are not read, by the beginnings of their identifiers. The
// first that fits is named: a longer beginning must stand before a shorter one.
var refused = []struct{ uid, name string }{
	{"1.2.840.10008.1.2.4.90", "JPEG 2000"}, {"1.2.840.10008.1.2.4.91", "JPEG 2000"},
	{"1.2.840.10008.1.2.4.92", "JPEG 2000"},
	{"1.2.840.10008.1.2.4.93", "JPEG 2000"}, {"1.2.840.10008.1.2.4.20", "JPEG 2000"},
	{"1.2.840.10008.1.2.4.8", "JPEG-LS"},
	{"1.2.840.10008.1.2.4.51", "JPEG of 12 bits"}, {"1.2.840.10008.1.2.4.57", "lossless JPEG"},
	{"1.2.840.10008.1.2.4.70", "lossless JPEG"},
	{"1.2.840.10008.1.2.4.10", "video"}, {"1.2.840.10008.1.2.5", "run lengths"},
	{"1.2.840.10008.1.2.1.99", "deflated data"},
	{"1.2.840.10008.1.2.2", "big endian"},
}

// Tags of values that are read, with their names in PS3.6.
const (
	tagSyntax    = 0x0002_0010 // Transfer Syntax UID
	tagSamples   = 0x0028_0002 // Samples per Pixel
	tagMeaning   = 0x0028_0004 // Photometric Interpretation
	tagPlanar    = 0x0028_0006 // Planar Configuration
	tagFrames    = 0x0028_0008 // Number of Frames
	tagRows      = 0x0028_0010 // Rows
	tagColumns   = 0x0028_0011 // Columns
	tagAllocated = 0x0028_0100 // Bits Allocated
	tagStored    = 0x0028_0101 // Bits Stored
	tagHigh      = 0x0028_0102 // High Bit
	tagSigned    = 0x0028_0103 // Pixel Representation
	tagPadding   = 0x0028_0120 // Pixel Padding Value
	tagLimit     = 0x0028_0121 // Pixel Padding Range Limit
	tagCentre    = 0x0028_1050 // Window Center
	tagWidth     = 0x0028_1051 // Window Width
	tagIntercept = 0x0028_1052 // Rescale Intercept
	tagSlope     = 0x0028_1053 // Rescale Slope
	tagFunction  = 0x0028_1056 // VOI LUT Function
	// Modality LUT Sequence: a table of the modality, in place of slope and intercept
	tagTable = 0x0028_3000
	// VOI LUT Sequence: a table in place of a window
	tagInterest = 0x0028_3010
	tagShape    = 0x2050_0020 // Presentation LUT Shape
	tagPixels   = 0x7fe0_0010 // Pixel Data
	tagItem     = 0xfffe_e000 // Item
	tagItemEnd  = 0xfffe_e00d // Item Delimitation Item
	tagEnd      = 0xfffe_e0dd // Sequence Delimitation Item
)

// frameGroups are the sequences in which an enhanced image has its rescaling and window. In order
// they are shared and per-frame functional groups, the frame's window and its pixels'
// transformation.
var frameGroups = []uint32{0x5200_9229, 0x5200_9230, 0x0028_9132, 0x0028_9145}

// undefined is the length of sequences and pixels that end with a delimiter.
const undefined = 0xffff_ffff

// header holds the values that are read before the pixels.
type header struct {
	syntax, meaning, function      string
	shape                          string // of the presentation: IDENTITY or INVERSE
	table                          bool   // in place of a window
	rows, columns, samples, frames int
	// A sample has a cell of allocated bits, of which stored bits up to bit number high are its
	// value.
	allocated, stored, high, planar int
	signed                          int // 1: yes
	// A cell between these words is no part of the image; -1: not given.
	padding, limit                  int
	slope, intercept, centre, width float64 // width 0: no window; centre NaN: not given
	length                          uint32  // of the pixels
}

// DecodeConfig returns the size and the colour model of a file's image.
func DecodeConfig(r io.Reader) (image.Config, error) {
	h, err := (&parser{r: r}).header()
	if err != nil {
		return image.Config{}, fmt.Errorf("dicom: %w", err)
	}
	c := image.Config{Width: h.columns, Height: h.rows, ColorModel: color.Gray16Model}
	if h.samples == 3 {
		c.ColorModel = color.RGBAModel
	}
	return c, nil
}

// Decode returns a file's image: *image.Gray16 or, of colour, *image.RGBA or the type of a JPEG.
// The bound on its pixels is the caller's, who knows their number from [DecodeConfig]. r is read
// once, from front to back, and no further than the pixels.
func Decode(r io.Reader) (image.Image, error) {
	p := &parser{r: r}
	h, err := p.header()
	if err != nil {
		return nil, fmt.Errorf("dicom: %w", err)
	}
	im, err := h.decode(p)
	if err != nil {
		return nil, fmt.Errorf("dicom: %w", err)
	}
	return im, nil
}

// decode reads the pixels, behind which p stands. Their number of bytes must be that of the
// header's sizes, made even. The last byte of an odd number is padding, and is not read.
func (h *header) decode(p *parser) (image.Image, error) {
	if h.syntax == jpegBaseline {
		return h.compressed(p)
	}
	want := int64(h.rows) * int64(h.columns) * int64(h.samples) * int64(h.allocated/8)
	if n := int64(h.length); n != want && n != want+want%2 {
		return nil, fmt.Errorf("the pixels take %d bytes; %dx%d of %d samples of %d bits take %d",
			h.length, h.columns, h.rows, h.samples, h.allocated, want)
	}
	data, err := readAll(p.r, want)
	if err != nil {
		return nil, fmt.Errorf("the pixels: %w", err)
	}
	if h.samples == 3 {
		return h.colours(data), nil
	}
	return h.grey(func(i int) int {
		if h.allocated == 16 {
			return int(binary.LittleEndian.Uint16(data[2*i:]))
		}
		return int(data[i])
	}), nil
}

// readAll reads n bytes, with memory for those alone that are there. A header may promise gigabytes
// that a small file does not have.
func readAll(r io.Reader, n int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, n))
	if err == nil && int64(len(data)) < n {
		err = io.ErrUnexpectedEOF
	}
	return data, err
}

// value returns the value of the stored bits of a cell. Signed values are two's complement of the
// stored bits.
func (h *header) value(cell int) int {
	v := cell >> (h.high + 1 - h.stored) & (1<<h.stored - 1)
	if h.signed == 1 && v >= 1<<(h.stored-1) {
		v -= 1 << h.stored
	}
	return v
}

// pads says whether a cell is padding, by its value. Of values beyond the stored bits, which some
// files state, the whole cell decides.
func (h *header) pads(cell int) bool {
	if h.padding < 0 {
		return false
	}
	word := func(v int) int {
		if h.signed == 1 {
			return int(int16(v))
		}
		return v
	}
	a, b := word(h.padding), word(h.padding)
	if h.limit >= 0 {
		b = word(h.limit)
	}
	in := func(v int) bool { return min(a, b) <= v && v <= max(a, b) }
	return in(h.value(cell)) || h.high == h.stored-1 && in(word(cell))
}

// grey returns the image of grey cells. cell returns that of pixel i, and is called twice for each
// where there is no window. The equations are those of the package's comment. cell gives a word of
// allocated bits, without a sign. It costs one or two passes over the pixels.
func (h *header) grey(cell func(i int) int) *image.Gray16 {
	n := h.rows * h.columns
	least, most := math.Inf(1), math.Inf(-1)
	if h.width == 0 {
		for i := range n {
			if c := cell(i); !h.pads(c) {
				x := h.slope*float64(h.value(c)) + h.intercept
				least, most = min(least, x), max(most, x)
			}
		}
	}
	im := image.NewGray16(image.Rect(0, 0, h.columns, h.rows))
	for i := range n {
		c := cell(i)
		if h.pads(c) {
			continue // black
		}
		x := h.slope*float64(h.value(c)) + h.intercept
		var y float64
		switch {
		case h.width == 0 && most > least:
			y = (x - least) / (most - least)
		case h.width == 0:
			y = 0
		case h.function == "SIGMOID":
			y = 1 / (1 + math.Exp(-4*(x-h.centre)/h.width))
		case h.function == "LINEAR_EXACT":
			y = (x-h.centre)/h.width + 0.5
		case h.width == 1 && x <= h.centre-0.5: // LINEAR of one value is a step
			y = 0
		case h.width == 1:
			y = 1
		default:
			y = (x-(h.centre-0.5))/(h.width-1) + 0.5
		}
		y = min(max(y, 0), 1)
		if h.meaning == "MONOCHROME1" {
			y = 1 - y
		}
		binary.BigEndian.PutUint16(im.Pix[2*i:], uint16(math.Round(y*math.MaxUint16)))
	}
	return im
}

// colours returns the image of three samples of 8 bits. They lie pixel by pixel, or plane by plane
// where the planar configuration is 1. The type has 8 bits a channel, opaque.
func (h *header) colours(data []byte) *image.RGBA {
	im := image.NewRGBA(image.Rect(0, 0, h.columns, h.rows))
	n := h.rows * h.columns
	for i := range n {
		var s [3]uint8
		for c := range s {
			at := 3*i + c
			if h.planar == 1 {
				at = c*n + i
			}
			s[c] = data[at]
		}
		if h.meaning == "YBR_FULL" {
			s[0], s[1], s[2] = color.YCbCrToRGB(s[0], s[1], s[2])
		}
		copy(im.Pix[4*i:], []uint8{s[0], s[1], s[2], 0xff})
	}
	return im
}

// compressed returns the image of a baseline JPEG in its fragments (PS3.5 A.4). The JPEG's size
// must be the header's, which the bound on memory was checked for.
func (h *header) compressed(p *parser) (image.Image, error) {
	var data []byte
	for first := true; ; first = false {
		tag, length, err := p.item()
		if err != nil {
			return nil, fmt.Errorf("the fragments of the JPEG: %w", err)
		}
		if tag == tagEnd {
			break
		}
		part, err := readAll(p.r, int64(length))
		if err != nil {
			return nil, fmt.Errorf("a fragment of the JPEG: %w", err)
		}
		if !first { // the first is the table of offsets
			data = append(data, part...)
		}
	}
	inside, err := jpeg.ReadHeader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if inside.Width != h.columns || inside.Height != h.rows ||
		inside.Memory() > memory*int64(h.rows)*int64(h.columns)+1<<20 {
		return nil, fmt.Errorf("the JPEG has %dx%d pixels of %d bytes; the header says %dx%d, "+
			"and a baseline JPEG takes at most %d bytes each", inside.Width, inside.Height,
			inside.Memory(), h.columns, h.rows, memory)
	}
	im, err := jpeg.Decode(context.Background(), data)
	if err != nil {
		return nil, err
	}
	g, ok := im.(*image.Gray)
	if ok != (h.samples == 1) {
		return nil, fmt.Errorf("the JPEG and the header's %d samples do not agree", h.samples)
	}
	if !ok {
		return im, nil
	}
	return h.grey(func(i int) int { return int(g.Pix[i/h.columns*g.Stride+i%h.columns]) }), nil
}

// check returns an error for images that are not read. It is run before memory is taken for pixels.
func (h *header) check() error {
	grey := h.meaning == "MONOCHROME1" || h.meaning == "MONOCHROME2"
	colour := h.meaning == "RGB" || h.meaning == "YBR_FULL"
	if h.syntax == jpegBaseline {
		colour = h.meaning == "YBR_FULL" || h.meaning == "YBR_FULL_422"
	}
	switch {
	case h.frames != 1:
		return fmt.Errorf("%d frames; one is read: save each as a file of its own", h.frames)
	case h.rows < 1 || h.columns < 1:
		return fmt.Errorf("%dx%d pixels", h.columns, h.rows)
	case h.syntax == jpegBaseline && h.meaning == "RGB":
		return errors.New("JPEG of RGB is not read; save it uncompressed, or its JPEG as " +
			"YBR_FULL_422")
	case grey && h.samples != 1, colour && h.samples != 3, !grey && !colour:
		return fmt.Errorf("photometric interpretation %.20q with %d samples is not read; save it "+
			"uncompressed, as grey or RGB", h.meaning, h.samples)
	case h.allocated != 8 && (h.allocated != 16 || !grey || h.syntax == jpegBaseline):
		return fmt.Errorf("%d bits a sample are not read; 8 are, and 16 of grey", h.allocated)
	case h.stored < 1 || h.stored > h.allocated || h.high < h.stored-1 || h.high >= h.allocated:
		return fmt.Errorf("%d bits of %d are stored, up to bit %d", h.stored, h.allocated, h.high)
	case h.planar != 0 && h.planar != 1:
		return fmt.Errorf("planar configuration %d", h.planar)
	case (h.length == undefined) != (h.syntax == jpegBaseline):
		return errors.New("its pixels and its transfer syntax do not agree")
	}
	return h.checkWindow()
}

// checkWindow returns an error for a window that no function has, and for grey values that no
// window gives. LINEAR is a step at a width of 1, and has no meaning below (PS3.3 C.11.2.1.2).
func (h *header) checkWindow() error {
	switch {
	case h.samples == 1 && h.table && h.width == 0:
		return errors.New("its grey values go through a table, its VOI LUT (0028,3010), " +
			"which is not read; save it with a window")
	case h.meaning == "MONOCHROME2" && h.shape == "INVERSE":
		return errors.New("its presentation is INVERSE (2050,0020), which is read of " +
			"MONOCHROME1 alone")
	}
	least := math.SmallestNonzeroFloat64
	switch h.function {
	case "", "LINEAR":
		least = 1
	case "LINEAR_EXACT", "SIGMOID":
	default:
		return fmt.Errorf("window function %.20q is not read", h.function)
	}
	if h.width != 0 && (h.width < least || math.IsNaN(h.centre)) {
		return fmt.Errorf("a window of width %v around %v", h.width, h.centre)
	}
	return nil
}

// syntaxError returns the error for a transfer syntax that is not read.
func syntaxError(uid string) error {
	for _, s := range refused {
		if strings.HasPrefix(uid, s.uid) {
			return fmt.Errorf("its pixels are %s (transfer syntax %.64q), which is not read; save it "+
				"uncompressed or as baseline JPEG", s.name, uid)
		}
	}
	return fmt.Errorf("transfer syntax %.64q is not read; save it uncompressed or as baseline JPEG",
		uid)
}

// set keeps a value of the header. Numbers are two bytes, decimals and other values text (PS3.5
// 6.2). Other tags are left alone.
func (h *header) set(tag uint32, value []byte) (err error) {
	text := strings.TrimRight(string(value), " \x00")
	number := map[uint32]*int{tagSamples: &h.samples, tagPlanar: &h.planar, tagRows: &h.rows,
		tagColumns: &h.columns, tagAllocated: &h.allocated, tagStored: &h.stored, tagHigh: &h.high,
		tagSigned: &h.signed, tagPadding: &h.padding, tagLimit: &h.limit}[tag]
	decimal := map[uint32]*float64{tagCentre: &h.centre, tagWidth: &h.width,
		tagIntercept: &h.intercept, tagSlope: &h.slope}[tag]
	switch {
	// an element without a value says as much as none (PS3.5 7.4.5)
	case len(value) == 0, number == nil && strings.TrimSpace(text) == "":
	case number != nil && len(value) != 2 && (tag == tagPadding || tag == tagLimit):
		if h.samples != 3 { // colour has no padding
			return fmt.Errorf("padding (%04x,%04x) has %d bytes in place of 2; save it without "+
				"padding", tag>>16, tag&0xffff, len(value))
		}
	case number != nil && len(value) != 2:
		return fmt.Errorf("element %08x has %d bytes in place of 2", tag, len(value))
	case number != nil:
		*number = int(binary.LittleEndian.Uint16(value))
	case decimal != nil:
		first, _, _ := strings.Cut(text, `\`) // of several windows
		*decimal, err = strconv.ParseFloat(strings.TrimSpace(first), 64)
		if err != nil || math.IsNaN(*decimal) || math.Abs(*decimal) > 1e12 {
			return fmt.Errorf("element %08x is %.20q; want a number", tag, first)
		}
	case tag == tagSyntax:
		h.syntax = text
	case tag == tagMeaning:
		h.meaning = strings.TrimSpace(text)
	case tag == tagFunction:
		h.function = strings.TrimSpace(text)
	case tag == tagShape:
		h.shape = strings.TrimSpace(text)
	case tag == tagFrames:
		if h.frames, err = strconv.Atoi(strings.TrimSpace(text)); err != nil {
			return fmt.Errorf("the number of frames is %.20q", text)
		}
	}
	return nil
}

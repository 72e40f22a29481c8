// Package jpeg decodes JPEG files (ITU-T T.81): sequential and progressive Huffman coding of 8
// bits. Beside whole pictures it decodes reduced ones: of each block of 8 x 8 samples the inverse
// DCT has fewer points, and coefficients that these do not need are skipped. All arithmetic is in
// whole numbers, the same on every processor. Files are hostile: one that is cut off or corrupt is
// an error, never a grey picture.
package jpeg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Markers (T.81, table B.1).
const (
	baseline    = 0xc0 // SOF0
	extended    = 0xc1 // SOF1
	progressive = 0xc2 // SOF2
	huffmans    = 0xc4 // DHT
	restart     = 0xd0 // RST0, the first of eight
	startImage  = 0xd8 // SOI
	endImage    = 0xd9 // EOI
	startScan   = 0xda // SOS
	quantizers  = 0xdb // DQT
	interval    = 0xdd // DRI
	app0        = 0xe0 // of JFIF
	app1        = 0xe1 // of EXIF
	app14       = 0xee // of Adobe
)

// Bounds on a file.
const (
	// MaxScans bounds the scans of a file: each passes over the whole picture, however few bytes it
	// has. Encoders write 1 to 20.
	MaxScans = 64
	// maxSegments bounds the segments before the first scan.
	maxSegments = 1 << 12
	// tables bounds the bytes of a decoder's tables and of its part of a scan.
	tables = 1 << 17
)

// Component is one of a picture's colours as it is stored. Of its samples the picture has
// ceil(width H/most H) across, and down alike (T.81, A.1.1).
type Component struct {
	// its identifier, its samples across and down relative to others', its quantization table
	ID, H, V, table int
}

// Header holds the statements of a file before its first scan. It is not changed after
// [ReadHeader].
type Header struct {
	Width, Height int
	Progressive   bool
	Components    []Component
	// Exif is the first EXIF segment's contents behind its name.
	Exif []byte
	// Adobe says that an APP14 segment gives the colours' Transform: 0 for RGB or CMYK, 1 for
	// YCbCr, 2 for YCCK.
	Adobe     bool
	Transform byte
	jfif      bool
}

// most returns the largest H and V. An MCU has 8 times as many pixels across and down.
func (h *Header) most() (across, down int) {
	for _, c := range h.Components {
		across, down = max(across, c.H), max(down, c.V)
	}
	return across, down
}

// Cover returns how many pixels of the picture a sample of component i covers, across and down.
// [Header.sampled] sees to it that the division leaves no rest.
func (h *Header) Cover(i int) (across, down int) {
	a, d := h.most()
	return a / h.Components[i].H, d / h.Components[i].V
}

// RGB reports whether three components are red, green and blue, and not YCbCr.
func (h *Header) RGB() bool {
	if len(h.Components) != 3 || h.jfif {
		return false
	}
	if h.Adobe {
		return h.Transform == 0
	}
	return h.Components[0].ID == 'R' && h.Components[1].ID == 'G' && h.Components[2].ID == 'B'
}

// Memory bounds the bytes that decoding takes, the picture included and the file not.
func (h *Header) Memory() int64 {
	across, down := h.most()
	blocks := int64(0)
	for _, c := range h.Components {
		// Whole MCUs are stored, of H x V blocks of the component each.
		blocks += int64(ceil(h.Width, 8*across)*c.H) * int64(ceil(h.Height, 8*down)*c.V)
	}
	n := blocks*64 + tables
	if h.Progressive {
		// A coefficient takes two bytes, and the bits of those that are not zero a word a block.
		n += blocks * (64*2 + 8)
	}
	if len(h.Components) == 4 || h.RGB() {
		// Inks and RGB become a picture of four bytes a pixel beside the planes.
		n += 4 * int64(h.Width) * int64(h.Height)
	} else if len(h.Components) == 3 {
		// So does YCbCr of a ratio that package image has not, of three bytes.
		if _, ok := h.ratio(); !ok {
			n += 3 * int64(h.Width) * int64(h.Height)
		}
	}
	return n
}

// ceil returns a/b rounded up.
func ceil(a, b int) int { return (a + b - 1) / b }

// segments reads the segments of a file.
type segments struct {
	r      io.ReaderAt
	at     int64 // of the next
	buf    [256]byte
	marker byte
	body   int64 // where the segment's contents begin
	n      int   // bytes of its contents
}

var (
	errCut       = fmt.Errorf("it is cut off: %w", io.ErrUnexpectedEOF)
	errFrames    = errors.New("it has two frame headers")
	errLength    = errors.New("a header has another length than its contents")
	errQuantizer = errors.New("a quantization table is corrupt")
)

// UnsupportedError is the error for a JPEG that may be whole, of a kind that is not read.
type UnsupportedError string

func (e UnsupportedError) Error() string { return string(e) }

func unsupported(format string, of ...any) error {
	return UnsupportedError(fmt.Sprintf(format, of...))
}

// next finds the next segment. Bytes before its marker are passed over, as image/jpeg and libjpeg
// do. A length of 0 or 1 is an error, as it counts its own two bytes.
func (s *segments) next() error {
	for {
		n, err := s.r.ReadAt(s.buf[:], s.at)
		if n < 2 {
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			return errCut
		}
		b := s.buf[:n]
		i := 0
		for i < n-1 && (b[i] != 0xff || b[i+1] == 0 || b[i+1] == 0xff || b[i+1]&^7 == restart) {
			i++
		}
		s.at += int64(i)
		if i == n-1 {
			continue
		}
		s.marker = b[i+1]
		if s.marker == endImage {
			s.at += 2
			return nil
		}
		if n < i+4 {
			if n < len(s.buf) {
				return errCut
			}
			continue
		}
		s.n = int(binary.BigEndian.Uint16(b[i+2:])) - 2
		if s.n < 0 {
			return fmt.Errorf("segment %#x is shorter than its length", s.marker)
		}
		s.body = s.at + 4
		s.at = s.body + int64(s.n)
		return nil
	}
}

// contents reads a segment's contents. They are 65,533 bytes at most, as a length has two.
func (s *segments) contents() ([]byte, error) {
	b := make([]byte, s.n)
	if n, err := s.r.ReadAt(b, s.body); n < len(b) {
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, errCut
	}
	return b, nil
}

// ReadHeader reads a file's header, up to its first scan. Pixels are not looked at: they may be
// corrupt. It takes memory for one segment at a time. The first frame header counts, and a second
// is an error.
func ReadHeader(r io.ReaderAt) (*Header, error) {
	h, s := &Header{}, &segments{r: r}
	if err := s.begin(); err != nil {
		return nil, err
	}
	for range maxSegments {
		if err := s.next(); err != nil {
			return nil, err
		}
		if s.marker == startScan || s.marker == endImage {
			if len(h.Components) == 0 {
				return nil, errors.New("no frame header comes before its pixels")
			}
			return h, nil
		}
		if err := h.segment(s); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("more than %d segments before its pixels", maxSegments)
}

// begin passes over the marker that a file begins with (SOI).
func (s *segments) begin() error {
	if n, _ := s.r.ReadAt(s.buf[:2], 0); n < 2 || s.buf[0] != 0xff || s.buf[1] != startImage {
		return errors.New("it does not begin as a JPEG")
	}
	s.at = 2
	return nil
}

// segment reads a segment of which the header tells. Segments of no use, comments among them, are
// not read.
func (h *Header) segment(s *segments) error {
	switch s.marker {
	case baseline, extended, progressive, app0, app1, app14:
	case 0xc3, 0xc5, 0xc6, 0xc7, 0xc9, 0xca, 0xcb, 0xcd, 0xce, 0xcf:
		return unsupported("its coding, frame %#x, is none of baseline, extended sequential and "+
			"progressive with Huffman codes", s.marker)
	default:
		return nil
	}
	b, err := s.contents()
	if err != nil {
		return err
	}
	switch s.marker {
	case app0:
		h.jfif = h.jfif || len(b) >= 5 && string(b[:5]) == "JFIF\x00"
	case app1:
		if h.Exif == nil && len(b) > 6 && string(b[:6]) == "Exif\x00\x00" {
			h.Exif = b[6:]
		}
	case app14:
		if len(b) >= 12 && string(b[:5]) == "Adobe" {
			h.Adobe, h.Transform = true, b[11]
		}
	default:
		return h.frame(s.marker, b)
	}
	return nil
}

// frame reads a frame header (T.81, B.2.2). The bytes are the precision, the height and the width
// of two bytes each, and the number of components. For each component its identifier, a byte of H
// and V, and the number of its quantization table follow.
func (h *Header) frame(marker byte, b []byte) error {
	if len(h.Components) > 0 {
		return errFrames
	}
	if len(b) < 6 || len(b) != 6+3*int(b[5]) {
		return errLength
	}
	if b[0] != 8 {
		return unsupported("its samples have %d bits; 8 are read", b[0])
	}
	n := int(b[5])
	if n != 1 && n != 3 && n != 4 {
		return unsupported("it has %d components; 1, 3 and 4 are read", n)
	}
	h.Height, h.Width = int(binary.BigEndian.Uint16(b[1:])), int(binary.BigEndian.Uint16(b[3:]))
	if h.Height == 0 || h.Width == 0 {
		return fmt.Errorf("its size is %d x %d", h.Width, h.Height)
	}
	h.Progressive = marker == progressive
	for i := range n {
		d := b[6+3*i:]
		c := Component{int(d[0]), int(d[1] >> 4), int(d[1] & 15), int(d[2])}
		if n == 1 {
			c.H, c.V = 1, 1 // a scan of one component has no others to be relative to (T.81, A.2.2)
		}
		for _, other := range h.Components {
			if other.ID == c.ID {
				return fmt.Errorf("two of its components are %d", c.ID)
			}
		}
		if c.table > 3 {
			return fmt.Errorf("component %d wants quantization table %d; there are 4",
				c.ID, c.table)
		}
		h.Components = append(h.Components, c)
	}
	return h.sampled()
}

// sampled refuses subsamplings by others than 1, 2 and 4. With these a sample covers a whole number
// of pixels.
func (h *Header) sampled() error {
	across, down := h.most()
	fits := func(a, b int) bool { return b >= 1 && a <= 4 && (a == b || a == 2*b || a == 4*b) }
	for _, c := range h.Components {
		if !fits(across, c.H) || !fits(down, c.V) {
			return unsupported("its component %d is sampled %d x %d of %d x %d; factors of 1, 2 "+
				"and 4 are read", c.ID, c.H, c.V, across, down)
		}
	}
	return nil
}

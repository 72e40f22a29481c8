package jpeg

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"image"
)

// Points are how many samples are computed of the eight of a block, across and down: 1, 2, 4 or 8.
type Points struct{ X, Y int }

var all = Points{8, 8}

// Plane holds a component's samples. Samples before X and Y belong to blocks that were left out.
type Plane struct {
	X, Y         int // the component's samples before those of the plane, across and down
	W, H, Stride int // samples that show pixels, across and down, and from a row to the next
	// Whole are samples of 0 to 255, of a component that was decoded whole.
	Whole []uint8
	// Reduced are samples less 128 where it was not; they are not cut off at 0 and 255, so that
	// means of them are those of the picture.
	Reduced []int16
	// Across and Down are how many of the picture's pixels a sample covers.
	Across, Down float64
}

// Memory is that of a picture's samples, which the next picture takes over. It serves one picture
// at a time, and one goroutine.
type Memory struct {
	whole   []uint8
	reduced []int16
}

// Size returns the bytes that are held.
func (m *Memory) Size() int { return cap(m.whole) + 2*cap(m.reduced) }

// room returns n values of a memory, that of kept where it has them. They may be
// those of the picture before. The values are not cleared: every sample of a shown block is
// written.
func room[T any](kept *[]T, n int) []T {
	if cap(*kept) < n {
		*kept = nil // the collector may have it before there is more
		*kept = make([]T, n)
	}
	return (*kept)[:n]
}

// decoder decodes a file. It decodes one picture, and serves one goroutine.
type decoder struct {
	*Header
	bits
	ctx       context.Context
	memory    *Memory
	shown     image.Rectangle // pixels that are decoded, whole MCUs
	parts     []part
	quantizer [4]*[64]int32  // in the order of rows
	codes     [2][4]*huffman // kept when they are read anew
	interval  int            // MCUs between restarts; 0 is none
	scans     int
	// block has the coefficients of a block times their quantizers, row by row. It is all 0 between
	// blocks.
	block [64]int32
	rows  [8]line // of a block, between the passes
}

// part is a component that is being decoded.
type part struct {
	Component
	points       Points
	last         int             // the last coefficient, in zigzag order, that the points want
	across, down int             // blocks that are stored
	wide, high   int             // blocks that show pixels
	shown        image.Rectangle // blocks of those that are decoded
	quantizer    *[64]int32
	plane        Plane
	// seen says that a scan has had its DC coefficients, and dc is the sum of their differences in
	// the scan so far (T.81, F.2.2.1).
	seen         bool
	dc           int32
	coefficients []int16  // of a progressive file, last+1 a block
	present      []uint64 // those that are not zero, of all 64
}

// Decode decodes a picture: an *image.Gray, *image.YCbCr, *image.RGBA or *image.CMYK, as package
// image/jpeg has them. It stops soon after ctx has ended. The result is the caller's, as its memory
// is of this call alone.
func Decode(ctx context.Context, data []byte) (image.Image, error) {
	return Part(ctx, data, image.Rectangle{}, &Memory{})
}

// Part is Decode for the pixels of a part, and some around it: the bounds say which. An empty
// part is the whole picture. Blocks outside are read, so that a corrupt file is an error, and not
// decoded. The picture lies in m until that is given to another one.
func Part(ctx context.Context, data []byte, part image.Rectangle, m *Memory) (image.Image, error) {
	d, err := newDecoder(ctx, data, part, m)
	if err != nil {
		return nil, err
	}
	if err := d.decode(nil); err != nil {
		return nil, err
	}
	return d.picture()
}

// Reduce is Part for a smaller picture: a plane for each component, of the given points in each
// block. There is one Points for each component of the header. Planes lie in m, as Part's picture
// does. points must have as many entries as the header has components, each with 1, 2, 4 or 8.
func Reduce(ctx context.Context, data []byte, points []Points, part image.Rectangle,
	m *Memory) (*Header, []Plane, error) {
	d, err := newDecoder(ctx, data, part, m)
	if err != nil {
		return nil, nil, err
	}
	if err := d.decode(points); err != nil {
		return nil, nil, err
	}
	planes := make([]Plane, len(d.parts))
	for i := range planes {
		planes[i] = d.parts[i].plane
	}
	return d.Header, planes, nil
}

// newDecoder reads the header of a file and takes no memory for its pixels yet. An empty part is
// all of the picture.
func newDecoder(ctx context.Context, data []byte, part image.Rectangle,
	m *Memory) (*decoder, error) {
	h, err := ReadHeader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	d := &decoder{Header: h, ctx: ctx, memory: m, shown: image.Rect(0, 0, h.Width, h.Height)}
	d.data = data
	d.show(part, fewBlocks)
	return d, nil
}

// fewBlocks are not worth the tables by which they are passed over.
const fewBlocks = 512

// show leaves out the blocks outside a part of the picture, where they are more than few. The part
// grows to whole MCUs.
func (d *decoder) show(part image.Rectangle, few int) {
	part = part.Intersect(d.shown)
	if part.Empty() {
		return
	}
	across, down := d.most()
	// An MCU has x by y pixels.
	x, y := 8*across, 8*down
	part = image.Rect(part.Min.X/x*x, part.Min.Y/y*y, ceil(part.Max.X, x)*x, ceil(part.Max.Y, y)*y)
	if ceil(d.Width, 8)*ceil(d.Height, 8)-part.Dx()/8*(part.Dy()/8) > few {
		d.shown = d.shown.Intersect(part)
	}
}

// decode decodes all scans. A component whose first DC coefficients no scan has is an error. Blocks
// of progressive files are transformed behind the last scan, others as they are read. Segments
// behind the end of the image are not read.
func (d *decoder) decode(points []Points) error {
	d.arrange(points)
	s := &segments{r: bytes.NewReader(d.data)}
	if err := s.begin(); err != nil {
		return err
	}
	for {
		if err := s.next(); err != nil {
			return err
		}
		if err := d.ctx.Err(); err != nil {
			return err
		}
		if s.marker == endImage {
			break
		}
		if err := d.segment(s); err != nil {
			return err
		}
	}
	for i := range d.parts {
		p := &d.parts[i]
		if !p.seen {
			return fmt.Errorf("it ends before the pixels of component %d", p.ID)
		}
		if d.Progressive {
			if err := d.restore(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// arrange takes memory for the planes, which [Header.Memory] bounds. Coefficients of progressive
// files are made anew for each picture.
func (d *decoder) arrange(points []Points) {
	// total is the number of values of all planes, which share one memory.
	total := 0
	across, down := d.most()
	for i, c := range d.Components {
		p := part{Component: c, points: all}
		if points != nil {
			p.points = points[i]
		}
		// Points of a block need the lowest frequencies, as many along each axis as they are.
		for k, at := range zigzag {
			if at%8 < p.points.X && at/8 < p.points.Y {
				p.last = k
			}
		}
		// Blocks are stored in whole MCUs; wide and high are those of a scan of this component
		// alone.
		p.across, p.down = ceil(d.Width, 8*across)*c.H, ceil(d.Height, 8*down)*c.V
		p.wide, p.high = ceil(ceil(d.Width*c.H, across), 8), ceil(ceil(d.Height*c.V, down), 8)
		p.shown = image.Rect(d.shown.Min.X/(8*across)*c.H, d.shown.Min.Y/(8*down)*c.V,
			ceil(d.shown.Max.X, 8*across)*c.H, ceil(d.shown.Max.Y, 8*down)*c.V)
		x, y := p.shown.Min.X*p.points.X, p.shown.Min.Y*p.points.Y
		p.plane = Plane{X: x, Y: y,
			W:      ceil(ceil(d.shown.Max.X*c.H, across)*p.points.X, 8) - x,
			H:      ceil(ceil(d.shown.Max.Y*c.V, down)*p.points.Y, 8) - y,
			Stride: p.shown.Dx() * p.points.X,
			Across: float64(8*across) / float64(c.H*p.points.X),
			Down:   float64(8*down) / float64(c.V*p.points.Y)}
		total += p.values()
		if blocks := p.across * p.down; d.Progressive {
			p.coefficients, p.present = make([]int16, blocks*(p.last+1)), make([]uint64, blocks)
		}
		d.parts = append(d.parts, p)
	}
	if points == nil {
		whole := room(&d.memory.whole, total)
		for i := range d.parts {
			p := &d.parts[i]
			p.plane.Whole, whole = cut(whole, p.values())
		}
		return
	}
	reduced := room(&d.memory.reduced, total)
	for i := range d.parts {
		p := &d.parts[i]
		p.plane.Reduced, reduced = cut(reduced, p.values())
	}
}

// cut cuts n values off: one that appends to them writes no other's.
func cut[T any](of []T, n int) (first, rest []T) { return of[:n:n], of[n:] }

// values returns how many values a plane has, with those behind its end that lanes read. A row more
// and 64 values let vector code read whole lanes at the last samples.
func (p *part) values() int {
	return p.plane.Stride*(p.shown.Dy()*p.points.Y+1) + 64
}

// segment reads a segment behind the header. Those that neither the tables nor the pixels are in
// are passed over.
func (d *decoder) segment(s *segments) error {
	switch s.marker {
	// Tables may be set anew between scans (T.81, B.2.4).
	case quantizers, huffmans, interval, startScan:
	case baseline, extended, progressive:
		if d.scans > 0 {
			return errFrames
		}
		return nil
	default:
		return nil
	}
	b, err := s.contents()
	if err != nil {
		return err
	}
	switch s.marker {
	case quantizers:
		return d.quantizers(b)
	case huffmans:
		return d.huffmans(b)
	case interval:
		if len(b) != 2 {
			return errLength
		}
		d.interval = int(binary.BigEndian.Uint16(b))
		return nil
	}
	if d.scans++; d.scans > MaxScans {
		return fmt.Errorf("a JPEG of more than %d scans, each of which passes over the whole "+
			"image; save it anew", MaxScans)
	}
	if err := d.scan(b, int(s.at)); err != nil {
		return err
	}
	s.at = int64(d.next)
	return nil
}

// zigzag is the place in a block of each coefficient in the order of a file (T.81, figure A.6).
var zigzag = func() (order [64]int) {
	k := 0
	for sum := range 15 {
		for i := max(0, sum-7); i <= min(sum, 7); i++ {
			row, column := i, sum-i
			if sum%2 == 0 {
				row, column = column, row
			}
			order[k] = 8*row + column
			k++
		}
	}
	return order
}()

// quantizers reads tables of quantization (T.81, B.2.4.1). Each is a byte of precision (8 or 16
// bits) and number, and 64 factors in zigzag order.
func (d *decoder) quantizers(b []byte) error {
	for len(b) > 0 {
		// size is the number of bytes of a factor.
		size, which := 1, b[0]&15
		switch b[0] >> 4 {
		case 0:
		case 1:
			size = 2
		default:
			return errQuantizer
		}
		if which > 3 || len(b) < 1+64*size {
			return errQuantizer
		}
		b = b[1:]
		t := new([64]int32)
		for _, at := range zigzag {
			t[at] = int32(b[0])
			if size == 2 {
				t[at] = t[at]<<8 | int32(b[1])
			}
			b = b[size:]
		}
		d.quantizer[which] = t
	}
	return nil
}

// huffmans reads tables of codes (T.81, B.2.4.2). Each is a byte of class (0 for DC, 1 for AC) and
// number, 16 counts of codes by their bits, and the codes' symbols. A symbol of AC is a run of
// zeros (upper four bits) and a number of bits (lower four).
func (d *decoder) huffmans(b []byte) error {
	for len(b) > 0 {
		if len(b) < 17 {
			return errTable
		}
		// n is the number of codes.
		class, which, n := int(b[0]>>4), b[0]&15, 0
		for _, c := range b[1:17] {
			n += int(c)
		}
		if class > 1 || which > 3 || n == 0 || n > 256 || len(b) < 17+n {
			return errTable
		}
		if d.codes[class][which] == nil {
			d.codes[class][which] = &huffman{}
		}
		if err := d.codes[class][which].set(b[1:17], b[17:17+n], class); err != nil {
			return err
		}
		b = b[17+n:]
	}
	return nil
}

package imagefile

import (
	"bytes"
	"context"
	"fmt"
	"io"
)

// Bounds on the work of a decoder, beside those on memory.
const (
	// MaxScans bounds the scans of a JPEG: the decoder visits every block of the image once a scan, however few bytes the scan has. Encoders
	// write 1 to 20.
	MaxScans = 64
	// rereads bounds the bytes that a decoder asks for, in lengths of the file: the strips of a TIFF may be one and the same.
	rereads = 2
)

// startOfScan is the marker that begins each scan of a JPEG (ITU-T T.81, B.1.1.3). Within the data of a scan 0xff is followed by 0.
var startOfScan = []byte{0xff, 0xda}

// budgeted is a file that a decoder reads, which gives nothing more once the context has ended or the bounds are reached: decoders have no
// other way to be stopped. A read ends with the first scan in it, so that the context is looked at before each.
type budgeted struct {
	*file
	ctx   context.Context
	jpeg  bool
	scans int
	half  bool // the last byte read is the first of a marker
	left  int64
}

// within returns the contents of a picture's file as a decoder reads them under the bounds.
func within(ctx context.Context, data []byte) *budgeted {
	return &budgeted{file: random(bytes.NewReader(data)), ctx: ctx, jpeg: bytes.HasPrefix(data, []byte{0xff, 0xd8}),
		left: rereads*int64(len(data)) + 1<<20}
}

func (b *budgeted) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.file.Read(p)
	if b.jpeg {
		kept := b.scan(p[:n])
		if _, e := b.file.Seek(int64(kept-n), io.SeekCurrent); e != nil {
			return 0, e
		}
		if kept < n {
			n, err = kept, nil
		}
		if b.scans > MaxScans {
			return 0, fmt.Errorf("a JPEG of more than %d scans, each of which passes over the whole image; save it anew", MaxScans)
		}
	}
	return n, b.spend(n, err)
}

// ReadAt is Read for decoders that go to and fro.
func (b *budgeted) ReadAt(p []byte, offset int64) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.file.ReadAt(p, offset)
	return n, b.spend(n, err)
}

// spend counts bytes that are handed out.
func (b *budgeted) spend(n int, err error) error {
	if b.left -= int64(n); b.left < 0 {
		return fmt.Errorf("an image whose parts are read more than %d times; save it anew", rereads)
	}
	return err
}

// scan counts the first scan that begins in p, and returns the number of bytes up to it, its marker included.
func (b *budgeted) scan(p []byte) int {
	if len(p) == 0 {
		return 0
	}
	if b.half && p[0] == startOfScan[1] {
		b.half = false
		b.scans++
		return 1
	}
	i := bytes.Index(p, startOfScan)
	if i < 0 {
		b.half = p[len(p)-1] == startOfScan[0]
		return len(p)
	}
	b.half = false
	b.scans++
	return i + len(startOfScan)
}

package imagefile

import (
	"bytes"
	"context"
	"fmt"
)

// rereads bounds the bytes that a decoder asks for, in lengths of the file: the strips of a TIFF
// may be one and the same. A sound file is read about once, and a TIFF's directory besides.
const rereads = 2

// budgeted is a file that a decoder reads, which gives nothing more once the context has ended or
// the bounds are reached: most decoders have no other way to be stopped.
type budgeted struct {
	*file
	ctx  context.Context
	left int64
}

// within returns the contents of a picture's file as a decoder reads them under the bounds. A MiB
// more lets small files be read often.
func within(ctx context.Context, data []byte) *budgeted {
	return &budgeted{file: random(bytes.NewReader(data)), ctx: ctx,
		left: rereads*int64(len(data)) + 1<<20}
}

// Read is that of the file, within the bounds.
func (b *budgeted) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.file.Read(p)
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

// spend counts bytes that are handed out. The bytes of the read that passes the bound are handed
// out, with the error.
func (b *budgeted) spend(n int, err error) error {
	if b.left -= int64(n); b.left < 0 {
		return fmt.Errorf("an image whose parts are read more than %d times; save it anew", rereads)
	}
	return err
}

package imagefile

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"fmp/onnx/regularfile"
)

// maxAhead bounds the images that are decoded at once.
const maxAhead = 8

// ahead decodes the images of files before they are asked for, several at once, and hands them out
// in their order. Those that are being decoded take [MaxMemory] in all, so that a folder takes no
// more than its largest image may, and [maxKept] for those that come. It is a source itself, whose
// stop must be called.
type ahead struct {
	*pictures
	// taken has a channel for each image that is being decoded, in the order of the files. Its
	// length bounds how far decoding runs ahead.
	taken chan chan decodedImage
	// kept are the memories that no image has at present, at most one for each that is decoded.
	kept   chan *memories
	held   atomic.Int64 // bytes of memories that are kept, or were before an image took them
	cancel context.CancelFunc
	all    sync.WaitGroup
}

type decodedImage struct {
	item   Item
	err    error
	pixels []uint8
}

// ahead begins with the image that Next would return.
func (p *pictures) ahead(ctx context.Context) *ahead {
	n := p.Threads
	if n == 0 {
		n = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancel(ctx)
	// One more is taken than the channel holds.
	n = min(n, maxAhead)
	a := &ahead{pictures: p, taken: make(chan chan decodedImage, n-1),
		kept: make(chan *memories, n), cancel: cancel}
	memory, files := semaphore.NewWeighted(MaxMemory), p.files[p.at:]
	a.all.Go(func() {
		for _, f := range files {
			c := make(chan decodedImage, 1)
			select {
			case a.taken <- c:
			case <-ctx.Done():
				return
			}
			a.all.Go(func() { c <- a.decodeWithin(ctx, memory, f) })
		}
	})
	return a
}

// decodeWithin decodes an image once there is memory for it.
func (a *ahead) decodeWithin(ctx context.Context, memory *semaphore.Weighted,
	f Item) (d decodedImage) {
	bytes := weigh(f.Name)
	if d.err = memory.Acquire(ctx, bytes); d.err != nil {
		return d
	}
	defer memory.Release(bytes)
	d.pixels = make([]uint8, a.Fit.Size())
	var m *memories
	select {
	case m = <-a.kept:
	default:
		m = &memories{}
	}
	d.item, d.err = a.image(ctx, f, d.pixels, m)
	a.keep(m)
	return d
}

// keep keeps memories for another image where all that are kept are within their bound. One that is
// dropped leaves the count with all its bytes, those of before included.
func (a *ahead) keep(m *memories) {
	size := int64(m.size())
	if a.held.Add(size-m.counted) <= maxKept {
		m.counted = size
		select {
		case a.kept <- m:
			return
		default:
		}
	}
	a.held.Add(-size)
}

// weigh returns the bytes that an image of a file takes while it is decoded: of one that cannot be
// read, as decoding will find, none. It is never more than [MaxMemory]: for more a decoder would
// wait without end.
func weigh(path string) int64 {
	f, err := regularfile.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	h, err := Header(f)
	st, stat := f.Stat()
	if err != nil || stat != nil {
		return 0
	}
	return min(MaxMemory, h.Memory+st.Size())
}

// Next waits for the next image of the files' order, which others may have overtaken, and copies
// its pixels.
func (a *ahead) Next(ctx context.Context, dst []uint8) (Item, error) {
	f := a.files[a.at]
	a.at++
	select {
	case c := <-a.taken:
		d := <-c
		if d.err != nil {
			return f, d.err
		}
		copy(dst, d.pixels)
		return d.item, nil
	case <-ctx.Done(): // nothing more is taken
		return f, ctx.Err()
	}
}

// stop returns once nothing is decoded any more. Images that were not taken are lost.
func (a *ahead) stop() {
	a.cancel()
	a.all.Wait()
}

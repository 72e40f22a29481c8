package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx/regularfile"
)

// decoding is the version of the pixels that a file gives. Raise it where decoding or resizing
// gives others: the digest of a set whose files are decoded when asked for is of its files, not of
// its pixels.
const decoding = 6

// hashedAtOnce is the number of files whose digests are held in memory. A digest is 64 bytes of
// text, so that they take 256 KiB beside the strings' headers.
const hashedAtOnce = 4096

// files are images that are decoded when they are asked for. Sets that were cut from one share all
// of it but the paths. paths may be shared by several sets, and nobody writes to it in place.
type files struct {
	paths []string
	fit   imagefile.Fit
	dir   string // of the data set
	// room bounds the memory of the images that are being decoded, with those of all other parts:
	// see decodedAtOnce.
	room *semaphore.Weighted
}

// Lazy reports whether the images are files that [Images.Load] decodes; Pix is nil then.
func (im *Images) Lazy() bool { return im.files != nil }

// with returns the images of other files, decoded in the same way. The paths are not copied.
func (im *Images) with(paths []string) *Images {
	f := *im.files
	f.paths = paths
	return &Images{N: len(paths), H: im.H, W: im.W, Ch: im.Ch, files: &f}
}

// Undecoded is an image whose file can be read and not decoded. The caller decides whether to leave
// it out or to refuse it.
type Undecoded struct {
	Index int
	Err   error
}

// Load returns the images with index from <= i < to in memory, and those that cannot be decoded,
// with indices from from: these are black. A file that cannot be read is an error: not the image is
// at fault then, but the disk, the network or a program that is missing. Images that are in memory
// share it. Decoding runs on all processors. The caller must not change those that were in memory
// already. Of files more than [MaxBytes] of pixels at once are refused.
func (im *Images) Load(ctx context.Context, from, to int) (*Images, []Undecoded, error) {
	if from < 0 || from > to || to > im.N {
		return nil, nil, fmt.Errorf("images %d to %d were asked for; there are %d",
			from, to-1, im.N)
	}
	size := im.H * im.W * im.Ch
	out := &Images{N: to - from, H: im.H, W: im.W, Ch: im.Ch}
	if !im.Lazy() {
		out.Pix = im.Pix[from*size : to*size]
		return out, nil, nil
	}
	if err := checkSize(out.N, im.H, im.W, im.Ch); err != nil {
		return nil, nil, err
	}
	out.Pix = make([]uint8, out.N*size)
	// Each goroutine writes its own place, so that no lock is needed.
	wrong := make([]error, out.N)
	err := each(ctx, out.N, func(ctx context.Context, i int) error {
		wrong[i] = im.files.decode(ctx, im.files.paths[from+i], out.At(i))
		if environment(wrong[i]) {
			return wrong[i]
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	var bad []Undecoded
	for i, err := range wrong {
		if err != nil {
			bad = append(bad, Undecoded{i, err})
		}
	}
	return out, bad, nil
}

// Load returns the part in memory; images that cannot be decoded are an error that names them. The
// labels are shared. With an error that names images, the others are in the result.
func (p *Labelled) Load(ctx context.Context) (*Labelled, error) {
	im, bad, err := p.Images.Load(ctx, 0, p.N)
	if err != nil {
		return nil, err
	}
	var why []error
	for _, b := range bad {
		why = append(why, b.Err)
	}
	return &Labelled{Images: *im, Labels: p.Labels}, imagefile.Unread(why)
}

// Names returns the names of files in the folder of the data set; nil for images in memory. Slashes
// separate folders on every system, so that notes and cached names agree between them.
func (im *Images) Names(idx []int) []string {
	if !im.Lazy() {
		return nil
	}
	out := make([]string, len(idx))
	for k, i := range idx {
		out[k] = im.files.paths[i]
		if name, err := filepath.Rel(im.files.dir, out[k]); err == nil {
			out[k] = filepath.ToSlash(name)
		}
	}
	return out
}

// decode writes the pixels of a file. It waits until there is room for the memory that decoding
// takes. The header is read first, in an open of its own: DecodeFile opens the path again.
func (f *files) decode(ctx context.Context, path string, dst []uint8) error {
	r, err := regularfile.Open(path)
	if err != nil {
		return err
	}
	h, err := imagefile.Header(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	// A file that needs more than all the room takes all of it, and is decoded alone.
	weight := min(h.Memory, decodedAtOnce)
	if err := f.room.Acquire(ctx, weight); err != nil {
		return err
	}
	defer f.room.Release(weight)
	return f.fit.DecodeFile(ctx, path, dst)
}

// environment reports whether an image could not be read for a reason that is not in its file. Such
// a fault says nothing of the image: to leave the image out for it would lose data in silence.
func environment(err error) bool {
	var path *fs.PathError
	var number syscall.Errno
	var program *exec.Error
	return errors.As(err, &path) || errors.As(err, &number) || errors.As(err, &program) ||
		errors.Is(err, imagefile.ErrNoDecoder) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded)
}

// hash writes the digests of all files, in their order. It calls step after each. Several are read
// at once, whose digests are held, hashedAtOnce at most. Names play no part. A renamed file or
// another folder thus leaves the digest as it is. The size and the manner of resizing are hashed,
// since they change the pixels.
func (f *files) hash(ctx context.Context, w io.Writer, step func()) error {
	fmt.Fprintf(w, "decoding %d %+v\n", decoding, f.fit)
	sums := make([]string, min(hashedAtOnce, len(f.paths)))
	for from := 0; from < len(f.paths); from += len(sums) {
		some := f.paths[from:min(from+len(sums), len(f.paths))]
		err := each(ctx, len(some), func(_ context.Context, i int) (err error) {
			sums[i], err = models.DigestFile(some[i], math.MaxInt64)
			step()
			return err
		})
		if err != nil {
			return err
		}
		for i := range some {
			io.WriteString(w, sums[i])
		}
	}
	return nil
}

// each calls do with 0 to n-1 from as many goroutines as there are processors. Numbers are taken in
// ascending order. The first error ends ctx for the others, and is returned when all have ended. do
// must be safe for several goroutines. With n = 0 it returns nil, and does not look at ctx.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range min(n, runtime.GOMAXPROCS(0)) {
		g.Go(func() error {
			for i := int(next.Add(1) - 1); i < n; i = int(next.Add(1) - 1) {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := do(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// counter returns a function that reports one more of total done, every 64 and at the end; it may
// be called from several goroutines. Calls of progress do not overlap. They hold a lock, so that
// progress must not call the function.
func counter(total int, progress func(done, total int)) func() {
	var mu sync.Mutex
	done := 0
	return func() {
		mu.Lock()
		defer mu.Unlock()
		if done++; progress != nil && (done%64 == 0 || done == total) {
			progress(done, total)
		}
	}
}

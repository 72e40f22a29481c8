package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/semaphore"

	"fmp/pipeline/federate/round"
)

const (
	// maxInFlight is the maximum number of uploads of the largest size that are held in memory at
	// once. Memory is reserved as bytes arrive, so that clients that send little keep nobody out.
	maxInFlight = 128
	// maxFiles bounds the memory of files of earlier versions that readers are being sent.
	maxFiles = 512 << 20
	// firstPart is the memory reserved for the first bytes of an upload.
	firstPart = 8 << 10
	// grace is how long a client may take before its rate counts.
	grace = 10 * time.Second
	// slotTime is how long an upload waits for memory.
	slotTime = 5 * time.Second
)

var (
	errBusy = errors.New("the requests that are under way take all the memory for them")
	errSlow = errors.New("the body came too slowly")
)

// errBeyond means that a request would take more memory than all requests together may.
type errBeyond struct{ bytes, all int64 }

func (e *errBeyond) Error() string {
	return fmt.Sprintf("the request takes %d bytes of memory; all that are under way may take %d: "+
		"ask for fewer at a time", e.bytes, e.all)
}

// intake bounds the memory and the time that requests take: uploads, predictions, or files.
// Memory is a semaphore of bytes: who waits is served in order, and nobody waits for longer than
// wait.
type intake struct {
	memory *semaphore.Weighted
	all    int64         // bytes of memory
	bounds *round.Bounds // the size of one body, and the least bytes a second
	grace  time.Duration // before the rate counts
	wait   time.Duration // for memory
	total  time.Duration // for one body; 0: as long as it keeps to the rate
	taking time.Duration // for one answer, until its reader has it
	shares *shares       // of callers; nil: each may hold all of the memory
}

// newIntake bounds requests by the size and rate of a round, and all of them together to a number
// of bytes.
func newIntake(b *round.Bounds, all int64) *intake {
	return &intake{memory: semaphore.NewWeighted(all), all: all, bounds: b,
		grace: grace, wait: slotTime}
}

// limit returns the time by which more must have come of an upload that began at start and of which
// n bytes are here: start + grace + n/rate, and start + total at most. A body that sends one byte
// at a time thus ends when its mean rate falls below the bound.
func (in *intake) limit(start time.Time, n int) time.Time {
	after := in.grace + time.Duration(n)*time.Second/time.Duration(in.bounds.Rate)
	if in.total > 0 {
		after = min(after, in.total)
	}
	return start.Add(after)
}

// lease is the memory that one request holds. It is for one goroutine. release gives back
// all that it holds, also where that is nothing.
type lease struct {
	in   *intake
	held int64
	of   string // the caller, where callers have shares
}

// release gives the memory back.
func (l *lease) release() { l.back(l.held) }

// back gives a part of the memory back.
func (l *lease) back(bytes int64) {
	l.in.memory.Release(bytes)
	l.in.shares.add(l.of, -bytes)
	l.held -= bytes
}

// answering holds the memory of an answer's bytes alone, until a reader has them or the time for
// that has passed.
func (l *lease) answering(w http.ResponseWriter, bytes int) {
	l.back(max(0, l.held-int64(bytes)))
	// it fails where there is no connection, as in tests
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(l.in.taking))
}

// send writes an answer. Its limit is left to net/http, which ends it once the rest in its buffer
// is written: it holds for that too, and not for later answers on the connection.
func (l *lease) send(w http.ResponseWriter, answer []byte) {
	l.answering(w, len(answer))
	_, _ = w.Write(answer) // it fails if the client has gone
}

// paced is the body of a request, which keeps to a rate. Errors are errSlow, *http.MaxBytesError,
// or inputs' (*errInput).
type paced struct {
	in    *intake
	w     http.ResponseWriter
	body  io.Reader
	start time.Time
	n     int
}

// body returns the body of a request, of at most the given size.
func (l *lease) body(w http.ResponseWriter, r *http.Request, most int) *paced {
	return &paced{l.in, w, http.MaxBytesReader(w, r.Body, int64(most)), time.Now(), 0}
}

// Read sets the deadline of the connection by the bytes that have come, before each read.
func (b *paced) Read(to []byte) (n int, err error) {
	control := http.NewResponseController(b.w)
	// it fails where there is no connection, as in tests
	_ = control.SetReadDeadline(b.in.limit(b.start, b.n))
	n, err = b.body.Read(to)
	b.n += n
	var large *http.MaxBytesError
	switch {
	case errors.Is(err, io.EOF):
		// The deadline ends with the body: one that passes later would cancel the request while it
		// is answered.
		_ = control.SetReadDeadline(time.Time{})
	case errors.Is(err, os.ErrDeadlineExceeded):
		// the deadline stays: nobody waits for the rest of the body
		b.w.Header().Set("Connection", "close")
		return n, errSlow
	case err != nil && !errors.As(err, &large):
		return n, inputf("the body ended early: %w", err)
	}
	return n, err
}

// read reads the body of a request whole, and holds a multiple of its buffer as it grows. The
// buffer doubles from firstPart on, up to most + 1 bytes, so that it is at most twice the body, or
// firstPart. The copies are O(n) in all. The memory is taken before the buffer grows.
// times is how many bytes of memory each byte of the buffer stands for. On an error the lease holds
// the memory that it took, until release.
func (l *lease) read(w http.ResponseWriter, r *http.Request, most,
	times int) (data []byte, err error) {
	body := l.body(w, r, most)
	for {
		if len(data) == cap(data) {
			next := min(max(2*cap(data), firstPart), most+1)
			if err := l.take(r.Context(), int64(times)*int64(next-cap(data))); err != nil {
				return nil, err
			}
			data = append(make([]byte, 0, next), data...)
		}
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// take waits for memory. Errors are errBusy, *errBeyond, or the context's. A share that is used up
// is errBusy at once, and memory that others hold after the wait. On an error the lease holds as
// much as before.
// A request that would hold more than all of the memory would wait for ever, and is *errBeyond at
// once.
func (l *lease) take(ctx context.Context, bytes int64) error {
	in := l.in
	if l.held+bytes > in.all {
		return &errBeyond{l.held + bytes, in.all}
	}
	if !in.shares.allow(l.of, bytes) {
		return errBusy
	}
	if !in.memory.TryAcquire(bytes) {
		within, cancel := context.WithTimeout(ctx, in.wait)
		defer cancel()
		if in.memory.Acquire(within, bytes) != nil {
			if err := ctx.Err(); err != nil {
				return err
			}
			return errBusy
		}
	}
	l.held += bytes
	in.shares.add(l.of, bytes)
	return nil
}

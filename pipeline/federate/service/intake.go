package service

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/semaphore"

	"fmp/pipeline/federate/round"
)

const (
	// maxInFlight is the maximum number of uploads of the largest size that are held in memory at once. Memory is reserved as bytes
	// arrive, so that clients that send little keep nobody out.
	maxInFlight = 128
	// firstPart is the memory reserved for the first bytes of an upload.
	firstPart = 8 << 10
	// grace is how long a client may take before its rate counts.
	grace = 10 * time.Second
	// slotTime is how long an upload waits for memory.
	slotTime = 5 * time.Second
)

var (
	errBusy = errors.New("the uploads that are being read take all the memory for them")
	errSlow = errors.New("the upload came too slowly")
)

// intake bounds the memory and the time that uploads take while they are read.
type intake struct {
	memory *semaphore.Weighted
	bounds *round.Bounds // the size of one upload, and the least bytes a second
	grace  time.Duration // before the rate counts
}

func newIntake(b *round.Bounds) *intake {
	return &intake{semaphore.NewWeighted(maxInFlight * int64(b.Bytes+1)), b, grace}
}

// limit returns the time by which more must have come of an upload that began at start and of which n bytes are here.
func (in *intake) limit(start time.Time, n int) time.Time {
	return start.Add(in.grace + time.Duration(n)*time.Second/time.Duration(in.bounds.Rate))
}

// read reads the body of a request. done gives the memory back and is never nil. Errors are errBusy, errSlow, *http.MaxBytesError, or
// those of the connection.
func (in *intake) read(w http.ResponseWriter, r *http.Request) (data []byte, done func(), err error) {
	body := http.MaxBytesReader(w, r.Body, int64(in.bounds.Bytes))
	control := http.NewResponseController(w)
	start := time.Now()
	var held int64
	done = func() { in.memory.Release(held) }
	for {
		if len(data) == cap(data) {
			next := min(max(2*cap(data), firstPart), in.bounds.Bytes+1)
			if err := in.reserve(r.Context(), int64(next-cap(data))); err != nil {
				return nil, done, err
			}
			held += int64(next - cap(data))
			data = append(make([]byte, 0, next), data...)
		}
		_ = control.SetReadDeadline(in.limit(start, len(data))) // it fails where there is no connection, as in tests
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case errors.Is(err, io.EOF):
			// The deadline ends with the body: one that passes later would cancel the request while it is answered.
			_ = control.SetReadDeadline(time.Time{})
			return data, done, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.Header().Set("Connection", "close") // the deadline stays: what is left of the body is not waited for
			return nil, done, errSlow
		case err != nil:
			return nil, done, err
		}
	}
}

// reserve waits for memory.
func (in *intake) reserve(ctx context.Context, bytes int64) error {
	if in.memory.TryAcquire(bytes) {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, slotTime)
	defer cancel()
	if in.memory.Acquire(within, bytes) != nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		return errBusy
	}
	return nil
}

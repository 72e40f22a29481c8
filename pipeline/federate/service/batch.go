package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"fmp/onnx"
	"fmp/onnx/engine"
)

// maxBatch is the maximum number of images or rows in one run of a classifier.
const maxBatch = 64

// batches is the queue of one classifier. Inputs that wait while it runs are run together next, so
// that a batch is as large as the load, and an input that finds the classifier idle waits for
// nothing. There is no goroutine of the queue's own: the first of the inputs that wait is woken to
// run the next batch, and busy stays set while it is handed on.
type batches struct {
	statistics *statistics

	mu      sync.Mutex
	busy    bool
	waiting []*batchInput
}

// batchInput is one input of one request.
type batchInput struct {
	session engine.Session // the classifier's, the same for all inputs of a queue
	name    string
	tensor  *onnx.Tensor
	fetch   map[string]*onnx.Tensor
	// err and took are the result, and the time of its run, once wake has received false.
	err  error
	took time.Duration
	// wake receives true where this input's goroutine is to run the next batch, false where another
	// one ran it.
	wake chan bool
}

// batched is the session that one request sees: it waits no longer than the request, and measures.
type batched struct {
	engine.Session
	queue *batches
	ctx   context.Context
	at    *stages
}

// Run evaluates one input, its first axis the images or rows, under the context of its request.
func (b *batched) Run(_ context.Context, feeds, fetch map[string]*onnx.Tensor) error {
	start := time.Now()
	in := &batchInput{session: b.Session, fetch: fetch, wake: make(chan bool, 1)}
	for in.name, in.tensor = range feeds {
	}
	took, err := b.queue.run(b.ctx, in)
	b.at.infer += took
	b.at.queue += time.Since(start) - took
	return err
}

// errBatch is the error of inputs whose run did not get to an end.
var errBatch = errors.New("the classifier stopped")

// run returns when an input has been run, alone or with others, or when its context has ended
// before. It returns the time of the run.
// A batch has the inputs that wait, in their order, up to maxBatch images. An input that is larger
// runs alone. The goroutine of the first runs it for all.
func (q *batches) run(ctx context.Context, in *batchInput) (took time.Duration, err error) {
	q.mu.Lock()
	if q.busy {
		q.waiting = append(q.waiting, in)
		q.mu.Unlock()
		if lead, err := q.wait(ctx, in); !lead {
			return in.took, err
		}
		q.mu.Lock()
	}
	q.busy = true
	batch := []*batchInput{in}
	n := in.tensor.Shape[0]
	for len(q.waiting) > 0 && n+q.waiting[0].tensor.Shape[0] <= maxBatch {
		n += q.waiting[0].tensor.Shape[0]
		batch, q.waiting = append(batch, q.waiting[0]), q.waiting[1:]
	}
	q.mu.Unlock()
	result := errBatch // unless the run gets to its end
	defer func() { q.done(batch, took, result) }()
	if err := ctx.Err(); err != nil && len(batch) == 1 {
		return 0, err
	}
	start := time.Now()
	result = runBatch(in.session, batch, n)
	took = time.Since(start)
	q.statistics.ran(n, took)
	return took, result
}

// wait waits for a turn and reports whether it is this input's to run the next batch. An input
// whose request ended leaves the queue. One that was taken out of it already waits for its wake, as
// others may depend on the batch that it is to run.
func (q *batches) wait(ctx context.Context, in *batchInput) (lead bool, err error) {
	select {
	case lead = <-in.wake:
		return lead, in.err
	case <-ctx.Done():
	}
	q.mu.Lock()
	i := slices.Index(q.waiting, in)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	q.mu.Unlock()
	if i >= 0 {
		return false, ctx.Err()
	}
	lead = <-in.wake // it is in a batch already, or the next to run one
	return lead, in.err
}

// done gives the inputs of a batch their result, and the classifier to the next input.
// busy stays set while the classifier is handed on, so that no newcomer comes before those that
// wait.
func (q *batches) done(batch []*batchInput, took time.Duration, err error) {
	for _, in := range batch[1:] {
		in.err, in.took = err, took
		in.wake <- false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy = len(q.waiting) > 0; q.busy {
		next := q.waiting[0]
		q.waiting = q.waiting[1:]
		next.wake <- true
	}
}

// runBatch runs a session on the inputs of a batch, n images or rows in all. One input is run as it
// is; several are copied into one tensor, and their results share the memory of its outputs. The
// run has no request's context: one that ends must not end it for the others.
// Inputs of a queue have one name and one shape but for the first axis. Outputs whose first axis is
// not n are an error.
func runBatch(s engine.Session, batch []*batchInput, n int) error {
	in := batch[0]
	if len(batch) == 1 {
		return s.Run(context.Background(), map[string]*onnx.Tensor{in.name: in.tensor}, in.fetch)
	}
	var all *onnx.Tensor
	shape := append([]int{n}, in.tensor.Shape[1:]...)
	if in.tensor.U8() != nil {
		all = onnx.NewTensor(joined(batch, (*onnx.Tensor).U8), shape...)
	} else {
		all = onnx.NewTensor(joined(batch, (*onnx.Tensor).F32), shape...)
	}
	fetch := map[string]*onnx.Tensor{}
	for name := range in.fetch {
		fetch[name] = nil
	}
	if err := s.Run(context.Background(), map[string]*onnx.Tensor{in.name: all},
		fetch); err != nil {
		return err
	}
	from := 0
	for _, one := range batch {
		to := from + one.tensor.Shape[0]
		for name, t := range fetch {
			if len(t.Shape) == 0 || t.Shape[0] != n {
				return fmt.Errorf("the classifier's %s is %v for %d images", name, t, n)
			}
			size := t.Len() / n
			part := &onnx.Tensor{DType: t.DType, Shape: append([]int{to - from}, t.Shape[1:]...)}
			if v := t.F32(); v != nil {
				part.Data = v[from*size : to*size]
			} else if v, ok := t.Data.([]bool); ok {
				part.Data = v[from*size : to*size]
			}
			one.fetch[name] = part
		}
		from = to
	}
	return nil
}

// joined returns the elements of all inputs.
func joined[T onnx.Element](batch []*batchInput, of func(*onnx.Tensor) []T) (all []T) {
	for _, in := range batch {
		all = append(all, of(in.tensor)...)
	}
	return all
}

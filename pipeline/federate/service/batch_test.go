package service

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
)

// doubling is a session that doubles its input; its first run waits for a signal.
type doubling struct {
	engine.Session
	runs  []int // their sizes
	first chan error
}

func (d *doubling) Run(_ context.Context, feeds, fetch map[string]*onnx.Tensor) error {
	x := feeds["features"]
	d.runs = append(d.runs, x.Shape[0])
	if len(d.runs) == 1 {
		if err := <-d.first; err != nil {
			panic(err)
		}
	}
	if x.F32()[0] == -99 {
		panic("another fault")
	}
	if x.F32()[0] < 0 {
		return errors.New("negative")
	}
	twice, odd := make([]float32, len(x.F32())), make([]bool, x.Shape[0])
	for i, v := range x.F32() {
		twice[i] = 2 * v
		odd[i/2] = int(v)%2 == 1
	}
	fetch["twice"], fetch["odd"] = onnx.NewTensor(twice, x.Shape...),
		onnx.NewTensor(odd, x.Shape[0], 1)
	return nil
}

// answered is the end of one request.
type answered struct {
	id  int
	err error
	at  stages
}

// ask puts n rows of a number into the queue from a goroutine of its own, and returns once they
// wait or run.
func ask(t *testing.T, ctx context.Context, q *batches, s engine.Session, id, n int, value float32,
	to chan<- answered) {
	t.Helper()
	q.mu.Lock()
	before := len(q.waiting)
	idle := !q.busy
	q.mu.Unlock()
	go func() {
		a := answered{id: id}
		defer func() {
			if r := recover(); r != nil {
				a.err = fmt.Errorf("panic: %v", r)
			}
			to <- a
		}()
		x := make([]float32, 2*n)
		for i := range x {
			x[i] = value
		}
		out, err := engine.Eval(&batched{s, q, ctx, &a.at},
			map[string]*onnx.Tensor{"features": onnx.NewTensor(x, n, 2)}, "twice", "odd")
		if a.err = err; err != nil {
			return
		}
		if got := out["twice"].F32(); len(got) != 2*n || got[0] != 2*value || got[2*n-1] != 2*value ||
			len(out["odd"].Data.([]bool)) != n || out["odd"].Data.([]bool)[n-1] != (int(value)%2 == 1) {
			a.err = fmt.Errorf("%d rows of %v: %v %v", n, value, out["twice"], out["odd"])
		}
	}()
	for {
		q.mu.Lock()
		in := len(q.waiting) > before || idle && q.busy
		q.mu.Unlock()
		if in {
			return
		}
		runtime.Gosched()
	}
}

// TestBatches: what waits while the classifier runs is run together, up to the largest batch, and
// each request gets its own rows; one that is given up does not hold up the others.
func TestBatches(t *testing.T) {
	s := &doubling{first: make(chan error)}
	q := &batches{statistics: &statistics{}}
	to := make(chan answered, 8)
	gone, cancel := context.WithCancel(t.Context())
	ask(t, t.Context(), q, s, 0, 1, 1, to)
	ask(t, t.Context(), q, s, 1, 3, 2, to)
	ask(t, gone, q, s, 2, 5, 3, to)
	ask(t, t.Context(), q, s, 3, 2, 5, to)
	ask(t, t.Context(), q, s, 4, 60, 6, to) // one too many for the batch of the others
	cancel()
	if a := <-to; a.id != 2 || !errors.Is(a.err, context.Canceled) {
		t.Errorf("%+v; want request 2, which was given up", a)
	}
	s.first <- nil
	for range 4 {
		if a := <-to; a.err != nil || a.at.infer < 0 || a.at.queue < 0 {
			t.Errorf("%+v", a)
		}
	}
	if fmt.Sprint(s.runs) != "[1 5 60]" {
		t.Errorf("runs of %v; want 1, 3 and 2 together, 60", s.runs)
	}
	stats := q.statistics.of(1)
	if len(stats.BatchStats) != 3 || stats.BatchStats[1].Size != 5 ||
		stats.BatchStats[1].ComputeInfer.Count != 1 ||
		stats.ExecutionCount != 3 {
		t.Errorf("%+v", stats)
	}
	if q.busy || len(q.waiting) > 0 {
		t.Error("the queue is not idle")
	}
}

// TestBatchFails: a run that fails is an error for all of its inputs, one that panics too, and the
// next ones are run.
func TestBatchFails(t *testing.T) {
	s := &doubling{first: make(chan error)}
	q := &batches{statistics: &statistics{}}
	to := make(chan answered, 8)
	ask(t, t.Context(), q, s, 0, 1, 1, to)
	ask(t, t.Context(), q, s, 1, 1, -2, to)
	ask(t, t.Context(), q, s, 2, 63, 3, to)
	ask(t, t.Context(), q, s, 3, 1, -99, to)
	ask(t, t.Context(), q, s, 4, 62, 1, to)
	ask(t, t.Context(), q, s, 5, 2, 4, to)
	s.first <- errors.New("a fault")
	want := map[int]string{0: "panic: a fault", 1: "negative", 2: "negative",
		3: "panic: another fault", 4: errBatch.Error(), 5: ""}
	for range 6 {
		a := <-to
		if got := fmt.Sprint(a.err); a.err != nil &&
			(want[a.id] == "" || !strings.Contains(got, want[a.id])) || a.err == nil &&
			want[a.id] != "" {
			t.Errorf("request %d: %v; want %q", a.id, a.err, want[a.id])
		}
	}
	if q.busy || fmt.Sprint(s.runs) != "[1 64 63 2]" {
		t.Errorf("busy %v, runs %v", q.busy, s.runs)
	}
}

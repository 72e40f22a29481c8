package client

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// Bounds of the time from the start of the work to a private reply.
const (
	// Settle is the end of that time: an answer that was made before is recorded in it, and leaves
	// when it is over.
	Settle = time.Second
	// MinReply is the shortest time.
	MinReply = 2 * Settle
	// MaxReply is the longest.
	MaxReply = 24 * time.Hour
	// DefaultReply is the time where the owner of the images states none.
	DefaultReply = time.Minute
)

// Answer is the reply of a client to a private round, made and seen by nobody.
type Answer interface {
	// Record writes down the budget that the reply spends.
	Record() error
	// Give hands the reply out.
	Give() error
}

// LateError is the failure of work that took longer than the fixed time to the reply.
type LateError struct{ After time.Duration }

func (e *LateError) Error() string {
	return fmt.Sprintf("the images took more than the %v that there are before a reply after %v: "+
		"nothing was made and nothing spent; give them more time, or give fewer",
		e.After-Settle, e.After)
}

// CheckReply returns an error for a time that is not allowed; 0 is a reply as soon as it is made.
func CheckReply(after time.Duration) error {
	if after != 0 && (after < MinReply || after > MaxReply) {
		return fmt.Errorf("a reply after %v; allowed are %v to %v, and 0 for a reply as "+
			"soon as it is made, whose time tells of the images", after, MinReply, MaxReply)
	}
	return nil
}

// Reply does work and gives its answer at a fixed time after the start, so that the moment tells
// neither of pixels nor of the number of images. At after - Settle work is stopped, which is a
// [LateError], or its answer is recorded; at after the answer is given, or the error of either
// returned. Recording that takes longer than Settle delays that to the next whole Settle. The end
// of ctx alone is not waited for; an answer that is recorded by then is given, as its budget is
// spent. An after of 0 waits for nothing.
func Reply(ctx context.Context, after time.Duration,
	work func(context.Context) (Answer, error)) error {
	start := time.Now()
	r, err := within(ctx, after-Settle, work)
	if err == nil {
		err = r.Record()
	}
	end := after
	for end > 0 && time.Since(start) > end {
		end += Settle
	}
	stopped := rest(ctx, end-time.Since(start))
	switch {
	case err != nil && stopped != nil:
		return stopped
	case err != nil:
		return err
	}
	if err := r.Give(); err != nil {
		return err
	}
	return stopped
}

// within does work until a time after its start, and returns then; work that goes on has no effect
// any more.
// A fault in work is an error of it, and leaves at the same time as any other.
func within(ctx context.Context, end time.Duration,
	work func(context.Context) (Answer, error)) (Answer, error) {
	if end <= 0 {
		return work(ctx)
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	type result struct {
		answer Answer
		err    error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil {
				r = result{err: fmt.Errorf(
					"internal error: %v; this is a fault of the program, not of your input", p)}
			}
			done <- r
		}()
		r.answer, r.err = work(working)
	}()
	over := time.NewTimer(end)
	defer over.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-over.C:
		return nil, &LateError{end + Settle}
	case r := <-done:
		runtime.GC() // what follows finds the memory of as many images as there were swept
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-over.C:
		}
		return r.answer, r.err
	}
}

// rest waits, or returns the error of ctx.
func rest(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

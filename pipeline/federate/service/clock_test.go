package service

import (
	"context"
	"errors"
	"testing"
	"time"

	"fmp/pipeline/pool"
)

// TestClockMoves: the round is pooled at the time that the clock tells, where no timer saw it pass: the
// machine slept, or the clock was put right.
func TestClockMoves(t *testing.T) {
	defer func(d time.Duration) { look = d }(look)
	look = 20 * time.Millisecond
	for name, c := range map[string]struct {
		file        string
		before, all int // versions before and after
		pass        time.Duration
	}{
		"deadline":         {"quorum: 4\n", 0, 1, 2*time.Hour + time.Minute},
		"rebuild interval": {"quorum: 1\nrebuild_interval: 1h\n", 1, 2, time.Hour},
	} {
		f := newFixture(t, c.file)
		versions := func(want int, when string) {
			t.Helper()
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				n := len(f.srv.Status().Versions)
				if n == want {
					return
				}
				if time.Now().After(end) {
					t.Errorf("%s, %s: %d versions; want %d", name, when, n, want)
					return
				}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		f.put("a", f.made("a", 1, nil))
		go func() { ended <- f.srv.Run(ctx) }()
		versions(c.before, "before")
		f.put("b", f.made("b", 1, nil))
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(10 * look):
		}
		versions(c.before, "waiting")
		f.pass(c.pass)
		versions(c.all, "after")
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFailedPooling: a pooling that failed is tried again as late as the log says.
func TestFailedPooling(t *testing.T) {
	defer func(d time.Duration) { look = d }(look)
	look = 5 * time.Millisecond
	f := newFixture(t, "quorum: 1\n")
	f.put("a", f.made("a", 1, nil))
	f.stop()
	f.start() // nothing wakes it
	tried, ended := make(chan int, 100), make(chan error, 1)
	f.srv.Config.Pool = func(context.Context, []pool.Upload) (*Pooled, error) {
		tried <- 1
		return nil, errors.New("no")
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- f.srv.Run(ctx) }()
	<-tried
	select {
	case <-tried:
		t.Error("tried again at once")
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(40 * look):
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

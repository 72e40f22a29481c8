package service

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"fmp/onnx/must"
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
		"a clock put back": {"quorum: 1\nrebuild_interval: 3s\n", 1, 2, -30 * time.Minute},
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

// TestOtherOptions: a version of other options of pooling is replaced once. One whose options are not
// known stays, as does the one that a budget pays for.
func TestOtherOptions(t *testing.T) {
	for name, c := range map[string]struct {
		file, made, now string
		another         bool
	}{
		"others":        {"quorum: 1\n", "one", "two", true},
		"the same":      {"quorum: 1\n", "one", "one", false},
		"not known":     {"quorum: 1\n", "", "two", false},
		"not known now": {"quorum: 1\n", "one", "", false},
		"one budget":    {"quorum: 1\nprivacy: {epsilon: 1, noise: trusted}\n", "one", "two", false},
	} {
		f := newFixture(t, c.file)
		if f.srv.once() {
			f.put("a", f.trusted("a"))
		} else {
			f.in("a")
		}
		f.srv.Options = c.made
		must.Do(t, f.srv.Pool(t.Context()))
		f.srv.Options = c.now
		if got := f.srv.due() < long; got != c.another {
			t.Errorf("%s: due in %v; want another version: %v", name, f.srv.due(), c.another)
		}
		if c.another {
			must.Do(t, f.srv.Pool(t.Context()))
			if n := len(f.srv.Status().Versions); n != 2 || f.srv.due() < long {
				t.Errorf("%s: %d versions, due in %v", name, n, f.srv.due())
			}
		}
	}
}

// TestShortAtDeadline: a round that has too few uploads at its deadline says so, to its log, readers and page.
// One that is settled before it is not closed since a time that is to come.
func TestShortAtDeadline(t *testing.T) {
	const settled, yet, none = "is settled", "or at the deadline", "no classifier is made"
	two := "min_uploads: 2\n"
	for name, c := range map[string]struct {
		extra         string
		in            int
		after         time.Duration
		page, refusal string
		log           bool
	}{
		"before it":   {two, 1, time.Hour, yet, yet, false},
		"at it":       {two, 1, 2 * time.Hour, "1 uploads, and min_uploads is 2: none", "min_uploads is 2: none", true},
		"late":        {two + "accept_late: true\n", 1, 3 * time.Hour, "once as many", "once as many", true},
		"enough":      {two, 2, 2 * time.Hour, "Closed since", yet, false},
		"by a quorum": {two + "quorum: 1\n", 1, 2 * time.Hour, "Closed since", yet, false},
		"settled":     {two + "privacy: {epsilon: 1, noise: trusted}\n", 0, time.Hour, settled, yet, false},
	} {
		f := newFixture(t, c.extra)
		f.in([]string{"a", "b"}[:c.in]...)
		f.srv.settled = name == "settled"
		f.pass(c.after)
		var page strings.Builder
		st := f.srv.Status()
		must.Do(t, st.html(false).Render(&page))
		_, refusal := f.classifier("")
		if !strings.Contains(page.String(), c.page) || !strings.Contains(string(refusal), c.refusal) {
			t.Errorf("%s: %s\n%s", name, refusal, page.String())
		}
		if f.srv.settled {
			continue
		}
		var log bytes.Buffer
		f.srv.Log = slog.New(slog.NewTextHandler(&log, nil))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		time.AfterFunc(100*time.Millisecond, func() { // as an upload that comes in, when too few are in still
			f.srv.mu.Lock()
			if c.log {
				f.srv.Round.MinUploads++
			}
			f.srv.mu.Unlock()
			f.srv.rouse()
		})
		must.Do(t, f.srv.Run(ctx))
		cancel()
		if n := strings.Count(log.String(), none); n > 1 || (n == 1) != c.log { // twice round, as one came in
			t.Errorf("%s: %s", name, &log)
		}
	}
}

package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// staged is an answer that notes when its parts happen.
type staged struct {
	start           time.Time
	recorded, given time.Duration
	recording       time.Duration // what Record takes
	fails           error         // of Record
}

func (s *staged) Record() error {
	s.recorded = time.Since(s.start)
	time.Sleep(s.recording)
	return s.fails
}

func (s *staged) Give() error {
	s.given = time.Since(s.start)
	return nil
}

// TestReply: whatever the work takes and whether it fails, panics or does not end, the call is over
// at one time, which is the one at which an answer is given; it is recorded a second before.
// Nothing of work that is late is recorded.
func TestReply(t *testing.T) {
	const after = time.Minute
	failed := errors.New("a bad image")
	atOnce := func(_ context.Context, s *staged) (Answer, error) { return s, nil }
	forever := func(ctx context.Context, s *staged) (Answer, error) {
		time.Sleep(time.Hour)
		return s, nil
	}
	for name, c := range map[string]struct {
		work            func(ctx context.Context, s *staged) (Answer, error)
		recording       time.Duration
		recordFails     error
		over            time.Duration
		recorded, given bool
		says            string
	}{
		"at once": {work: atOnce, over: after, recorded: true, given: true},
		"slow": {work: func(_ context.Context, s *staged) (Answer, error) {
			time.Sleep(58 * time.Second)
			return s, nil
		}, over: after, recorded: true, given: true},
		"an early error": {work: func(context.Context, *staged) (Answer, error) { return nil, failed },
			over: after, says: "a bad image"},
		"a panic": {work: func(context.Context, *staged) (Answer, error) { panic("index") },
			over: after, says: "internal error: index"},
		"no end": {work: forever, over: after, says: "took more than the 59s"},
		"stops when told": {work: func(ctx context.Context, _ *staged) (Answer, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, over: after, says: "took more than the 59s"},
		"an error in the record": {work: atOnce, recordFails: failed, over: after, recorded: true, says: "a bad image"},
		"a slow record": {work: atOnce, recording: 2500 * time.Millisecond, over: after + 2*Settle, recorded: true,
			given: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &staged{start: time.Now(), recording: c.recording, fails: c.recordFails}
				err := Reply(t.Context(), after,
					func(ctx context.Context) (Answer, error) { return c.work(ctx, s) })
				if got := time.Since(s.start); got != c.over {
					t.Errorf("over after %v; want %v", got, c.over)
				}
				if c.says == "" != (err == nil) || err != nil &&
					!strings.Contains(err.Error(), c.says) {
					t.Errorf("error %v; want %q", err, c.says)
				}
				if c.recorded != (s.recorded > 0) || c.recorded && s.recorded != after-Settle ||
					c.given != (s.given > 0) ||
					c.given && s.given != c.over {
					t.Errorf("recorded after %v, given after %v", s.recorded, s.given)
				}
				time.Sleep(2 * time.Hour) // what goes on ends
			})
		})
	}
}

// TestReplyInterrupted: its owner need not wait for the end; an answer that has spent its budget is
// given all the same, and one that has not is not.
func TestReplyInterrupted(t *testing.T) {
	for at, given := range map[time.Duration]bool{time.Second: false, 30 * time.Second: false,
		time.Minute - Settle/2: true} {
		synctest.Test(t, func(t *testing.T) {
			s := &staged{start: time.Now()}
			ctx, cancel := context.WithTimeout(t.Context(), at)
			defer cancel()
			err := Reply(ctx, time.Minute,
				func(context.Context) (Answer, error) { time.Sleep(2 * time.Second); return s, nil })
			if got := time.Since(s.start); err == nil || got != at || (s.given > 0) != given ||
				(s.recorded > 0) != given {
				t.Errorf("stopped after %v: over after %v, %v, recorded after %v, given after %v",
					at, got, err, s.recorded, s.given)
			}
			time.Sleep(time.Hour) // work ends, and nothing comes of it
			if (s.given > 0) != given {
				t.Error("given afterwards")
			}
		})
	}
}

// TestReplyAtOnce: without a fixed time nothing is waited for; other times are bounded.
func TestReplyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &staged{start: time.Now()}
		work := func(context.Context) (Answer, error) { time.Sleep(time.Millisecond); return s, nil }
		if err := Reply(t.Context(), 0, work); err != nil || s.given != time.Millisecond ||
			s.recorded != time.Millisecond {
			t.Errorf("recorded after %v, given after %v, %v", s.recorded, s.given, err)
		}
	})
	for d, want := range map[time.Duration]bool{0: true, 2 * time.Second: true, time.Second: false,
		-time.Second: false, 24 * time.Hour: true, 25 * time.Hour: false} {
		if err := CheckReply(d); (err == nil) != want {
			t.Errorf("%v: %v", d, err)
		}
	}
}

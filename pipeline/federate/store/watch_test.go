package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"fmp/onnx/must"
)

// watched is a bucket whose watches fail by a script.
type watched struct {
	jetstream.KeyValue
	script  []string // how each watch ends; the last one is repeated
	watches int
}

type updates chan jetstream.KeyValueEntry

func (u updates) Updates() <-chan jetstream.KeyValueEntry { return u }
func (u updates) Stop() error                             { return nil }
func (u updates) Error() <-chan error                     { return nil }

// WatchAll passes on the first two entries of a watch, and all of "whole".
func (w *watched) WatchAll(ctx context.Context,
	opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	how := w.script[min(w.watches, len(w.script)-1)]
	w.watches++
	if how == "error" {
		return nil, errors.New("no such bucket")
	}
	real, err := w.KeyValue.WatchAll(ctx, opts...)
	if err != nil || how == "whole" {
		return real, err
	}
	defer real.Stop()
	u := make(updates, 2)
	for range 2 {
		if e := <-real.Updates(); e != nil && how != "mute" {
			u <- e
		}
	}
	if how == "closed" {
		close(u)
	}
	return u, nil
}

// TestEach: all entries come once, though watches fall silent or close; servers that send nothing
// and errors of theirs are errors, and so is the end of the context: a part of the entries does not
// pass for all of them.
func TestEach(t *testing.T) {
	defer func(d time.Duration) { quiet = d }(quiet)
	s := must.Get(Open(t.Context(), "fmp-1", Options{Dir: t.TempDir()}))(t)
	defer s.Close()
	for i := range 7 {
		must.Do(t, s.Put(t.Context(), record(fmt.Sprint("client ", i), "1"), 0))
	}
	for _, c := range []struct {
		script  []string
		want    int
		message string
	}{
		{[]string{"whole"}, 7, ""},
		{[]string{"silent", "whole"}, 7, ""},
		{[]string{"closed", "silent", "closed", "whole"}, 7, ""},
		{[]string{"mute"}, 0, "the servers sent nothing for"},
		{[]string{"closed", "error"}, 2, "no such bucket"},
	} {
		quiet = 2 * time.Second // a whole watch must not look silent on a busy machine
		if slices.Contains(c.script, "mute") {
			quiet = 50 * time.Millisecond
		}
		var got []uint64
		var failed error
		for e, err := range each(t.Context(), &watched{KeyValue: s.uploads, script: c.script}) {
			if failed = err; err == nil {
				got = append(got, e.Revision())
			}
		}
		if len(got) != c.want || !slices.IsSorted(got) || len(slices.Compact(got)) != c.want {
			t.Errorf("%v: revisions %v", c.script, got)
		}
		if (failed == nil) != (c.message == "") || failed != nil &&
			!strings.Contains(failed.Error(), c.message) {
			t.Errorf("%v: %v", c.script, failed)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var failed error
	for _, err := range each(ctx, &watched{KeyValue: s.uploads, script: []string{"silent"}}) {
		cancel()
		failed = err
	}
	if !errors.Is(failed, context.Canceled) {
		t.Errorf("after the context's end: %v", failed)
	}
}

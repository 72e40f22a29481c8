package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"fmp/onnx/must"
)

// held opens a state and holds it for a server.
func held(t *testing.T, o Options, server string) (*Store, <-chan error, error) {
	t.Helper()
	s := opened(t, o)
	lost, err := s.Hold(t.Context(), server, slog.New(slog.DiscardHandler))
	if err != nil {
		s.Close()
	}
	return s, lost, err
}

// TestHold: a state is one server's for good, and one process's at a time: one that stops gives it up at
// once, one that falls silent after a while, and one from which it was taken is told.
func TestHold(t *testing.T) {
	defer func(a, b time.Duration) { renewEvery, holdFor = a, b }(renewEvery, holdFor)
	renewEvery, holdFor = 100*time.Millisecond, 2*time.Second
	o := external(t)
	refused := func(when, server, says string) {
		t.Helper()
		must.Fail(held(t, o, server))(t, says, when)
	}
	first, _ := must.Get2(held(t, o, "key a"))(t)
	refused("another server", "key b", "the server with the key key a, and this one's is key b")
	start := time.Now()
	refused("the same server twice", "key a", ErrBusy.Error())
	if d := time.Since(start); d > holdFor/2 {
		t.Errorf("refused after %v", d)
	}
	first.Close()
	refused("another server, the first one gone", "key b", "bring back that one's server.key")
	start = time.Now()
	killed, _ := must.Get2(held(t, o, "key a"))(t)
	if d := time.Since(start); d > holdFor/2 {
		t.Errorf("after a stop: %v", d)
	}
	killed.conn.Close()
	renewEvery = 3 * time.Second // this one falls silent
	start = time.Now()
	slow, lost := must.Get2(held(t, o, "key a"))(t)
	if d := time.Since(start); d < holdFor {
		t.Errorf("taken from a killed one after %v", d)
	}
	defer slow.Close()
	renewEvery, holdFor = 100*time.Millisecond, 500*time.Millisecond
	last, kept := must.Get2(held(t, o, "key a"))(t)
	if err := <-lost; !errors.Is(err, ErrBusy) {
		t.Errorf("of which it was taken: %v", err)
	}
	slow.Close() // takes nothing away
	select {
	case err := <-kept:
		t.Error(err)
	case <-time.After(3 * renewEvery):
	}
	last.Close()
}

// TestHoldInFolder: no server comes in where the server inside another one lets workers in, also after
// a kill; one that was ended leaves the state free, and one that came before it keeps it. A server that
// lets nobody in leaves it free too, and one that came in before it learns that it has lost the state.
func TestHoldInFolder(t *testing.T) {
	defer func(a, b time.Duration) { renewEvery, holdFor = a, b }(renewEvery, holdFor)
	renewEvery, holdFor = 20*time.Millisecond, 300*time.Millisecond
	in := Options{Dir: t.TempDir(), Token: "token of the test"}
	start := func() Options {
		t.Helper()
		l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		in.Listen = l.Addr().String()
		must.Do(t, l.Close())
		return Options{URL: "nats://" + in.Listen, Token: in.Token}
	}
	out := start()
	inside, _ := must.Get2(held(t, in, "key"))(t)
	must.Fail(held(t, out, "key"))(t, errFolder.Error(), "beside it")
	inside.release = nil // as after a kill
	inside.Close()
	out = start()
	inside = opened(t, in)
	must.Fail(held(t, out, "key"))(t, errFolder.Error(), "while it starts")
	must.Get(inside.Hold(t.Context(), "key", slog.New(slog.DiscardHandler)))(t)
	inside.Close()
	out = start()
	inside = opened(t, in)
	outside, _ := must.Get2(held(t, out, "key"))(t)
	must.Fail(inside.Hold(t.Context(), "key", slog.New(slog.DiscardHandler)))(t, ErrBusy.Error(),
		"of one that came before")
	outside.Close()
	must.Get(inside.Hold(t.Context(), "key", slog.New(slog.DiscardHandler)))(t)
	inside.release = nil
	inside.Close()
	alone, _ := must.Get2(held(t, Options{Dir: in.Dir}, "key"))(t)
	alone.Close()
	out = start()
	other := must.Get(Open(t.Context(), "fmp-2", in))(t)
	_, lost := must.Get2(held(t, out, "key"))(t)
	other.Close()
	alone, _ = must.Get2(held(t, Options{Dir: in.Dir}, "key"))(t)
	alone.Close()
	other = must.Get(Open(t.Context(), "fmp-2", in))(t)
	defer other.Close()
	select {
	case err := <-lost:
		must.Fail(0, err)(t, ErrBusy.Error(), "of which the state was taken in the folder")
	case <-time.After(20 * time.Second):
		t.Error("one of which the state was taken in the folder is not told")
	}
}

// TestLostAnswer: a renewal whose answer was lost takes the hold from nobody.
func TestLostAnswer(t *testing.T) {
	o := external(t)
	s, _ := must.Get2(held(t, o, "key"))(t)
	h := &hold{kv: s.hold.kv, mine: s.hold.mine}
	must.Do(t, h.write(t.Context(), h.mine))
	h.mine.Holder, h.revision = "another", 1
	for range 2 {
		if err := h.write(t.Context(), h.mine); !errors.Is(err, ErrBusy) {
			t.Errorf("over another's: %v", err)
		}
	}
}

// TestStoodStill: a server that stood still until another one took the state stores nothing; where none
// did it goes on.
func TestStoodStill(t *testing.T) {
	defer func(a, b time.Duration) { renewEvery, holdFor = a, b }(renewEvery, holdFor)
	o := external(t)
	renewEvery, holdFor = time.Hour, 400*time.Millisecond
	still, _ := must.Get2(held(t, o, "key"))(t)
	defer still.Close()
	for !still.hold.late() {
		time.Sleep(time.Millisecond)
	}
	ctx := t.Context()
	must.Do(t, still.Put(ctx, record("kept", "1"), 0))
	kept := must.Get(still.Get(ctx, "kept"))(t)
	var last *Store
	must.Fail(0, still.write(ctx, 1, func(context.Context) (err error) {
		renewEvery = 20 * time.Millisecond
		last, _, err = held(t, o, "key")
		return err
	}))(t, ErrBusy.Error(), "taken meanwhile")
	defer last.Close()
	for name, err := range map[string]error{
		"put":      still.Put(ctx, record("late", "1"), 0),
		"withdraw": still.Withdraw(ctx, kept, Gone{}, nil),
		"refuse":   still.Refuse(ctx, Refusal{Client: "late"}, nil),
		"publish":  still.Publish(ctx, Version{Number: 1}, nil, nil, nil),
	} {
		if !errors.Is(err, ErrBusy) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must.Get(last.Get(ctx, "kept"))(t)
	if _, err := last.Get(ctx, "late"); !errors.Is(err, ErrNone) {
		t.Errorf("stored late: %v", err)
	}
	must.Do(t, last.Put(ctx, record("late", "2"), 0))
}

// TestOwnerRemoved: a server is told that the record of its hold was removed, and the next one makes it anew.
func TestOwnerRemoved(t *testing.T) {
	defer func(d time.Duration) { renewEvery = d }(renewEvery)
	renewEvery = 50 * time.Millisecond
	o := external(t)
	s, lost := must.Get2(held(t, o, "key"))(t)
	must.Do(t, s.hold.kv.Purge(t.Context(), ownerKey))
	select {
	case err := <-lost:
		must.Fail(0, err)(t, errRemoved.Error(), "removed")
	case <-time.After(20 * time.Second):
		t.Error("the holder is not told")
	}
	s.Close()
	must.Get2(held(t, o, "key"))(t)
}

// TestReadyStored: a state is ready only while its hold is renewed: a NATS server without the others of
// its cluster answers, and stores nothing.
func TestReadyStored(t *testing.T) {
	defer func(a time.Duration) { renewEvery = a }(renewEvery)
	renewEvery = time.Hour
	s, _ := must.Get2(held(t, external(t), "key"))(t)
	for _, c := range []struct {
		ago  time.Duration
		says string
	}{{0, ""}, {time.Hour, ""}, {time.Hour + holdFor, "stored nothing for"}, {0, ""}} {
		then := time.Now().Add(-c.ago)
		s.hold.stored.Store(&then)
		err := s.Ready(t.Context())
		if c.says != "" {
			must.Fail(0, err)(t, c.says, c.ago.String())
			continue
		}
		must.Do(t, err)
	}
}

// slow is a bucket that stores at once and answers late.
type slow struct {
	jetstream.KeyValue
	by time.Duration
}

func (s slow) Update(ctx context.Context, k string, v []byte, revision uint64) (uint64, error) {
	n, err := s.KeyValue.Update(context.WithoutCancel(ctx), k, v, revision)
	select {
	case <-time.After(s.by):
		return n, err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// TestReadySlow: a disk that takes most of the time of a renewal keeps the state ready.
func TestReadySlow(t *testing.T) {
	defer func(a, b time.Duration) { renewEvery, holdFor = a, b }(renewEvery, holdFor)
	renewEvery, holdFor = 400*time.Millisecond, 4*time.Second
	s := opened(t, Options{Dir: t.TempDir()})
	kv := must.Get(s.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "slow"}))(t)
	h := &hold{kv: slow{kv, 900 * time.Millisecond}, mine: owner{Server: "x", Holder: "y"}, every: renewEvery,
		ended: make(chan struct{})}
	must.Do(t, h.write(t.Context(), h.mine))
	ctx, end := context.WithCancel(t.Context())
	go h.renew(ctx, func(err error) { t.Error(err) })
	defer func() { end(); <-h.ended }()
	for range 100 {
		time.Sleep(50 * time.Millisecond)
		if h.silent() {
			t.Fatalf("nothing is stored for %v", time.Since(*h.stored.Load()))
		}
	}
}

// TestUnclaimed: a state in a folder is one server's too, and one of version 0.1.0, which has no owner,
// is of the server that gave its receipts.
func TestUnclaimed(t *testing.T) {
	for _, c := range []struct {
		claimed, receipt, server, says string
	}{
		{"", "", "a", ""},
		{"", "a", "a", ""},
		{"", "b", "a", "the server with the key b"},
		{"a", "", "a", ""},
		{"a", "a", "a", ""},
		{"b", "", "a", "the server with the key b"},
		{"", "none", "a", ""},
	} {
		o := Options{Dir: t.TempDir()}
		s := opened(t, o)
		if c.receipt != "" {
			r := record("x", "1")
			if r.Receipt.Server = c.receipt; c.receipt == "none" { // of a refused upload that was withdrawn
				r.Receipt.Server = ""
			}
			must.Do(t, s.Put(t.Context(), r, 0))
		}
		if c.claimed != "" {
			must.Get(s.Hold(t.Context(), c.claimed, nil))(t)
		}
		s.Close()
		for range 2 { // the first one records nothing where it is refused
			s, _, err := held(t, o, c.server)
			if c.says == "" {
				must.Do(t, err)
				s.Close()
				continue
			}
			must.Fail(0, err)(t, c.says, fmt.Sprint(c))
		}
	}
}

// TestAlone: a round is not served with another client graph while this server has uploads of the one
// before, refused ones in quarantine too; those of another server, of another round and withdrawn ones are
// in nobody's way.
func TestAlone(t *testing.T) {
	o := external(t)
	for i, c := range []struct {
		name, server        string
		gone, kept, refused bool
	}{
		{Name(1, "0123456789abcdef"), "key", false, false, false}, // the one that is served
		{Name(1, "0123456789abcde0"), "another", false, true, false},
		{Name(12, "0123456789abcde0"), "key", false, true, false},
		{Name(1, "0123456789abcde1"), "key", true, false, false},
		{Name(1, "0123456789abcde2"), "key", true, true, true},
		{Name(1, "0123456789abcde2"), "key", true, false, false},
		{Name(1, "0123456789abcde3"), "key", false, false, true},
	} {
		s := must.Get(Open(t.Context(), c.name, o))(t)
		must.Get(s.Hold(t.Context(), c.server, slog.New(slog.DiscardHandler)))(t)
		must.Do(t, s.DropRefusal(t.Context(), "refused"))
		if c.kept {
			must.Do(t, s.Refuse(t.Context(), Refusal{Client: "refused"}, []byte("upload")))
		}
		r := record(strconv.Itoa(i), "1")
		r.Receipt.Server = c.server
		must.Do(t, s.Put(t.Context(), r, 0))
		if c.gone {
			must.Do(t, s.Withdraw(t.Context(), r, Gone{}, nil))
		}
		must.Do(t, s.Close())
		served := must.Get(Open(t.Context(), Name(1, "0123456789abcdef"), o))(t)
		err := served.Alone(t.Context(), 1, "key")
		if c.refused {
			must.Fail(0, err)(t, "has uploads of the client graph "+c.name[len("fmp-1-"):]+", 1 in all: put", c.name)
		} else if err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		must.Do(t, served.Close())
	}
}

// TestPublishTwice: of two versions of one number the first one stays whole, and nothing is left of the
// other; parts of version 0.1.0, which have no digest in their names, are read and kept.
func TestPublishTwice(t *testing.T) {
	s := opened(t, Options{Dir: t.TempDir()})
	ctx := context.WithoutCancel(t.Context())
	for name, data := range map[string]string{"classifier-1.onnx": "old", "classifier-1-rows.onnx": "rows",
		"members-1.json": `[{"client":"o"}]`} {
		must.Do(t, s.PutObject(ctx, name, []byte(data)))
	}
	must.Get(s.versions.Create(ctx, "1", []byte(`{"version":1}`)))(t)
	must.Do(t, s.Publish(ctx, Version{Number: 2}, []byte("first"), []byte("r"), []Member{{Client: "a"}}))
	names := must.Get(s.Objects(ctx))(t)
	must.Fail(0, s.Publish(ctx, Version{Number: 2}, []byte("second"), []byte("s"),
		[]Member{{Client: "b"}}))(t, "version 2")
	must.Do(t, s.DropUnlisted(ctx))
	if now := must.Get(s.Objects(ctx))(t); !slices.Equal(now, names) || len(names) != 6 {
		t.Errorf("objects %v; want %v", now, names)
	}
	for i, want := range []string{"old rows o", "first r a"} {
		c, rows, err := s.Classifier(ctx, i+1)
		must.Do(t, err)
		m := must.Get(s.Members(ctx, i+1))(t)
		if got := fmt.Sprint(string(c), " ", string(rows), " ", m[0].Client); got != want {
			t.Errorf("version %s: %s; want %s", strconv.Itoa(i+1), got, want)
		}
	}
}

package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"fmp/onnx/must"
	"fmp/pipeline/federate/selfsigned"
	"fmp/pipeline/federate/wire"
)

func record(client, upload string) *Record {
	return &Record{Receipt: wire.Receipt{Client: client, Upload: upload, Time: time.Unix(1, 2).UTC()},
		Signature: []byte("s"), N: 3, Data: []byte("line one\nline two " + upload)}
}

// opened opens a state, and closes it at the end of the test.
func opened(t *testing.T, o Options) *Store {
	t.Helper()
	s := must.Get(Open(t.Context(), "fmp-1", o))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// TestStore: a record is there once, whole, after a restart too; a second one of the client is
// refused unless it says which one it replaces; two programs do not share a folder.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "probe.tmp") // by a server that was killed
	must.Do(t, os.WriteFile(left, nil, 0o600))
	s := opened(t, Options{Dir: dir})
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is there: %v", left, err)
	}
	if _, err := Open(t.Context(), "fmp-1", Options{Dir: dir}); !errors.Is(err, ErrBusy) {
		t.Errorf("a second program in the folder: %v", err)
	}
	a := record("a / ü", "1")
	must.Do(t, s.Put(t.Context(), a, 0))
	if err := s.Put(t.Context(), record("a / ü", "2"), 0); !errors.Is(err, ErrTaken) {
		t.Errorf("a second one: %v", err)
	}
	must.Do(t, s.Put(t.Context(), record("a / ü", "3"), a.Revision))
	if err := s.Put(t.Context(), record("a / ü", "4"), a.Revision); !errors.Is(err, ErrTaken) {
		t.Errorf("in place of one that is no longer there: %v", err)
	}
	if _, err := s.Get(t.Context(), "b"); !errors.Is(err, ErrNone) {
		t.Errorf("nobody's: %v", err)
	}
	must.Do(t, s.Publish(t.Context(), Version{Number: 1}, []byte("classifier"), nil,
		[]Member{{Client: "a / ü", Honest: 0.5}}))
	s.Close()
	s = opened(t, Options{Dir: dir})
	got, err := s.Get(t.Context(), "a / ü")
	if want := record("a / ü", "3"); err != nil || string(got.Data) != string(want.Data) ||
		got.Receipt != want.Receipt || got.N != 3 ||
		string(got.Signature) != "s" {
		t.Errorf("after a restart: %+v, %v", got, err)
	}
	v, err := s.Versions(t.Context())
	if err != nil || len(v) != 1 {
		t.Errorf("versions %v, %v", v, err)
	}
	if c, rows, err := s.Classifier(t.Context(), 1); err != nil ||
		string(c) != "classifier" || rows != nil {
		t.Errorf("classifier %s, %s, %v", c, rows, err)
	}
	if m, err := s.Members(t.Context(), 1); err != nil || len(m) != 1 || m[0].Honest != 0.5 {
		t.Errorf("members %v, %v", m, err)
	}
}

// TestLasting: a failed write is a lasting fault at once; another one, such as a stream that is
// being created, only after a while.
func TestLasting(t *testing.T) {
	const write, other = "JetStream stream '$G > S' write error: no space left on device",
		"JetStream stream '$G > S' could not be recovered"
	for _, c := range []struct {
		fault string
		since time.Duration
		want  bool
	}{{"", time.Hour, false}, {write, 0, true}, {other, time.Second, false},
		{other, 2 * patienceNATS, true}} {
		if got := lasting(c.fault, c.since); got != c.want {
			t.Errorf("%q for %v: %v", c.fault, c.since, got)
		}
	}
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"nats://n1:4222":                           "nats://n1:4222",
		"nats://user:secret@n1:4222":               "nats://***@n1:4222",
		"tls://secret@n1:4222,nats://n2,x:y@n3:42": "tls://***@n1:4222,nats://n2,***@n3:42",
	} {
		if got := Redact(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// FuzzRecord: what is read back is what was written, and nothing else is read.
func FuzzRecord(f *testing.F) {
	f.Add([]byte("{}\n"))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		// a receipt has some hundred bytes; longer strings and messages take the fuzzer's time
		if len(data) > 1<<12 {
			t.Skip()
		}
		if _, err := decodeRecord(data); err != nil {
			return
		}
		r := record("a", "b")
		r.Data = data
		value := must.Get(r.encode())(t)
		if again, err := decodeRecord(value); err != nil || string(again.Data) != string(data) {
			t.Fatalf("%v", err)
		}
	})
}

func TestEncrypted(t *testing.T) {
	for urls, want := range map[string]bool{
		"nats://127.0.0.1:4222": false, "127.0.0.1": false, "localhost:4222": false,
		"nats://[::1]:4222,nats://127.0.0.1": false,
		"ws://127.0.0.1:80":                  false,
		"nats://n1:4222":                     true, "n1": true, "nats://127.example.invalid:4222": true,
		"nats://127.0.0.1,nats://n2": true,
		"tls://127.0.0.1":            true,
		"wss://127.0.0.1":            true, "nats://10.0.0.1:4222": true,
		"nats://127.0.0.1:port": true, "": true,
	} {
		if got := encrypted(urls); got != want {
			t.Errorf("%q: %v, want %v", urls, got, want)
		}
	}
}

// natsOn runs a NATS server, with TLS if a certificate is given.
func natsOn(t *testing.T, o natsserver.Options) *natsserver.Server {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.NoLog = "127.0.0.1", -1, true, true
	s := must.Get(natsserver.NewServer(&o))(t)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server is not ready")
	}
	return s
}

func portOf(s *natsserver.Server) int { return s.Addr().(*net.TCPAddr).Port }

// external runs a NATS server that keeps states, and returns how it is reached.
func external(t *testing.T) Options {
	t.Helper()
	return Options{URL: natsOn(t, natsserver.Options{JetStream: true, StoreDir: t.TempDir()}).ClientURL()}
}

// TestPlainNATS: a server that has no TLS gets nothing from a client that takes it for another
// machine, nor from one told to use TLS; a server with TLS is spoken to.
func TestPlainNATS(t *testing.T) {
	plain := natsOn(t, natsserver.Options{})
	conn := must.Get(Connect(Options{URL: plain.ClientURL()}, "test"))(t)
	conn.Close()
	// No name of another machine resolves here: an unspecified address is not loopback by its
	// number and reaches this machine.
	for _, url := range []string{"nats://0.0.0.0:%d", "tls://127.0.0.1:%d"} {
		must.Fail(Connect(Options{URL: fmt.Sprintf(url, portOf(plain)), Token: "secret"}, "test"))(
			t, "must have TLS", url)
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key")
	must.Do(t, selfsigned.Ensure(cert, key, time.Now()))
	pair := must.Get(tls.LoadX509KeyPair(cert, key))(t)
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	secure := portOf(natsOn(t, natsserver.Options{TLS: true,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}))
	conn = must.Get(Connect(Options{URL: fmt.Sprintf("nats://localhost:%d,tls://127.0.0.1:%d", secure,
		secure), CA: cert}, "test"))(t)
	defer conn.Close()
	must.Get(conn.TLSConnectionState())(t)
}

// TestDiscovered: servers that one on loopback names are not connected to without TLS.
func TestDiscovered(t *testing.T) {
	port := portOf(natsOn(t, natsserver.Options{ClientAdvertise: "192.0.2.1:4222"}))
	conn := must.Get(Connect(Options{URL: fmt.Sprintf("nats://127.0.0.1:%d", port)}, "test"))(t)
	defer conn.Close()
	if found := conn.DiscoveredServers(); len(found) != 0 || len(conn.Servers()) != 1 {
		t.Errorf("servers %v, discovered %v", conn.Servers(), found)
	}
	must.Fail((dialer{}).Dial("tcp", "192.0.2.1:4222"))(t, "not loopback")
}

// TestCredentials: credentials that other users can read are refused before a server is spoken to.
func TestCredentials(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fmp.creds")
	must.Do(t, os.WriteFile(path, []byte("x"), 0o644))
	_, err := Connect(Options{URL: "nats://127.0.0.1:1", Credentials: path}, "test")
	if err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) ||
		strings.Contains(err.Error(), nats.ErrNoServers.Error()) {
		t.Error(err)
	}
}

// TestObjectTime: a read of an object that the servers no longer answer ends by itself, however
// long its context lasts. Objects that are larger than asked for are not read.
func TestObjectTime(t *testing.T) {
	t.Parallel()
	in := natsOn(t, natsserver.Options{JetStream: true, StoreDir: t.TempDir()})
	s := opened(t, Options{URL: in.ClientURL()})
	must.Do(t, s.PutObject(t.Context(), "a", make([]byte, 1000)))
	if data, err := s.Object(t.Context(), "a", 1000); err != nil || len(data) != 1000 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	must.Fail(s.Object(t.Context(), "a", 999))(t, "at most 999", "1,000 bytes where 999 are asked for")
	if testing.Short() {
		return
	}
	in.Shutdown()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if _, err := s.Object(ctx, "a", 1000); err == nil || ctx.Err() != nil {
		t.Errorf("of a server that is gone: %v", err)
	}
}

// TestMaxPayload: servers that cannot take the largest upload in one message are refused at the start, and
// others store it with a long head.
func TestMaxPayload(t *testing.T) {
	const largest = 2 << 20
	for payload, want := range map[int32]string{0: "max_payload", largest + headBytes - 1: "bounds.bytes",
		largest + headBytes: ""} {
		o := Options{Largest: largest, URL: natsOn(t, natsserver.Options{JetStream: true, StoreDir: t.TempDir(),
			MaxPayload: payload}).ClientURL()}
		s, err := Open(t.Context(), "test", o)
		if want != "" {
			must.Fail(s, err)(t, want, payload)
			continue
		}
		must.Do(t, err)
		defer s.Close()
		must.Do(t, s.Put(t.Context(), &Record{Receipt: wire.Receipt{Client: "a"}, Peer: make([]byte, 24<<10),
			Replaced: slices.Repeat([]string{strings.Repeat("0", 64)}, 400), Data: make([]byte, largest)}, 0))
	}
}

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

// TestUnplaced: a bucket that servers have no peers for yet is asked for again, and nothing else.
func TestUnplaced(t *testing.T) {
	s := &Store{name: "fmp"}
	for code, want := range map[jetstream.ErrorCode]bool{10005: true, 10008: false} {
		if got := isUnplaced(s.unopened("uploads", &jetstream.APIError{ErrorCode: code})); got != want {
			t.Errorf("%d: %v", code, got)
		}
	}
	if isUnplaced(nil) {
		t.Error("no error is one")
	}
}

// TestUnopened: where NATS servers do not answer, the error says why that may be, and what helps.
func TestUnopened(t *testing.T) {
	for _, c := range []struct {
		inside *embedded
		err    error
		says   bool
	}{{nil, context.DeadlineExceeded, true}, {nil, ErrNone, false},
		{&embedded{}, context.DeadlineExceeded, false}} {
		s := &Store{name: "fmp-6", inside: c.inside}
		err := s.unopened("uploads", c.err)
		text := err.Error()
		if !errors.Is(err, c.err) || !strings.HasPrefix(text, "store: bucket fmp-6-uploads: ") ||
			strings.Contains(text, "start again once they are ready") != c.says {
			t.Errorf("%v: %s", c, text)
		}
	}
}

// TestEach: all entries come once, though watches fall silent or close; servers that send nothing
// and errors of theirs are errors, and so is the end of the context: a part of the entries does not
// pass for all of them.
func TestEach(t *testing.T) {
	defer func(d time.Duration) { quiet = d }(quiet)
	s := opened(t, Options{Dir: t.TempDir()})
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

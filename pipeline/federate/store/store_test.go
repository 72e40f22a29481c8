package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"fmp/onnx/must"
	"fmp/pipeline/federate/wire"
)

func record(client, upload string) *Record {
	return &Record{Receipt: wire.Receipt{Client: client, Upload: upload, Time: time.Unix(1, 2).UTC()},
		Signature: []byte("s"), N: 3, Data: []byte("line one\nline two " + upload)}
}

// TestStore: a record is there once, whole, after a restart too; a second one of the client is
// refused unless it says which one it replaces; two programs do not share a folder.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	s := must.Get(Open(t.Context(), "fmp-1", Options{Dir: dir}))(t)
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
	s = must.Get(Open(t.Context(), "fmp-1", Options{Dir: dir}))(t)
	defer s.Close()
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

// TestCluster: of three servers one dies in the middle of a round; what had been taken is there,
// and more is taken.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("runs three NATS servers")
	}
	ports := make([]int, 6)
	for i := range ports {
		l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
		l.Close()
	}
	var urls, routes []string
	for i := range 3 {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[3+i]))
	}
	var servers []*natsserver.Server
	for i := range 3 {
		o := &natsserver.Options{ServerName: fmt.Sprint("n", i), Host: "127.0.0.1", Port: ports[i],
			JetStream: true, StoreDir: t.TempDir(),
			NoSigs: true, NoLog: true, MaxPayload: maxPayload,
			Cluster: natsserver.ClusterOpts{Name: "fmp", Host: "127.0.0.1", Port: ports[3+i]},
			Routes:  natsserver.RoutesFromStr(strings.Join(routes, ","))}
		s := must.Get(natsserver.NewServer(o))(t)
		s.Start()
		servers = append(servers, s)
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var s *Store
	again := func(what string, do func() error) {
		t.Helper()
		for {
			err := do()
			if err == nil {
				return
			}
			if ctx.Err() != nil {
				t.Fatalf("%s: %v", what, err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	again("opening", func() (err error) {
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		s, err = Open(within, "fmp-1", Options{URL: strings.Join(urls, ","), Replicas: 3})
		return err
	})
	defer s.Close()
	const n = 20
	for i := range n {
		if i == n/2 {
			servers[0].Shutdown()
		}
		r := record(fmt.Sprint("client ", i), fmt.Sprint(i))
		again("putting", func() error {
			within, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			err := s.Put(within, r, 0)
			if errors.Is(err, ErrTaken) { // kept by an attempt whose reply was lost
				return nil
			}
			return err
		})
	}
	in := map[string]bool{}
	for r, err := range s.Records(ctx) {
		must.Do(t, err)
		in[r.Receipt.Client] = true
	}
	if len(in) != n {
		t.Errorf("%d of %d records are there", len(in), n)
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

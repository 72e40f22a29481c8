package work

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"fmp/models"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/service"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/point"
	"fmp/pipeline/pool"
)

const token = "a token of the test's own"

// open starts a server that lets workers in, with two uploads.
func open(t *testing.T, graph []byte) (*store.Store, string, []pool.Upload) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	st, err := store.Open(t.Context(), "fmp-test", store.Options{Dir: t.TempDir(), Listen: address, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	var uploads []pool.Upload
	for _, name := range []string{"a", "b"} {
		s := point.New(1, 2, 2)
		s.Z[2] = 1
		u := &federate.Upload{Round: 1, Client: name, Model: models.DigestBytes(graph), N: 1, Points: s}
		data, err := u.Encode()
		if err != nil {
			t.Fatal(err)
		}
		digest := models.DigestBytes(data)
		if err := st.Put(t.Context(), &store.Record{Receipt: wire.Receipt{Client: name, Upload: digest}, Data: data}, 0); err != nil {
			t.Fatal(err)
		}
		uploads = append(uploads, pool.Upload{Upload: u, Digest: digest})
	}
	return st, "nats://" + address, uploads
}

func connect(t *testing.T, url string) *Worker {
	t.Helper()
	conn, err := store.Connect(store.Options{URL: url, Token: token}, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return &Worker{Conn: conn, Log: slog.New(slog.DiscardHandler)}
}

// describe is a pooling whose result says what it was given.
func describe(_ context.Context, uploads []pool.Upload, graph, predictor []byte, o pool.Options) (*service.Pooled, error) {
	var text strings.Builder
	for _, u := range uploads {
		fmt.Fprintln(&text, u.Client, u.Digest, u.Points.Z)
	}
	fmt.Fprintf(&text, "%s %s %+v", graph, predictor, o)
	return &service.Pooled{Classifier: []byte(text.String()), Honest: []float64{0.25, 1}, Summary: map[string]int{"samples": o.Samples}}, nil
}

// TestRedelivered: the job of a worker that dies goes to another, whose result is what the server itself would make; a job that
// cannot be done says why, and may be asked for again.
func TestRedelivered(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until a worker has been silent")
	}
	graph, predictor := []byte("graph"), []byte("predictor")
	st, url, uploads := open(t, graph)
	o := pool.Options{Samples: 7, Seed: 3, Predictor: "/a/place/of/the/server.onnx", Threads: 5}
	q, err := NewQueue(t.Context(), st, 1, graph, predictor, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	taken := make(chan struct{})
	dying := connect(t, url)
	dying.Pool = func(ctx context.Context, _ []pool.Upload, _, _ []byte, _ pool.Options) (*service.Pooled, error) {
		close(taken)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	go func() { _ = dying.Run(ctx, 1) }()
	type answer struct {
		made *service.Pooled
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		made, err := q.Pool(ctx, uploads)
		answers <- answer{made, err}
	}()
	<-taken
	dying.Conn.Close() // as kill -9 would
	start := time.Now()
	living := connect(t, url)
	living.Pool = describe
	go func() { _ = living.Run(ctx, 1) }()
	select {
	case a := <-answers:
		o.Predictor, o.Threads = "", 0
		want, _ := describe(ctx, uploads, graph, predictor, o)
		if a.err != nil || !bytes.Equal(a.made.Classifier, want.Classifier) || a.made.Honest[0] != 0.25 {
			t.Errorf("%v: made %s; want %s", a.err, a.made.Classifier, want.Classifier)
		}
		t.Logf("done by another after %v", time.Since(start))
	case <-time.After(60 * time.Second):
		t.Fatal("the job was not done")
	}
	if again, err := q.Pool(ctx, uploads); err != nil || len(again.Classifier) == 0 {
		t.Errorf("the same job again: %v", err)
	}
	failing := true
	living.Pool = func(ctx context.Context, u []pool.Upload, g, p []byte, o pool.Options) (*service.Pooled, error) {
		if failing {
			failing = false
			return nil, errors.New("cannot be done")
		}
		return describe(ctx, u, g, p, o)
	}
	if _, err := q.Pool(ctx, uploads[:1]); err == nil || !strings.Contains(err.Error(), "cannot be done") {
		t.Errorf("a job that fails: %v", err)
	}
}

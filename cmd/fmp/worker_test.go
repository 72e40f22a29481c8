package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/federate/work"
	"fmp/pipeline/point"
	"fmp/pipeline/pool"
	"fmp/pipeline/posterior"
	"fmp/pipeline/shipped"
)

// TestWorkersOpen: of classes that the corpus lacks, workers sample the open form with the
// predictor of the program and with a round's own, chains of who is honest among the jobs; the
// classifiers are byte for byte those of one process.
func TestWorkersOpen(t *testing.T) {
	const clients = 12 // more than honesty.Exact: chains propose who is honest
	g, f := assetstest.Load(t, "digits", models.KindClient)
	f.Classes = append(slices.Clone(f.Classes[:9]), "nine")
	predictor, _ := must.Get2(shipped.Open(f))(t)
	own := saved(t)(predictor, nil)
	file := read(t, own)
	o := store.Options{Dir: t.TempDir(), Listen: freeAddress(t), Token: "a token of the test's own"}
	st := must.Get(store.Open(t.Context(), "fmp-test", o))(t)
	t.Cleanup(func() { st.Close() })
	var uploads []pool.Upload
	for m := range clients {
		name := fmt.Sprintf("client-%02d", m)
		s := point.New(f.S, f.Dx, f.C)
		for c := range f.S { // class means of new classes, in places of their own
			row := s.Row(c)
			rng.Normal(rng.New(1, "class", c), row[:f.Dx])
			noise := make([]float32, f.Dx)
			rng.Normal(rng.New(1, name, c), noise)
			for j := range f.Dx {
				row[j] = 0.2*row[j] + 0.1*noise[j]
			}
			row[f.Dx+c%f.C], s.W[c] = 1, 2
		}
		u := &federate.Upload{Round: 1, Client: name, Model: f.Digest, N: 2 * f.S, Points: s}
		data := must.Get(u.Encode())(t)
		digest := models.DigestBytes(data)
		must.Do(t, st.Put(t.Context(),
			&store.Record{Receipt: wire.Receipt{Client: name, Upload: digest}, Data: data},
			0))
		uploads = append(uploads, pool.Upload{Upload: u, Digest: digest})
	}
	open := func() engine.Engine {
		e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
		t.Cleanup(func() { e.Close() })
		return e
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		o := store.Options{URL: "nats://" + o.Listen, Token: o.Token}
		conn := must.Get(store.Connect(o, "test"))(t)
		t.Cleanup(conn.Close)
		eng := open()
		w := &work.Worker{Conn: conn, Log: slog.New(slog.DiscardHandler),
			Open: func(uploads []pool.Upload, m work.Models, o pool.Options) (work.Sampler, error) {
				o.Threads = 1
				return openSampling(eng, uploads, m, o)
			}}
		go func() { _ = w.Run(ctx, 1) }()
	}
	for name, c := range map[string]struct {
		path string
		data []byte
	}{"the program's": {}, "the round's own": {own, file}} {
		p := &pooling{graph: g, client: f, eng: open(),
			options: pool.Options{Open: c.path, Scope: posterior.ScopeOpen, Samples: 25, Seed: 3}}
		alone := must.Get(p.pool(ctx, uploads))(t)
		if s := alone.Summary.(summary); s.Scope != posterior.ScopeOpen || s.Unknown != "nine" || s.Samples != 25 ||
			len(alone.Honest) != clients {
			t.Fatalf("%s: summary %+v, P(honest) %v", name, s, alone.Honest)
		}
		p.queue = must.Get(work.NewQueue(ctx, st, 1,
			work.Models{Graph: assetstest.Data(t, "digits", models.KindClient), Open: c.data},
			p.options))(t)
		spread := must.Get(p.pool(ctx, uploads))(t)
		if !bytes.Equal(alone.Classifier, spread.Classifier) || !bytes.Equal(alone.Rows, spread.Rows) {
			t.Errorf("%s: the classifier that workers sampled is not that of one process", name)
		}
	}
}

// TestAway: a worker waits for servers that are not there, and for those that end while it is let
// in; not where it is refused.
func TestAway(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	go func() { // resets what connects to it
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			_, _ = c.Write([]byte("INFO {}\r\n"))
			c.Close()
		}
	}()
	for range 20 {
		if _, err := store.Connect(store.Options{URL: "nats://" + l.Addr().String()}, "test"); !away(err) {
			t.Errorf("%T %v", err, err)
		}
	}
	l.Close()
	if _, err := store.Connect(store.Options{URL: "nats://" + l.Addr().String()}, "test"); !away(err) {
		t.Errorf("%T %v", err, err)
	}
	if away(nats.ErrAuthorization) || away(nil) {
		t.Error("a worker waits where it is refused or let in")
	}
}

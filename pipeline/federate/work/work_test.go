package work

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/honesty"
	"fmp/pipeline/option"
	"fmp/pipeline/point"
	"fmp/pipeline/pool"
	"fmp/pipeline/posterior"
)

const token = "a token of the test's own"

func freeAddress(t *testing.T) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().String()
}

func openAt(t *testing.T, address string) *store.Store {
	t.Helper()
	st := must.Get(store.Open(t.Context(), "fmp-test",
		store.Options{Dir: t.TempDir(), Listen: address, Token: token}))(t)
	t.Cleanup(func() { st.Close() })
	return st
}

// open starts a server that lets workers in, with two uploads.
func open(t *testing.T, graph []byte) (*store.Store, string, []pool.Upload) {
	t.Helper()
	address := freeAddress(t)
	st := openAt(t, address)
	var uploads []pool.Upload
	for _, name := range []string{"a", "b"} {
		s := point.New(1, 2, 2)
		s.Z[2] = 1
		u := &federate.Upload{Round: 1, Client: name, Model: models.DigestBytes(graph), N: 1, Points: s}
		data := must.Get(u.Encode())(t)
		digest := models.DigestBytes(data)
		must.Do(t, st.Put(t.Context(),
			&store.Record{Receipt: wire.Receipt{Client: name, Upload: digest}, Data: data}, 0))
		uploads = append(uploads, pool.Upload{Upload: u, Digest: digest})
	}
	return st, "nats://" + address, uploads
}

func connect(t *testing.T, url string) *Worker {
	t.Helper()
	conn := must.Get(store.Connect(store.Options{URL: url, Token: token}, "test"))(t)
	t.Cleanup(conn.Close)
	return &Worker{Conn: conn, Log: slog.New(slog.DiscardHandler)}
}

// repeated is an experiment whose run is its settings.
func repeated(_ context.Context, settings []byte) (map[string][]byte, error) {
	return map[string][]byte{"run.json": settings}, nil
}

// sampler says in its pieces what it was given.
type sampler struct {
	given string
	do    func(ctx context.Context) error
}

func (s *sampler) Do(ctx context.Context, p pool.SampleRange) (*pool.Piece, error) {
	if err := s.do(ctx); err != nil {
		return nil, err
	}
	w := make([]float64, p.To-p.From)
	for i := range w {
		w[i] = float64(p.From+i) + p.States.P[0]
	}
	return &pool.Piece{Heads: posterior.Ensemble{{D: 1, C: len(w), W: w}}}, nil
}

func (*sampler) Close() {}

// TestRedelivered: of a sampling's jobs the one of a worker that dies goes to another, and pieces
// come in the order of the parts; a job that cannot be done says why, and may be asked for again.
func TestRedelivered(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until a worker has been silent")
	}
	graph, predictor := []byte("graph"), []byte("predictor")
	st, url, uploads := open(t, graph)
	o := option.Default[pool.Options]()
	o.Predictor, o.Open, o.Anchor, o.Threads = "/a/place/of/the/server.onnx", "/another.onnx", "none", 5
	o.Groups = strings.Repeat("<", 64<<10) // six bytes each where they are escaped
	q := must.Get(NewQueue(t.Context(), st, 1, Models{graph, predictor, []byte("open"), []byte("anchor")},
		o))(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var opened []string
	work := func(do func(context.Context) error) *Worker {
		w := connect(t, url)
		w.Open = func(uploads []pool.Upload, m Models, o pool.Options) (Sampler, error) {
			given := fmt.Sprintf("%s %s %s %s", uploads[0].Client, uploads[1].Digest, m, must.Get(json.Marshal(o))(t))
			mu.Lock()
			opened = append(opened, given)
			mu.Unlock()
			return &sampler{given, do}, nil
		}
		go func() { _ = w.Run(ctx, 1) }()
		return w
	}
	// nobody's, and another release's; workers go on
	for _, text := range []string{"gob", `{"format":2,"id":"","store":"fmp-test"}`, `{"format":1}`} {
		must.Get(q.js.Publish(ctx, subject, []byte(text)))(t)
	}
	taken := make(chan struct{})
	dying := work(func(ctx context.Context) error {
		close(taken)
		<-ctx.Done()
		return ctx.Err()
	})
	type answer struct {
		pieces []*pool.Piece
		err    error
	}
	states := &honesty.States{Honest: [][]bool{{true, true}, {true, false}},
		P: []float64{0.125, 0.875}}
	parts := []pool.SampleRange{{From: 0, To: 3, States: states}, {From: 3, To: 5, States: states},
		{From: 5, To: 7, States: states}}
	answers := make(chan answer, 1)
	go func() {
		made, err := q.Do(ctx, uploads, parts)
		answers <- answer{made, err}
	}()
	<-taken
	dying.Conn.Close() // as kill -9 would
	start := time.Now()
	failing := false
	work(func(context.Context) error {
		if failing {
			failing = false
			return errors.New("cannot be done")
		}
		return nil
	})
	select {
	case a := <-answers:
		if a.err != nil {
			t.Fatal(a.err)
		}
		for i, p := range parts {
			if w := a.pieces[i].Heads[0].W; len(w) != p.To-p.From || w[0] != float64(p.From)+0.125 {
				t.Errorf("piece %d is %v", i, w)
			}
		}
		t.Logf("done by another after %v", time.Since(start))
	case <-time.After(60 * time.Second):
		t.Fatal("the jobs were not done")
	}
	o.Predictor, o.Open, o.Anchor, o.Threads = "", "", "", 0
	want := fmt.Sprintf("a %s {graph predictor open anchor} %s", uploads[1].Digest, must.Get(json.Marshal(o))(t))
	if len(opened) != 2 || opened[0] != want || opened[1] != want { // once a worker, not once a job
		t.Errorf("opened %d times: %.300q; want %.300q by both", len(opened), opened, want)
	}
	if again, err := q.Do(ctx, uploads, parts[:1]); err != nil || len(again) != 1 {
		t.Errorf("the same job again: %v", err)
	}
	failing = true
	must.Fail(q.Do(ctx, uploads, parts[1:2]))(t, "cannot be done", "a job that fails")
	must.Get(q.Do(ctx, uploads, parts[1:2]))(t)
	s := must.Get(q.js.Stream(ctx, stream))(t)
	if n := s.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d jobs are left; want the one of another release", n)
	}
}

// TestUnreadable: an answer that cannot be read is an error that says so, and the job may be asked
// for again; an input that is another's is not done.
func TestUnreadable(t *testing.T) {
	st, url, _ := open(t, []byte("graph"))
	g := must.Get(NewGrid(t.Context(), st))(t)
	job := must.Get(g.Ask(t.Context(), []byte("settings")))(t)
	must.Do(t, st.PutObject(t.Context(), resultName(job.ID), []byte("gob")))
	must.Fail(g.Wait(t.Context(), job))(t, "cannot be read")
	if _, err := g.result(t.Context(), job.ID); !errors.Is(err, store.ErrNone) {
		t.Errorf("the answer is still there: %v", err)
	}
	w := connect(t, url)
	w.Experiment = repeated
	must.Do(t, st.PutObject(t.Context(), job.Input, []byte("other settings")))
	must.Do(t, w.do(t.Context(), job))
	must.Fail(g.Wait(t.Context(), job))(t, "in the store is another")
	job = must.Get(g.Ask(t.Context(), []byte("settings")))(t)
	must.Do(t, w.do(t.Context(), job))
	if files, err := g.Wait(t.Context(), job); err != nil || string(files["run.json"]) != "settings" {
		t.Errorf("files %v, %v", files, err)
	}
}

// TestForgotten: of two programs that wait for one job both get its result, or one is told that it
// was taken; neither waits for ever.
func TestForgotten(t *testing.T) {
	st, url, _ := open(t, []byte("graph"))
	for name, fail := range map[string]error{"done": nil, "failed": errors.New("cannot be done")} {
		g := must.Get(NewGrid(t.Context(), st))(t)
		job := must.Get(g.Ask(t.Context(), []byte(name)))(t)
		must.Get(g.Ask(t.Context(), []byte(name)))(t)
		w := connect(t, url)
		w.Experiment = func(context.Context, []byte) (map[string][]byte, error) {
			return map[string][]byte{"run.json": nil}, fail
		}
		must.Do(t, w.do(t.Context(), job))
		if _, err := g.Wait(t.Context(), job); (err == nil) != (fail == nil) {
			t.Errorf("%s: %v", name, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		must.Fail(g.Wait(ctx, job))(t, "took the result", name)
	}
}

// TestNobodyWaits: a worker that is slow leaves no result of a job whose input was swept, as an upload
// in it may have been withdrawn; nor does a result stay that a worker left before it died.
func TestNobodyWaits(t *testing.T) {
	graph := []byte("graph")
	st, url, _ := open(t, graph)
	q := must.Get(NewQueue(t.Context(), st, 1, Models{Graph: graph}, pool.Options{}))(t)
	for name, of := range map[string]struct {
		before func(result string)
		while  func()
		stays  bool
	}{
		"waited for":      {stays: true},
		"swept meanwhile": {while: func() { must.Do(t, q.Sweep(t.Context())) }},
		"left by the dead": {before: func(result string) {
			must.Do(t, q.Sweep(t.Context()))
			must.Do(t, st.PutObject(t.Context(), result, []byte("left")))
		}},
	} {
		job := must.Get(q.ask(t.Context(), Job{Run: true, Sampling: Sampling{Store: st.Name(),
			Replicas: st.Replicas()}}, []byte(name)))(t)
		if of.before != nil {
			of.before(resultName(job.ID))
		}
		w := connect(t, url)
		w.Experiment = func(context.Context, []byte) (map[string][]byte, error) {
			if of.while != nil {
				of.while()
			}
			return map[string][]byte{"run.json": nil}, nil
		}
		must.Do(t, w.do(t.Context(), job))
		names := must.Get(st.Objects(t.Context()))(t)
		if slices.Contains(names, resultName(job.ID)) != of.stays {
			t.Errorf("%s: the state has %q", name, names)
		}
	}
}

// stalled is a connection that does something before each write.
type stalled struct {
	net.Conn
	before func(data []byte)
}

func (s *stalled) Write(data []byte) (int, error) {
	s.before(data)
	return s.Conn.Write(data)
}

func (s *stalled) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	return &stalled{c, s.before}, err
}

// TestAskedAgain: a job is asked for again, and done by another worker, while a slow one is about to
// delete the result of a job that nobody waited for. The result is there in the end.
func TestAskedAgain(t *testing.T) {
	graph := []byte("graph")
	st, url, _ := open(t, graph)
	q := must.Get(NewQueue(t.Context(), st, 1, Models{Graph: graph}, pool.Options{}))(t)
	for name, due := range map[string]bool{"swept before": true, "swept once it was done": false} {
		ask := func() Job {
			return must.Get(q.ask(t.Context(), Job{Run: true, Sampling: Sampling{Store: st.Name(),
				Replicas: st.Replicas()}}, []byte(name)))(t)
		}
		job := ask()
		names := func(data []byte, object string) bool {
			return bytes.Contains(data, []byte(base64.URLEncoding.EncodeToString([]byte(object))))
		}
		slow, other := connect(t, url), connect(t, url)
		other.Experiment = repeated
		var mu sync.Mutex // a connection writes from goroutines of its own
		slow.Experiment = func(ctx context.Context, settings []byte) (map[string][]byte, error) {
			mu.Lock()
			due = true
			mu.Unlock()
			return repeated(ctx, settings)
		}
		var swept, again bool
		before := func(data []byte) {
			mu.Lock()
			defer mu.Unlock()
			if due && !swept && names(data, job.Input) {
				swept = true
				must.Do(t, q.Sweep(t.Context()))
			} else if swept && !again && names(data, resultName(job.ID)) {
				again = true
				ask()
				must.Do(t, other.do(t.Context(), job))
			}
		}
		slow.Conn = must.Get(nats.Connect(url, nats.Token(token),
			nats.SetCustomDialer(&stalled{before: before})))(t)
		defer slow.Conn.Close()
		must.Do(t, slow.do(t.Context(), job))
		_, err := q.result(t.Context(), job.ID)
		mu.Lock()
		if err != nil || !again {
			t.Errorf("%s: asked again: %v, %v", name, again, err)
		}
		mu.Unlock()
	}
}

// TestQueueLost: a worker outlives its queue, and takes jobs of the one that is made anew.
func TestQueueLost(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until workers have looked for a queue again: seconds")
	}
	for name, lose := range map[string]func(t *testing.T, g *Grid, address string) *Grid{
		"another server at its address": func(t *testing.T, g *Grid, address string) *Grid {
			must.Do(t, g.store.Close())
			return must.Get(NewGrid(t.Context(), openAt(t, address)))(t)
		},
		"the stream": func(t *testing.T, g *Grid, _ string) *Grid {
			must.Do(t, g.js.DeleteStream(t.Context(), stream))
			return must.Get(NewGrid(t.Context(), g.store))(t)
		},
		"the consumer": func(t *testing.T, g *Grid, _ string) *Grid {
			must.Do(t, g.js.DeleteConsumer(t.Context(), stream, consumer))
			return g
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := freeAddress(t)
			g := must.Get(NewGrid(t.Context(), openAt(t, address)))(t)
			w := connect(t, "nats://"+address)
			w.Experiment = repeated
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			go func() { _ = w.Run(ctx, 1) }()
			for _, settings := range []string{"before", "after"} {
				if settings == "after" {
					g = lose(t, g, address)
				}
				job := must.Get(g.Ask(ctx, []byte(settings)))(t)
				if files, err := g.Wait(ctx, job); err != nil || string(files["run.json"]) != settings {
					t.Fatalf("%s: files %q, %v", settings, files, err)
				}
			}
		})
	}
}

// TestJobLost: a job that nobody did, and that is in the queue no more, is sent again. It is an error if
// it is lost again, and none while it waits for a worker. After an error it is done if asked for again.
func TestJobLost(t *testing.T) {
	thrownAway := func(times int) func(context.Context, *Grid, *Worker) error {
		return func(ctx context.Context, g *Grid, w *Worker) error {
			c, err := w.attach(ctx, g.js, 1)
			if err != nil {
				return err
			}
			go func() {
				for range times {
					if m, err := c.Next(); err == nil {
						w.handle(ctx, &newer{m})
					}
				}
			}()
			return nil
		}
	}
	for name, c := range map[string]struct {
		lose   func(ctx context.Context, g *Grid, w *Worker) error
		want   string
		queued uint64
	}{
		"it waits": {func(context.Context, *Grid, *Worker) error { return nil }, "deadline", 1},
		"the queue": {func(ctx context.Context, g *Grid, _ *Worker) error {
			return g.js.DeleteStream(ctx, stream)
		}, "no more", 0},
		"the queue, made anew by others": {func(ctx context.Context, g *Grid, _ *Worker) error {
			if err := g.js.DeleteStream(ctx, stream); err != nil {
				return err
			}
			if _, err := makeStream(ctx, g.js, 1); err != nil {
				return err
			}
			_, err := g.Ask(ctx, []byte("another's"))
			return err
		}, "deadline", 2},
		"a worker of another release, once":  {thrownAway(1), "deadline", 1},
		"a worker of another release, twice": {thrownAway(2), "sent twice", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := freeAddress(t)
			g := must.Get(NewGrid(t.Context(), openAt(t, address)))(t)
			g.look = 200 * time.Millisecond
			w := connect(t, "nats://"+address)
			w.Experiment = repeated
			job := must.Get(g.Ask(t.Context(), []byte(name)))(t)
			must.Do(t, c.lose(t.Context(), g, w))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			must.Fail(g.Wait(ctx, job))(t, c.want)
			jobs := must.Get(makeStream(t.Context(), g.js, 1))(t)
			if n := must.Get(jobs.Info(t.Context()))(t).State.Msgs; n != c.queued {
				t.Errorf("%d jobs are in the queue; want %d", n, c.queued)
			}
			ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			go func() { _ = w.Run(ctx, 1) }()
			if c.want != "deadline" {
				job = must.Get(g.Ask(ctx, []byte(name)))(t)
			}
			must.Get(g.Wait(ctx, job))(t)
		})
	}
}

// TestResultLost: a job whose result was there when it was asked for is sent where result and queue are
// lost then.
func TestResultLost(t *testing.T) {
	address := freeAddress(t)
	g := must.Get(NewGrid(t.Context(), openAt(t, address)))(t)
	g.look = 200 * time.Millisecond
	w := connect(t, "nats://"+address)
	w.Experiment = repeated
	job := must.Get(g.Ask(t.Context(), []byte("x")))(t)
	text := must.Get((answer{Files: map[string][]byte{}}).encode())(t)
	must.Do(t, g.store.PutObject(t.Context(), resultName(job.ID), text))
	must.Do(t, g.js.DeleteStream(t.Context(), stream))
	must.Get(makeStream(t.Context(), g.js, 1))(t)
	job = must.Get(g.Ask(t.Context(), []byte("x")))(t)
	must.Do(t, g.store.DeleteObject(t.Context(), resultName(job.ID)))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() { _ = w.Run(ctx, 1) }()
	must.Get(g.Wait(ctx, job))(t)
}

// newer is a job of another release, whose id is of fields that this one lacks.
type newer struct{ jetstream.Msg }

func (m *newer) Data() []byte {
	return bytes.Replace(m.Msg.Data(), []byte(`"id":"`), []byte(`"id":"0`), 1)
}

// servers stand in for a cluster with a queue of some replicas (0: none), and note those asked for.
type servers struct {
	jetstream.JetStream
	have, asked int
}

func (s *servers) Stream(context.Context, string) (jetstream.Stream, error) {
	if s.have == 0 {
		return nil, jetstream.ErrStreamNotFound
	}
	return queueOf{replicas: s.have}, nil
}

func (s *servers) CreateOrUpdateStream(_ context.Context,
	c jetstream.StreamConfig) (jetstream.Stream, error) {
	s.asked = c.Replicas
	return queueOf{replicas: c.Replicas}, nil
}

type queueOf struct {
	jetstream.Stream
	replicas int
}

func (q queueOf) CachedInfo() *jetstream.StreamInfo {
	return &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: q.replicas}}
}

func (queueOf) CreateOrUpdateConsumer(context.Context,
	jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	return nil, nil
}

// TestReplicas: a worker makes a queue where there is none and changes no other; a server or a grid
// takes no replicas from one.
func TestReplicas(t *testing.T) {
	for _, c := range []struct {
		worker               bool
		have, replicas, want int // 0: nothing is asked for
	}{{true, 0, 3, 3}, {true, 3, 1, 0}, {true, 1, 3, 0}, {false, 0, 3, 3}, {false, 3, 1, 3}, {false, 1, 3, 3}} {
		s := &servers{have: c.have}
		var err error
		if c.worker {
			_, err = (&Worker{}).attach(t.Context(), s, c.replicas)
		} else {
			_, err = makeStream(t.Context(), s, c.replicas)
		}
		if err != nil || s.asked != c.want {
			t.Errorf("%+v: %d replicas are asked for, %v", c, s.asked, err)
		}
	}
}
